"""Plans: what cannot be meant is refused; what a graph offers; the runs that are laid out."""

from dataclasses import replace

import pytest
import torch

from aspect import mixed_graph
from aspect.attacks.pruning import Pruning
from aspect.data.archives import content_sha256, write_npz
from aspect.errors import FileError, GraphError, SettingsError, UnknownNameError
from aspect.experiment import plan as plan_module
from aspect.experiment.perturbations import BenchFiles
from aspect.experiment.plan import (
    Plan,
    ReadFacts,
    lay_out,
    load_plan,
    plan_names,
    read_facts,
    short_names,
)
from aspect.methods.registry import find_method
from experiment.grids import FACTS, cells_of, make_plan, metattack_files


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
        ({"seeds": 1e9}, "seeds' .* less than or equal to 1000"),
        ({"entries": [{"name": "raw", "seeds": 10**9}]}, "seeds"),
        ({"entries": [{"name": "raw", "num_splits": 0}]}, "num_splits"),
        ({"splits": "balanced"}, "splits"),
        ({"also": [{"splits": "random"}]}, "every kind of splits must come once"),
        ({"also": [{"splits": "published", "graphs": ["cora"]}]}, "'cora' is not a graph"),
        ({"sede": 1}, "Did you mean 'seeds'"),
        ({"perturbations": ["nothing"]}, r"perturbations.0' .* must be 'none'"),
        (
            {"perturbations": [{"kind": "rndom"}]},
            r"perturbations.0.kind' .*Unknown attack 'rndom'.*'random'",
        ),
        ({"perturbations": [{"kind": "random", "budgets": [1.5]}]}, "budgets.0' .* equal to 1"),
        ({"perturbations": [{"kind": "random", "solver": "none"}]}, "solver"),
        ({"perturbations": [{"kind": "metattack"}]}, "metattack must name its solver: unrolled"),
        ({"perturbations": [{"kind": "nettack"}]}, "nettack attacks single nodes, which a plan"),
        (
            {"perturbations": [{"kind": "metattack", "solver": "convex"}]},
            "metattack must name its solver: unrolled",
        ),
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


def test_an_entry_says_where_its_settings_go(tmp_path):
    text = "graphs: [mixed]\nentries: [{name: aspect, settings: {epochs: 2}}]\n"
    with pytest.raises(SettingsError, match=r"by the key set\. Got settings\."):
        load_plan(write(tmp_path, text))


def test_options_for_files_need_a_file(tmp_path):
    text = "entries: [raw]\ngraphs: [mixed{more}]\nreading: {{nodes: nodes.csv}}\n"
    with pytest.raises(SettingsError, match="nodes belongs to a graph in files"):
        load_plan(write(tmp_path, text.format(more="")))
    load_plan(write(tmp_path, text.format(more=", edges.csv")))


def test_graphs_that_share_a_short_name_keep_their_folders():
    names = short_names(["mixed", "a/g.npz", "b/g.npz", "b/h.npz"])
    assert list(names.values()) == ["mixed", "a/g.npz", "b/g.npz", "h"]


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
    assert attacks_of("perturbed") == [
        ("metattack", solver, mode, (0.1,))
        for solver in ("unrolled", "implicit")
        for mode in ("poison", "evade")
    ]
    assert attacks_of("stability") == attacks_of("perturbed")[:2]
    ((*attack, budgets),) = attacks_of("sweep")
    assert attack == list(unrolled[:3])
    assert budgets == (0.05, 0.1, 0.15, 0.2, 0.25)
    for name in ("perturbed", "sweep"):
        assert None in load_plan(name).perturbations


def test_the_perturbed_tables_have_all_methods_of_the_clean_ones():
    clean, perturbed = load_plan("clean"), load_plan("perturbed")
    entries = {entry.name: entry for entry in perturbed.entries}
    compared = [entry for entry in clean.entries if entry.name != "high"]
    assert [entries[entry.name].title for entry in compared] == [entry.title for entry in compared]
    beside = {"aspect-s", "aspect-pruned", "propagated-pruned"}
    assert set(entries) - {entry.name for entry in compared} == beside
    assert {entry.num_splits for entry in perturbed.entries} == {None, 3}
    assert all(
        entry.num_splits is None
        for entry in perturbed.entries
        if find_method(entry.registered).family == "control"
    )


