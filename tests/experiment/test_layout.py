"""Cells of a plan: splits, seeds and settings; the same or the impossible is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from aspect.errors import SettingsError
from aspect.experiment.facts import ReadFacts
from aspect.experiment.flips import Flips, FlipsFile, Slot
from aspect.experiment.layout import lay_out
from aspect.experiment.plan import load_plan, plan_names
from aspect.methods.registry import find_method
from experiment.grids import FACTS, cells_of, make_plan


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
    for cell in lay_out(plan, facts, "cpu"):
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
    (cell,) = lay_out(plan, {"mixed": ReadFacts(sha256="0" * 64, num_splits=3)}, "cpu")
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


def test_published_splits_are_a_part_of_the_work():
    plan = make_plan(entries=["raw"], splits="published")
    first, second = (
        lay_out(plan, {"mixed": replace(FACTS, splits_sha256=each * 64)}, "cpu")[0] for each in "ab"
    )
    assert first.key != second.key


@pytest.mark.parametrize("name", plan_names())
def test_every_shipped_plan_lays_out_its_cells(name):
    plan = load_plan(name)
    facts = {
        graph: ReadFacts(sha256=f"{place:064}", num_splits=10)
        for place, graph in enumerate(plan.graphs)
    }
    cells = lay_out(plan, facts, "cpu")
    assert len({cell.key for cell in cells}) == len(cells) > 0
    assert {cell.entry for cell in cells} == {entry.name for entry in plan.entries}


ATTACK = {"kind": "metattack", "solver": "implicit", "budgets": [0.1, 0.2]}


def known(splits):
    """Files of these splits, whose digests tell split and budget."""
    return Flips(
        {
            Slot("mixed", "metattack", "implicit", split): FlipsFile(
                Path(f"{split}"), {budget: f"{split} at {budget}" for budget in (0.1, 0.2)}
            )
            for split in splits
        }
    )


def test_cells_are_bound_to_the_flips_of_their_splits():
    plan = make_plan(
        entries=["raw"],
        perturbations=[
            "none",
            {"kind": "random"},
            ATTACK,
            {**ATTACK, "mode": "evade", "budgets": [0.2]},
        ],
    )
    cells = lay_out(plan, {"mixed": FACTS}, "cpu", known([0, 1]))
    assert [cell.work.perturbation_sha256 for cell in cells] == [
        None,
        None,
        None,
        ("0 at 0.1",),
        ("1 at 0.1",),
        ("0 at 0.2",),
        ("1 at 0.2",),
        ("0 at 0.2", "1 at 0.2"),
    ]


def test_cells_without_their_file_have_keys_of_their_own():
    plan = make_plan(entries=["raw"], perturbations=[ATTACK, {**ATTACK, "mode": "evade"}])
    before = lay_out(plan, {"mixed": FACTS}, "cpu")
    after = lay_out(plan, {"mixed": FACTS}, "cpu", known([0]))
    changed = [cell.key != other.key for cell, other in zip(before, after, strict=True)]
    assert changed == [True, False, True, False, False, False]
    assert len({cell.key for cell in before}) == len(before)


def test_a_method_that_embeds_no_other_graph_is_not_evaded(monkeypatch):
    monkeypatch.setattr(find_method("raw").method, "inductive", False)
    poisoned = make_plan(perturbations=["none", {"kind": "random"}])
    assert cells_of(poisoned)
    evaded = make_plan(perturbations=["none", {"kind": "random", "mode": "evade"}])
    with pytest.raises(SettingsError, match=r"Entry 'raw' of the plan 'toy' cannot be evaded"):
        cells_of(evaded)


WARY = {"name": "wary", "method": "raw", "doubt": [0.3, 0.2]}


def test_doubting_entries_are_works_of_their_own():
    plain, wary = cells_of(make_plan(entries=["raw", WARY]))
    assert (plain.work.doubt, wary.work.doubt) == (None, (0.0, 0.2, 0.3))
    assert plain.key != wary.key
    assert "doubt" not in plain.work.model_dump()


def test_a_method_that_embeds_no_other_graph_cannot_doubt_its_own(monkeypatch):
    monkeypatch.setattr(find_method("raw").method, "inductive", False)
    with pytest.raises(SettingsError, match=r"Entry 'wary' of the plan 'toy' cannot doubt edges: "):
        cells_of(make_plan(entries=[WARY]))


def test_edges_are_not_doubted_where_the_probe_sees_the_clean_graph():
    plan = make_plan(entries=[WARY], perturbations=[{"kind": "random", "mode": "evade"}])
    with pytest.raises(SettingsError, match=r"cannot doubt edges in mode evade"):
        cells_of(plan)


@pytest.mark.parametrize("doubt", [[], [1.0], [-0.1], [0.1, float("nan")]])
def test_a_share_to_doubt_is_at_least_nothing_and_less_than_everything(doubt):
    with pytest.raises(SettingsError, match="doubt"):
        make_plan(entries=[{**WARY, "doubt": doubt}])
