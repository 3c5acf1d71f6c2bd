"""A whole search: counted exactly, resumed without a trace, and blind to test labels."""

import csv

import optuna
import pytest
import torch
from optuna.trial import TrialState

from aspect import __version__
from aspect.data.labelling import label_graph
from aspect.data.splits import make_splits
from aspect.data.synthetic import mixed_graph
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import linear_probe
from aspect.experiment.runs import source_of
from aspect.experiment.tuning import journal
from aspect.experiment.tuning import search as search_module
from aspect.experiment.tuning.journal import open_study
from aspect.experiment.tuning.ledger import Ledger
from aspect.methods.aspect import AspectMethod
from aspect.settings import load_experiment
from experiment.tuning.searches import (
    QUICK,
    InThisProcess,
    outcomes,
    search_for,
    small_search,
    write_graph,
)

pytestmark = pytest.mark.usefixtures("quick_probe")


def states(out):
    return [trial.state for trial in open_study(out / "study.journal").get_trials()]


def validation_of(search, settings):
    """What `aspect train` and `aspect evaluate` would say, by way of neither."""
    labelled = search.source.read()
    model = Embedder(search.method, seed=search.seeds[0], device="cpu", **settings)
    embeddings = model.fit(labelled.graph).embed(labelled.graph, normalise="none")
    return linear_probe(embeddings, labelled.labels, search.splits, probe=QUICK).validation.mean


class Never(optuna.pruners.BasePruner):
    def prune(self, _study, _trial):
        return False


class Always(optuna.pruners.BasePruner):
    def prune(self, _study, _trial):
        return True


# What is searched


def test_the_first_trial_is_the_start_and_the_end_is_not_below_it(path, out):
    search = small_search(path)
    result = search_for(search, out, 3)
    assert [each.number for each in result.results] == [0, 1, 2]
    assert result.start.settings == search.settings
    assert result.start.validation == pytest.approx(validation_of(search, search.settings))
    assert result.best.validation >= result.start.validation
    assert len({str(each.settings) for each in result.results}) == 3


def test_a_start_outside_the_ranges_is_taken_as_it_is(path, out):
    search = small_search(path, {"weight_decay": 0.0, "learning_rate": 0.02})
    result = search_for(search, out, 1)
    assert result.start.settings == search.settings
    assert result.start.validation == pytest.approx(validation_of(search, search.settings))


def test_every_trial_reaches_what_training_with_its_settings_gives(path, out, monkeypatch):
    monkeypatch.setattr(journal, "_pruner", Never)
    search = small_search(path)
    result = search_for(search, out, 4)
    for each in result.results:
        assert each.settings["epochs"] == each.epochs
        assert each.validation == pytest.approx(validation_of(search, each.settings))
    assert {each.epochs for each in result.results[1:]} <= set(search.rungs)


def test_a_training_that_stops_by_itself_may_be_better_on_the_way(path, out, monkeypatch):
    monkeypatch.setattr(journal, "_pruner", Never)
    search = small_search(path, {"patience": 12}, method="dgi", max_epochs=40)
    drawn = search_for(search, out, 5).results[1:]
    for each in drawn:
        assert (each.settings["patience"] is None) == (each.epochs < 40)
        assert each.validation == pytest.approx(validation_of(search, each.settings))
    assert any(each.epochs < 40 for each in drawn)


def test_epochs_with_a_choice_of_their_own_are_drawn(path, out, monkeypatch):
    """GBT's schedule is cut to its epochs, so that a part of a training is no shorter training."""
    monkeypatch.setattr(journal, "_pruner", Never)
    search = small_search(path, {"epochs": 60}, method="gbt", max_epochs=60)
    assert not search.searches_epochs
    drawn = search_for(search, out, 5).results[1:]
    assert {each.epochs for each in drawn} <= {50, 60}
    for each in drawn:
        assert each.settings["epochs"] == each.epochs
        assert each.validation == pytest.approx(validation_of(search, each.settings))


def test_fixed_settings_stay(path, out):
    search = small_search(path, fixed=["width", "order", "epochs", "dropout"], max_epochs=None)
    result = search_for(search, out, 3)
    for each in result.results:
        assert (each.settings["width"], each.settings["order"], each.epochs) == (8, 2, 3)
        assert each.settings["dropout"] == search.settings["dropout"]
    assert len({each.settings["temperature"] for each in result.results}) == 3


# What it leaves


def test_the_settings_file_is_one_that_training_takes(path, out):
    search = small_search(path, seed=3)
    result = search_for(search, out, 3)
    experiment = load_experiment(result.settings)
    assert experiment.method == "aspect"
    assert source_of(experiment) == search.source
    assert experiment.seed == 3
    assert experiment.settings == result.best.settings
    assert validation_of(search, experiment.settings) == pytest.approx(result.best.validation)
    for words in (
        f"accuracy, {result.best.validation:.2f}%, of 3 trials",
        f"aspect tune {__version__}",
        "10 search splits and pre-training seed 3, by the neutral probe.",
        f"Mean cosine of two nodes {result.best.health.mean_cosine:.2f}, effective rank",
        "Start: test's own",
        "test nodes were masked.",
    ):
        assert words in experiment.origin


