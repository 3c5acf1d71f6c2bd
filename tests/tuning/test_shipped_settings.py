"""`make settings`: what it searches for, and how a search becomes a shipped file."""

import pytest

from aspect.experiments import FOLDER, load_experiment
from aspect.methods.registry import find_method
from aspect.tuning.space import Space
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
    wanted = {(each.method, each.graph) for each in script.wanted()}
    assert ("dgi", "texas") in wanted
    assert ("dgi", "cora") not in wanted  # official
    methods = {method for method, _ in wanted}
    assert not methods & {"aspect", "aspect-s", "raw", "random", "low", "high"}
    assert len(methods | {"greet"}) == 17  # GREET's authors tell settings for every graph


def test_it_can_be_asked_for_a_part():
    (only,) = script.wanted(["grace"], ["actor"])
    assert (only.method, only.graph) == ("grace", "actor")
    assert only.command[:4] == ["tune", "actor", "--method", "grace"]
    assert "--max-epochs" not in only.command
    assert "--seeds" not in only.command


def test_small_graphs_are_searched_with_several_seeds():
    (small,) = script.wanted(["grace"], ["texas"])
    assert small.command[small.command.index("--seeds") + 1] == "3"
    assert small.command[small.command.index("--max-epochs") + 1] == "200"


@pytest.mark.parametrize("method", script.WITH_ONE_SEED)
def test_methods_whose_epochs_are_dear_are_searched_with_one(method):
    (small,) = script.wanted([method], ["wisconsin"])
    assert "--seeds" not in small.command


@pytest.mark.parametrize(
    "words", [["--method", "grcae"], ["--method", "aspect"], ["--graph", "coar"]]
)
def test_what_is_never_searched_is_refused(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        script.main(["--ship", *words])
    assert f"argument {words[0]}: invalid choice: {words[1]!r}" in capsys.readouterr().err


def test_settings_of_the_authors_leave_nothing_to_search(capsys):
    assert script.main(["--method", "dgi", "--graph", "cora"]) == 0
    assert "Nothing to search" in capsys.readouterr().out


def test_dear_searches_say_that_they_are_shorter():
    (dear,) = script.wanted(["gca"], ["pubmed"])
    most = dear.command[dear.command.index("--max-epochs") + 1]
    assert int(most) < find_method("gca").config().epochs


def test_a_complete_search_is_shipped_without_what_belongs_to_its_run(tmp_path):
    each = script.Wanted("dgi", "texas")
    write_search(tmp_path / "searches" / each.name, trials=script.TRIALS)
    path = script.ship(each, tmp_path / "searches", tmp_path)
    assert path == tmp_path / "dgi" / "texas.yaml"
    found = load_experiment(path)
    assert (found.method, found.graph, found.settings) == ("dgi", "texas", {"width": 64})
    assert found.graph_sha256 is None
    assert "validation accuracy" in found.origin


@pytest.mark.parametrize("trials", [None, 0, 19])
def test_an_unfinished_search_is_not_shipped(tmp_path, trials):
    each = script.Wanted("dgi", "texas")
    if trials is not None:
        write_search(tmp_path / "searches" / each.name, trials=trials)
    assert script.ship(each, tmp_path / "searches", tmp_path) is None
    assert not (tmp_path / "dgi").exists()


@pytest.mark.parametrize("each", list(script.wanted()), ids=lambda each: each.name)
def test_what_is_shipped_came_from_a_whole_search(each):
    shipped = load_experiment(FOLDER / each.method / f"{each.graph}.yaml")
    assert f"of {script.TRIALS} trials" in shipped.origin
    if each.is_small and each.method not in script.WITH_ONE_SEED:
        assert "seeds 0, 1, 2" in " ".join(shipped.origin.split())
    default = find_method(each.method).config().epochs
    assert shipped.settings["epochs"] <= max(each.most_epochs or 0, default)


FOUND = [path for path in sorted(FOLDER.glob("*/*.yaml")) if "of aspect tune" in path.read_text()]


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_search_found_is_a_default_or_could_be_drawn(path):
    experiment = load_experiment(path)
    space = Space.of(experiment.method, {})
    for name, drawn in space.distributions.items():
        value, default = experiment.settings[name], getattr(space.base, name)
        if name == "patience" and value is None:  # off where the epochs were found in passing
            continue
        if name == "epochs" and value == script.Wanted(path.parent.name, path.stem).most_epochs:
            continue  # more were drawn than a trial may have
        choices = getattr(drawn, "choices", ())
        assert value == default or value in choices or drawn.low <= value <= drawn.high


def test_a_failed_search_is_told(tmp_path, capsys):
    given = ["--method", "dgi", "--graph", "texas", "--searches", str(tmp_path)]
    assert script.main([*given, "--device", "nowhere"]) == 2
    assert "aspect tune texas --method dgi" in capsys.readouterr().err
