"""Help, wrong usage and unknown names are answered at once: before anything heavy is imported."""

import subprocess
import sys

import pytest

from .conftest import environment

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
COMMANDS = (
    "train",
    "evaluate",
    "embed",
    "attack",
    "stability",
    "bench",
    "tune",
    "report",
    "theory",
)

PROBE = f"""
import sys
from aspect.cli.main import run
code = run(sys.argv[1:])
print("loaded:", *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def answer(*arguments):
    return subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )


@pytest.mark.parametrize(
    "arguments",
    [[], ["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)],
    ids=" ".join,
)
def test_help_needs_nothing_heavy(arguments):
    done = answer(*arguments)
    assert done.returncode == 0
    assert done.stderr == "loaded:\n"
    assert "aspect" in done.stdout


def test_no_word_at_all_asks_for_help():
    assert answer().stdout == answer("--help").stdout
    assert answer().stdout.startswith("Usage: aspect [OPTIONS] COMMAND [ARGS]...\n\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "koora"], "Did you mean 'cora'?"),
        (["bench", "smok"], "Did you mean 'smoke'?"),
        (["tune", "koora"], "Did you mean 'cora'?"),
        (["report", "no/where.jsonl"], "no/where.jsonl"),
        (["train", "cora", "--method", "aspekt"], "Did you mean 'aspect'?"),
        (["evaluate", "citeser"], "Did you mean 'citeseer'?"),
        (["train", "--methood", "aspect"], "--method"),
        (["trian"], "No such command 'trian'"),
        (["train", "--seed", "-1"], "--seed"),
        (["train", "--seed", "one"], "--seed"),
        (["train", "--features", "colour"], "--features"),
        (["train", "--set", "epochs"], "A setting is given as key=value. Got 'epochs'."),
        (["evaluate"], "Missing argument"),
        (["evaluate", "texas", "--out", "no/such/s.json"], "there is no such file or folder"),
        (["evaluate", "texas", "--overwrite"], "Pass --retrain to replace runs."),
        (["embed", "run"], "--out"),
        (["stability", "run"], "run is not a run's folder."),
        (["stability", "run", "--kind", "gradiant"], "Did you mean 'gradient'?"),
        (["stability", "run", "--budget", "2"], "Budget must be a ratio in (0, 1]. Got 2."),
        (["embed", "run", "--out", "x.xlsx"], ".npy, .parquet, .csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_needs_nothing_heavy(arguments, words):
    done = answer(*arguments)
    error, loaded = done.stderr.splitlines()
    assert done.returncode == 2
    assert done.stdout == ""
    assert error.startswith("Error: ")
    assert words in error
    assert loaded == "loaded:"


def test_importing_the_package_needs_nothing_heavy():
    code = f"import sys, aspect; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout == "[]\n"
