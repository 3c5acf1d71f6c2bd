"""What the filters pass, and where in the graph's spectrum its classes lie."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.polynomial import chebyshev
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from aspect.errors import GraphError
from aspect.graph.data import Graph
from aspect.graph.operators import Propagation, largest_eigenvalue
from aspect.methods.aspect import AspectMethod

__all__ = ["HIGHEST", "class_energy", "eigensystem", "filter_responses"]

HIGHEST = 2.0  # no eigenvalue of a normalised Laplacian lies above

MOST_NODES = 5000  # a dense eigendecomposition takes memory by the square and time by the cube


def eigensystem(
    graph: Graph, *, self_loops: bool
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, "nodes nodes"]]:
    """Eigenvalues of the normalised Laplacian in rising order, and its eigenvectors as columns."""
    if graph.num_nodes > MOST_NODES:
        raise GraphError(
            f"A dense spectrum is computed for at most {MOST_NODES} nodes. Got {graph.num_nodes}."
        )
    exact = graph.to("cpu").to(torch.float64)
    shifted = Propagation(exact, self_loops=self_loops).operator()  # L - I
    ones = torch.eye(graph.num_nodes, dtype=torch.float64)
    values, vectors = torch.linalg.eigh(ones + shifted(ones))
    return values.clamp(0, HIGHEST), vectors


def class_energy(
    vectors: Float[Tensor, "nodes nodes"],
    labels: Int[Tensor, " nodes"],
    where: Bool[Tensor, " nodes"],
) -> Float[Tensor, " nodes"]:
    """Shares of the frequencies in the classes of some nodes; they sum to one.

    The signal is the class, one column each, less its mean over these nodes, and zero elsewhere.
    """
    classes = one_hot(labels).to(vectors.dtype)
    signal = torch.where(where[:, None], classes - classes[where].mean(dim=0), 0)
    energy = (vectors.t() @ signal).square().sum(dim=1)
    return energy / energy.sum()


def filter_responses(
    method: AspectMethod, graph: Graph, frequencies: NDArray[np.float64]
) -> Mapping[str, NDArray[np.float64]]:
    """The learned response of every band at eigenvalues of the Laplacian."""
    loops = method.config.self_loops
    two = method.config.lambda_max == "two"
    largest = HIGHEST if two else largest_eigenvalue(graph, self_loops=loops)
    with torch.no_grad():
        coefficients = method.encoder.coefficients().cpu().double().numpy()
    rescaled = 2 * frequencies / largest - 1
    return {
        band: chebyshev.chebval(rescaled, own)
        for band, own in zip(method.bands, coefficients, strict=True)
    }
