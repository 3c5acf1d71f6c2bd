"""Perturbation files of a bench: found by name, refused if of something else, made or failed."""

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.metattack import Metattack
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.registry import find_attack
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.archives import read_npz, write_npz
from aspect.data.graph import Graph
from aspect.errors import CheckpointError, GraphError, SettingsError
from aspect.experiment.perturbations import (
    BenchFiles,
    make_file,
)
from aspect.experiment.plan import read_facts
from aspect.experiment.run import forget_graphs
from experiment.attacked import IMPLICIT, Inline, Prepared, attacked_plan, write_graph
from experiment.grids import metattack_files

DICE = {"kind": "dice", "budgets": [0.1, 0.2]}  # drawn, hence quick
RIDGE = {"solver": "implicit", "ridge": 0.1}
FLIPS = {"solver": "implicit", "flips_per_gradient": 3}
UNROLLED = {"solver": "unrolled", "inner_steps": 2}


@pytest.fixture
def path(tmp_path):
    return write_graph(tmp_path / "small.npz")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def given(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    return folder


def attacks_of(plan):
    ((_, facts),) = read_facts(plan, None)
    return [file.facts for file in facts.files]


def test_one_attack_serves_all_budgets_and_modes(path):
    plan = attacked_plan(
        path,
        "none",
        {"kind": "random", "budgets": [0.5]},
        {**IMPLICIT, "budgets": [0.2, 0.05]},
        {**IMPLICIT, "mode": "evade", "features": False, "budgets": [0.1]},
        {"kind": "dice"},
        num_splits=1,
    )
    edges = read_npz(path).graph.num_edges
    assert {(facts.kind, facts.wanted) for facts in attacks_of(plan)} == {
        ("metattack", round(0.2 * edges)),
        ("dice", round(0.1 * edges)),
    }


def test_an_attack_that_is_not_nested_has_a_file_for_every_budget(path):
    plan = attacked_plan(path, {"kind": "pr-bcd", "budgets": [0.1, 0.2]}, num_splits=1)
    ((_, facts),) = read_facts(plan, None)
    assert [file.slot.budget for file in facts.files] == [0.1, 0.2]
    assert len({file.slot for file in facts.files}) == 2
    assert len({file.facts.file_name for file in facts.files}) == 2


def test_an_attack_is_wanted_for_every_split_that_the_plan_takes(path):
    labelled = read_npz(path)
    attacks = attacks_of(attacked_plan(path, {**IMPLICIT, "budgets": [0.1, 0.3]}, num_splits=3))
    assert [each.split for each in attacks] == [0, 1, 2]
    assert {each.wanted for each in attacks} == {round(0.3 * labelled.graph.num_edges)}
    config = find_attack("metattack").settle({"solver": "implicit"}, labelled.graph)
    settings = config.model_dump(mode="json", exclude={"solver"})
    assert {each.solver for each in attacks} == {"implicit"}
    assert all(each.settings == settings for each in attacks)


def test_no_attack_no_files(path):
    assert attacks_of(attacked_plan(path, "none", {"kind": "random"})) == []


def test_the_attack_that_facts_describe_can_be_run(path):
    labelled = read_npz(path)
    ((_, facts),) = read_facts(attacked_plan(path, IMPLICIT, {"kind": "dice"}), None)
    for need in facts.files:
        assert need.plan_attack(labelled).facts == need.facts


def test_graphs_of_one_name_have_files_of_their_own(tmp_path):
    paths = []
    for seed, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        paths.append(write_graph(tmp_path / folder / "g.npz", seed=seed))
    plan = attacked_plan(paths[0], IMPLICIT, graphs=[*map(str, paths)], num_splits=1)
    names = [facts.files[0].facts.file_name for _, facts in read_facts(plan, None)]
    assert len(set(names)) == 2
    assert all(name.startswith("g-") for name in names)
    ((_, part),) = read_facts(plan, None, [str(paths[1])])
    assert part.files[0].facts.file_name == names[1], "a part of the plan finds the same file"


def test_a_budget_that_flips_nothing_is_refused_beforehand(path):
    with pytest.raises(GraphError, match=r"small\.npz' cannot be attacked\. .*allows no flip"):
        attacks_of(attacked_plan(path, {**IMPLICIT, "budgets": [0.001, 0.1]}))


def test_a_graph_without_edges_is_refused_beforehand(tmp_path):
    path = write_graph(tmp_path / "bare.npz")
    labelled = read_npz(path)
    bare = Graph(labelled.graph.features, torch.empty((2, 0), dtype=torch.long))
    write_npz(path, type(labelled)(bare, labelled.labels, labelled.class_names), overwrite=True)
    with pytest.raises(GraphError, match=r"cannot be attacked\. An attack needs edges"):
        attacks_of(attacked_plan(path, IMPLICIT))


def attack(path, folder, split=0, name=None, budget=0.2, **request):
    """What `aspect attack` would write."""
    values = {"kind": "dice", "splits": "random", **request}
    wanted = AttackRequest(budget=budget, **values)
    (planned,) = plan_attacks(read_npz(path), "small", wanted, [split], torch.device("cpu"))
    file = folder / (name or planned.facts.file_name)
    return run_attack(planned, PerturbationFile.open(file, planned.facts, overwrite=True))


def names(files):
    return [each.facts.file_name for each in files]


def test_files_are_found_by_the_name_that_attack_gives_them(path, given, tmp_path):
    traces = [attack(path, given, split) for split in (0, 1)]
    found = Prepared(attacked_plan(path, DICE), tmp_path / "out", given)
    assert found.missing == []
    assert [each.path for each in found.files.files.values()] == sorted(given.iterdir())
    for trace, file in zip(traces, found.files.files.values(), strict=True):
        assert file.digest(0.2) == trace.digest(0.2)
    assert not (tmp_path / "out").exists(), "nothing is written"


def test_longer_files_serve_smaller_budgets_with_the_same_digest(path, given, tmp_path):
    attack(path, given, budget=0.5)
    longer = Prepared(attacked_plan(path, DICE, num_splits=1), tmp_path / "out", given)
    assert longer.missing == []
    attack(path, given, budget=0.2)
    exact = Prepared(attacked_plan(path, DICE, num_splits=1), tmp_path / "out", given)
    assert longer.cells == exact.cells


def test_what_is_missing_or_too_short_is_left_to_be_made(path, given, tmp_path):
    attack(path, given, split=1, budget=0.1)
    found = Prepared(attacked_plan(path, DICE, num_splits=3), tmp_path / "out", given)
    assert names(found.missing) == [f"small-dice-random-{k}.safetensors" for k in (0, 1, 2)]
    assert found.files.files == {}


def test_the_given_folder_comes_first_and_the_benchs_own_fills_its_gaps(path, given, tmp_path):
    own = tmp_path / "out" / "perturbations"
    own.mkdir(parents=True)
    attack(path, given, split=0)
    for split in (0, 1):
        attack(path, own, split)
    found = Prepared(attacked_plan(path, DICE), tmp_path / "out", given)
    assert [each.path.parent for each in found.files.files.values()] == [given, own]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": RIDGE}, "its setting ridge must be 0.005. Got 0.1."),
        ({"settings": FLIPS}, "its setting flips_per_gradient must be 1. Got 3."),
        ({"settings": UNROLLED}, "its solver must be 'implicit'. Got 'unrolled'."),
        ({"kind": "dice"}, "its kind must be 'metattack'. Got 'dice'."),
        ({"seed": 3}, "its seed must be 0. Got 3."),
        ({"splits": "class-balanced"}, "its splits must be 'random'. Got 'class-balanced'."),
        ({"split": 1}, "its split must be 0. Got 1."),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_files_of_another_attack_are_refused_by_what_differs(path, given, changes, words):
    name = "small-metattack-implicit-random-0.safetensors"
    wanted = {"kind": "metattack", "settings": {"solver": "implicit"}, **changes}
    if wanted["kind"] == "dice":
        del wanted["settings"]
    attack(path, given, name=name, budget=0.01, **wanted)
    with pytest.raises(SettingsError, match="holds another attack than the plan's") as caught:
        Prepared(attacked_plan(path, IMPLICIT), given.parent / "out", given)
    assert words in str(caught.value)
    assert str(caught.value).endswith("with --perturbations, or move the file away.")


def test_files_of_another_graph_are_refused(path, given, tmp_path):
    attack(path, given)
    write_graph(path, seed=1)
    with pytest.raises(GraphError, match=r"belongs to another graph than .*sha256 must be"):
        Prepared(attacked_plan(path, DICE), tmp_path / "out", given)
    own = tmp_path / "out" / "perturbations"
    own.parent.mkdir()
    given.rename(own)
    with pytest.raises(GraphError, match="Remove it, or choose another --out"):
        Prepared(attacked_plan(path, DICE), tmp_path / "out")


def test_damage_is_named(path, given, tmp_path):
    attack(path, given)
    (file,) = given.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match=r"damaged.*--perturbations"):
        Prepared(attacked_plan(path, DICE), tmp_path / "out", given)


