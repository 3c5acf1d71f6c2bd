from pathlib import Path

import pytest

from aspect.data.source import DATASETS
from aspect.errors import SettingsError
from aspect.methods.registry import find_method
from aspect.settings import FOLDER, Experiment, find_experiment, load_experiment, shipped

FILES = sorted(FOLDER.glob("*/*.yaml"))
OURS = [path for path in FILES if not path.name.endswith(".published.yaml")]
# Of the paper itself; those of the baselines are their authors' settings.
PUBLISHED = sorted(FOLDER.glob("aspect*/*.published.yaml"))


def faults_of(paths, check):
    """The files that a check refuses, each with what it says."""
    found = {}
    for path in paths:
        try:
            check(path)
        except (AssertionError, SettingsError) as error:
            found[f"{path.parent.name}/{path.name}"] = str(error)
    return found


def fits_the_code(path):
    experiment = load_experiment(path)
    assert experiment.method == path.parent.name
    assert experiment.origin.endswith(".")
    config = find_method(experiment.method).config(**experiment.settings)
    written = config.model_dump(mode="json")
    assert {name: written[name] for name in experiment.settings} == experiment.settings


def is_about_the_graph_in_its_name(path):
    graph = path.name.split(".")[0]
    assert load_experiment(path).graph == (None if graph == "paper" else graph)
    assert graph in {*DATASETS, "mixed", "paper"}


def is_the_letter_of_the_paper(path):
    experiment = load_experiment(path)
    paper = load_experiment(FOLDER / "aspect" / "paper.yaml").settings
    assert {name: experiment.settings[name] for name in paper} == paper
    assert experiment.probe is not None
    assert set(experiment.reported) == {"mean", "std"}


def searches_more_than_three_times(path):
    registered = find_method("aspect-s")
    config = registered.config(**load_experiment(path).settings)
    method = registered.method(config, 4)
    assert sum(method.is_due(epoch) for epoch in range(1, config.epochs + 1)) > 3


@pytest.mark.parametrize(
    ("paths", "check"),
    [
        (FILES, fits_the_code),
        (FILES, is_about_the_graph_in_its_name),
        (PUBLISHED, is_the_letter_of_the_paper),
        (sorted((FOLDER / "aspect-s").glob("*.yaml")), searches_more_than_three_times),
    ],
    ids=lambda given: getattr(given, "__name__", "files"),
)
def test_every_shipped_file(paths, check):
    assert len(paths) > 8
    assert faults_of(paths, check) == {}


def test_the_graphs_of_the_paper_have_both_kinds():
    names = {path.name.split(".")[0] for path in PUBLISHED}
    assert len(names) == 9
    assert all(shipped("aspect", name) for name in names)


def test_which_settings_are_taken():
    ours, word = find_experiment("aspect", "cora", None)
    assert ours.settings == load_experiment(Path(FOLDER / "aspect" / "cora.yaml")).settings
    assert word == "settings shipped for aspect on cora"
    assert find_experiment("aspect", "cora", "defaults")[0].settings == {}
    assert find_experiment("aspect", None, None)[1] == "defaults"
    assert find_experiment("aspect", "cora", "published")[0].settings["epochs"] == 2000
    assert find_experiment("aspect", "cora", "paper")[0].settings["gate_input"] == "raw"


def test_settings_told_as_changes_are_taken_over_and_changed():
    plain, _ = find_experiment("aspect", "cora", "published")
    stable, word = find_experiment("aspect-s", "cora", "published")
    assert word == "published settings of aspect-s on cora"
    assert stable.settings | plain.settings == stable.settings
    assert set(stable.settings) - set(plain.settings) >= {"perturbation_steps", "rayleigh_weight"}
    assert stable.probe == plain.probe
    assert stable.settings_of == ""


def test_every_graph_that_aspect_has_settings_for_has_some_for_the_stable_variant():
    names = {path.name for path in (FOLDER / "aspect").glob("*.yaml")}
    assert names == {path.name for path in (FOLDER / "aspect-s").glob("*.yaml")}


def test_changes_of_settings_that_are_not_shipped_are_refused(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("method: aspect-s\nsettings_of: aspect\nsettings: {interval: 3}\n")
    with pytest.raises(SettingsError, match=r"No settings of 'aspect' are shipped as mine.yaml"):
        load_experiment(path)


@pytest.mark.parametrize(("graph", "choice"), [(None, "published"), ("tolokers", "published")])
def test_no_published_settings_for_what_was_not_published(graph, choice):
    with pytest.raises(SettingsError, match="No published settings are shipped for 'aspect'"):
        find_experiment("aspect", graph, choice)


def test_settings_of_the_search_by_one_rule_have_their_trials_and_no_others():
    """Tables mark what was not searched by the word that is read off the origin."""
    files = [path for path in FOLDER.glob("*/*.yaml") if not path.name.endswith(".published.yaml")]
    searched = {
        f"{path.stem}-{path.parent.name}"
        for path in files
        if load_experiment(path).chosen_by == "searched"
    }
    trials = Path(__file__).parents[2] / "results" / "searches"
    assert searched == {path.stem for path in trials.glob("*.csv")}


def test_who_chose_settings_is_a_word():
    assert Experiment().chosen_by == "defaults"
    assert find_experiment("raw", "cora", None)[0].chosen_by == "defaults"
    assert find_experiment("aspect", "cora", "published")[0].chosen_by == "official"
    assert find_experiment("aspect", None, "paper")[0].chosen_by == "official"
    rule = (
        "Highest mean validation accuracy, 9.00%, of {} trials (0 failed) of aspect tune 1; it is "
        "trial 3. Mean over 10 {} splits and pre-training seed 0, by the neutral probe. Mean "
        "cosine 0. Start: {}, 8.00%."
    )
    for given, word in (
        ((20, "search", "defaults"), "searched"),
        ((20, "search", "official settings of dgi on cora"), "searched"),
        ((20, "search", "settings shipped for dgi on cora"), "earlier"),
        ((36, "search", "defaults"), "earlier"),
        ((20, "class-balanced", "defaults"), "earlier"),
    ):
        experiment = Experiment(settings={"epochs": 1}, origin=rule.format(*given))
        assert experiment.chosen_by == word
        area = experiment.origin.replace("accuracy", "ROC AUC")
        assert experiment.model_copy(update={"origin": area}).chosen_by == word
    on_top = rule.format(20, "search", "settings shipped for aspect on cora")
    for method, word in (("aspect-s", "searched"), ("aspect", "earlier"), ("dgi", "earlier")):
        assert Experiment(method=method, settings={"epochs": 1}, origin=on_top).chosen_by == word
