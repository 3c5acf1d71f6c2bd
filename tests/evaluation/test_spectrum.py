"""Spectra that are known in closed form, and estimates against them."""

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from aspect import Embedder, Graph, mixed_graph
from aspect.data.operators import largest_eigenvalue
from aspect.errors import GraphError
from aspect.evaluation import inspection as spectrum
from aspect.evaluation.inspection import (
    chebyshev_moments,
    class_energy,
    density_shares,
    eigensystem,
    eigenvalues,
    jackson_damping,
)
from aspect.nn.chebyshev import chebyshev_nodes
from aspect.randomness import generator_for

RING = 12
EDGES = np.linspace(0, 2, 41).tolist()


@pytest.fixture
def ring():
    nodes = torch.arange(RING)
    return Graph.build(torch.rand(RING, 3), torch.stack([nodes, (nodes + 1) % RING]))


def test_a_ring_has_cosines_for_frequencies(ring):
    values, vectors = eigensystem(ring, self_loops=False)
    expected = 1 - torch.cos(2 * torch.pi * torch.arange(RING, dtype=torch.float64) / RING)
    torch.testing.assert_close(values, expected.sort().values)
    torch.testing.assert_close(vectors.t() @ vectors, torch.eye(RING, dtype=torch.float64))


def test_alternating_classes_lie_at_the_highest_frequency(ring):
    values, vectors = eigensystem(ring, self_loops=False)
    everywhere = torch.ones(RING, dtype=torch.bool)
    energy = class_energy(vectors, torch.arange(RING) % 2, everywhere)
    torch.testing.assert_close(energy.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert float(energy @ values) == pytest.approx(2.0)


def test_classes_in_two_parts_lie_at_frequency_zero():
    pairs = [(a, b) for part in (range(4), range(4, 8)) for a in part for b in part if a < b]
    graph = Graph.build(torch.rand(8, 2), torch.tensor(pairs).t())
    values, vectors = eigensystem(graph, self_loops=False)
    energy = class_energy(vectors, torch.arange(8) // 4, torch.ones(8, dtype=torch.bool))
    assert float(energy @ values) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("lambda_max", ["two", "power-iteration"])
def test_responses_take_the_learned_values_at_the_nodes(ring, lambda_max):
    model = Embedder("aspect", device="cpu", epochs=2, width=4, lambda_max=lambda_max).fit(ring)
    largest = 2.0 if lambda_max == "two" else largest_eigenvalue(ring, self_loops=True)
    frequencies = (chebyshev_nodes(model.config.order) + 1) * largest / 2
    bank = model.method.filter_bank(ring, frequencies)
    assert bank.self_loops == model.config.self_loops
    for band, own in zip(("low", "high"), model.method.encoder.filters, strict=True):
        torch.testing.assert_close(bank.responses[band].float(), own.values(), atol=1e-5, rtol=0)


def test_responses_are_the_polynomials_everywhere(ring):
    method = Embedder("aspect", device="cpu", epochs=2, width=4).fit(ring).method
    frequencies = torch.linspace(0, 2, 9, dtype=torch.float64)
    bank = method.filter_bank(ring, frequencies)
    coefficients = method.encoder.coefficients().detach().double().numpy()
    expected = chebyshev.chebval(frequencies.numpy() - 1, coefficients.T)
    np.testing.assert_allclose(
        torch.stack(list(bank.responses.values())).detach().numpy(), expected, atol=1e-12
    )


def test_a_method_without_filters_has_no_responses(ring):
    method = Embedder("raw", device="cpu").fit(ring).method
    assert method.filter_bank(ring, torch.zeros(1)) is None
    assert method.band_losses(ring, generator_for(0, "losses")) == {}


@pytest.mark.parametrize("self_loops", [True, False])
def test_eigenvalues_are_those_of_the_system(ring, self_loops):
    expected, _ = eigensystem(ring, self_loops=self_loops)
    torch.testing.assert_close(eigenvalues(ring, self_loops=self_loops), expected)


def test_eigenvalues_that_are_known_exactly_are_exact():
    """A star has 0, 2 and ones: beside a bin's border rounding would spread them over two bins."""
    leaves = torch.arange(1, 40)
    star = Graph.build(torch.rand(40, 2), torch.stack([torch.zeros_like(leaves), leaves]))
    expected = torch.tensor([0.0, *[1.0] * 38, 2.0], dtype=torch.float64)
    assert torch.equal(eigenvalues(star, self_loops=False), expected)
    assert torch.equal(eigensystem(star, self_loops=False)[0], expected)


@pytest.mark.parametrize("order", [1, 2, 9, 10])
@pytest.mark.parametrize("self_loops", [True, False])
def test_moments_by_unit_probes_are_means_over_the_eigenvalues(ring, order, self_loops):
    probes = torch.eye(RING, dtype=torch.float64)
    moments = chebyshev_moments(ring, order, self_loops=self_loops, probes=probes)
    shifted = eigenvalues(ring, self_loops=self_loops).numpy() - 1
    expected = chebyshev.chebvander(shifted, order).mean(axis=0)
    np.testing.assert_allclose(moments.numpy(), expected, atol=1e-8)


def test_the_density_of_one_eigenvalue_is_a_peak_there():
    value, order = 0.7, 400
    moments = chebyshev.chebvander(np.array([value - 1]), order)[0]
    shares = density_shares(torch.from_numpy(moments), EDGES)
    assert float(shares.sum()) == pytest.approx(1)
    assert float(shares.min()) >= 0
    middles = np.convolve(EDGES, [0.5, 0.5], mode="valid")
    assert float(shares.numpy() @ middles) == pytest.approx(value, abs=0.01)
    # 0.7 is a border of two bins, which share it between them.
    assert float(shares[13] + shares[14]) > 0.99


def test_damping_begins_at_one_and_ends_near_zero():
    damping = jackson_damping(50)
    assert float(damping[0]) == pytest.approx(1)
    assert bool((damping.diff() < 0).all())
    assert 0 <= float(damping[-1]) < 1e-3


def test_the_estimated_density_follows_the_exact_histogram():
    graph = mixed_graph(num_nodes=600, seed=1).graph
    signs = torch.randint(2, (600, 16), generator=generator_for(0, "probes"))
    moments = chebyshev_moments(graph, 200, self_loops=False, probes=2 * signs.double() - 1)
    shares = density_shares(moments, EDGES)
    exact, _ = np.histogram(eigenvalues(graph, self_loops=False).numpy(), bins=EDGES)
    assert float(shares.sum()) == pytest.approx(1)
    below = shares.cumsum(0).numpy()
    assert np.abs(below - exact.cumsum() / 600).max() < 0.02
    evenly = np.arange(1, 41) / 40
    assert np.abs(evenly - exact.cumsum() / 600).max() > 0.1  # the bound above says something


def test_a_dense_spectrum_of_a_large_graph_is_refused(ring, monkeypatch):
    monkeypatch.setattr(spectrum, "MOST_DENSE_NODES", RING - 1)
    with pytest.raises(GraphError, match=r"at most 11 nodes\. Got 12"):
        eigensystem(ring, self_loops=False)