def key(path, given, tmp_path):
    plan = attacked_plan(path, {"kind": "dice", "budgets": [0.1]}, num_splits=1)
    (cell,) = Prepared(plan, tmp_path / "out", given).cells
    return cell.key


def test_a_key_changes_with_a_flip_and_not_with_the_files_place(path, given, tmp_path):
    trace = attack(path, given)
    first = key(path, given, tmp_path)
    assert key(path, given.rename(tmp_path / "moved"), tmp_path) == first
    (file,) = (tmp_path / "moved").iterdir()
    within = round(0.1 * trace.facts.graph.edges)
    beyond = torch.cat([trace.keys[:within], trace.keys[within:].flip(0)])
    PerturbationFile(trace.facts, beyond).write(file)
    assert key(path, file.parent, tmp_path) == first, "flips beyond the budget do not count"
    turned = torch.cat([trace.keys[:within].flip(0), trace.keys[within:]])
    PerturbationFile(trace.facts, turned).write(file)
    assert key(path, file.parent, tmp_path) != first
    other = trace.facts.model_copy(update={"versions": {"aspect": "9"}, "seconds": 1.0})
    PerturbationFile(other, trace.keys).write(file)
    assert key(path, file.parent, tmp_path) == first


def test_a_cell_of_several_splits_is_known_when_all_files_are():
    evade = Perturbation(kind="metattack", solver="implicit", mode="evade")
    flips = BenchFiles(metattack_files([0]))

    def digests(graph, perturbation, splits):
        return [one.sha256 for one in flips.perturbed(graph, perturbation, splits)]

    assert digests("mixed", evade, (0,)) == ["0 at 0.1"]
    assert digests("mixed", evade, (0, 1)) == []
    flips.files |= metattack_files([1])
    assert digests("mixed", evade, (0, 1)) == ["0 at 0.1", "1 at 0.1"]
    assert digests("other", evade, (0, 1)) == []
    assert digests("mixed", Perturbation(kind="random"), (0,)) == [None]
    assert digests("mixed", None, (0,)) == []