def test_a_clean_graph_is_written_as_the_word_that_it_is_read_from():
    plan = make_plan(perturbations=["none", {"kind": "random", "budgets": [0.2]}])
    told = plan.model_dump(mode="json", exclude_defaults=True)["perturbations"]
    assert told == ["none", {"kind": "random", "budgets": [0.2]}]
    assert make_plan(perturbations=told) == plan


def test_the_smoke_test_attacks_in_both_modes():
    modes = {mode for kind, _, mode, _ in attacks_of("smoke") if kind == "metattack"}
    assert modes == {"poison", "evade"}


def test_facts_are_those_of_the_file(tmp_path, small_graph):
    path = tmp_path / "small.npz"
    write_npz(path, small_graph)
    ((name, facts),) = read_facts(make_plan(graphs=[str(path)]), None)
    assert name == str(path)
    assert facts.sha256 == content_sha256(small_graph)
    assert facts.kinds == ((10, None),)
    assert (facts.nodes, facts.edges) == (30, small_graph.graph.num_edges)


def test_a_graph_without_the_splits_asked_for_is_refused(tmp_path, small_graph):
    path = tmp_path / "small.npz"
    write_npz(path, small_graph)
    plan = make_plan(graphs=[str(path)], splits="published")
    with pytest.raises(GraphError, match=r"small\.npz' cannot be split.*No masks"):
        list(read_facts(plan, None))


def test_published_splits_are_counted(tmp_path, small_graph):
    masks = {
        part: torch.arange(30).remainder(3).eq(place).expand(4, 30).clone()
        for place, part in enumerate(("train", "validation", "test"))
    }
    path = tmp_path / "small.npz"
    write_npz(path, replace(small_graph, masks=masks))
    plan = make_plan(graphs=[str(path)], splits="published")
    ((_, facts),) = read_facts(plan, None)
    ((count, published),) = facts.kinds
    assert count == 4
    masks["train"][3, 0], masks["test"][3, 0] = False, True
    write_npz(path, replace(small_graph, masks=masks), overwrite=True)
    ((_, moved),) = read_facts(plan, None)
    assert moved.sha256 == facts.sha256
    assert moved.kinds[0][1] != published
    ((_, drawn),) = read_facts(make_plan(graphs=[str(path)]), None)
    assert drawn.kinds[0][1] is None


def test_a_clean_cell_has_all_splits_and_a_poisoned_one_has_one():
    plan = make_plan(entries=["aspect"], perturbations=["none", {"kind": "random"}])
    clean, *poisoned = cells_of(plan)
    assert clean.spec.split_numbers == (0, 1)
    assert clean.spec.perturbation is None
    assert [cell.spec.split_numbers for cell in poisoned] == [(0,), (1,)]


def test_an_evaded_cell_has_one_training_for_all_splits():
    planned = {"kind": "random", "mode": "evade", "budgets": [0.1, 0.2]}
    cells = cells_of(make_plan(entries=["aspect"], perturbations=[planned]))
    assert [cell.spec.split_numbers for cell in cells] == [(0, 1), (0, 1)]
    assert [cell.spec.perturbation.budget for cell in cells] == [0.1, 0.2]


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
    facts = {"mixed": FACTS, "cora": replace(FACTS, sha256="1" * 64)}
    count = {}
    for cell in lay_out(plan, facts, "cpu"):
        perturbation = cell.spec.perturbation
        what = (cell.graph, cell.entry, perturbation and perturbation.budget)
        count.setdefault(what, []).append(cell.spec.seed)
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
    (cell,) = lay_out(plan, {"mixed": replace(FACTS, kinds=((3, None),))}, "cpu")
    assert cell.spec.split_numbers == (0, 1, 2)


