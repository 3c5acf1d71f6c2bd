"""`make strength`: every file is measured on its own split, and what is missing is said."""

from dataclasses import replace

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.errors import SettingsError
from attacks.attempts import CPU, labelled_graph
from scripts import load_script

strength = load_script("attack_strength")

LABELLED = labelled_graph()
EDGES = LABELLED.graph.num_edges
SHORT = {"flips_per_gradient": 9, "inner_steps": 5}


def write_traces(folder, solver="implicit", numbers=(0, 1), budget=0.25, name="cora", kind=None):
    settings = {} if kind else {"solver": solver, **SHORT}
    request = AttackRequest(kind=kind or "metattack", settings=settings, budget=budget)
    for planned in plan_attacks(LABELLED, name, request, numbers, CPU):
        path = folder / planned.facts.file_name
        run_attack(planned, PerturbationFile.open(path, planned.facts))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Both solvers of two splits; one of the files is short."""
    folder = tmp_path_factory.mktemp("perturbations")
    write_traces(folder)
    write_traces(folder, "unrolled", [0])
    write_traces(folder, "unrolled", [1], budget=0.1)
    write_traces(folder, kind="random")
    return folder


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """The numbers that a training gives are tested elsewhere: here they tell graphs apart."""
    monkeypatch.setattr(strength, "accuracy", count_edges)
    monkeypatch.setattr(strength, "pr_bcd", lambda labelled, *_: labelled.graph.edge_index.t()[:1])
    monkeypatch.setattr(strength, "load_named", lambda _: LABELLED)


def count_edges(graph, _labelled, split, starts):
    return graph.num_edges + len(split.test) / 1000 + starts / 100_000


def measure(folder, numbers=(0, 1), name="cora"):
    return list(strength.measure(LABELLED, name, numbers, strength.read_traces(folder)))


def test_every_budget_that_a_file_reaches_is_measured(folder):
    scores = measure(folder)
    found = {(score.attack, score.split, score.budget) for score in scores}
    expected = {("clean", split, 0.0) for split in (0, 1)}
    expected |= {("pr-bcd", split, 0.1) for split in (0, 1)}
    expected |= {
        (attack, split, budget)
        for attack in ("implicit", "unrolled", "random")
        for split in (0, 1)
        for budget in (0.05, 0.1, 0.25)
    } - {("unrolled", 1, 0.25)}
    assert found == expected
    assert len(scores) == len(found)
    for score in scores:
        assert score.attack == "pr-bcd" or score.flips == round(score.budget * EDGES)


def test_each_graph_is_the_one_its_file_gives(folder):
    traces = strength.read_traces(folder)
    for number in (0, 1):
        split = strength.make_splits("class-balanced", LABELLED.labels, 3)[number]
        for attack, budget, graph in strength.perturbed(LABELLED, "cora", number, split, traces):
            file = traces.get(("cora", attack, number))
            if attack == "random":  # the flips of the command
                (path,) = folder.glob(f"*-random-*-{number}.safetensors")
                file = PerturbationFile.read(path)
            if file is not None:
                expected = file.apply(LABELLED, budget, features=False)
                assert torch.equal(graph.edge_index, expected.edge_index)
            assert torch.equal(graph.features, LABELLED.graph.features)


def test_what_is_missing_is_named(folder):
    traces = strength.read_traces(folder)
    assert list(strength.missing(["cora", "actor"], range(2), traces)) == [
        "cora, unrolled: the file of split 1 does not reach 25%.",
        "actor, implicit: there is no file for split 0, 1.",
        "actor, unrolled: there is no file for split 0, 1.",
    ]


def test_two_files_for_the_same_split_are_refused(tmp_path):
    write_traces(tmp_path, numbers=[0])
    (path,) = tmp_path.iterdir()
    (tmp_path / "again.safetensors").write_bytes(path.read_bytes())
    with pytest.raises(SettingsError, match="Got two for cora implicit 0"):
        strength.read_traces(tmp_path)


def score(attack, split, accuracy, budget=0.1):
    return strength.Score("cora", attack, budget, 5, split, 3, accuracy)


def test_solvers_are_compared_on_the_splits_of_both():
    scores = [score("implicit", 0, 70), score("implicit", 1, 72), score("implicit", 2, 11)]
    scores += [score("unrolled", 0, 80), score("unrolled", 1, 78), score("unrolled", 3, 99)]
    scores += [score("implicit", 0, 60, 0.25), score("unrolled", 0, 70, 0.25)]
    ((key, test),) = strength.compare(scores).items()
    assert key == ("cora", 0.1)  # one pair, as at 25%, has no spread
    assert test.difference == pytest.approx(-8)
    assert (test.count, test.losses) == (2, 2)


def test_scores_survive_the_file(tmp_path):
    path = tmp_path / "new" / "strength.csv"
    assert strength.read_scores(path) == []
    scores = [score("implicit", 0, 70.1234), score("clean", 1, 100 / 3, 0.0)]
    strength.write_scores(path, scores)
    rounded = [*scores[:1], replace(scores[1], accuracy=33.3333)]
    assert strength.read_scores(path) == rounded
    assert path.read_text().splitlines()[0].startswith("# Made by `make strength`")


@pytest.mark.parametrize("line", ["graph,attack\ncora,clean", "\x00"])
def test_a_file_of_another_kind_is_not_replaced(tmp_path, capsys, folder, line):
    out = tmp_path / "strength.csv"
    out.write_text(f"graph,attack,budget\n{line}\n")
    assert strength.main(["--perturbations", str(folder), "--out", str(out)]) == 2
    assert "must be a file of `make strength`" in capsys.readouterr().err
    assert line in out.read_text()


def test_the_command_writes_prints_and_keeps_other_graphs(folder, tmp_path, capsys):
    out = tmp_path / "strength.csv"
    before = [replace(score("clean", 0, 55.0), graph="squirrel"), score("clean", 7, 1.0)]
    strength.write_scores(out, before)
    words = ["--graphs", "cora", "--splits", "2", "--perturbations", str(folder)]
    assert strength.main([*words, "--out", str(out)]) == 0
    scores = strength.read_scores(out)
    assert {score.graph for score in scores} == {"cora", "squirrel"}
    assert {score.split for score in scores} == {0, 1}
    shown = capsys.readouterr()
    assert "Left out: cora, unrolled: the file of split 1 does not reach 25%." in shown.err
    mean = sum(s.accuracy for s in scores if (s.attack, s.budget) == ("implicit", 0.25)) / 2
    assert f"{mean:.1f} ±" in shown.out
    assert "1 to 2" in shown.out  # splits of the unrolled solver, whose file of one is short
    assert "squirrel" not in shown.out
