"""A whole search: counted exactly, resumed without a trace, and blind to test labels."""

import csv
import errno
from dataclasses import replace

import filelock
import optuna
import pytest
import torch
from optuna.trial import TrialState

from aspect import __version__
from aspect.data.graph import label_graph
from aspect.data.splits import make_splits
from aspect.data.synthetic import mixed_graph
from aspect.errors import FileError, RunError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.linear_probe import linear_probe
from aspect.experiment import trial as trial_module
from aspect.experiment import tuning
from aspect.experiment.tuning import load_search, open_study, pruner_of
from aspect.methods.aspect import AspectMethod
from aspect.settings import load_experiment
from aspect.training.health import Health
from experiment.tuning.searches import (
    QUICK,
    InThisProcess,
    Killed,
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
    probe = replace(QUICK, tolerance=search.tolerance)
    return linear_probe(embeddings, labelled.labels, search.splits, probe=probe).validation.mean


class Pruner(optuna.pruners.BasePruner):
    def __init__(self, answer):
        self.answer = answer

    def prune(self, _study, _trial):
        return self.answer


@pytest.fixture
def prune(monkeypatch):
    """Prune always, or never."""

    def use(answer):
        monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **_: Pruner(answer))

    return use


@pytest.fixture
def kill(monkeypatch):
    """Kill the process at the beginning of these trainings, counted from 0."""
    plain, count = trial_module.score_settings, iter(range(1000))

    def at(*numbers):
        def score(*arguments):
            if next(count) in numbers:
                raise Killed
            return plain(*arguments)

        monkeypatch.setattr(trial_module, "score_settings", score)

    return at


# What is searched


def test_the_first_trial_is_the_start_and_the_best_is_not_below_it(path, out):
    outside = {"weight_decay": 0.0, "learning_rate": 0.02}
    search = small_search(path, outside)
    result = search_for(search, out, 3)
    assert [trial.number for trial in result.trials] == [0, 1, 2]
    assert result.start.settings == search.settings
    assert result.start.validation == pytest.approx(validation_of(search, search.settings))
    assert result.best.validation >= result.start.validation
    assert len({str(trial.settings) for trial in result.trials}) == 3
    # The start counts as a point of the space, so that the sampler draws all settings together.
    shared = optuna.search_space.intersection_search_space(load_search(out)[1].get_trials())
    assert shared == search.space


def test_every_trial_reaches_what_training_with_its_settings_gives(path, out, prune):
    prune(False)
    search = small_search(path)
    result = search_for(search, out, 4)
    for trial in result.trials:
        assert trial.settings["epochs"] == trial.epochs
        assert trial.validation == pytest.approx(validation_of(search, trial.settings))
    assert {trial.epochs for trial in result.trials[1:]} <= set(search.rungs)


def test_a_training_that_stops_by_itself_may_be_better_on_the_way(path, out, prune):
    prune(False)
    search = small_search(path, {"patience": 12}, method="dgi", max_epochs=40)
    drawn = search_for(search, out, 5).trials[1:]
    for trial in drawn:
        assert (trial.settings["patience"] is None) == (trial.epochs < 40)
        assert trial.validation == pytest.approx(validation_of(search, trial.settings))
    assert any(trial.epochs < 40 for trial in drawn)


def test_epochs_with_a_choice_of_their_own_are_drawn(path, out, prune):
    """GBT's schedule is cut to its epochs, so that a part of a training is no shorter training."""
    prune(False)
    search = small_search(path, {"epochs": 60}, method="gbt", max_epochs=60)
    assert not search.searches_epochs
    drawn = search_for(search, out, 4).trials[1:]
    assert {trial.epochs for trial in drawn} <= {50, 60}
    for trial in drawn:
        assert trial.settings["epochs"] == trial.epochs
        assert trial.validation == pytest.approx(validation_of(search, trial.settings))


# What it leaves


def test_the_settings_file_is_one_that_training_takes(path, out):
    search = small_search(path, seed=3)
    result = search_for(search, out, 3)
    experiment = load_experiment(result.settings)
    assert experiment.method == "aspect"
    assert experiment.source == search.source
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
    for row, trial in zip(rows, result.trials, strict=True):
        assert float(row["validation"]) == trial.validation
        assert float(row["temperature"]) == trial.settings["temperature"]
        assert float(row["mean_cosine"]) == trial.health.mean_cosine
        assert float(row["effective_rank"]) == trial.health.effective_rank
        assert row["error"] == ""
    assert {path.name for path in out.iterdir()} == {
        *("search.yaml", "study.journal", "settings.yaml", "trials.csv", ".lock", ".journal.lock")
    }


