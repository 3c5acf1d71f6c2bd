"""`make settings`: one rule for every search, and how a search becomes a shipped file."""

import math
import shutil
from importlib import import_module

import pytest

from aspect.experiment.executor import Lost
from aspect.experiment.search import search_space
from aspect.experiment.tuning import load_search
from aspect.methods.registry import find_method
from aspect.settings import FOLDER, load_experiment
from experiment.tuning.searches import search_for, small_search
from scripts import load_script

script = load_script("settings")
TEXAS = FOLDER / "aspect" / "texas.yaml"


@pytest.fixture(autouse=True)
def _nothing_is_shipped_yet(tmp_path, monkeypatch):
    monkeypatch.setattr(script, "SHIPPED_TRIALS", tmp_path / "trials")


def test_every_method_is_searched_on_every_graph():
    searches = script.planned_searches()
    methods = {planned.method for planned in searches}
    assert {"aspect", "aspect-s", "dgi", "greet"} <= methods
    assert not methods & {"raw", "random", "low", "high"}
    assert len(methods) == 19
    assert len(searches) == 19 * 15 == len({planned.name for planned in searches})


def test_it_can_be_asked_for_a_part():
    (only,) = script.planned_searches(["grace"], ["actor"])
    assert (only.method, only.graph, only.name) == ("grace", "actor", "actor-grace")


@pytest.mark.parametrize("graph", ["texas", "cora", "pubmed"])
def test_one_rule_serves_all_methods_of_a_graph(graph):
    requests = {
        script.PlannedSearch(method, graph).request
        for method in script.searched_methods()
        if method not in script.MOST_EPOCHS_WITH_SEARCH and method != "aspect-s"
    }
    (request,) = requests
    assert (request.splits, request.probe, request.max_cosine) == ("search", "neutral", 1)
    assert request.seeds == (3 if graph == "texas" else 1)


def test_only_methods_with_a_search_inside_have_fewer_epochs():
    ariel, grace = (script.PlannedSearch(name, "cora").request for name in ("ariel", "grace"))
    assert ariel.max_epochs < grace.max_epochs
    assert ariel == grace.model_copy(update={"max_epochs": ariel.max_epochs})


def test_official_settings_are_the_first_trial():
    start, word = script.PlannedSearch("dgi", "cora").start()
    assert start.settings == load_experiment(script.official_file("dgi", "cora")).settings != {}
    assert word == "official settings of dgi on cora"
    assert script.PlannedSearch("dgi", "texas").start()[0].settings == {}


def test_ours_starts_from_its_defaults_although_the_paper_has_settings():
    assert script.official_file("aspect", "cora") is not None
    start, word = script.PlannedSearch("aspect", "cora").start()
    assert (start.settings, word) == ({}, "defaults")


@pytest.mark.data
def test_the_stable_variant_searches_what_it_adds_to_aspect_as_found():
    planned, found = script.PlannedSearch("aspect-s", "texas"), load_experiment(TEXAS)
    search = planned.plan("cpu")
    assert search.settings | found.settings == search.settings
    assert search.max_epochs == found.settings["epochs"]
    assert not search.searches_epochs
    assert set(search.space) <= set(search.settings) - set(found.settings)
    assert {"interval", "stability_weight", "perturbation_budget"} <= set(search.space)
    assert search.settings_from == "settings shipped for aspect on texas"


@pytest.mark.parametrize("words", [["--method", "grcae"], ["--method", "raw"], ["--graph", "coar"]])
def test_what_is_never_searched_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        script.main(["--ship", *words])
    assert f"argument {words[0]}: invalid choice: {words[1]!r}" in capsys.readouterr().err


@pytest.fixture
def searched(path, tmp_path, monkeypatch):
    """A complete search as one of DGI on Texas, and its folder."""
    monkeypatch.setattr(script, "TRIALS", 2)
    planned = script.PlannedSearch("dgi", "texas")
    searches = tmp_path / "searches"
    search_for(small_search(path, method="dgi"), searches / planned.name, 2)
    return planned, searches


def test_a_complete_search_is_shipped_without_what_belongs_to_its_run(searched, tmp_path):
    planned, searches = searched
    path = script.ship(planned, searches, tmp_path)
    assert path == tmp_path / "dgi" / "texas.yaml"
    found, (result, _) = load_experiment(path), load_search(searches / planned.name)
    assert (found.method, found.graph, found.settings) == ("dgi", "texas", result.best.settings)
    assert found.graph_sha256 is None
    assert "of 2 trials" in found.origin
    assert planned.shipped_trials.read_text() == result.table()


