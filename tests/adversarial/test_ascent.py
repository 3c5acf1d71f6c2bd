"""The search: it climbs, keeps to its budgets, and ends with a graph without halves."""

from dataclasses import dataclass, field, replace

import pytest
import torch

from adversarial.searches import generator, make, problem_of, small_graph
from aspect.adversarial.ascent import Ascent, _discrete, ascend
from aspect.adversarial.problem import Change, InnerProblem, Seen
from aspect.data.graph import Graph
from reference.graphs import random_graph

HOW = Ascent(
    steps=5,
    budget=12,
    edge_step=0.5,
    step_rule="normalised",
    feature_step=0.25,
    feature_box=0.6,
    discretisation="draws",
    draws=4,
)


@dataclass(frozen=True, eq=False)
class Watched(InnerProblem):
    """A problem that remembers what was tried."""

    tried: list[tuple[Change, Seen]] = field(default_factory=list)

    def see(self, change):
        seen = super().see(change)
        self.tried.append((change, Seen(*(each.detach() for each in vars(seen).values()))))
        return seen


def watched(how, seed=0):
    """Every graph that a search looked at, in order: the steps, the last one, and the draws."""
    problem = problem_of(make(small_graph(seed)).eval(), small_graph(seed), seed)
    own = Watched(**vars(problem))
    return own.tried, ascend(own, how, generator(seed))


def searched(how=HOW, seed=0, **changes):
    graph = small_graph(seed)
    problem = problem_of(make(graph, **changes).eval(), graph, seed)
    return problem, ascend(problem, how, generator(seed))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("discretisation", ["draws", "largest"])
def test_the_search_raises_the_objective(seed, discretisation):
    _, found = searched(replace(HOW, discretisation=discretisation), seed)
    assert found.relaxed > float(found.before.objective) + 1e-3
    assert float(found.seen.objective) > float(found.before.objective) + 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_it_beats_as_many_random_flips(seed):
    problem, found = searched(seed=seed)
    count, drawn = int(found.change.flips.sum()), []
    for number in range(20):
        flips = torch.zeros_like(found.change.flips)
        order = torch.randperm(len(flips), generator=generator(100 + number))
        flips[order[:count]] = 1
        drawn.append(float(problem.see(Change(flips, found.change.moves)).objective))
    assert float(found.seen.objective) > max(drawn)


@pytest.mark.parametrize("budget", [0, 1, 7, 1000])
@pytest.mark.parametrize("rule", ["normalised", "raw"])
@pytest.mark.parametrize("discretisation", ["draws", "largest"])
def test_no_budget_is_ever_exceeded(budget, rule, discretisation):
    how = replace(HOW, budget=budget, step_rule=rule, edge_step=50.0, discretisation=discretisation)
    problem, found = searched(how)
    assert set(found.change.flips.unique().tolist()) <= {0.0, 1.0}
    assert int(found.change.flips.sum()) <= budget
    box = how.feature_box * problem.entries.size
    assert float(found.change.moves.abs().max()) <= box * (1 + 1e-12)
    assert len(found.change.moves) == problem.entries.count


def test_a_draw_over_the_budget_loses_its_smallest_shares():
    shares = torch.linspace(0.5, 1.0, 40).double()  # together far above the budget
    again = generator()
    for each in _discrete(Change(shares, torch.zeros(0)), HOW, generator()):
        drawn = torch.bernoulli(shares, generator=again).nonzero().flatten()  # the same draw
        assert len(drawn) > HOW.budget
        assert torch.equal(each.flips.nonzero().flatten(), drawn[-HOW.budget :])


def test_the_largest_shares_are_taken_in_order():
    shares = torch.tensor([0.1, 0.0, 0.9, 0.5, 0.0]).double()
    how = replace(HOW, budget=2, discretisation="largest")
    (only,) = _discrete(Change(shares, torch.zeros(0)), how, generator())
    assert only.flips.tolist() == [0, 0, 1, 1, 0]
    (more,) = _discrete(Change(shares, torch.zeros(0)), replace(how, budget=5), generator())
    assert more.flips.tolist() == [1, 0, 1, 1, 0]