def test_an_error_that_looks_like_a_formula_is_disarmed(path, out, monkeypatch):
    def fail(*_):
        raise SettingsError('=HYPERLINK("evil")')

    monkeypatch.setattr(trial_module, "score_settings", fail)
    result = search_for(small_search(path), out, 1)
    assert result.best is None
    assert "'=HYPERLINK" in (out / "trials.csv").read_text()
    assert not (out / "settings.yaml").exists()


def test_progress_is_reported(path, out):
    seen = []
    search_for(small_search(path), out, 2, on_progress=seen.append)
    assert [(len(result.trials), result.running) for result in seen] == [
        *((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)),
    ]
    assert seen[-1].best is not None


# What goes wrong


def test_a_trial_that_diverges_fails_and_the_others_go_on(path, out):
    search = small_search(path, {"learning_rate": 1e9, "layer_order": "filter-first"})
    result = search_for(search, out, 3)
    assert [trial.state for trial in result.trials] == ["failed", "complete", "complete"]
    assert "not finite" in result.start.error or "not a finite" in result.start.error
    assert result.start.validation is None
    assert result.best.number > 0
    assert "Start: test's own, failed." in load_experiment(result.settings).origin
    again = search_for(search, out, 3)
    assert (again.before, again.trials) == (3, result.trials)


def test_pruning_stops_a_training_early(path, out, prune, monkeypatch):
    prune(True)
    epochs = []
    monkeypatch.setattr(AspectMethod, "after_step", lambda _, step: epochs.append(step.epoch))
    search = small_search(path)
    result = search_for(search, out, 3)
    assert [trial.state for trial in result.trials] == ["complete", "pruned", "pruned"]
    first = search.rungs[0]
    assert first < search.max_epochs
    assert epochs == [*range(1, 4), *range(1, first + 1), *range(1, first + 1)]
    assert result.best.number == 0  # a pruned trial is never the best
    assert states(out) == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED]


def test_a_trial_is_pruned_below_the_median_at_the_same_epoch(path, tmp_path):
    study = open_study(tmp_path / "study.journal")
    study.pruner = pruner_of(small_search(path))
    for number, value in enumerate([50.0, 60.0, 70.0, 80.0, 90.0]):
        trial = study.ask()
        trial.report(value, 2)
        assert not trial.should_prune(), number
        study.tell(trial, value)
    for value, is_pruned in ((69.0, True), (71.0, False)):
        trial = study.ask()
        trial.report(value, 2)
        assert trial.should_prune() == is_pruned


def test_halving_lets_the_better_half_go_on_at_a_quarter_and_at_a_half(path, tmp_path):
    search = small_search(path, pruner="halving", max_epochs=40)
    assert search.first_pruned == 10
    assert set(search.rungs) == {5, 10, 20, 40}
    study = open_study(tmp_path / "study.journal")
    study.pruner = pruner_of(search)

    def is_pruned(epoch, values):
        trials = [study.ask() for _ in values]
        answers = []
        for trial, value in zip(trials, values, strict=True):
            trial.report(value, epoch)
            answers.append(trial.should_prune())
        return answers

    assert is_pruned(9, [1.0, 2.0, 3.0, 4.0]) == [False] * 4  # too early
    assert is_pruned(10, [50.0, 40.0, 60.0, 55.0, 45.0]) == [False, True, False, False, True]
    assert is_pruned(20, [70.0, 10.0]) == [False, True]


def test_a_good_start_does_not_end_the_other_trials(path, out):
    search = small_search(path, {"epochs": 40}, pruner="halving", max_epochs=40)
    search_for(search, out, 1)
    (start,) = open_study(out / "study.journal").get_trials()
    assert start.state == TrialState.COMPLETE
    assert not any("rung" in key for key in start.system_attrs)


def test_a_trial_close_to_collapse_cannot_be_the_best(path, out):
    fixed = {"fixed": ["width", "gate_width", "order", "epochs"], "max_epochs": None}
    free = search_for(small_search(path, **fixed), out.parent / "free", 3)
    by_cosine = sorted(free.trials, key=lambda trial: trial.health.mean_cosine)
    limit, worst = by_cosine[1].health.mean_cosine, by_cosine[2].number
    result = search_for(small_search(path, max_cosine=limit, **fixed), out, 3)
    assert [trial.number for trial in result.trials if trial.state == "unhealthy"] == [worst]
    assert result.best.number != worst
    assert result.trials[worst].validation == free.trials[worst].validation
    assert "mean cosine of two nodes is" in result.trials[worst].error
    assert "(0 pruned, 1 unhealthy, 0 failed)" in load_experiment(result.settings).origin
    assert states(out)[worst] == TrialState.PRUNED  # so that the sampler draws elsewhere
    assert search_for(result.search, out, 3).trials == result.trials