def events(out):
    """What the log says, without the times."""
    lines = (out / "log.txt").read_text().splitlines()
    return [line.split()[1:3] for line in lines if not line.startswith(" ")]


def test_what_is_missing_is_made_and_found_again(path, out):
    prepared = Prepared(attacked_plan(path, DICE), out)
    assert len(prepared.missing) == 2
    last = prepared.attack()[-1]
    assert (last.made, last.files, last.failed, last.running) == (2, 2, 0, 0)
    assert last.flips == last.wanted == sum(need.facts.wanted for need in prepared.needed)
    again = Prepared(attacked_plan(path, DICE), out)
    assert again.missing == []
    assert [cell.key for cell in again.cells] == [cell.key for cell in prepared.cells]
    names = [need.facts.file_name for need in prepared.needed]
    expected = [["attacks", name] for name in names] + [["attacked", name] for name in names]
    assert sorted(events(out)) == sorted(expected)


def test_files_hold_the_flips_of_an_attack_by_hand(path, out):
    prepared = Prepared(attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1), out)
    prepared.attack()
    (wanted,), (found,) = prepared.needed, prepared.files.files.values()
    planned = wanted.plan_attack(read_npz(path))
    expected = run_attack(planned, PerturbationFile.open(out / "other", planned.facts))
    assert torch.equal(found.keys, expected.keys)
    assert found.facts.complete


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def begin(wanted, path, flips):
    """Leave what an attack leaves that was killed after so many flips."""

    def stop(progress):
        if progress.made > flips:
            raise Killed

    planned = wanted.plan_attack(read_npz(wanted.slot.graph))
    file = PerturbationFile.open(path, planned.facts)
    with pytest.raises(Killed):
        run_attack(planned, file, stop, seconds_between_writes=0.0)
    return PerturbationFile.read(path)