def test_the_table_holds_every_trial(path, out):
    result = search_for(small_search(path), out, 3)
    with (out / "trials.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["0", "1", "2"]
    for row, each in zip(rows, result.results, strict=True):
        assert float(row["validation"]) == each.validation
        assert float(row["temperature"]) == each.settings["temperature"]
        assert float(row["mean_cosine"]) == each.health.mean_cosine
        assert float(row["effective_rank"]) == each.health.effective_rank
        assert row["error"] == ""
    assert {path.name for path in out.iterdir()} == {
        *("search.yaml", "study.journal", "settings.yaml", "trials.csv", ".lock", ".journal.lock")
    }


def test_an_error_that_looks_like_a_formula_is_disarmed(path, out):
    class Broken(InThisProcess):
        def run(self, _work, tasks):
            def fail(_):
                raise ValueError('=HYPERLINK("evil")')

            return super().run(fail, tasks)

    result = search_for(small_search(path), out, 1, executor=Broken())
    assert result.best is None
    assert "'=HYPERLINK" in (out / "trials.csv").read_text()
    assert not (out / "settings.yaml").exists()


# How it is watched


def test_progress_is_told(path, out):
    seen = []
    search_for(small_search(path), out, 2, on_progress=seen.append)
    assert [(each.done, each.running) for each in seen] == [
        *((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)),
    ]
    assert {each.total for each in seen} == {2}
    assert seen[-1].best is not None


# What goes wrong


def test_a_trial_that_diverges_is_marked_and_the_others_go_on(path, out):
    search = small_search(path, {"learning_rate": 1e30})
    result = search_for(search, out, 3)
    assert [each.state for each in result.results] == ["failed", "complete", "complete"]
    assert "not finite" in result.start.error or "not a finite" in result.start.error
    assert result.start.validation is None
    assert result.best.number > 0
    assert "Start: test's own, failed." in load_experiment(result.settings).origin
    again = search_for(search, out, 3)
    assert (again.before, outcomes(again)) == (3, outcomes(result))


def test_pruning_stops_a_training_early(path, out, monkeypatch):
    monkeypatch.setattr(journal, "_pruner", Always)
    epochs = []
    monkeypatch.setattr(AspectMethod, "after_step", lambda _, step: epochs.append(step.epoch))
    search = small_search(path)
    result = search_for(search, out, 3)
    assert [each.state for each in result.results] == ["complete", "pruned", "pruned"]
    first = search.rungs[0]
    assert first < search.max_epochs
    assert epochs == [*range(1, 4), *range(1, first + 1), *range(1, first + 1)]
    assert result.best.number == 0  # a trial that was given up is never the best
    assert states(out) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED]


def test_a_trial_is_given_up_below_the_median_at_the_same_epoch(tmp_path):
    study = journal.create_study(tmp_path / "study.journal")
    for number, value in enumerate([50.0, 60.0, 70.0, 80.0, 90.0]):
        trial = study.ask()
        trial.report(value, 2)
        assert not trial.should_prune(), number
        study.tell(trial, value)
    for value, given_up in ((69.0, True), (71.0, False)):
        trial = study.ask()
        trial.report(value, 2)
        assert trial.should_prune() == given_up


def test_a_trial_close_to_collapse_cannot_be_the_best(path, out):
    fixed = {"fixed": ["width", "gate_width", "order", "epochs"], "max_epochs": None}
    free = search_for(small_search(path, **fixed), out.parent / "free", 3)
    by_cosine = sorted(free.results, key=lambda each: each.health.mean_cosine)
    limit, worst = by_cosine[1].health.mean_cosine, by_cosine[2].number
    result = search_for(small_search(path, max_cosine=limit, **fixed), out, 3)
    assert [each.number for each in result.results if each.state == "unhealthy"] == [worst]
    assert result.best.number != worst
    assert result.results[worst].validation == free.results[worst].validation
    assert "mean cosine of two nodes is" in result.results[worst].error
    assert "(0 pruned, 1 unhealthy, 0 failed)" in load_experiment(result.settings).origin
    assert states(out)[worst] == TrialState.PRUNED  # so that the sampler draws elsewhere
    assert outcomes(search_for(result.search, out, 3)) == outcomes(result)


def test_where_no_trial_is_healthy_there_are_no_settings(path, out):
    result = search_for(small_search(path, max_cosine=1e-9), out, 2)
    assert [each.state for each in result.results] == ["unhealthy", "unhealthy"]
    assert result.best is None
    assert not result.settings.exists()


