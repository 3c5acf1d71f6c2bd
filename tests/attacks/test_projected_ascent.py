"""Projected gradient ascent: candidates, the inner problem, the budget, and the search itself."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from aspect.attacks import projected_ascent
from aspect.attacks.base import apply_flips
from aspect.attacks.projected_ascent import (
    Ascent,
    Change,
    InnerProblem,
    Seen,
    _discrete,
    ascend,
    draw_entries,
    draw_pairs,
    edge_candidates,
    feature_candidates,
    project_to_budget,
    slopes_of,
)
from aspect.data.features import dense
from aspect.data.graph import Graph, edge_keys
from aspect.data.operators import Propagation
from aspect.data.sparse import SparseMatrix
from attacks.searches import generator, make, problem_of, small_graph
from reference import inner_problem as reference
from reference.graphs import random_graph

# Candidates


def hops(graph):
    """Steps between all pairs of nodes, by powers of the adjacency."""
    adjacency = torch.zeros(graph.num_nodes, graph.num_nodes)
    adjacency[tuple(graph.edge_index)] = 1
    steps = torch.full_like(adjacency, torch.inf)
    reached = torch.eye(graph.num_nodes)
    for number in range(graph.num_nodes):
        steps[(reached > 0) & steps.isinf()] = number
        reached = reached @ adjacency
    return steps


def drawn_edges(graph, others, *, self_loops):
    return edge_candidates(graph, *draw_pairs(graph, others, generator()), self_loops=self_loops)


def drawn_entries(features, share):
    return feature_candidates(features, *draw_entries(features, share, generator()))


def test_all_edges_and_as_many_other_pairs_as_wanted():
    graph = random_graph(60, 90)
    drawn = drawn_edges(graph, 50, self_loops=True)
    assert len(drawn.keys) == graph.num_edges + 50
    assert torch.equal(drawn.keys, drawn.keys.unique())
    assert torch.equal(drawn.keys[drawn.present == 1], edge_keys(graph))
    low, high = drawn.keys // 60, drawn.keys % 60
    assert bool((low < high).all())


def test_half_of_the_other_pairs_are_two_hops_apart():
    graph = random_graph(400, 500, seed=3)
    drawn = drawn_edges(graph, 300, self_loops=True)
    others = drawn.keys[drawn.present == 0]
    apart = hops(graph)[others // 400, others % 400]
    assert float(apart.min()) == 2
    assert int((apart == 2).sum()) >= 150  # the random half meets some now and then
    assert int((apart > 2).sum()) > 100


def test_a_graph_that_is_nearly_full_offers_what_it_has():
    nodes = torch.arange(6)
    every = torch.combinations(nodes).t()[:, 1:]  # one pair is missing
    graph = Graph.build(torch.ones(6, 2), every)
    drawn = drawn_edges(graph, 40, self_loops=False)
    assert int((drawn.present == 0).sum()) == 1

    graph = Graph.build(torch.rand(8, 3), torch.empty(2, 0, dtype=torch.long))
    drawn = drawn_edges(graph, 10, self_loops=True)
    assert len(drawn.keys) == 5  # the random half
    assert not bool(drawn.present.any())


@pytest.mark.parametrize("self_loops", [True, False])
def test_whole_flips_give_the_operator_of_the_flipped_graph(self_loops):
    graph = random_graph(30, 60, isolated=2)
    drawn = drawn_edges(graph, 40, self_loops=self_loops)
    flips = torch.bernoulli(torch.full_like(drawn.present, 0.3), generator=generator(1))
    keys = drawn.keys[flips == 1]
    flipped = apply_flips(graph, torch.stack([keys // 30, keys % 30], dim=1))
    x = torch.randn(30, 4, dtype=torch.float64, generator=generator(2))
    expected = Propagation(flipped, self_loops=self_loops).operator()(x)
    assert_close(drawn.operator(flips)(x), expected)
    assert_close(
        drawn.operator(torch.zeros_like(flips))(x),
        Propagation(graph, self_loops=self_loops).operator()(x),
    )


def compressed(density=0.2, rows=40, columns=25):
    values = torch.rand(rows, columns, dtype=torch.float64, generator=generator(7)) + 0.5
    return SparseMatrix.from_dense(
        values * (torch.rand(rows, columns, generator=generator(8)) < density)
    )


def test_of_compressed_features_half_of_the_entries_are_stored_ones():
    features = compressed()
    drawn = drawn_entries(features, 0.4)
    stored = int((dense(features)[dense(drawn.places) == 1] != 0).sum())
    wanted = round(0.4 * len(features.values))
    assert drawn.count == wanted
    assert stored == wanted // 2
    assert drawn.size == pytest.approx(float(features.values.mean()))
    assert drawn_entries(features, 1.0).count == len(features.values)
    plain = torch.randn(20, 10, generator=generator())  # any entry may be moved
    drawn = drawn_entries(plain, 0.3)
    assert (drawn.count, drawn.size) == (60, pytest.approx(float(plain.abs().mean())))
    nothing = drawn_entries(torch.zeros(5, 4), 0.5)
    assert (nothing.count, nothing.size) == (0, 0.0)


@pytest.mark.parametrize("kind", ["compressed", "dense"])
def test_moves_are_added_and_the_layout_stays(kind):
    features = compressed() if kind == "compressed" else dense(compressed())
    drawn = drawn_entries(features, 0.4)
    moves = torch.randn(drawn.count, dtype=torch.float64, generator=generator(3))
    before = dense(features).clone()
    moved = drawn.applied(features, moves)
    assert isinstance(moved, SparseMatrix) == (kind == "compressed")
    assert_close(dense(moved), before + dense(drawn.moved(moves)))
    assert_close(dense(features), before)


# The inner problem

VARIANTS = [
    {},
    {"self_loops": False, "row_normalise": False},
    {"layer_order": "project-first"},
    {"layer_order": "project-first", "batch_norm": False, "activation": "relu"},
    {"stability_target": "band", "batch_norm": False, "rayleigh_weight": 0.0},
]


def somewhere(problem, seed=5):
    """A change in the middle of the set."""
    flips = torch.rand(len(problem.edges.keys), dtype=torch.float64, generator=generator(seed)).mul(
        0.8
    )
    moves = torch.randn(problem.entries.count, dtype=torch.float64, generator=generator(seed + 1))
    return Change(flips.requires_grad_(), (0.3 * moves).requires_grad_())


@pytest.mark.parametrize("changes", VARIANTS)
def test_value_and_gradients_are_those_of_dense_autograd(changes):
    graph = small_graph()
    method = make(graph, **changes).eval()
    problem = problem_of(method, graph)
    change = somewhere(problem)
    found = problem.see(change).objective
    expected = reference.objective(method, graph, problem, change.flips, change.moves)
    assert_close(found, expected)
    ours = torch.autograd.grad(found, (change.flips, change.moves))
    theirs = torch.autograd.grad(expected, (change.flips, change.moves))
    assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert float(ours[0].abs().max()) > 1e-6
    # Every band's Rayleigh quotient is that of the changed graph.
    adjacency = reference.changed_adjacency(graph, problem.edges.keys, change.flips)
    loops = method.config.self_loops
    laplacian = reference.normalised_laplacian(adjacency, self_loops=loops)
    seen = problem.see(change)
    energies = [reference.energy(laplacian, band) for band in seen.views]
    assert_close(seen.energies, torch.stack(energies))


def test_nothing_changed_is_the_model_as_it_embeds():
    graph = small_graph()
    method = make(graph, gate_hops=1).eval()
    problem = problem_of(method, graph)
    with torch.no_grad():
        clean, seen = method.encode(graph), problem.see(problem.nothing())
    assert_close(seen.views, clean.bands)
    assert_close(problem.weights, clean.weights)
    assert_close(problem.keys[0], clean.fused)
    assert_close(problem.keys[1], clean.fused)


@pytest.mark.parametrize("target", ["fused", "band"])
def test_both_sides_are_rescaled_by_the_bound_whatever_rescales_the_clean_graph(target):
    graph = small_graph()
    true, bound = (
        problem_of(make(graph, stability_target=target, lambda_max=kind).eval(), graph)
        for kind in ("power-iteration", "two")
    )
    change = somewhere(true)
    assert_close(true.keys, bound.keys)
    assert_close(true.weights, bound.weights)
    assert_close(true.see(change).objective, bound.see(change).objective)
    if target == "band":  # nothing changed is nothing moved
        assert_close(true.see(true.nothing()).views, true.keys)


def test_encoder_gate_and_keys_are_frozen():
    graph = small_graph()
    method = make(graph).train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    problem = problem_of(method, graph)
    change = somewhere(problem)
    problem.see(change).objective.backward()
    assert change.flips.grad is not None
    assert all(parameter.grad is None for parameter in method.parameters())
    frozen = (problem.keys, problem.weights, problem.projected, problem.encoder.weight)
    assert not any(each.requires_grad for each in frozen)
    assert_close(dict(method.state_dict()), before, rtol=0, atol=0)


# The budget


def nearest(values, budget):
    """The shift from the list of all points at which the sum's slope changes, exactly."""
    if sum(min(1.0, max(0.0, v)) for v in values) <= budget:
        return [min(1.0, max(0.0, v)) for v in values]

    def total(shift):
        return sum(min(1.0, max(0.0, v - shift)) for v in values)

    corners = sorted({0.0, *(v for v in values if v > 0), *(v - 1 for v in values if v > 1)})
    after = next(corner for corner in corners if total(corner) <= budget)
    before = max(corner for corner in corners if corner < after)
    share = (total(before) - budget) / (total(before) - total(after))
    shift = before + share * (after - before)
    return [min(1.0, max(0.0, v - shift)) for v in values]


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.integers(0, 12), st.sampled_from([1, 5])
)
def test_it_is_the_euclidean_one(values, budget, digits):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(projected_ascent, "_digits_at_once", lambda _: digits)
        projected = project_to_budget(torch.tensor(values, dtype=torch.float64), budget)
    assert_close(projected.tolist(), nearest(values, budget), atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_budget_holds_in_every_precision(dtype):
    generator = torch.Generator().manual_seed(0)
    values = 5 * torch.randn(20_000, dtype=dtype, generator=generator)
    projected = project_to_budget(values, 321)
    assert float(projected.sum()) <= 321
    assert float(projected.double().sum()) == pytest.approx(321, rel=1e-4)
    assert float(projected.min()) >= 0
    assert float(projected.max()) <= 1


def test_what_is_allowed_stays_and_nothing_is_left_of_nothing():
    inside = torch.tensor([0.2, 0.0, 1.0, 0.4])
    assert torch.equal(project_to_budget(inside, 2), inside)
    assert torch.equal(project_to_budget(inside, 0), torch.zeros(4))
    assert project_to_budget(torch.zeros(0), 3).shape == (0,)


def test_slopes_leave_parameters_alone():
    layer = torch.nn.Linear(3, 2)
    points = torch.randn(4, 3, generator=generator()), torch.zeros(2)
    value, slopes = slopes_of(lambda x, shift: (layer(x) + shift).square().mean(), *points)
    assert not value.requires_grad
    assert_close(slopes[0], 2 * layer(points[0]) @ layer.weight / 8)
    assert_close(slopes[1], 2 * layer(points[0]).sum(0) / 8)
    assert all(p.grad is None and p.requires_grad for p in layer.parameters())
    assert not any(point.requires_grad for point in points)


# The search

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


@pytest.mark.parametrize(("seed", "discretisation"), [(0, "draws"), (1, "largest")])
def test_the_search_raises_the_objective(seed, discretisation):
    _, found = searched(replace(HOW, discretisation=discretisation), seed)
    assert found.relaxed > float(found.before.objective) + 1e-3
    assert float(found.seen.objective) > float(found.before.objective) + 1e-3


def test_it_beats_as_many_random_flips():
    problem, found = searched()
    count, drawn = int(found.change.flips.sum()), []
    for number in range(20):
        flips = torch.zeros_like(found.change.flips)
        order = torch.randperm(len(flips), generator=generator(100 + number))
        flips[order[:count]] = 1
        drawn.append(float(problem.see(Change(flips, found.change.moves)).objective))
    assert float(found.seen.objective) > max(drawn)


@pytest.mark.parametrize("discretisation", ["draws", "largest"])
def test_without_a_step_flips_are_drawn_at_random(discretisation):
    how = replace(HOW, steps=0, discretisation=discretisation)
    drawn = torch.stack([searched(how, seed)[1].change.flips[:80] for seed in range(3)])
    _, found = searched(how)
    assert not bool(found.change.moves.any())
    counts = drawn.sum(1)
    assert float(counts.max()) <= how.budget
    assert float(counts.min()) > 0
    assert len(torch.unique(drawn, dim=0)) == 3
    tried, _ = watched(how)
    assert len(tried) == 2  # the clean graph and one draw, whatever it does


@pytest.mark.parametrize(
    ("budget", "rule", "discretisation"),
    [
        (0, "raw", "draws"),
        (1, "normalised", "largest"),
        (7, "raw", "draws"),
        (1000, "raw", "draws"),
    ],
)
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
    shares = torch.tensor([0.1, 0.0, 0.9, 0.5, 0.0]).double()
    for budget, expected in ((2, [0, 0, 1, 1, 0]), (5, [1, 0, 1, 1, 0])):
        how = replace(HOW, budget=budget, discretisation="largest")
        (only,) = _discrete(Change(shares, torch.zeros(0)), how, generator())
        assert only.flips.tolist() == expected


def test_the_best_iterate_is_drawn_from_and_the_best_draw_is_kept():
    # Steps that are far too long go up and down again.
    how = replace(HOW, draws=6, edge_step=3.0)
    tried, found = watched(how)
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


def test_a_normalised_step_does_not_know_the_scale_of_the_loss():
    problem, found = searched()
    louder = replace(
        problem, contrast=lambda q, k: 1000 * problem.contrast(q, k), rayleigh_weight=700.0
    )
    assert problem.rayleigh_weight == 0.7
    scaled = ascend(louder, HOW, generator())
    assert torch.equal(scaled.change.flips, found.change.flips)
    # A raw step on a mean over nodes flips next to nothing.
    shares = {}
    for rule in ("raw", "normalised"):
        tried, _ = watched(replace(HOW, step_rule=rule, steps=1, edge_step=1.0))
        shares[rule] = float(tried[1][0].flips.sum())
    assert shares["raw"] < 0.5
    assert shares["normalised"] == pytest.approx(HOW.budget)


@pytest.mark.parametrize(
    ("dtype", "candidates", "rule"),
    [(torch.float32, 0.0, "raw"), (torch.float32, 3.0, "normalised"), (torch.float64, 0.0, "raw")],
)
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
