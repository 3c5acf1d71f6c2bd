"""Attacks before the cells: a file is made once, resumed after a kill, or told to have failed."""

from functools import partial

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.metattack import Metattack
from aspect.attacks.run import run_attack
from aspect.data.archives import read_npz
from aspect.data.source import NO_READING
from aspect.errors import GraphError
from aspect.experiment.attack_plan import plan_attack_again
from aspect.experiment.attacking import AttackTask, make_file
from aspect.experiment.graphs import forget_graphs
from experiment.attacked import IMPLICIT, Inline, Prepared, attacked_plan, write_graph

DICE = {"kind": "dice", "budgets": [0.1, 0.2]}


@pytest.fixture
def path(tmp_path):
    return write_graph(tmp_path / "small.npz")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def events(out):
    """What the log says, without the times."""
    lines = (out / "log.txt").read_text().splitlines()
    return [line.split()[1:3] for line in lines if not line.startswith(" ")]


def test_what_is_missing_is_made_and_found_again(path, out):
    prepared = Prepared(attacked_plan(path, DICE), out)
    assert len(prepared.missing) == 2
    last = prepared.attack()[-1]
    assert (last.made, last.files, last.failed, last.running) == (2, 2, 0, 0)
    assert last.flips == last.wanted == sum(each.facts.wanted for each in prepared.wanted)
    again = Prepared(attacked_plan(path, DICE), out)
    assert again.missing == []
    assert again.flips == prepared.flips
    assert [cell.key for cell in again.cells] == [cell.key for cell in prepared.cells]
    names = [each.facts.file_name for each in prepared.wanted]
    expected = [["attacks", name] for name in names] + [["attacked", name] for name in names]
    assert sorted(events(out)) == sorted(expected)


def test_files_hold_the_flips_of_an_attack_by_hand(path, out):
    prepared = Prepared(attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1), out)
    prepared.attack()
    (wanted,), (file,) = prepared.wanted, prepared.flips.files.values()
    planned = plan_attack_again(wanted.facts, read_npz(path), torch.device("cpu"))
    expected = run_attack(planned, PerturbationFile.open(out / "other", planned.facts))
    found = PerturbationFile.read(file.path)
    assert torch.equal(found.keys, expected.keys)
    assert file.sha256 == {0.05: expected.digest(0.05)}
    assert found.facts.complete


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def begin(wanted, path, flips):
    """Leave what an attack leaves that was killed after so many flips."""

    def stop(progress):
        if progress.made > flips:
            raise Killed

    planned = plan_attack_again(wanted.facts, read_npz(wanted.graph), torch.device("cpu"))
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
    (file,) = prepared.flips.files.values()
    assert torch.equal(PerturbationFile.read(file.path).keys[:2], partial.keys)


def test_an_unfinished_attack_of_another_version_begins_anew(path, out):
    plan = attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1)
    (wanted,) = Prepared(plan, out).missing
    file = out / "perturbations" / wanted.facts.file_name
    partial = begin(wanted, file, flips=1)
    older = partial.facts.model_copy(update={"versions": {"aspect": "0"}})
    PerturbationFile(older, partial.keys.flip(0), partial.state).write(file)
    made = make_file(AttackTask(wanted, NO_READING, file))
    assert PerturbationFile.read(file).facts.versions != {"aspect": "0"}
    assert made.sha256 == {0.05: PerturbationFile.read(file).digest(0.05)}


def test_a_file_that_is_too_short_by_now_is_made_anew(path, out):
    shorter = Prepared(attacked_plan(path, {"kind": "dice", "budgets": [0.1]}), out)
    shorter.attack()
    longer = Prepared(attacked_plan(path, DICE), out)
    assert len(longer.missing) == 2
    longer.attack()
    by_hand = {slot: file.sha256[0.1] for slot, file in longer.flips.files.items()}
    assert by_hand == {slot: file.sha256[0.1] for slot, file in shorter.flips.files.items()}


def test_an_attack_that_fails_stops_no_other(path, out):
    prepared = Prepared(attacked_plan(path, DICE), out)

    def work(task):
        if task.wanted.facts.split == 0:
            raise GraphError("It cannot be attacked.")
        return make_file(task)

    last = prepared.attack(work)[-1]
    assert (last.made, last.failed, last.flips) == (1, 1, last.wanted)
    first, second, *_ = prepared.cells
    assert prepared.flips.error(first) == "The attack for split 0 failed. It cannot be attacked."
    assert first.work.perturbation_sha256 is None
    assert prepared.flips.error(second) is None
    assert prepared.flips.paths(second) == (prepared.flips.files[prepared.wanted[1].slot].path,)
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
    assert [task.wanted.graph for task in executor.tasks] == [str(large), str(path)]
    assert news[0].seconds_left is None
    assert news[1].seconds_left > 0
    assert news[-1].seconds_left == 0


def test_a_graph_that_changed_is_not_attacked(path, out):
    prepared = Prepared(attacked_plan(path, DICE, num_splits=1), out)
    forget_graphs()
    write_graph(path, seed=1)
    prepared.attack()
    (sentence,) = prepared.flips.errors.values()
    assert "changed since the bench began" in sentence
    assert not (out / "perturbations").exists()


@pytest.mark.gpu
def test_attacks_run_where_the_cells_do(path, out):
    prepared = Prepared(attacked_plan(path, {**IMPLICIT, "budgets": [0.05]}, num_splits=1), out)
    prepared.attack(partial(make_file, device="cuda"))
    (file,) = prepared.flips.files.values()
    assert PerturbationFile.read(file.path).facts.device == "cuda"
    assert Prepared(prepared.plan, out).missing == [], "the device changes nothing about a file"