def test_after_its_time_no_trial_is_begun_and_the_search_can_go_on(path, out, monkeypatch):
    search, clock = small_search(path), iter([0.0, 1.0, 2.0, 11.0])
    monkeypatch.setattr(search_module.time, "monotonic", lambda: next(clock))
    cut = search_for(search, out, 5, seconds=10)
    monkeypatch.undo()
    assert len(cut.results) == 2
    assert load_experiment(cut.settings).settings == cut.best.settings
    assert search_for(search, out, 3).before == 2


# Again, and after a kill


def test_the_same_search_gives_the_same_trials(path, tmp_path):
    search = small_search(path)
    first, second = (search_for(search, tmp_path / name, 4) for name in "ab")
    other = search_for(small_search(path, seed=1), tmp_path / "c", 4)
    assert outcomes(first) == outcomes(second) != outcomes(other)


@pytest.mark.parametrize("stop_before", [0, 1, 3])
def test_an_interrupted_search_ends_as_one_that_was_not(path, tmp_path, stop_before):
    search = small_search(path)
    whole = search_for(search, tmp_path / "whole", 5)
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        search_for(search, cut, 5, executor=InThisProcess(stop_before))
    assert states(cut).count(TrialState.RUNNING) == 1
    executor = InThisProcess()
    resumed = search_for(search, cut, 5, executor=executor)
    assert outcomes(resumed) == outcomes(whole)
    assert (resumed.before, resumed.requeued) == (stop_before, 1)
    assert [task.number for task in executor.tasks] == list(range(stop_before, 5))


def test_a_trial_killed_while_it_was_drawn_is_drawn_again(path, tmp_path):
    search = small_search(path)
    whole = search_for(search, tmp_path / "whole", 3)
    cut = tmp_path / "cut"
    search_for(search, cut, 2)
    study = journal.create_study(cut / "study.journal")
    study.ask({"temperature": search.space.distributions["temperature"]})
    resumed = search_for(search, cut, 3)
    assert outcomes(resumed) == outcomes(whole)


def test_a_finished_search_runs_nothing_and_mends_its_files(path, out):
    search = small_search(path)
    result = search_for(search, out, 2)
    before = result.settings.read_bytes()
    result.settings.unlink()
    executor = InThisProcess()
    again = search_for(search, out, 2, executor=executor)
    assert executor.tasks == []
    assert outcomes(again) == outcomes(result)
    assert result.settings.read_bytes() == before
    more = search_for(search, out, 3, executor=executor)
    assert [task.number for task in executor.tasks] == [2]
    assert outcomes(more)[:2] == outcomes(result)


def test_a_torn_last_line_is_cut_off(path, out):
    search = small_search(path)
    result = search_for(search, out, 2)
    with (out / "study.journal").open("ab") as file:
        file.write(b'{"op_code":4,"work')
    assert outcomes(search_for(search, out, 2)) == outcomes(result)


def test_a_worker_killed_on_the_way_is_replaced_and_reports_once(path, out, recwarn):
    class Twice(InThisProcess):
        def run(self, work, tasks):
            return super().run(lambda task: (work(task), work(task))[1], tasks)

    whole = search_for(small_search(path), out.parent / "whole", 2)
    twice = search_for(small_search(path), out, 2, executor=Twice())
    assert outcomes(twice) == outcomes(whole)
    assert [each for each in recwarn if "ignored" in str(each.message)] == []


# Test labels


def with_one_split(labels):
    graph = mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0)
    parts = make_splits("random", graph.labels, 2, count=1)[0]
    masks = {}
    for name in ("train", "validation", "test"):
        masks[name] = torch.zeros(1, 60, dtype=torch.bool)
        masks[name][0, getattr(parts, name)] = True
    return label_graph(graph.graph, labels(graph.labels, parts), masks=masks)


def swap(part):
    """Labels of a part exchanged, class for class."""

    def labels(true, parts):
        changed = true.clone()
        nodes = getattr(parts, part)
        changed[nodes] = 1 - changed[nodes]
        return changed

    return labels


def test_poisoned_test_labels_leave_the_whole_search_as_it_is(tmp_path):
    variants = {
        "true": lambda true, _: true,
        "poisoned": swap("test"),
        "other": swap("validation"),
    }
    found = {}
    for name, labels in variants.items():
        path = write_graph(tmp_path, f"{name}.npz", with_one_split(labels))
        search = small_search(path, splits="published")
        assert search.num_splits == 1
        found[name] = outcomes(search_for(search, tmp_path / name, 4))
    assert found["poisoned"] == found["true"] != found["other"]


def test_no_trials_are_refused_and_nothing_is_written(path, out):
    with pytest.raises(SettingsError, match=r"Number of trials must be 1 or more\. Got 0"):
        search_for(small_search(path), out, 0)
    assert not out.exists()


def test_a_sampler_draws_from_all_ranges_together(path, out):
    """Trials that all hold every parameter keep the joint search space whole."""
    search = small_search(path, {"weight_decay": 0.0})
    search_for(search, out, 2)
    ledger = Ledger(out / "study.journal", search)
    shared = optuna.search_space.intersection_search_space(ledger.study.get_trials())
    assert shared == dict(search.space.distributions)