def test_an_attack_that_was_killed_goes_on(path, out, monkeypatch):
    plan = attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1)
    (wanted,) = Prepared(plan, out).missing
    partial = begin(wanted, out / "perturbations" / wanted.facts.file_name, flips=2)
    assert (len(partial.keys), partial.facts.complete) == (2, False)
    advance, found = Metattack.advance, []

    def count(attack, most):
        found.append(advance(attack, most))
        return found[-1]

    monkeypatch.setattr(Metattack, "advance", count)
    # The folder is a bench's once its plan is there; a kill leaves both.
    (out / "plan.yaml").write_text("name: toy\nentries: [raw]\ngraphs: [mixed]\n")
    (out / "cells").mkdir()
    prepared = Prepared(plan, out)
    first = prepared.attack()[0]
    assert first.flips == 2, "what is there counts from the beginning"
    assert sum(map(len, found)) == wanted.facts.wanted - 2
    (file,) = prepared.files.files.values()
    assert torch.equal(file.keys[:2], partial.keys)


def test_an_unfinished_attack_of_another_version_begins_anew(path, out):
    plan = attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1)
    (wanted,) = Prepared(plan, out).missing
    file = out / "perturbations" / wanted.facts.file_name
    partial = begin(wanted, file, flips=1)
    older = partial.facts.model_copy(update={"versions": {"aspect": "0"}})
    PerturbationFile(older, partial.keys.flip(0), partial.state).write(file)
    make_file(wanted, file.parent)
    made = PerturbationFile.read(file)
    assert made.facts.complete
    assert made.facts.versions != {"aspect": "0"}


def test_a_file_that_is_too_short_by_now_is_made_anew(path, out):
    shorter = Prepared(attacked_plan(path, {"kind": "dice", "budgets": [0.1]}), out)
    shorter.attack()
    longer = Prepared(attacked_plan(path, DICE), out)
    assert len(longer.missing) == 2
    longer.attack()
    digests = [
        {slot: file.digest(0.1) for slot, file in prepared.files.files.items()}
        for prepared in (shorter, longer)
    ]
    assert digests[0] == digests[1]


def test_an_attack_that_fails_stops_no_other(path, out):
    prepared = Prepared(attacked_plan(path, DICE), out)

    def work(need, folder):
        if need.facts.split == 0:
            raise GraphError("It cannot be attacked.")
        make_file(need, folder)

    last = prepared.attack(work)[-1]
    assert (last.made, last.failed, last.flips) == (1, 1, last.wanted)
    first, second, *_ = prepared.cells
    assert prepared.files.error(first) == "The attack for split 0 failed. It cannot be attacked."
    assert first.spec.perturbation_sha256 is None
    assert prepared.files.error(second) is None
    assert [one.split for one in prepared.perturbed(second)] == [1]
    assert prepared.perturbed(first) == ()
    log = (out / "log.txt").read_text()
    sentence = "attack-failed small-dice-random-0.safetensors It cannot be attacked."
    assert f"{sentence}\n    Traceback" in log


def test_a_second_attempt_of_a_killed_worker_is_the_same_attack(path, out):
    class Twice(Inline):
        def run(self, work, tasks):
            from aspect.experiment.executor import Finished, Started

            for task in tasks:
                yield from (Started(task), Started(task), Finished(task, work(task)))

    news = Prepared(attacked_plan(path, DICE), out).attack(executor=Twice())
    assert [each.running for each in news] == [1, 1, 0, 1, 1, 0]
    assert news[-1].made == 2


def test_the_largest_attack_comes_first_and_the_pace_tells_the_time(path, tmp_path, out):
    large = write_graph(tmp_path / "large.npz", seed=1, num_nodes=120)
    plan = attacked_plan(path, DICE, graphs=[str(path), str(large)], num_splits=1)
    executor = Inline()
    news = Prepared(plan, out).attack(executor=executor)
    assert [need.slot.graph for need in executor.tasks] == [str(large), str(path)]
    assert news[0].seconds_left is None
    assert news[1].seconds_left > 0
    assert news[-1].seconds_left == 0


def test_a_graph_that_changed_is_not_attacked(path, out):
    prepared = Prepared(attacked_plan(path, DICE, num_splits=1), out)
    forget_graphs()
    write_graph(path, seed=1)
    prepared.attack()
    (sentence,) = prepared.files.errors.values()
    assert "changed since the command began" in sentence
    assert not (out / "perturbations").exists()


@pytest.mark.gpu
def test_attacks_run_where_the_cells_do(path, out):
    prepared = Prepared(attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1), out)
    prepared.attack(device="cuda")
    (file,) = prepared.files.files.values()
    assert file.facts.device == "cuda"
    assert Prepared(prepared.plan, out).missing == [], "the device changes nothing about a file"