def test_without_a_healthy_trial_there_are_no_settings(path, out):
    result = search_for(small_search(path, max_cosine=1e-9), out, 2)
    assert [trial.state for trial in result.trials] == ["unhealthy", "unhealthy"]
    assert result.best is None
    assert not result.settings.exists()


def test_at_a_maximum_of_one_any_embedding_may_be_the_best(path):
    collapsed = Health(1.0, 0.0, 1.0, 1.0, 1.0, nodes=100, dim=50)
    assert collapsed.warnings()
    assert small_search(path, max_cosine=1.0).fault_of(collapsed) == ""
    assert "mean cosine" in small_search(path, max_cosine=0.99).fault_of(collapsed)


def test_after_its_time_no_trial_is_begun_and_the_search_can_go_on(path, out, monkeypatch):
    search, clock = small_search(path), iter([0.0, 1.0, 2.0, 11.0])
    monkeypatch.setattr(tuning.time, "monotonic", lambda: next(clock))
    cut = search_for(search, out, 5, seconds=10)
    monkeypatch.undo()
    assert len(cut.trials) == 2
    assert load_experiment(cut.settings).settings == cut.best.settings
    assert search_for(search, out, 3).before == 2


def test_no_trials_are_refused_and_nothing_is_written(path, out):
    with pytest.raises(SettingsError, match=r"Number of trials must be 1 or more\. Got 0"):
        search_for(small_search(path), out, 0)
    assert not out.exists()


# Again, and after a kill


def test_the_same_search_gives_the_same_trials(path, tmp_path):
    search = small_search(path)
    first, second = (search_for(search, tmp_path / name, 4) for name in "ab")
    other = search_for(small_search(path, seed=1), tmp_path / "c", 4)
    assert first.trials == second.trials != other.trials


@pytest.mark.parametrize("number", [0, 3])
def test_an_interrupted_search_ends_as_one_that_was_not(path, tmp_path, kill, number):
    search = small_search(path)
    whole = search_for(search, tmp_path / "whole", 5)
    cut = tmp_path / "cut"
    kill(number, number + 1)
    for _ in range(2):
        with pytest.raises(Killed):
            search_for(search, cut, 5)
        assert states(cut).count(TrialState.RUNNING) == 1
    executor = InThisProcess()
    resumed = search_for(search, cut, 5, executor=executor)
    assert resumed.trials == whole.trials
    assert (resumed.before, resumed.run_again) == (number, 1)
    assert len(executor.tasks) == 5 - number
    assert load_search(cut)[0].trials == whole.trials


def test_a_trial_killed_while_it_was_drawn_is_drawn_again(path, tmp_path):
    search = small_search(path)
    whole = search_for(search, tmp_path / "whole", 3)
    cut = tmp_path / "cut"
    search_for(search, cut, 2)
    study = open_study(cut / "study.journal")
    study.ask({"temperature": search.space["temperature"]})
    assert search_for(search, cut, 3).trials == whole.trials


def test_a_killed_worker_is_replaced_and_its_trial_run_again(path, out, kill):
    whole = search_for(small_search(path), out.parent / "whole", 3)
    kill(1)
    result = search_for(small_search(path), out, 3, executor=InThisProcess(attempts=2))
    assert result.trials == whole.trials
    assert states(out) == states(out.parent / "whole")


def test_a_trial_that_kills_its_worker_twice_fails_and_the_others_go_on(path, out, kill):
    kill(1, 2)
    search = small_search(path)
    result = search_for(search, out, 3, executor=InThisProcess(attempts=2))
    assert [trial.state for trial in result.trials] == ["complete", "failed", "complete"]
    assert "Its process was killed 2 times" in result.trials[1].error
    again = search_for(search, out, 3)
    assert (again.trials, again.run_again) == (result.trials, 0)