def test_what_was_found_is_a_table(searched, tmp_path, capsys):
    planned, searches = searched
    script.ship(planned, searches, tmp_path)
    assert script.main(["--table"]) == 0
    result, _ = load_search(searches / planned.name)
    assert capsys.readouterr().out.split()[-2:] == ["dgi", f"{result.best.validation:.1f}"]


def test_a_search_that_was_shipped_is_not_carried_out_again(searched, tmp_path, capsys):
    planned, searches = searched
    script.ship(planned, searches, tmp_path)
    words = ["--method", "dgi", "--graph", "texas", "--searches", str(tmp_path / "none")]
    assert script.main(words) == 0
    assert capsys.readouterr().out == "0 of 1 searches are left.\n"


def test_a_search_with_too_few_trials_is_not_shipped(searched, tmp_path, monkeypatch):
    planned, searches = searched
    assert script.ship(planned, tmp_path / "nowhere", tmp_path) is None
    monkeypatch.setattr(script, "TRIALS", 3)
    assert script.ship(planned, searches, tmp_path) is None


def test_a_search_that_was_begun_goes_on_elsewhere(searched, tmp_path, monkeypatch):
    planned, searches = searched
    first, _ = load_search(searches / planned.name)
    monkeypatch.setattr(script, "TRIALS", 3)
    script.ship(planned, searches, tmp_path)
    monkeypatch.setattr(script.PlannedSearch, "plan", lambda *_: first.search)
    elsewhere = tmp_path / "elsewhere"
    script.carry_out(planned, elsewhere, 3, "cpu", math.inf)
    result, _ = load_search(elsewhere / planned.name)
    assert result.trials[:2] == first.trials
    assert len(result.trials) == 3
    assert script.ship(planned, elsewhere, tmp_path) is not None
    assert not planned.begun.exists()


def test_official_settings_are_kept_beside_those_that_were_found(searched, tmp_path):
    _, searches = searched
    planned = script.PlannedSearch("dgi", "cora")
    (searches / "texas-dgi").rename(searches / planned.name)
    official = tmp_path / "dgi" / "cora.yaml"
    official.parent.mkdir()
    shutil.copy(script.official_file("dgi", "cora"), official)
    kept = official.read_text()
    for _ in range(2):  # the second time there is nothing to keep any more
        assert script.ship(planned, searches, tmp_path) == official
        assert (tmp_path / "dgi" / "cora.published.yaml").read_text() == kept
        assert official.read_text() != kept


def test_what_a_search_found_is_a_default_or_could_be_drawn():
    searched = [path for path in FOLDER.glob("*/*.yaml") if "of aspect tune" in path.read_text()]
    assert len(searched) > 100
    for path in searched:
        experiment = load_experiment(path)
        if "it is trial 0." in experiment.origin:
            continue  # the start, which was not drawn
        config = find_method(experiment.method).config
        for name, drawn in search_space(experiment.method, config).items():
            if name not in experiment.settings:
                continue  # a setting that came after the search
            value = experiment.settings[name]
            if name == "patience" and value is None:  # off where the best epoch is a setting
                continue
            if name == "epochs":
                continue  # more may have been drawn than a trial may have
            is_default = value == config.model_fields[name].default
            choices = getattr(drawn, "choices", ())
            assert is_default or value in choices or drawn.low <= value <= drawn.high, (path, name)


def test_a_failed_search_leaves_the_others_their_time(tmp_path, capsys, monkeypatch):
    class Executor:
        def __init__(self, workers):
            assert workers == 2

        def run(self, _work, tasks):
            first, second = tasks
            yield script.Started(first)
            yield Lost(first, "All trials failed.")
            yield script.Finished(second, "70.00% on validation nodes.")

    monkeypatch.setattr(import_module("commands"), "LocalProcesses", Executor)
    given = ["--method", "aspect", "--graph", "texas", "--graph", "wisconsin"]
    assert script.main([*given, "--searches", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert "wisconsin-aspect: 70.00% on validation nodes." in told.out
    assert "texas-aspect: All trials failed." in told.err


def test_after_its_time_no_search_is_begun(tmp_path):
    planned = script.PlannedSearch("dgi", "texas")
    word = script.carry_out(planned, tmp_path, 2, "cpu", until=0.0)
    assert word == "not begun: the time is over."
    assert not list(tmp_path.iterdir())


def test_trials_run_in_this_process_one_after_the_other():
    seen = []
    events = script.InThisProcess().run(lambda task: seen.append(task) or -task, iter([1, 2]))
    assert next(events) == script.Started(1)
    assert seen == []
    assert list(events) == [script.Finished(1, -1), script.Started(2), script.Finished(2, -2)]
