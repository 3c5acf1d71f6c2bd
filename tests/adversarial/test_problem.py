"""The inner problem: its value and its gradients, held against dense autograd and differences."""

import pytest
import torch
from torch.testing import assert_close

from adversarial.searches import generator, make, problem_of, small_graph
from aspect.adversarial.problem import Change, stability
from aspect.data.sparse import SparseMatrix
from reference import inner_problem as reference

VARIANTS = [
    {},
    {"self_loops": False, "row_normalise": False},
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


def test_gradients_are_those_of_central_differences():
    graph = small_graph(1)
    problem = problem_of(make(graph).eval(), graph)
    change = somewhere(problem)
    slopes = torch.autograd.grad(problem.see(change).objective, (change.flips, change.moves))
    width = 1e-5
    for number, slope in enumerate(slopes):
        for place in range(0, len(slope), 7):
            values = []
            for sign in (1, -1):
                parts = [change.flips.detach().clone(), change.moves.detach().clone()]
                parts[number][place] += sign * width
                with torch.no_grad():
                    values.append(float(problem.see(Change(*parts)).objective))
            assert_close(
                float(slope[place]), (values[0] - values[1]) / (2 * width), rtol=1e-5, atol=1e-8
            )


def test_energies_are_the_dense_quotients():
    graph = small_graph(2)
    problem = problem_of(make(graph).eval(), graph)
    change = somewhere(problem)
    seen = problem.see(change)
    adjacency = reference.changed_adjacency(graph, problem.edges.keys, change.flips)
    laplacian = reference.normalised_laplacian(adjacency, self_loops=True)
    expected = [reference.energy(laplacian, band) for band in seen.views]
    assert_close(seen.energies, torch.stack(expected))


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


def test_bands_may_be_held_to_themselves():
    graph = small_graph()
    method = make(graph, stability_target="band").eval()
    with torch.no_grad():
        assert_close(problem_of(method, graph).keys, method.encode(graph).bands)


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


def test_drawn_negatives_are_the_same_throughout_a_search():
    graph = small_graph()
    problem = problem_of(make(graph, negatives=5).eval(), graph)
    first, again = (problem.see(problem.nothing()).objective for _ in range(2))
    assert torch.equal(first, again)


def test_the_weight_of_a_band_is_the_trust_in_it():
    losses = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    all_low, all_high = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[0.0, 1.0]] * 2)
    assert float(stability(losses, all_low)) == 1.5
    assert float(stability(losses, all_high)) == 15.0


def test_a_products_gradient_is_taken_at_its_entries():
    pattern = SparseMatrix.from_dense(torch.tensor([[1.0, 0, 2], [0, 3, 0]]).double())
    values = pattern.values.clone().requires_grad_()
    x = torch.randn(3, 4, dtype=torch.float64, generator=generator(), requires_grad=True)
    weights = torch.randn(2, 4, dtype=torch.float64, generator=generator(1))
    ((pattern.with_values(values) @ x) * weights).sum().backward()
    whole = weights @ x.detach().t()
    assert_close(values.grad, whole[pattern.pattern.rows, pattern.pattern.columns.long()])
    assert_close(x.grad, pattern.dense().t() @ weights)