def test_a_finished_search_runs_nothing_and_writes_missing_files(path, out):
    search = small_search(path)
    result = search_for(search, out, 2)
    before = result.settings.read_bytes()
    result.settings.unlink()
    executor = InThisProcess()
    again = search_for(search, out, 2, executor=executor)
    assert executor.tasks == []
    assert again.trials == result.trials
    assert result.settings.read_bytes() == before
    more = search_for(search, out, 3, executor=executor)
    assert len(executor.tasks) == 1
    assert more.trials[:2] == result.trials


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
    trials = {}
    for name, labels in variants.items():
        path = write_graph(tmp_path, f"{name}.npz", with_one_split(labels))
        search = small_search(path, splits="published")
        assert search.num_splits == 1
        trials[name] = search_for(search, tmp_path / name, 4).trials
    assert trials["poisoned"] == trials["true"] != trials["other"]


# The folder belongs to one search and to one process


def test_another_search_is_refused_by_what_differs(path, out, tmp_path):
    search = small_search(path)
    search_for(search, out, 1)
    before = {item.name: item.read_bytes() for item in out.iterdir()}
    other = write_graph(tmp_path, "other.npz", mixed_graph(num_nodes=60, num_features=8, seed=9))
    differing = {
        "graph": small_search(other),
        "method": small_search(path, method="low"),
        "splits": small_search(path, splits="random"),
        "seeds": small_search(path, seeds=2),
        "max_cosine": small_search(path, max_cosine=0.5),
        "setting temperature": small_search(path, {"temperature": 0.9}),
        "fixed": small_search(path, fixed=["width"]),
        "max_epochs": small_search(path, max_epochs=9),
    }
    path.unlink()  # the same file with another content
    write_graph(path.parent, path.name, mixed_graph(num_nodes=60, num_features=8, seed=9))
    differing["graph_sha256"] = small_search(path)
    for name, each in differing.items():
        with pytest.raises(RunError, match=rf"holds another search, with {name} .*--overwrite"):
            search_for(each, out, 1)
    assert {item.name: item.read_bytes() for item in out.iterdir()} == before
    replaced = search_for(differing["graph_sha256"], out, 1, overwrite=True)
    assert (replaced.before, len(replaced.trials)) == (0, 1)


def test_another_name_of_the_same_start_is_the_same_search(path, out):
    search = small_search(path)
    search_for(search, out, 1)
    reworded = search.model_copy(update={"settings_from": "elsewhere"})
    assert search_for(reworded, out, 1).before == 1


def test_a_folder_of_another_kind_is_left_alone(path, out):
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(RunError, match="holds no search"):
        search_for(small_search(path), out, 1, overwrite=True)
    assert [item.name for item in out.iterdir()] == ["thesis.txt"]
    with pytest.raises(FileError, match="must be a folder"):
        search_for(small_search(path), out / "thesis.txt", 1)


def test_two_processes_do_not_share_a_search(path, out):
    search = small_search(path)
    search_for(search, out, 1)
    with (
        filelock.FileLock(out / ".lock"),
        pytest.raises(RunError, match="Another process is using"),
    ):
        search_for(search, out, 2)


def test_a_full_disk_is_said_in_a_sentence(path, out):
    class Full(InThisProcess):
        def run(self, _work, _tasks):
            raise OSError(errno.ENOSPC, "No space left on device")
            yield

    with pytest.raises(FileError, match=r"Cannot write to .*: the disk is full\."):
        search_for(small_search(path), out, 1, executor=Full())


def test_a_worker_that_cannot_use_the_journal_ends_the_search(path, out, monkeypatch):
    def fail(*_args, **_options):
        raise OSError("the journal is gone")

    monkeypatch.setattr(optuna.Study, "tell", fail)
    with pytest.raises(RunError, match=r"The search cannot go on\. the journal is gone"):
        search_for(small_search(path), out, 1)


def test_a_torn_last_line_of_the_journal_is_cut_off(path, out):
    search = small_search(path)
    result = search_for(search, out, 2)
    with (out / "study.journal").open("ab") as file:
        file.write(b'{"op_code":4,"work')
    assert search_for(search, out, 3).trials[:2] == result.trials


def test_damaged_files_are_refused(path, out):
    search = small_search(path)
    search_for(search, out, 1)
    for content in (b"not json\nnot json\n", b'{"op_code": 4}\n{}\n'):
        (out / "study.journal").write_bytes(content)
        with pytest.raises(RunError, match=r"study.journal is damaged .*--overwrite"):
            search_for(search, out, 1)
    (out / "search.yaml").write_text("method: 3\n")
    with pytest.raises(RunError, match=r"search.yaml is damaged\. .*--overwrite"):
        search_for(search, out, 1)
