"""`make settings`: what it searches for, and how a search becomes a shipped file."""

import re
import time

import pytest

from aspect.experiment.search import search_space
from aspect.methods.registry import find_method
from aspect.settings import FOLDER, load_experiment
from scripts import load_script

script = load_script("settings")


def write_search(folder, *, trials, settings="{width: 64}"):
    folder.mkdir(parents=True)
    lines = ["trial,state", *(f"{number},complete" for number in range(trials))]
    (folder / "trials.csv").write_text("\n".join(lines) + "\n")
    (folder / "settings.yaml").write_text(
        f"method: dgi\ngraph: texas\ngraph_sha256: abc\nseed: 0\nsettings: {settings}\n"
        "origin: Highest mean validation accuracy, 70.00%, of some trials.\n"
    )


def test_it_searches_all_baselines_where_nothing_official_is_shipped():
    searches = {(planned.method, planned.graph) for planned in script.planned_searches()}
    assert ("dgi", "texas") in searches
    assert ("dgi", "cora") not in searches  # official
    methods = {method for method, _ in searches}
    assert not methods & {"aspect", "aspect-s", "raw", "random", "low", "high"}
    assert len(methods | {"greet"}) == 17  # GREET's authors tell settings for every graph


def test_it_can_be_asked_for_a_part():
    (only,) = script.planned_searches(["grace"], ["actor"])
    assert (only.method, only.graph) == ("grace", "actor")
    assert only.command[:4] == ["tune", "actor", "--method", "grace"]
    assert only.command[only.command.index("--config") + 1] == "defaults"
    assert "--max-epochs" not in only.command
    assert "--seeds" not in only.command


def test_ours_is_searched_by_name_on_all_graphs_from_what_is_shipped():
    ours = list(script.planned_searches(["aspect"], trials=30))
    assert [each.graph for each in ours] == list(script.PLAN.graphs)
    for each in ours:
        assert "--config" not in each.command
        assert each.command[each.command.index("--trials") + 1] == "30"


def test_small_graphs_are_searched_with_several_seeds_unless_epochs_are_slow():
    (small,) = script.planned_searches(["grace"], ["texas"])
    assert small.command[small.command.index("--seeds") + 1] == "3"
    assert small.command[small.command.index("--max-epochs") + 1] == "200"
    for slow in script.planned_searches(script.WITH_ONE_SEED, ["wisconsin"]):
        assert "--seeds" not in slow.command


@pytest.mark.parametrize("words", [["--method", "grcae"], ["--method", "raw"], ["--graph", "coar"]])
def test_what_is_never_searched_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        script.main(["--ship", *words])
    assert f"argument {words[0]}: invalid choice: {words[1]!r}" in capsys.readouterr().err


def test_settings_of_the_authors_leave_nothing_to_search(capsys):
    assert script.main(["--method", "dgi", "--graph", "cora"]) == 0
    assert "Nothing to search" in capsys.readouterr().out


def test_dear_searches_say_that_they_are_shorter():
    (dear,) = script.planned_searches(["gca"], ["pubmed"])
    most = dear.command[dear.command.index("--max-epochs") + 1]
    assert int(most) < find_method("gca").config().epochs


def test_a_complete_search_is_shipped_without_what_belongs_to_its_run(tmp_path):
    each = script.PlannedSearch("dgi", "texas")
    write_search(tmp_path / "searches" / each.name, trials=script.TRIALS)
    path = script.ship(each, tmp_path / "searches", tmp_path)
    assert path == tmp_path / "dgi" / "texas.yaml"
    found = load_experiment(path)
    assert (found.method, found.graph, found.settings) == ("dgi", "texas", {"width": 64})
    assert found.graph_sha256 is None
    assert "validation accuracy" in found.origin


def test_a_search_is_shipped_after_enough_trials_if_one_is_healthy(tmp_path):
    planned = script.PlannedSearch("dgi", "texas")
    assert script.ship(planned, tmp_path / "nowhere", tmp_path) is None
    for trials, is_shipped in ((0, False), (script.LEAST_TRIALS - 1, False), (10, True)):
        searches = tmp_path / str(trials)
        write_search(searches / planned.name, trials=trials)
        assert (script.ship(planned, searches, tmp_path) is not None) == is_shipped
    (searches / planned.name / "settings.yaml").unlink()  # none is healthy
    assert script.ship(planned, searches, tmp_path) is None


def test_what_is_shipped_came_from_a_whole_search():
    for each in script.planned_searches():
        shipped = load_experiment(FOLDER / each.method / f"{each.graph}.yaml")
        origin = " ".join(shipped.origin.split())
        assert int(re.search(r"of (\d+) trials", origin)[1]) >= script.LEAST_TRIALS, each.name
        if each.is_small and each.method not in script.WITH_ONE_SEED:
            assert "seeds 0, 1, 2" in origin, each.name
        default = find_method(each.method).config().epochs
        assert shipped.settings["epochs"] <= max(each.most_epochs or 0, default), each.name


def test_what_a_search_found_is_a_default_or_could_be_drawn():
    searched = [path for path in FOLDER.glob("*/*.yaml") if "of aspect tune" in path.read_text()]
    assert len(searched) > 100
    for path in searched:
        experiment = load_experiment(path)
        if "it is trial 0." in experiment.origin:
            continue  # the start, which was not drawn
        config = find_method(experiment.method).config
        most_epochs = script.PlannedSearch(path.parent.name, path.stem).most_epochs
        for name, drawn in search_space(experiment.method, config).items():
            value = experiment.settings[name]
            if name == "patience" and value is None:  # off where the best epoch is a setting
                continue
            if name == "epochs" and value == most_epochs:
                continue  # more were drawn than a trial may have
            is_default = value == config.model_fields[name].default
            choices = getattr(drawn, "choices", ())
            assert is_default or value in choices or drawn.low <= value <= drawn.high, (path, name)


def test_a_failed_search_is_told(tmp_path, capsys):
    given = ["--method", "dgi", "--graph", "texas", "--searches", str(tmp_path)]
    assert script.main([*given, "--device", "nowhere"]) == 2
    assert "aspect tune texas --method dgi" in capsys.readouterr().err


def test_a_failed_search_leaves_the_others_their_time(tmp_path, capsys, monkeypatch):
    def run(words, options):
        graph, seconds = words[1], float(options[options.index("--seconds") + 1])
        assert 0 <= seconds <= 1000
        if graph == "texas":
            raise script.CommandFailedError("All trials failed.")
        assert "--device" in options
        health = {"mean_cosine": 0.25}
        return {"searches": [{"start": None, "validation": 70.0, "trials": 12, "health": health}]}

    monkeypatch.setattr(script, "run_command", run)
    given = ["--method", "aspect", "--graph", "texas", "--graph", "wisconsin"]
    given += ["--searches", str(tmp_path), "--seconds", "1000", "--device", "cuda"]
    assert script.main(given) == 2
    told = capsys.readouterr()
    assert "aspect: 70.00% on validation nodes after 12 trials" in told.out
    assert "texas-aspect: All trials failed." in told.err


def test_time_that_is_over_is_told_as_no_seconds(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        script, "run_command", lambda _, options: seen.extend(options) or {"searches": [{}]}
    )
    script.search(script.PlannedSearch("aspect", "texas"), tmp_path, None, time.monotonic() - 5)
    assert seen[seen.index("--seconds") + 1] == "0"
