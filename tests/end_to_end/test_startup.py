"""Help, wrong usage and unknown names: one line at once, before anything heavy is imported."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aspect.cli.main import commands
from report.benchmark_records import make_records

from .conftest import environment, snapshot

HEAVY = (
    "torch",
    "numpy",
    "torch_geometric",
    "sklearn",
    "scipy",
    "pyarrow",
    "matplotlib",
    "optuna",
)
HELP = [[], ["--help"], ["--version"], *([one.__name__, "--help"] for one in commands)]

FLIPS = ["--perturbation", "f.safetensors"]
GOOD_ATTACK = ["attack", "cora", "--budget", "0.1", "--split", "0", "--out", "x"]
ONE_FLIP = ["attack", "cora", "--flips", "1"]
SPLIT_0 = ["--split", "0", "--out", "x"]

WRONG = [
    (["trian"], "No such command 'trian'"),
    # train
    (["train", "koora"], "Did you mean 'cora'?"),
    (["train", "cora", "--method", "aspekt"], "Did you mean 'aspect'?"),
    (["train", "--methood", "aspect"], "--method"),
    (["train", "--epochs", "5"], "A setting of the method is given by --set epochs=..."),
    (["train", "--seed", "-1"], "Error: --seed must be greater than or equal to 0. Got '-1'."),
    (["train", "--seed", "one"], "--seed must be a valid integer"),
    (["train", "--features", "colour"], "Error: --features: 'colour' is not one of 'degree', "),
    (["train", "--set", "epochs"], "A setting is given as key=value. Got 'epochs'."),
    (["train", "mixed", "--nodes", "n.csv"], "--nodes belongs to a graph in files of yours"),
    (["train", "cora", "--label", "y"], "--label belongs to a graph in files of yours"),
    (["train", "mixed", "--resume", "--overwrite"], "--resume or --overwrite, one of them"),
    (["train", "--out", "nowhere", "--resume"], "no run to go on with in nowhere"),
    (["train", "mixed", "--budget", "0.1"], "--budget belongs to --perturbation FILE"),
    (["train", "mixed", "--edges-only"], "--edges-only belongs to --perturbation FILE"),
    (["train", "mixed", *FLIPS, "--budget", "0"], "--budget must be greater than 0. Got 0.0"),
    (["train", "mixed", *FLIPS, "--budget", "nan"], "--budget must be a finite number. Got nan"),
    (["train", "mixed", "--perturbation", "missing"], "no perturbation file at 'missing'"),
    (["train", "mixed", "--perturbation", "clean"], "'clean' is a folder"),
    (["train", "mixed", "--perturbation", "whole"], "whole is a run's folder"),
    # evaluate
    (["evaluate"], "Missing argument"),
    (["evaluate", "citeser"], "Did you mean 'citeseer'?"),
    (["evaluate", "texas", "--out", "no/such/s.json"], "there is no such file or folder"),
    (["evaluate", "texas", "--overwrite"], "Pass --retrain to replace runs."),
    (["evaluate", "mixed", "--budget", "0.1"], "belong to --perturbation"),
    (["evaluate", "mixed", "--mode", "evade"], "belong to --perturbation"),
    (["evaluate", "mixed", "--edges-only"], "belong to --perturbation"),
    (["evaluate", "mixed", *FLIPS, "--mode", "magic"], "--mode: 'magic' is not one of"),
    (["evaluate", "mixed", *FLIPS, "--budget", "0.1", "--budget", "2"], "or equal to 1. Got '2'"),
    (["evaluate", "mixed", "--perturbation", "missing"], "file or folder at 'missing'"),
    (["evaluate", "mixed", "--perturbation", "g*.safetensors"], "No file fits the pattern"),
    (["evaluate", "mixed", "--perturbation", "clean"], "holds no perturbation files"),
    (["evaluate", "mixed", "--perturbation", "whole"], "evaluated by: aspect evaluate whole"),
    (["evaluate", "mixed", *FLIPS, "g.safetensors"], "'g.safetensors' is no target"),
    (["evaluate", "mixed", "--config", "poisoned/config.yaml"], "of a training on a perturbed"),
    (["evaluate", "clean", *FLIPS], "clean was trained on the clean graph"),
    (["evaluate", "clean", *FLIPS, "--mode", "poison"], "Pass --mode evade to test it"),
    (["evaluate", "clean", "--mode", "evade"], "belong to --perturbation"),
    (["evaluate", "clean", "--prune", "1"], "--prune must be less than 1. Got '1'"),
    (["evaluate", "clean", "--probe", "ours"], "--probe"),
    (["evaluate", "clean", "--probe", "papers"], "'papers' is not one of 'neutral', 'paper'"),
    (["evaluate", "clean", "--seeds", "2"], "clean is a run"),
    (["evaluate", "empty"], "empty is not a run's folder"),
    (["evaluate", "empty", *FLIPS], "empty is not a run's folder"),
    (["evaluate", "poisoned", *FLIPS], "evaluated on that one alone"),
    (["evaluate", "clean", "poisoned", "--budget", "0.1"], "poisoned was trained on a perturbed"),
    (["evaluate", "poisoned", "--mode", "evade"], "evaluated on that one alone"),
    *(
        (["evaluate", "clean", *options], "belong to a graph. clean is a run")
        for options in (
            ["--nodes", "nodes.csv"],
            ["--directed", "error"],
            ["--seed", "0"],
            ["--seeds", "1"],
            ["--retrain"],
            ["--method", "raw"],
        )
    ),
    # embed and stability
    (["embed", "run"], "--out"),
    (["embed", "run", "--out", "x.xlsx"], ".parquet, .csv, .npy"),
    (["embed", "nofile", "--out", "z.npy"], "no run and no saved model at 'nofile'"),
    (["embed", "run", "--out", "z.npy", "--prune", "nan"], "--prune must be greater"),
    (["embed", "run", "--out", "empty.npy"], "Cannot write 'empty.npy': it is a folder."),
    (["embed", "run", "--out", "z.npy", "--nodes", "n.csv"], "belong to a graph"),
    (["stability", "run"], "run is not a run's folder."),
    (["stability", "run", "--kind", "gradiant"], "Did you mean 'gradient'?"),
    (["stability", "run", "--budget", "0.1,2"], "Budget must be a ratio in (0, 1]. Got 2."),
    (["stability", "run", "--budget", "much"], "--budget must be a valid number"),
    (["stability", "run", "--num-splits", "0"], "--num-splits"),
    (["stability", "whole", "--overwrite"], "--overwrite replaces the file of --out"),
    (["stability", "whole", "--out", "no/where.json"], "there is no such file or folder"),
    (["inspect"], "RUN"),
    (["inspect", "no where"], "Train one with: aspect train --out 'no where'."),
    (["inspect", "nowhere"], "nowhere is not a run's folder. Train one with"),
    # attack
    (["attack", "koora", *GOOD_ATTACK[2:]], "Did you mean 'cora'?"),
    ([*GOOD_ATTACK, "--kind", "metatack"], "Unknown attack 'metatack'. Did you mean 'metattack'?"),
    ([*GOOD_ATTACK, "--solver", "magic"], "must be unrolled or implicit. Got 'magic'"),
    ([*GOOD_ATTACK, "--solver", "implicit", "--kind", "dice"], "--solver belongs to metattack"),
    ([*GOOD_ATTACK, "--solver", "implicit", "--set", "solver=unrolled"], "given twice"),
    ([*GOOD_ATTACK, "--set", "ridge"], "A setting is given as key=value"),
    ([*GOOD_ATTACK, "--nodes", "n.csv"], "--nodes belongs to a graph in files of yours"),
    ([*GOOD_ATTACK, "--flips", "3"], "Pass --budget RATIO or --flips N, one of them. Got both"),
    (["attack", "cora", *SPLIT_0], "one of them. Got neither"),
    (["attack", "cora", "--budget", "0", *SPLIT_0], "--budget must be greater than 0. Got 0.0"),
    (["attack", "cora", "--budget", "nan", *SPLIT_0], "--budget must be a finite number"),
    (["attack", "cora", "--budget", "lots", *SPLIT_0], "--budget"),
    (["attack", "cora", "--flips", "0", *SPLIT_0], "--flips must be greater than 0. Got 0"),
    ([*GOOD_ATTACK, "--all-splits"], "Pass --split K or --all-splits, one of them. Got both"),
    ([*ONE_FLIP, "--split", "-1", "--out", "x"], "--split"),
    ([*GOOD_ATTACK, "--splits", "fair"], "--splits"),
    ([*ONE_FLIP, "--split", "0"], "--out"),
    ([*GOOD_ATTACK, "--resume", "--overwrite"], "--resume or --overwrite, one of them"),
    ([*ONE_FLIP, "--split", "0", "--out", "no/such/x"], "no such file or folder"),
    ([*ONE_FLIP, "--split", "0", "--out", "."], "it is a folder"),
    (["attack", *GOOD_ATTACK[2:]], "Missing argument"),
    # tune
    (["tune"], "Missing argument"),
    (["tune", "koora"], "Did you mean 'cora'?"),
    (["tune", "cora", "--method", "aspect", "--method", "aspekt"], "Did you mean 'aspect'?"),
    (["tune", "cora", "--trials", "0"], "--trials"),
    (["tune", "cora", "--workers", "0"], "--workers"),
    (["tune", "cora", "--seeds", "0"], "--seeds"),
    (["tune", "cora", "--splits", "fair"], "--splits"),
    (["tune", "cora", "--seconds", "-1"], "--seconds"),
    (["tune", "cora", "--set", "epochs"], "A setting is given as key=value"),
    (["tune", "cora", "--nodes", "n.csv"], "--nodes belongs to a graph in files of yours"),
    (["tune", "a.csv", "b.csv", "--nodes", "n"], "Options of reading belong to one graph. Got 2"),
    (["tune", "a/g.npz", "b/g.npz"], "Two searches would share the folder 'g-aspect'"),
    # bench
    (["bench", "smok"], "Unknown plan or file 'smok'. Did you mean 'smoke'?"),
    (["bench", "none.yaml"], "none.yaml"),
    (["bench", "plan.yaml", "--entry", "rwa"], "of the plan 'rwa'. Did you mean 'raw'?"),
    (["bench", "plan.yaml", "--graph", "small"], "Did you mean 'small.npz'?"),
    (["bench", "plan.yaml", "--redo", "rwa"], "of the plan 'rwa'. Did you mean 'raw'?"),
    (["bench", "plan.yaml", "--workers", "0"], "--workers"),
    (["bench", "plan.yaml", "--perturbations", "none"], "must be a folder. There is none at"),
    (["bench", "odd.yaml"], "Unknown setting 'entires'"),
    (["bench", "broken.yaml"], "not valid YAML"),
    (["bench", "vague.yaml"], "metattack must name its solver"),
    # report and the lists
    (["report"], "Missing argument"),
    (["report", "nothing"], "There is no such file or folder: 'nothing'"),
    (["report", "empty"], "It is none of them: 'empty'"),
    (["report", "records.jsonl", "--formats", "png"], "--formats belongs to --figures"),
    (["report", "records.jsonl", "--figures", "f", "--formats", "gif"], "'svg', 'pdf' or 'png'"),
    (["report", "records.jsonl", "--out", "no/such/page.html"], "no such file or folder"),
    (["report", "records.jsonl", "--out", "records.jsonl", "--overwrite"], "one of the inputs"),
    (["report", "records.jsonl", "--tables", "records.jsonl"], "must be a folder"),
    (["report", "damaged.jsonl"], "line 1 is damaged"),
    (["report", "empty.jsonl"], "no records yet"),
    (["methods", "polyglc"], "Unknown method 'polyglc'. Did you mean 'polygcl'? Known: "),
    (["datasets", "--overwrite"], "belong to `datasets add`."),
    (["datasets", "--nodes", "n.csv"], "belong to `datasets add`."),
    (["datasets", "foo"], "'foo' is not one of 'add'."),
    (["theory", "--quik"], "--quick"),
    (["plan", "cora", "--method", "aspekt"], "Did you mean 'aspect'?"),
    (["demo", "--seeds", "0"], "--seeds"),
    # Options that would do nothing are not offered.
    (["datasets", "--seed", "1"], "No such option"),
    (["methods", "--device", "cpu"], "No such option"),
    (["embed", "run", "--out", "z.npy", "--seed", "1"], "No such option"),
    (["report", "records.jsonl", "--seed", "1"], "No such option"),
    (["bench", "smoke", "--seed", "1"], "No such option"),
    (["plan", "cora", "--device", "cpu"], "No such option"),
    (["demo", "--data-dir", "."], "No such option"),
    (["theory", "--data-dir", "."], "No such option"),
]

# Every start takes its time, so that one process answers all.
PROBE = f"""
import contextlib, io, json, sys
from aspect.cli.main import run
answers = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    answers.append((code, out.getvalue(), err.getvalue(), loaded))
print(json.dumps(answers))
"""


def write_files(folder):
    """Runs by their settings alone, one more that looks like one, plans, and records."""
    (folder / "f.safetensors").write_bytes(b"")
    settings = {"clean": "", "poisoned": "perturbation: {file: f.safetensors}\n", "whole": ""}
    for name, more in settings.items():
        (folder / name).mkdir()
        (folder / name / "config.yaml").write_text(f"method: aspect\n{more}")
    (folder / "whole/record.json").write_text("{}")
    (folder / "empty").mkdir()
    (folder / "empty.npy").mkdir()
    plan = "entries: [raw]\ngraphs: [small.npz]\n"
    (folder / "plan.yaml").write_text(plan)
    (folder / "odd.yaml").write_text("entires: [raw]\ngraphs: [mixed]\n")
    (folder / "broken.yaml").write_text("entries: [raw\n")
    (folder / "vague.yaml").write_text(f"{plan}perturbations: [{{kind: metattack}}]\n")
    records = "".join(f"{record.model_dump_json()}\n" for record in make_records())
    (folder / "records.jsonl").write_text(records, encoding="utf-8")
    (folder / "damaged.jsonl").write_text("{}\n")
    (folder / "empty.jsonl").write_text("")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Code, output, errors and heavy modules by the words of a call."""
    folder = tmp_path_factory.mktemp("startup")
    write_files(folder)
    before = snapshot(folder)
    calls = [*HELP, *(arguments for arguments, _ in WRONG)]
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=folder,
        env=environment(),
    )
    assert snapshot(folder) == before, "nothing is written"
    return dict(zip(map(tuple, calls), json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("arguments", HELP, ids=" ".join)
def test_help_needs_nothing_heavy(answers, arguments):
    code, out, err, loaded = answers[tuple(arguments)]
    assert (code, err, loaded) == (0, "", [])
    assert "aspect" in out


def test_no_word_at_all_asks_for_help(answers):
    assert answers[()] == answers[("--help",)]
    assert answers[()][1].startswith("Usage: aspect [OPTIONS] COMMAND [ARGS]...\n\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    WRONG,
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_needs_nothing_heavy(answers, arguments, words):
    code, out, err, loaded = answers[tuple(arguments)]
    assert (code, out, loaded) == (2, "", [])
    (error,) = err.splitlines()
    assert error.startswith("Error: ")
    assert words in error


def test_importing_the_package_needs_nothing_heavy():
    code = f"import sys, aspect; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout == "[]\n"


def written_to(output, *words):
    """Exit code and errors of a call whose answer goes there."""
    done = subprocess.run(
        [sys.executable, "-m", "aspect", *words],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment(),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", [["--help"], ["cluster"], ["cluster", "--json"]])
def test_an_output_that_is_full_is_one_line_and_one_that_is_closed_none(words):
    with Path("/dev/full").open("wb") as full:
        code, said = written_to(full, *words)
    assert code == 1
    assert re.fullmatch(r"Error: Cannot write to standard output: .+\.\n", said)
    reader, writer = os.pipe()
    os.close(reader)
    assert written_to(writer, *words) == (1, "")
    os.close(writer)


@pytest.mark.parametrize(
    ("words", "code"),
    [("cluster --json >&-", 0), ("nosuch 2>&-", 2), ("nosuch --json >&- 2>&-", 2)],
)
def test_output_that_the_shell_closed_swallows_all(words, code):
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m aspect {words}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_an_interrupt_while_the_command_is_imported_is_one_line():
    code = """if True:
        import sys
        class Interrupt:
            def find_spec(self, name, *_):
                if name == "aspect.cli.grammar":
                    raise KeyboardInterrupt
        sys.meta_path.insert(0, Interrupt())
        from aspect.__main__ import main
        main()
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_completion_that_cannot_be_installed_names_the_file(tmp_path):
    (tmp_path / "home").write_text("no folder")
    done = subprocess.run(
        [sys.executable, "-m", "aspect", "--install-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(
            HOME=str(tmp_path / "home"), _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
        ),
    )
    assert done.returncode == 2
    assert re.fullmatch(r"Error: Cannot write '.*home.*': .+\.\n", done.stderr)


WITHOUT_EXTRAS = """
import sys
from pathlib import Path
for name in ("optuna", "matplotlib", "jinja2", "networkx", "tensorboard"):
    sys.modules[name] = None  # as if it were not installed
from aspect.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def without_extras(*words, folder):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *map(str, words)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        check=False,
    )


def test_training_embedding_and_evaluating_need_no_extra(tmp_path):
    small = ["--set", "epochs=1", "--set", "width=8", "--out", "run"]
    for words in (["train", *small], ["embed", "run", "--out", "z.csv"], ["evaluate", "run"]):
        done = without_extras(*words, folder=tmp_path)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [(["tune", "mixed"], "optuna", "tune"), (["demo"], "jinja2|matplotlib", "report")],
)
def test_what_needs_an_extra_says_which(words, package, extra, tmp_path):
    done = without_extras(*words, folder=tmp_path)
    assert done.returncode == 2
    *_, said = done.stderr.strip().splitlines()
    advice = re.escape(f"Install it with: pip install 'aspect-gcl[{extra}]'.")
    assert re.fullmatch(rf"Error: ({package}) is not installed. {advice}", said)
