"""Attacks that a plan needs: to the largest budget, once for all modes, with default settings."""

import pytest
import torch

from aspect.attacks.registry import attack_info, find_attack
from aspect.data.archives import read_npz, write_npz
from aspect.data.graph import Graph
from aspect.errors import GraphError
from aspect.experiment.attack_plan import budgets_by_attack, plan_attack_again
from aspect.experiment.facts import read_facts
from experiment.attacked import IMPLICIT, attacked_plan, write_graph
from experiment.grids import make_plan


@pytest.fixture
def path(tmp_path):
    return write_graph(tmp_path / "small.npz")


def attacks_of(plan):
    ((_, facts),) = read_facts(plan, None)
    return facts.attacks


def test_kinds_and_solvers_are_those_of_the_attacks():
    for solver in attack_info("metattack").solvers:
        assert attacked_plan("g", {"kind": "metattack", "solver": solver}).perturbations


def test_one_attack_serves_all_budgets_and_modes():
    plan = make_plan(
        perturbations=[
            "none",
            {"kind": "random", "budgets": [0.5]},
            {**IMPLICIT, "budgets": [0.2, 0.05]},
            {**IMPLICIT, "mode": "evade", "features": False, "budgets": [0.1]},
            {"kind": "dice"},
        ]
    )
    assert budgets_by_attack(plan) == {
        ("metattack", "implicit"): (0.05, 0.1, 0.2),
        ("dice", ""): (0.1,),
    }


def test_an_attack_is_wanted_for_every_split_that_the_plan_takes(path):
    labelled = read_npz(path)
    attacks = attacks_of(attacked_plan(path, {**IMPLICIT, "budgets": [0.1, 0.3]}, num_splits=3))
    assert [each.split for each in attacks] == [0, 1, 2]
    assert {each.wanted for each in attacks} == {round(0.3 * labelled.graph.num_edges)}
    config = find_attack("metattack").settle({"solver": "implicit"}, labelled.graph)
    settings = config.model_dump(mode="json", exclude={"solver"})
    assert {each.solver for each in attacks} == {"implicit"}
    assert all(each.settings == settings for each in attacks)


def test_no_attack_no_files(path):
    assert attacks_of(attacked_plan(path, "none", {"kind": "random"})) == ()


def test_the_attack_that_facts_describe_can_be_run(path):
    labelled = read_npz(path)
    for facts in attacks_of(attacked_plan(path, IMPLICIT, {"kind": "dice"})):
        again = plan_attack_again(facts, labelled, torch.device("cpu")).facts
        assert again == facts


def test_graphs_of_one_name_have_files_of_their_own(tmp_path):
    paths = []
    for seed, folder in enumerate(("a", "b")):
        (tmp_path / folder).mkdir()
        paths.append(write_graph(tmp_path / folder / "g.npz", seed=seed))
    plan = attacked_plan(paths[0], IMPLICIT, graphs=[*map(str, paths)], num_splits=1)
    names = [facts.attacks[0].file_name for _, facts in read_facts(plan, None)]
    assert len(set(names)) == 2
    assert all(name.startswith("g-") for name in names)
    ((_, part),) = read_facts(plan, None, [str(paths[1])])
    assert part.attacks[0].file_name == names[1], "a part of the plan finds the same file"


@pytest.mark.parametrize(
    ("budgets", "words"), [([0.001, 0.1], "allows no flip"), ([0.001], "allows no flip")]
)
def test_a_budget_that_flips_nothing_is_refused_beforehand(path, budgets, words):
    with pytest.raises(GraphError, match=rf"small\.npz' cannot be attacked\. .*{words}"):
        attacks_of(attacked_plan(path, {**IMPLICIT, "budgets": budgets}))


def test_a_graph_without_edges_is_refused_beforehand(tmp_path):
    path = write_graph(tmp_path / "bare.npz")
    labelled = read_npz(path)
    bare = Graph(labelled.graph.features, torch.empty((2, 0), dtype=torch.long))
    write_npz(path, type(labelled)(bare, labelled.labels, labelled.class_names), overwrite=True)
    with pytest.raises(GraphError, match=r"cannot be attacked\. An attack needs edges"):
        attacks_of(attacked_plan(path, IMPLICIT))
