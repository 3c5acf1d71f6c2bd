"""Spectra that are known in closed form."""

import numpy as np
import pytest
import torch

from aspect import Embedder, Graph
from aspect.errors import GraphError
from aspect.evaluation import spectrum
from aspect.evaluation.spectrum import class_energy, eigensystem, filter_responses
from aspect.spectral.chebyshev import chebyshev_nodes

RING = 12


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
    largest = 2.0 if lambda_max == "two" else spectrum.largest_eigenvalue(ring, self_loops=True)
    frequencies = (chebyshev_nodes(model.config.order).numpy() + 1) * largest / 2
    responses = filter_responses(model.method, ring, frequencies)
    for band, own in zip(("low", "high"), model.method.encoder.filters, strict=True):
        np.testing.assert_allclose(responses[band], own.values().detach().numpy(), atol=1e-5)


def test_a_dense_spectrum_of_a_large_graph_is_refused(ring, monkeypatch):
    monkeypatch.setattr(spectrum, "MOST_NODES", RING - 1)
    with pytest.raises(GraphError, match=r"at most 11 nodes\. Got 12"):
        eigensystem(ring, self_loops=False)