def test_an_entry_may_have_fewer_splits_than_the_plan_wherever_it_runs():
    plan = make_plan(
        entries=["aspect", {"name": "raw", "num_splits": 2}, {"name": "low", "num_splits": 9}],
        num_splits=3,
        also=[{"splits": "published"}],
        perturbations=["none", {"kind": "random"}, {"kind": "random", "mode": "evade"}],
    )
    facts = {"mixed": replace(FACTS, kinds=((10, None), (4, "a" * 64)))}
    numbers = {}
    for cell in lay_out(plan, facts, "cpu"):
        numbers.setdefault(cell.entry, []).append(cell.spec.split_numbers)
    assert numbers["raw"] == [(0, 1), (0, 1), (0,), (1,), (0, 1)]
    whole = [(0, 1, 2), (0, 1, 2), (0,), (1,), (2,), (0, 1, 2)]
    assert numbers["aspect"] == numbers["low"] == whole


def test_an_entry_may_limit_the_splits_of_a_plan_that_has_all():
    plan = make_plan(entries=["aspect", {"name": "raw", "num_splits": 3}], num_splits=None)
    assert [len(cell.spec.split_numbers) for cell in cells_of(plan)] == [10, 3]


def test_a_limit_that_changes_nothing_keeps_the_keys():
    plain, limited = (
        {cell.key for cell in cells_of(make_plan(entries=[{"name": "raw", **more}]))}
        for more in ({}, {"num_splits": 5})
    )
    assert plain == limited


def test_settings_of_searches_come_first(tmp_path):
    best = "method: aspect\ngraph: mixed\nsettings: {width: 24, order: 7}\n"
    one, several = tmp_path / "one", tmp_path / "several"
    for folder in (one, several / "any name"):
        folder.mkdir(parents=True)
        (folder / "settings.yaml").write_text(best)
    text = "entries: [aspect, {name: low, settings_of: aspect}, dgi]\ngraphs: [mixed]\n"
    file = write(tmp_path, text)
    for plan in (
        load_plan(file, searches=one),
        load_plan(file, searches=several),
        load_plan(write(tmp_path, f"{text}searches: {one}\n", "other.yaml")),
    ):
        found = {cell.entry: cell for cell in cells_of(plan)}
        assert {found[name].spec.settings["order"] for name in ("aspect", "low")} == {7}
        assert [found[name].chosen_by for name in ("aspect", "dgi")] == ["own search", "defaults"]
    assert "own search" not in {cell.chosen_by for cell in cells_of(load_plan(file))}
    (tmp_path / "empty").mkdir()
    for empty in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(SettingsError, match="holds no search of a method of the plan"):
            load_plan(file, searches=empty)


def test_a_search_on_another_file_of_the_same_name_is_left_aside(tmp_path):
    """Every graph called edges.csv got the settings of the last search on one."""
    here, there, moved = (tmp_path / name / "edges.npz" for name in ("here", "there", "moved"))
    for seed, path in enumerate((here, there)):
        path.parent.mkdir()
        write_npz(path, mixed_graph(40, seed=seed))
        made = tmp_path / "searches" / str(seed) / "settings.yaml"
        made.parent.mkdir(parents=True)
        sha256 = content_sha256(mixed_graph(40, seed=seed))
        made.write_text(
            f"method: aspect\ngraph: {path}\ngraph_sha256: {sha256}\n"
            f"settings: {{width: {seed + 8}}}\n"
        )
    graphs = [str(here), str(there)]
    plan = make_plan(entries=["aspect"], graphs=graphs, searches=str(tmp_path / "searches"))
    cells = lay_out(plan, dict(read_facts(plan, None)), "cpu")
    assert [cell.spec.settings["width"] for cell in cells] == [8, 9]
    here.parent.rename(moved.parent)
    plan = plan.model_copy(update={"graphs": (str(moved), str(there))})
    cells = lay_out(plan, dict(read_facts(plan, None)), "cpu")
    assert [cell.spec.settings["width"] for cell in cells] == [8, 9]
    write_npz(there, mixed_graph(40, seed=2), overwrite=True)
    _, changed = lay_out(plan, dict(read_facts(plan, None)), "cpu")
    assert changed.spec.settings["width"] != 9


def test_settings_come_from_the_shipped_ones_then_the_plan_then_the_entry():
    variant = {"name": "small", "method": "aspect", "set": {"width": 8}}
    plan = make_plan(entries=["aspect", variant, "raw"], set={"width": 16, "order": 3})
    settings = {cell.entry: cell.spec.settings for cell in cells_of(plan)}
    assert settings["aspect"]["width"] == 16
    assert settings["small"]["width"] == 8
    assert settings["small"]["order"] == 3
    assert "width" not in settings["raw"], "changes for all reach those that know them"


