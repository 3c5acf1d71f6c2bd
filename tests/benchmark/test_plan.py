"""Plans: what they ask for becomes cells; what cannot be meant is refused before any work."""

from dataclasses import replace

import pytest

from aspect.benchmark.plan import ReadFacts, load_plan, plan_names
from aspect.errors import FileError, SettingsError, UnknownNameError
from benchmark.grids import FACTS, cells_of, make_plan


def write(tmp_path, text, name="own.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_a_clean_cell_has_all_splits_and_a_poisoned_one_has_one():
    plan = make_plan(entries=["aspect"], perturbations=["none", {"kind": "random"}])
    clean, *poisoned = cells_of(plan)
    assert clean.work.split_numbers == (0, 1)
    assert clean.work.perturbation is None
    assert [cell.work.split_numbers for cell in poisoned] == [(0,), (1,)]


def test_an_evaded_cell_has_one_training_for_all_splits():
    planned = {"kind": "random", "mode": "evade", "budgets": [0.1, 0.2]}
    cells = cells_of(make_plan(entries=["aspect"], perturbations=[planned]))
    assert [cell.work.split_numbers for cell in cells] == [(0, 1), (0, 1)]
    assert [cell.work.perturbation.budget for cell in cells] == [0.1, 0.2]


def test_seeds_are_counted_by_plan_graph_entry_and_perturbation():
    plan = make_plan(
        entries=["aspect", {"name": "raw", "seeds": 1}],
        graphs=["mixed", "cora"],
        num_splits=1,
        seeds=3,
        seeds_of={"cora": 2},
        perturbations=[
            "none",
            {"kind": "random", "seeds": 2},
            {"kind": "random", "budgets": [0.2]},
        ],
    )
    facts = {"mixed": FACTS, "cora": ReadFacts(sha256="1" * 64, num_splits=10)}
    count = {}
    for cell in plan.cells(facts, "cpu"):
        perturbation = cell.work.perturbation
        what = (cell.graph, cell.entry, perturbation and perturbation.budget)
        count.setdefault(what, []).append(cell.work.seed)
    assert count == {
        ("mixed", "aspect", None): [0, 1, 2],
        ("mixed", "aspect", 0.1): [0, 1],
        ("mixed", "aspect", 0.2): [0],
        ("mixed", "raw", None): [0],
        ("mixed", "raw", 0.1): [0],
        ("mixed", "raw", 0.2): [0],
        ("cora", "aspect", None): [0, 1],
        ("cora", "aspect", 0.1): [0, 1],
        ("cora", "aspect", 0.2): [0],
        ("cora", "raw", None): [0],
        ("cora", "raw", 0.1): [0],
        ("cora", "raw", 0.2): [0],
    }


def test_no_more_splits_than_there_are():
    plan = make_plan(entries=["raw"], num_splits=10)
    (cell,) = plan.cells({"mixed": ReadFacts(sha256="0" * 64, num_splits=3)}, "cpu")
    assert cell.work.split_numbers == (0, 1, 2)


def test_settings_come_from_the_shipped_ones_then_the_plan_then_the_entry():
    variant = {"name": "small", "method": "aspect", "set": {"width": 8}}
    plan = make_plan(entries=["aspect", variant, "raw"], set={"width": 16, "order": 3})
    settings = {cell.entry: cell.work.settings for cell in cells_of(plan)}
    assert settings["aspect"]["width"] == 16
    assert settings["small"]["width"] == 8
    assert settings["small"]["order"] == 3
    assert "width" not in settings["raw"], "changes for all reach those that know them"


def test_a_control_may_borrow_the_settings_of_a_method():
    borrowed = {"name": "low", "settings_of": "aspect"}
    plan = make_plan(entries=["aspect", borrowed], settings="shipped", graphs=["cora"])
    first, second = (cell.work.settings for cell in cells_of(plan))
    assert first == second


def test_an_entrys_own_changes_must_be_known():
    plan = make_plan(entries=[{"name": "raw", "set": {"widht": 3}}])
    with pytest.raises(SettingsError, match="Unknown setting 'widht' of raw"):
        cells_of(plan)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entries": ["raw", {"name": "again", "method": "raw"}]}, "'raw' and 'again' .* the same"),
        ({"graphs": ["mixed", "mixed"]}, "'aspect' on mixed twice"),
        ({"graphs": ["mixed", "cora"], "entries": ["raw"]}, "'mixed' and 'cora' .* same graph"),
        ({"perturbations": [{"kind": "random", "budgets": [0.1, 0.1]}]}, "on mixed twice"),
    ],
)
def test_the_same_work_twice_is_refused(changes, words):
    with pytest.raises(SettingsError, match=words):
        cells_of(make_plan(**changes))


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
        ({"perturbations": ["nothing"]}, r"perturbations.0\S+ .* must be 'none'"),
        ({"perturbations": [{"kind": "rndom"}]}, r"perturbations.0.*kind' .* must be .*'random'"),
        ({"perturbations": [{"kind": "random", "budgets": [1.5]}]}, "budgets.0' .* equal to 1"),
        ({"perturbations": [{"kind": "random", "solver": "none"}]}, "solver"),
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


def test_published_splits_are_a_part_of_the_work():
    plan = make_plan(entries=["raw"], splits="published")
    first, second = (
        plan.cells({"mixed": replace(FACTS, splits_sha256=each * 64)}, "cpu")[0] for each in "ab"
    )
    assert first.key != second.key


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


@pytest.mark.parametrize("name", plan_names())
def test_every_shipped_plan_lays_out_its_cells(name):
    plan = load_plan(name)
    facts = {
        graph: ReadFacts(sha256=f"{place:064}", num_splits=10)
        for place, graph in enumerate(plan.graphs)
    }
    cells = plan.cells(facts, "cpu")
    assert len({cell.key for cell in cells}) == len(cells) > 0
    assert {cell.entry for cell in cells} == {entry.name for entry in plan.entries}


def test_the_plans_of_the_paper_are_shipped():
    assert {"clean", "perturbed", "ablation", "sweep", "smoke"} <= set(plan_names())
