"""`make perturbations` and the files of record: each is what its name says."""

import inspect
import re
from pathlib import Path

import pytest

from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import AttackRequest, plan_attacks
from aspect.cli.main import commands
from aspect.data.archives import content_sha256
from aspect.data.source import load_named
from aspect.errors import AspectError
from attacks.attempts import CPU, labelled_graph
from scripts import load_script

script = load_script("perturbations")

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "results" / "perturbations").glob("*.safetensors"))


def all_attacks(solvers=("implicit", "unrolled"), graphs=script.GRAPHS):
    return list(script.attacks(solvers, graphs))


def test_files_are_made_and_called_as_by_the_command():
    every = all_attacks()
    assert len({attack.file_name for attack in every}) == len(every) == 2 * 6 * 10
    (function,) = [command for command in commands if command.__name__ == "attack"]
    name, _, *words = every[0].command
    used = {word[2:] for word in words if word.startswith("--")}
    assert (name, used) == ("attack", {"kind", "solver", "budget", "split"})
    assert used <= set(inspect.signature(function).parameters)
    for attack in all_attacks(graphs=["cora"]):
        settings = {"solver": attack.solver}
        request = AttackRequest(settings=settings, budget=0.1)
        (planned,) = plan_attacks(labelled_graph(), attack.graph, request, [attack.split], CPU)
        assert planned.facts.file_name == attack.file_name


def test_a_failure_is_one_sentence_and_ends_the_work(tmp_path, capsys, monkeypatch):
    begun = []

    def fail(attack, *_):
        begun.append(attack)
        raise AspectError(f"{attack.graph} broke")

    monkeypatch.setattr(script, "run", fail)
    words = ["--graph", "cora", "--solver", "implicit", "--workers", "1"]
    assert script.main([*words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "cora broke\n"
    assert len(begun) < len(script.SPLITS)


def test_a_process_that_fails_tells_why(tmp_path):
    with pytest.raises(AspectError, match=r"--split 0: .*abacus"):
        script.run(script.Attack("implicit", "cora", 0), tmp_path, "abacus")


def test_no_workers_are_refused(capsys):
    with pytest.raises(SystemExit):
        script.main(["--workers", "0"])
    assert "1 or more. Got 0." in capsys.readouterr().err


@pytest.mark.data
def test_a_file_is_made_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(script.BUDGETS["implicit"], "cora", 0.004)
    monkeypatch.setattr(script, "SPLITS", range(1))
    words = ["--graph", "cora", "--solver", "implicit", "--out", str(tmp_path / "new")]
    assert script.main(words) == 0
    (path,) = (tmp_path / "new").iterdir()
    before = path.stat().st_mtime_ns
    assert script.main(words) == 0
    assert path.stat().st_mtime_ns == before
    assert len(PerturbationFile.read(path).keys) == 21
    assert capsys.readouterr().out.count("21 flips") == 2


def test_files_of_record_are_what_their_names_say():
    names, wrong = {attack.file_name for attack in all_attacks()}, []
    for path in FILES:
        file = PerturbationFile.read(path)
        facts = file.facts
        count = round(script.BUDGETS[facts.solver][facts.graph.name] * facts.graph.edges)
        if (path.name, facts.file_name, len(file.keys)) != (facts.file_name, path.name, count) or (
            path.name not in names or not facts.complete or facts.seed != 0
        ):
            wrong.append(path.name)
    assert wrong == []


@pytest.mark.data
def test_files_of_record_belong_to_the_data_sets_of_their_names():
    checksums = {name: content_sha256(load_named(name)) for name in script.GRAPHS}
    for path in FILES:
        graph = PerturbationFile.read(path).facts.graph
        assert graph.sha256 == checksums[graph.name], path.name


@pytest.mark.data
@pytest.mark.skipif(not FILES, reason="the files of record are not here")
def test_the_example_of_the_readme_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    text = (ROOT / "results" / "perturbations" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own text
    assert capsys.readouterr().out.startswith("0 unrolled {")