@pytest.mark.parametrize("settings", ["shipped", "defaults"])
def test_settings_that_a_plan_changes_are_chosen_by_hand(settings):
    def cells(*entries, **changes):
        return cells_of(make_plan(settings=settings, entries=entries, graphs=["cora"], **changes))

    def words(*entries, **changes):
        return [cell.chosen_by for cell in cells(*entries, **changes)]

    chooser = {"shipped": "searched"}.get(settings, settings)
    epochs = cells("aspect")[0].spec.settings["epochs"]
    variant = {"name": "small", "method": "aspect", "set": {"width": 8}}
    assert words("aspect", "raw", variant) == [chooser, "", "by hand"]
    assert words("aspect", "raw", set={"epochs": epochs + 1}) == ["by hand", ""]
    # What is set to the value that it has already changes nothing.
    same = {"epochs": epochs}
    assert words({"name": "aspect", "set": same}) == words("aspect", set=same) == [chooser]


def test_a_setting_without_a_default_may_come_from_the_plan(monkeypatch):
    class Needy(find_method("grace").config):
        must: int

    needy = replace(find_method("grace"), config=Needy)
    monkeypatch.setattr(plan_module, "find_method", {"grace": needy}.__getitem__)
    (cell,) = cells_of(make_plan(entries=["grace"], set={"must": 3}))
    assert (cell.spec.settings["must"], cell.chosen_by) == (3, "by hand")


def test_a_control_may_borrow_the_settings_of_a_method():
    borrowed = {"name": "low", "settings_of": "aspect"}
    plan = make_plan(entries=["aspect", borrowed], settings="shipped", graphs=["cora"])
    first, second = (cell.spec.settings for cell in cells_of(plan))
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
        lay_out(plan, {"mixed": replace(FACTS, kinds=((10, each * 64),))}, "cpu")[0]
        for each in "ab"
    )
    assert first.key != second.key


def test_other_splits_are_of_clean_graphs_and_share_the_training():
    plan = make_plan(
        entries=["aspect"],
        also=[{"splits": "published"}, {"splits": "class-balanced", "probe": "paper"}],
        perturbations=["none", {"kind": "random"}, {"kind": "random", "mode": "evade"}],
    )
    facts = {"mixed": replace(FACTS, kinds=((10, None), (4, "a" * 64), (10, None)))}
    specs = [cell.spec for cell in lay_out(plan, facts, "cpu")]
    clean = [spec for spec in specs if spec.perturbation is None]
    assert [(spec.splits, spec.splits_sha256, spec.probe) for spec in clean] == [
        ("random", None, "neutral"),
        ("published", "a" * 64, "neutral"),
        ("class-balanced", None, "paper"),
    ]
    poisoned = [spec for spec in specs if spec.perturbation and spec.perturbation.mode == "poison"]
    evaded = [spec for spec in specs if spec.perturbation and spec.perturbation.mode == "evade"]
    assert {spec.splits for spec in (*poisoned, *evaded)} == {"random"}
    assert len({spec.training for spec in (*clean, *evaded)}) == 1
    assert len({spec.training for spec in poisoned}) == len(poisoned) == 2
    others = [clean[0].model_copy(update=change) for change in ({"seed": 1}, {"settings": {}})]
    assert clean[0].training not in {spec.training for spec in others}


def test_probes_choose_by_the_metric_of_the_data_set():
    """What published tables report stays as it is, and so do the keys of accuracy."""
    plan = make_plan(
        entries=["raw"],
        graphs=["mixed", "tolokers"],
        also=[{"splits": "class-balanced", "probe": "paper"}],
    )
    facts = replace(FACTS, kinds=2 * ((10, None),))
    by_graph = {"mixed": facts, "tolokers": replace(facts, sha256="1" * 64)}
    specs = [cell.spec for cell in lay_out(plan, by_graph, "cpu")]
    assert [spec.metric for spec in specs] == [None, None, "roc-auc", None]
    assert ["metric" in spec.model_dump() for spec in specs] == [False, False, True, False]
    assert len({spec.training for spec in specs}) == 2


