"""Perturbed graphs: decided by split and kind alone, nested over budgets."""

import pytest
import torch

from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.features import dense
from aspect.errors import GraphError, RunError
from aspect.experiment.perturbation import Perturbation
from aspect.experiment.perturbed import Change, perturb
from aspect.randomness import generator_for


def edges(graph):
    return {tuple(pair) for pair in graph.edge_index.t().tolist()}


def same(first, second):
    equal = torch.equal(dense(first.features), dense(second.features))
    return equal and torch.equal(first.edge_index, second.edge_index)


def test_the_budget_counts_edges_and_masks_features(small_graph):
    graph = small_graph.graph
    perturbed = perturb(graph, Perturbation(kind="random", budget=0.2), 0)
    assert len(edges(graph) ^ edges(perturbed)) == 2 * round(0.2 * graph.num_edges)
    before, after = dense(graph.features), dense(perturbed.features)
    draws = torch.rand(
        int((before != 0).sum()),
        generator=generator_for(0, "perturbation", "random", "features"),
        dtype=torch.float64,
    )
    assert torch.equal(after[before != 0] == 0, draws < 0.2)
    assert torch.equal(after[after != 0], before[after != 0])


def test_edges_alone(small_graph):
    graph = small_graph.graph
    perturbed = perturb(graph, Perturbation(kind="random", features=False), 0)
    assert perturbed.features is graph.features


def test_the_mode_changes_nothing_and_the_split_everything(small_graph):
    graph = small_graph.graph
    first, again, other = (
        perturb(graph, Perturbation(kind="random", mode=mode), split)
        for mode, split in (("poison", 0), ("evade", 0), ("poison", 1))
    )
    assert same(first, again)
    assert not same(first, other)
    assert edges(first) != edges(other)


def test_smaller_budgets_are_parts_of_larger_ones(small_graph):
    graph = small_graph.graph
    less, more = (
        perturb(graph, Perturbation(kind="random", budget=budget), 3) for budget in (0.1, 0.3)
    )
    assert (edges(graph) ^ edges(less)) < (edges(graph) ^ edges(more))
    gone = dense(less.features) == 0
    assert bool((dense(more.features)[gone] == 0).all())


def attacked(small_graph, path):
    """A file of flips, and what it holds."""
    request = AttackRequest(kind="dice", budget=0.3, splits="random")
    (planned,) = plan_attacks(small_graph, "small", request, [2], torch.device("cpu"))
    return run_attack(planned, PerturbationFile.open(path, planned.facts))


@pytest.mark.parametrize("features", [True, False])
def test_a_file_is_applied_as_it_says(small_graph, tmp_path, features):
    trace = attacked(small_graph, tmp_path / "flips")
    what = Perturbation(kind="dice", budget=0.2, features=features)
    change = Change(what, 2, tmp_path / "flips", trace.digest(0.2))
    assert same(change.apply(small_graph), trace.apply(small_graph, 0.2, features=features))
    note = change.note()
    assert note.flips == round(0.2 * small_graph.graph.num_edges)
    assert (note.settings, note.seed, note.device) == ({"keep_last_edges": True}, 0, "cpu")


def test_what_is_drawn_has_no_file_and_no_note(small_graph):
    what = Perturbation(kind="random", budget=0.2)
    assert same(Change(what, 1).apply(small_graph), perturb(small_graph.graph, what, 1))
    assert Change(what, 1).note() is None


def test_a_file_that_changed_is_refused(small_graph, tmp_path):
    trace = attacked(small_graph, tmp_path / "flips")
    what = Perturbation(kind="dice", budget=0.2)
    change = Change(what, 2, tmp_path / "flips", trace.digest(0.1))
    with pytest.raises(RunError, match=r"flips' changed since the bench began.*0\.2 must be"):
        change.apply(small_graph)


def test_a_file_of_another_graph_is_refused(small_graph, tmp_path):
    trace = attacked(small_graph, tmp_path / "flips")
    other = type(small_graph)(small_graph.graph, 1 - small_graph.labels, ("0", "1"))
    change = Change(Perturbation(kind="dice"), 2, tmp_path / "flips", trace.digest(0.1))
    with pytest.raises(GraphError, match="belongs to the graph 'small'"):
        change.apply(other)