@pytest.mark.parametrize("seed", range(3))
def test_the_best_iterate_is_drawn_from_and_the_best_draw_is_kept(seed):
    # Steps that are far too long go up and down again.
    how = replace(HOW, draws=6, edge_step=3.0)
    tried, found = watched(how, seed)
    values = [float(seen.objective) for _, seen in tried]
    relaxed, drawn = values[: how.steps + 1], values[how.steps + 1 :]
    assert len(drawn) == how.draws
    assert len(set(drawn)) > 1
    assert values[0] == float(found.before.objective)
    assert found.relaxed == max(relaxed)
    assert float(found.seen.objective) == max(drawn)
    best, last = tried[relaxed.index(max(relaxed))][0], tried[how.steps + 1 :]
    for change, _ in last:
        assert torch.equal(change.moves, best.moves)
        assert bool((best.flips[change.flips == 1] > 0).all())


def test_steps_shrink_with_the_root_of_their_number():
    """The paper's rule on pairs, and sign steps on entries, where no bound is in the way."""
    how = replace(HOW, steps=3, step_rule="raw", edge_step=0.01, feature_box=10.0, budget=1000)
    tried, _ = watched(how)
    for number in range(1, 4):
        (before, _), (after, _) = tried[number - 1 : number + 1]
        flips, moves = before.flips.requires_grad_(), before.moves.requires_grad_()
        problem = problem_of(make(small_graph()).eval(), small_graph())
        slopes = torch.autograd.grad(problem.see(Change(flips, moves)).objective, (flips, moves))
        expected = (flips + 0.01 / number**0.5 * slopes[0]).clamp(0, 1)
        torch.testing.assert_close(after.flips, expected)
        step = how.feature_step * problem.entries.size * slopes[1].sign()
        torch.testing.assert_close(after.moves, before.moves + step)


def test_the_same_seed_finds_the_same_change():
    first, again = (searched()[1] for _ in range(2))
    assert torch.equal(first.change.flips, again.change.flips)
    assert torch.equal(first.change.moves, again.change.moves)


def test_a_normalised_step_does_not_know_the_scale_of_the_loss():
    problem, found = searched()
    louder = replace(
        problem, contrast=lambda q, k: 1000 * problem.contrast(q, k), rayleigh_weight=700.0
    )
    assert problem.rayleigh_weight == 0.7
    scaled = ascend(louder, HOW, generator())
    assert torch.equal(scaled.change.flips, found.change.flips)


def test_a_raw_step_on_a_mean_over_nodes_flips_next_to_nothing():
    shares = {}
    for rule in ("raw", "normalised"):
        tried, _ = watched(replace(HOW, step_rule=rule, steps=1, edge_step=1.0))
        shares[rule] = float(tried[1][0].flips.sum())
    assert shares["raw"] < 0.5
    assert shares["normalised"] == pytest.approx(HOW.budget)


@pytest.mark.parametrize("rule", ["normalised", "raw"])
@pytest.mark.parametrize("candidates", [0.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nodes_without_neighbours_and_loop_are_searched_without_complaint(dtype, candidates, rule):
    """The root of a degree has no slope at zero: nodes lose all edges here, or have none."""
    graph = random_graph(24, 30, isolated=3, dtype=dtype)
    method = make(graph, self_loops=False, candidates=candidates).eval()
    own = Watched(**vars(problem_of(method, graph)))
    how = replace(HOW, steps=8, edge_step=20.0, step_rule=rule, budget=graph.num_edges)
    found = ascend(own, how, generator())
    assert int(found.change.flips.sum()) > 0
    for change, seen in own.tried:
        assert all(bool(each.isfinite().all()) for each in vars(change).values())
        assert all(bool(each.isfinite().all()) for each in vars(seen).values())


@pytest.mark.parametrize("features", [torch.zeros(6, 3), torch.ones(6, 3)])
def test_a_graph_without_edges_is_searched_without_complaint(features):
    graph = Graph.build(features.double(), torch.empty(2, 0, dtype=torch.long))
    problem = problem_of(make(graph, batch_norm=False).eval(), graph)
    found = ascend(problem, replace(HOW, budget=0), generator())
    assert int(found.change.flips.sum()) == 0
    assert bool(torch.isfinite(found.seen.objective))