def test_other_splits_of_some_graphs_alone():
    plan = make_plan(
        entries=["raw"],
        graphs=["mixed", "cora"],
        also=[{"splits": "published", "graphs": ["cora"]}],
    )
    assert [len(plan.evaluations(graph)) for graph in plan.graphs] == [1, 2]


@pytest.mark.parametrize("name", plan_names())
def test_every_shipped_plan_lays_out_its_cells(name):
    plan = load_plan(name)
    facts = {
        graph: ReadFacts(f"{place:064}", len(plan.evaluations(graph)) * ((10, None),))
        for place, graph in enumerate(plan.graphs)
    }
    cells = lay_out(plan, facts, "cpu")
    assert len({cell.key for cell in cells}) == len(cells) > 0
    assert {cell.entry for cell in cells} == {entry.name for entry in plan.entries}


ATTACK = {"kind": "metattack", "solver": "implicit", "budgets": [0.1, 0.2]}


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
    cells = lay_out(plan, {"mixed": FACTS}, "cpu", BenchFiles(metattack_files([0, 1])))
    assert [cell.spec.perturbation_sha256 for cell in cells] == [
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
    after = lay_out(plan, {"mixed": FACTS}, "cpu", BenchFiles(metattack_files([0])))
    changed = [cell.key != other.key for cell, other in zip(before, after, strict=True)]
    assert changed == [True, False, True, False, False, False]
    assert len({cell.key for cell in before}) == len(before)


def test_a_method_that_embeds_no_other_graph_is_not_evaded(monkeypatch):
    monkeypatch.setattr(find_method("raw").method, "inductive", False)
    poisoned = make_plan(perturbations=["none", {"kind": "random"}])
    assert cells_of(poisoned)
    evaded = make_plan(perturbations=["none", {"kind": "random", "mode": "evade"}])
    with pytest.raises(SettingsError, match=r"Entry 'raw' of .*: raw cannot embed a graph"):
        cells_of(evaded)
    left_out = {"kind": "random", "mode": "evade", "without": ["raw"]}
    plan = make_plan(entries=["raw", "propagated"], perturbations=["none", left_out])
    modes = [(cell.entry, cell.spec.perturbation is None) for cell in cells_of(plan)]
    assert set(modes) == {("raw", True), ("propagated", True), ("propagated", False)}
    with pytest.raises(SettingsError, match="'none' is not an entry of this plan"):
        make_plan(perturbations=[{"kind": "random", "without": ["none"]}])


WARY = {"name": "wary", "method": "raw", "prune": [0.3, 0.2]}


def test_pruning_entries_have_keys_of_their_own():
    plain, wary = cells_of(make_plan(entries=["raw", WARY]))
    assert (plain.spec.prune, wary.spec.prune) == (None, (0.0, 0.2, 0.3))
    assert plain.key != wary.key
    assert "prune" not in plain.spec.model_dump()


@pytest.mark.parametrize("prune", ["auto", 0.2, {"ratio": 0.2, "score": "support"}])
def test_an_entry_is_pruned_in_training_unless_it_lists_ratios(prune):
    plan = make_plan(entries=["raw", {**WARY, "prune": prune}])
    plain, wary = cells_of(plan)
    assert (plain.spec.pruning, wary.spec.pruning) == (None, Pruning.of(prune))
    assert wary.spec.prune is None
    assert plain.key != wary.key
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan


def test_a_method_that_embeds_no_other_graph_cannot_prune_its_own(monkeypatch):
    monkeypatch.setattr(find_method("raw").method, "inductive", False)
    with pytest.raises(SettingsError, match=r"Entry 'wary' of .* its edges cannot be pruned"):
        cells_of(make_plan(entries=[WARY]))


def test_edges_are_not_pruned_where_the_probe_sees_the_clean_graph():
    plan = make_plan(entries=[WARY], perturbations=[{"kind": "random", "mode": "evade"}])
    with pytest.raises(SettingsError, match=r"prune does not go with mode evade"):
        cells_of(plan)


@pytest.mark.parametrize("prune", [[], [1.0], [-0.1], [0.1, float("nan")]])
def test_a_ratio_to_prune_is_at_least_nothing_and_less_than_everything(prune):
    with pytest.raises(SettingsError, match="prune"):
        make_plan(entries=[{**WARY, "prune": prune}])
