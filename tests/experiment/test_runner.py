"""A plan carried out: what is left, in which order, where, and what is kept; without processes."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from aspect.cli.bench import _accuracy
from aspect.errors import SettingsError
from aspect.experiment import runner
from aspect.experiment.executor import Finished, Lost, Quiet, Started, available_cores
from aspect.experiment.perturbations import BenchFiles
from aspect.experiment.plan import Entry, lay_out
from aspect.experiment.run import Outcome
from aspect.experiment.runner import Bench, Clock, Placement, cost
from aspect.experiment.store import BenchFolder, read_details, read_records
from experiment.grids import (
    FACTS,
    cells_of,
    done,
    failed,
    make_details,
    make_plan,
    metattack_files,
)


class Inline:
    """Carries out trainings at once, in this process; `work` gets their runs one by one."""

    def __init__(self, lost=()):
        self.lost, self.trainings = lost, []

    def run(self, work, tasks):
        for training in tasks:
            self.trainings.append(training)
            yield Started(training)
            if training[0].cell.key in self.lost:
                yield Lost(training, "Its process was killed.")
            else:
                yield Finished(training, [work(task) for task in training])

    @property
    def order(self):
        return [training[0].cell for training in self.trainings]


def succeed(task):
    return Outcome(done(task.cell), make_details(task.cell) if task.has_details else None)


@pytest.fixture
def plan():
    return make_plan(seeds=2, perturbations=["none", {"kind": "random", "budgets": [0.1, 0.3]}])


@pytest.fixture
def folder(tmp_path, plan):
    with BenchFolder.open(tmp_path / "bench", plan) as opened:
        yield opened


def open_bench(plan, folder, **changes):
    return Bench(plan, cells_of(plan), dict.fromkeys(plan.graphs, FACTS), folder, **changes)


def run(bench, executor=None, work=succeed):
    return list(bench.run(executor or Inline(), work))


def test_all_cells_are_carried_out_and_kept(plan, folder):
    bench = open_bench(plan, folder)
    last = run(bench)[-1]
    assert (last.done, last.failed, last.running) == (len(bench.cells), 0, 0)
    assert [record.cell for record in read_records(folder.path)] == list(bench.cells)
    assert read_records(folder.path / "records.jsonl") == read_records(folder.path)


def test_nothing_is_carried_out_twice(plan, folder):
    run(open_bench(plan, folder))
    again = Inline()
    assert run(open_bench(plan, folder), again) == []
    assert again.order == []


def test_a_bench_that_was_stopped_goes_on_where_it_stood(plan, folder):
    first = Inline()
    news = open_bench(plan, folder).run(first, succeed)
    for _ in range(3):
        next(news)
    news.close()
    finished = first.order[:2]
    second = Inline()
    run(open_bench(plan, folder), second)
    assert not {cell.key for cell in finished} & {cell.key for cell in second.order}
    assert len(read_records(folder.path)) == len(cells_of(plan))


def test_expensive_cells_come_first(plan, folder):
    executor = Inline()
    run(open_bench(plan, folder), executor)
    costs = [cost([cell], FACTS) for cell in executor.order]
    assert costs == sorted(costs, reverse=True)
    assert executor.order[0].entry == "aspect"
    assert executor.order[-1].entry == "raw"


def test_what_failed_is_a_record_and_stays_so_until_it_is_tried_again(plan, folder):
    bench = open_bench(plan, folder)
    bad = bench.cells[0]

    def work(task):
        broken = task.cell.key == bad.key
        return Outcome(failed(bad), trace="Traceback\nhere") if broken else succeed(task)

    last = run(bench, work=work)[-1]
    assert (last.done, last.failed) == (len(bench.cells) - 1, 1)
    assert "It broke.\n    Traceback\n    here" in (folder.path / "log.txt").read_text()
    again = open_bench(plan, folder)
    assert run(again) == []
    again.retry_failed()
    executor = Inline()
    assert run(again, executor)[-1].failed == 0
    assert executor.order == [bad]


def test_a_task_that_was_lost_is_a_failed_record(plan, folder):
    bench = open_bench(plan, folder)
    run(bench, Inline(lost={bench.cells[1].key}))
    (record,) = [each for each in read_records(folder.path) if each.status == "failed"]
    assert record.cell == bench.cells[1]
    assert record.error == "Its process was killed."


def test_details_are_made_once_of_the_first_clean_seed(plan, folder):
    shown = []

    def work(task):
        shown.extend([task] if task.has_details else [])
        return succeed(task)

    run(open_bench(plan, folder), work=work)
    assert shown == []
    wanted = plan.model_copy(update={"details": ("aspect",)})
    executor = Inline()
    run(open_bench(wanted, folder), executor, work)
    (task,) = shown
    assert executor.order == [task.cell], "only the details were missing"
    assert (task.cell.spec.seed, task.cell.spec.perturbation) == (0, None)
    assert [(each.perturbation.budget, each.split) for each in task.shown] == [(0.3, 0)]
    assert len(read_details(folder.path)) == 1
    assert run(open_bench(wanted, folder)) == []


ATTACK = {"kind": "metattack", "solver": "implicit", "budgets": [0.1, 0.2]}


@pytest.fixture
def attacked():
    """A plan whose files are there for the first split, and failed for the second."""
    plan = make_plan(perturbations=["none", ATTACK, {**ATTACK, "mode": "evade"}])
    (lost,) = metattack_files([1])
    return plan, BenchFiles(metattack_files([0]), {lost: "No memory."})


def open_attacked(attacked, folder, flips=None):
    plan, known = attacked
    facts = dict.fromkeys(plan.graphs, FACTS)
    flips = flips or known
    return Bench(plan, lay_out(plan, facts, "cpu", flips), facts, folder, files=flips)


def test_cells_whose_attack_failed_are_records_and_the_others_go_on(attacked, folder):
    bench = open_attacked(attacked, folder)
    executor = Inline()
    last = run(bench, executor)[-1]
    # Of both entries: two poisoned ones with the second split, and both that evade on all splits.
    assert (last.done, last.failed) == (2 * (1 + 2), 2 * (2 + 2))
    assert all(cell.spec.split_numbers != (1,) for cell in executor.order)
    records = [each for each in read_records(folder.path) if each.status == "failed"]
    assert {each.error for each in records} == {"The attack for split 1 failed. No memory."}
    assert {each.cell.spec.split_numbers for each in records} == {(1,), (0, 1)}


def test_an_attack_is_given_up_when_all_its_cells_failed(attacked, folder):
    plan, flips = attacked
    slot = next(iter(flips.errors))
    assert not open_attacked(attacked, folder, BenchFiles()).is_given_up(slot)
    run(open_attacked(attacked, folder))
    later = open_attacked(attacked, folder, BenchFiles(flips.files))
    assert later.is_given_up(slot)
    assert run(later) == []
    later.retry_failed()
    assert not later.is_given_up(slot)
    more = (plan.model_copy(update={"entries": (*plan.entries, Entry(name="low"))}), flips)
    assert not open_attacked(more, folder, BenchFiles(flips.files)).is_given_up(slot)


def test_the_files_of_a_part_of_a_plan_are_those_of_its_cells(attacked, folder):
    """A bench of one entry made the attacks of all."""
    plan, flips = attacked
    whole = open_attacked(attacked, folder)
    assert {slot.split for slot in whole.slots} == {0, 1}
    part = plan.only(entries=("aspect",))
    left_out = [
        planned and planned.model_copy(update={"without": ("aspect",)})
        for planned in part.perturbations
    ]
    part = part.model_copy(update={"perturbations": tuple(left_out)})
    assert open_attacked((part, flips), folder).slots == set()


def test_tasks_know_their_files(attacked, folder):
    seen = []

    def work(task):
        seen.append(task)
        return succeed(task)

    plan, flips = attacked
    wanted = plan.model_copy(update={"details": ("aspect",)})
    run(open_attacked((wanted, flips), folder), work=work)
    for task in seen:
        count = 0 if task.cell.spec.perturbation is None else 1
        assert [each.path for each in task.perturbed] == [Path("0")] * count
    (change,) = next(task for task in seen if task.has_details).shown
    assert (change.path, change.sha256, change.split) == (Path("0"), "0 at 0.2", 0)
    assert change.perturbation.budget == 0.2


def test_no_details_of_attacks_that_failed(attacked, folder):
    plan, flips = attacked
    wanted = plan.model_copy(update={"details": ("aspect",)})
    bench = open_attacked((wanted, flips), folder, BenchFiles())
    task = next(bench._task(cell) for cell in bench.cells if bench._wants_details(cell))
    assert task.has_details
    assert task.shown == ()


def several_splits():
    """Two seeds of a method by two kinds of splits: two trainings, four cells."""
    plan = make_plan(entries=["aspect"], seeds=2, also=[{"splits": "class-balanced"}])
    facts = {"mixed": replace(FACTS, kinds=2 * ((10, None),))}
    return plan, facts


def test_cells_of_one_training_are_one_task(tmp_path):
    plan, facts = several_splits()
    with BenchFolder.open(tmp_path / "bench", plan) as folder:
        bench = Bench(plan, lay_out(plan, facts, "cpu"), facts, folder)
        executor = Inline()
        last = run(bench, executor)[-1]
        assert (last.cells, last.done, last.running) == (4, 4, 0)
        assert [
            [task.cell.spec.splits for task in training] for training in executor.trainings
        ] == [["random", "class-balanced"]] * 2
        assert [cell.spec.seed for cell in executor.order] == [0, 1]
        # One that is left alone, since a kind of splits was added, is a training again.
        folder.forget(bench.cells[1])
        again = Bench(plan, bench.cells, facts, folder)
        executor = Inline()
        run(again, executor)
        ((task,),) = executor.trainings
        assert task.cell.key == bench.cells[1].key


def test_a_worker_that_is_lost_costs_all_cells_of_its_training(tmp_path):
    plan, facts = several_splits()
    with BenchFolder.open(tmp_path / "bench", plan) as folder:
        bench = Bench(plan, lay_out(plan, facts, "cpu"), facts, folder)
        first = bench._trainings_left()[0]
        run(bench, Inline(lost={first[0].key}))
        failed_cells = [cell for cell in bench.cells if bench.states[cell.key] == "failed"]
        assert failed_cells == first


def test_after_the_time_nothing_is_begun(plan, folder, monkeypatch):
    now = iter(range(10**6))
    monkeypatch.setattr(runner.time, "monotonic", lambda: float(next(now)))
    bench = open_bench(plan, folder)
    executor = Inline()
    list(bench.run(executor, succeed, seconds=10))
    assert 0 < len(executor.order) < len(bench.cells)
    states = list(bench.states.values())
    assert states.count("done") == len(executor.order)
    rest = Inline()
    run(open_bench(plan, folder), rest)
    assert len(rest.order) == len(bench.cells) - len(executor.order)


def test_progress_counts_what_runs(plan, folder):
    bench = open_bench(plan, folder, workers=2)
    news = run(bench)
    assert {each.running for each in news[:-1]} == {1}
    assert news[0].seconds_left is None
    assert news[-1].seconds_left == 0


def test_silence_is_an_occasion_to_tell_how_it_stands(plan, folder):
    class Slow(Inline):
        def run(self, work, tasks):  # noqa: ARG002 - nothing comes to its end
            yield from (Started(next(iter(tasks))), Quiet(), Quiet())

    assert [each.running for each in run(open_bench(plan, folder), Slow())] == [1, 1, 1]


def clock_of(*cells):
    return Clock({cell.key: 10.0 for cell in cells})


def test_time_left_is_that_of_like_cells():
    plan = make_plan(seeds=3, entries=["aspect", {"name": "raw", "seeds": 1}])
    first, second, third, raw = cells_of(plan)
    clock = clock_of(first, second, third, raw)
    assert clock.left([second], [], 1) is None
    clock.note(first, 6.0)
    assert clock.left([second, third], [], 2) == pytest.approx(6.0)
    assert clock.left([raw], [], 1) == pytest.approx(6.0), "for want of anything nearer"
    clock.note(raw, 1.0)
    assert clock.left([second, raw], [], 1) == pytest.approx(7.0)


def test_an_unknown_method_is_taken_for_one_of_its_kind():
    names = ("dgi", "raw", "bgrl")  # all linear
    quadratic, *linear = (cells_of(make_plan(entries=[name]))[0] for name in ("grace", *names))
    clock = clock_of(quadratic, *linear)
    clock.note(quadratic, 1000.0)
    assert clock.left([linear[0]], [], 1) == pytest.approx(1000.0), "for want of anything nearer"
    clock.note(linear[0], 2.0)
    clock.note(linear[1], 4.0)
    assert clock.left([linear[2]], [], 1) == pytest.approx(3.0)


def test_more_workers_than_cells_save_no_time():
    first, second = cells_of(make_plan(seeds=2, entries=["aspect"]))
    clock = clock_of(first, second)
    clock.note(first, 60.0)
    assert clock.left([second], [], 14) == pytest.approx(60.0)
    assert clock.left([], [(second, 20.0)], 14) == pytest.approx(40.0)


def test_a_cell_that_is_late_may_be_late_by_as_much_again():
    first, second, third = cells_of(make_plan(seeds=3, entries=["aspect"]))
    clock = clock_of(first, second, third)
    clock.note(first, 10.0)
    assert clock.left([], [(second, 35.0)], 1) == pytest.approx(25.0)
    assert clock.left([third], [(second, 35.0)], 2) == pytest.approx(25.0)
    assert clock.left([third], [(second, 35.0)], 1) == pytest.approx(35.0)


def test_cost_rises_with_the_graph_and_the_epochs():
    few, many = (cells_of(make_plan(entries=["aspect"], set={"epochs": k}))[0] for k in (5, 500))
    assert cost([few], FACTS) < cost([many], FACTS)
    assert cost([few], FACTS) < cost([few], replace(FACTS, nodes=300))


def test_redone_entries_are_run_again_and_no_others(plan, folder):
    run(open_bench(plan, folder))
    bench = open_bench(plan, folder)
    bench.redo(["raw"])
    executor = Inline()
    last = run(bench, executor)[-1]
    assert {cell.entry for cell in executor.order} == {"raw"}
    assert last.done == len(bench.cells)


def test_the_summary_averages_over_seeds_and_splits(plan):
    records = [done(cell, strict=40 + 10 * cell.spec.seed) for cell in cells_of(plan)]
    table = _accuracy([*records[:-1], failed(records[-1].cell)])
    named = {title: scores["mixed"] for (_, title), scores in table.items()}
    assert named["aspect"] == "45.5 ± 0.7"  # splits 40, 41 of one seed and 50, 51 of the other
    assert "±" not in named["raw, random 30% poison"]


def test_the_summary_mixes_nothing_that_only_looks_alike():
    alike = [{"name": "one", "method": "aspect", "title": "T"}, {"name": "raw", "title": "T"}]
    planned = [{"kind": "random"}, {"kind": "random", "features": False}]
    plan = make_plan(entries=alike, graphs=["a/g.npz", "b/g.npz"], perturbations=planned)
    facts = {graph: replace(FACTS, sha256=graph) for graph in plan.graphs}
    table = _accuracy(done(cell) for cell in lay_out(plan, facts, "cpu"))
    assert sorted(title for _, title in table) == sorted(
        2 * ["T, random 10% poison", "T, random 10% poison, edges alone"]
    )
    assert all(list(scores) == ["a/g.npz", "b/g.npz"] for scores in table.values())


@pytest.fixture
def three_gpus(monkeypatch):
    """A machine with three large GPUs and many cores, as far as is asked here."""
    large = SimpleNamespace(total_memory=140 * 2**30)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: large)
    monkeypatch.setattr(runner, "available_cores", lambda: 64)
    return large


def test_on_the_cpu_every_core_works():
    assert Placement.choose("cpu", None) == Placement("cpu", available_cores())
    assert Placement.choose("cpu", 3).workers == 3


@pytest.mark.usefixtures("three_gpus")
def test_all_gpus_are_used_in_turn():
    chosen = Placement.choose("cuda", None)
    assert chosen == Placement("cuda", 12, ("0", "1", "2"))
    seen = [each["CUDA_VISIBLE_DEVICES"] for each in chosen.processes().environments]
    assert seen == ["0", "1", "2"] * 4


@pytest.mark.usefixtures("three_gpus")
def test_one_gpu_may_be_named():
    chosen = Placement.choose("cuda:1", 2)
    assert chosen == Placement("cuda", 2, ("1",))


@pytest.mark.usefixtures("three_gpus")
def test_gpus_are_called_as_the_environment_calls_them(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7")
    assert Placement.choose("cuda:2", 1).gpus == ("7",)


def test_a_small_gpu_has_one_worker(three_gpus, monkeypatch):
    monkeypatch.setattr(three_gpus, "total_memory", 8 * 2**30)
    assert Placement.choose("cuda:0", None).workers == 1


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match="not there"):
        Placement.choose("cuda", None)
