"""Plans: what cannot be meant is refused before any work."""

import pytest

from aspect.errors import FileError, SettingsError, UnknownNameError
from aspect.experiment.plan import load_plan, plan_names
from experiment.grids import cells_of, make_plan


def write(tmp_path, text, name="own.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entries": []}, "entries"),
        ({"graphs": []}, "graphs"),
        ({"entries": ["raw", "raw"]}, "different names, 'raw' comes twice"),
        ({"details": ["low"]}, "'low' is not an entry"),
        ({"entries": [{"name": "raw", "group": "aspect"}]}, "'aspect' is not an entry"),
        ({"seeds_of": {"cora": 2}}, "'cora' is not a graph"),
        ({"seeds": 0}, "seeds"),
        ({"splits": "balanced"}, "splits"),
        ({"sede": 1}, "Did you mean 'seeds'"),
        ({"perturbations": ["nothing"]}, r"perturbations.0' .* must be 'none'"),
        ({"perturbations": [{"kind": "rndom"}]}, r"perturbations.0.kind' .* must be .*'random'"),
        ({"perturbations": [{"kind": "random", "budgets": [1.5]}]}, "budgets.0' .* equal to 1"),
        ({"perturbations": [{"kind": "random", "solver": "none"}]}, "solver"),
        ({"perturbations": [{"kind": "metattack"}]}, "metattack must name its solver: unrolled"),
        ({"perturbations": [{"kind": "metattack", "solver": "convex"}]}, "solver' .* 'unrolled'"),
        ({"perturbations": [{"kind": "random", "solver": "implicit"}]}, "random has no solver"),
        ({"perturbations": [{"kind": "dice", "solver": "unrolled"}]}, "dice has no solver"),
        ({"name": "../elsewhere"}, "fit for a folder"),
        ({"name": ".."}, "fit for a folder"),
    ],
)
def test_what_cannot_be_meant_is_refused(changes, words):
    with pytest.raises(SettingsError, match=words):
        make_plan(**changes)


def test_a_change_for_all_that_no_entry_knows_is_refused():
    make_plan(entries=["aspect", "raw"], set={"width": 8}).check_changes()
    with pytest.raises(UnknownNameError, match=r"Unknown setting.*'widht'.*Did you mean 'width'"):
        make_plan(entries=["aspect", "raw"], set={"widht": 8}).check_changes()
    with pytest.raises(UnknownNameError, match="'width'"):
        make_plan(entries=["raw"], set={"width": 8}).check_changes()


def test_options_for_files_need_a_file(tmp_path):
    text = "entries: [raw]\ngraphs: [mixed{more}]\nreading: {{nodes: nodes.csv}}\n"
    with pytest.raises(SettingsError, match="nodes belongs to a graph in files"):
        load_plan(write(tmp_path, text.format(more="")))
    load_plan(write(tmp_path, text.format(more=", edges.csv")))


def test_graphs_that_share_a_short_name_keep_their_folders():
    plan = make_plan(graphs=["mixed", "a/g.npz", "b/g.npz", "b/h.npz"])
    assert list(plan.short_names().values()) == ["mixed", "a/g.npz", "b/g.npz", "h"]


def test_a_part_of_a_plan_has_the_same_cells():
    plan = make_plan(entries=["aspect", "low", "raw"], details=["aspect", "low"])
    part = plan.only(entries=("raw", "low"), graphs=("mixed", "mixed"))
    assert [entry.name for entry in part.entries] == ["low", "raw"]
    assert part.details == ("low",)
    assert {cell.key for cell in cells_of(part)} == {
        cell.key for cell in cells_of(plan) if cell.entry != "aspect"
    }


def test_parts_that_are_not_there_are_answered_with_the_nearest():
    plan = make_plan(graphs=["mixed", "cora"])
    with pytest.raises(UnknownNameError, match=r"Unknown entry of the plan 'aspct'.*'aspect'"):
        plan.only(entries=("aspct",))
    with pytest.raises(UnknownNameError, match=r"Unknown graph of the plan 'core'.*'cora'"):
        plan.only(graphs=("core",))


def test_a_plan_is_called_as_its_file_unless_it_says_otherwise(tmp_path):
    text = "entries: [raw]\ngraphs: [mixed]\n"
    assert load_plan(write(tmp_path, text)).name == "own"
    assert load_plan(write(tmp_path, text + "name: other\n")).name == "other"


def test_names_in_a_file_are_checked(tmp_path):
    with pytest.raises(UnknownNameError, match="Unknown method 'aspct'"):
        load_plan(write(tmp_path, "entries: [aspct]\ngraphs: [mixed]\n"))
    with pytest.raises(UnknownNameError, match="Unknown data set or file 'core'"):
        load_plan(write(tmp_path, "entries: [raw]\ngraphs: [core]\n"))
    with pytest.raises(UnknownNameError, match="Unknown method 'none'"):
        load_plan(write(tmp_path, "entries: [{name: raw, settings_of: none}]\ngraphs: [mixed]\n"))


def test_plans_that_are_not_there(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'smoke'"):
        load_plan("smok")
    with pytest.raises(FileError, match="no such file"):
        load_plan(str(tmp_path / "none.yaml"))


def test_the_plans_of_the_paper_are_shipped():
    assert {"clean", "perturbed", "ablation", "sweep", "smoke"} <= set(plan_names())


def attacks_of(name):
    """What a shipped plan does to its graphs: kind, solver, mode and budgets."""
    return [
        (each.kind, each.solver, each.mode, each.budgets)
        for each in load_plan(name).perturbations
        if each is not None
    ]


def test_the_perturbed_tables_are_of_metattack_the_originals_first():
    unrolled = ("metattack", "unrolled", "poison", (0.1,))
    assert attacks_of("perturbed") == [unrolled, ("metattack", "implicit", "poison", (0.1,))]
    assert attacks_of("ablation") == [unrolled]
    ((*attack, budgets),) = attacks_of("sweep")
    assert attack == list(unrolled[:3])
    assert budgets == (0.05, 0.1, 0.15, 0.2, 0.25)
    for name in ("perturbed", "ablation", "sweep"):
        assert None in load_plan(name).perturbations


def test_a_clean_graph_is_written_as_the_word_that_it_is_read_from():
    plan = make_plan(perturbations=["none", {"kind": "random", "budgets": [0.2]}])
    told = plan.model_dump(mode="json", exclude_defaults=True)["perturbations"]
    assert told == ["none", {"kind": "random", "budgets": [0.2]}]
    assert make_plan(perturbations=told) == plan


def test_the_smoke_test_attacks_in_both_modes():
    modes = {mode for kind, _, mode, _ in attacks_of("smoke") if kind == "metattack"}
    assert modes == {"poison", "evade"}
