"""Where the frequencies of a graph lie, and its classes among them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from aspect.data.graph import Graph
from aspect.data.operators import Operator, Propagation
from aspect.errors import GraphError
from aspect.nn.filters import chebyshev_basis

__all__ = [
    "HIGHEST",
    "chebyshev_moments",
    "class_energy",
    "density_shares",
    "eigensystem",
    "eigenvalues",
    "jackson_damping",
]

HIGHEST = 2.0  # no eigenvalue of a normalised Laplacian lies above
DIGITS = 10  # of an eigenvalue that rounding leaves alone

MOST_NODES = 5000  # a dense eigendecomposition takes memory by the square and time by the cube

Shares = Float[Tensor, " bins"]


def eigensystem(
    graph: Graph, *, self_loops: bool
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, "nodes nodes"]]:
    """Eigenvalues of the normalised Laplacian in rising order, and its eigenvectors as columns."""
    values, vectors = torch.linalg.eigh(_dense_laplacian(graph, self_loops))
    return _cleaned(values), vectors


def eigenvalues(graph: Graph, *, self_loops: bool) -> Float[Tensor, " nodes"]:
    """The same without the vectors, in a fraction of the time."""
    return _cleaned(torch.linalg.eigvalsh(_dense_laplacian(graph, self_loops)))


def _cleaned(values: Float[Tensor, " nodes"]) -> Float[Tensor, " nodes"]:
    """Without rounding errors, which would scatter the many that are 1 over two bins."""
    return values.round(decimals=DIGITS).clamp(0, HIGHEST)


def _shifted(graph: Graph, self_loops: bool) -> Operator:
    """L - I in float64 on the CPU; its spectrum lies in [-1, 1]."""
    exact = graph.to("cpu").to(torch.float64)
    return Propagation(exact, self_loops=self_loops).operator()


def _dense_laplacian(graph: Graph, self_loops: bool) -> Float[Tensor, "nodes nodes"]:
    if graph.num_nodes > MOST_NODES:
        raise GraphError(
            f"A dense spectrum is computed for at most {MOST_NODES} nodes. Got {graph.num_nodes}."
        )
    ones = torch.eye(graph.num_nodes, dtype=torch.float64)
    return ones + _shifted(graph, self_loops)(ones)


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


def chebyshev_moments(
    graph: Graph, order: int, *, self_loops: bool, probes: Float[Tensor, "nodes probes"]
) -> Float[Tensor, " order_plus_one"]:
    """Means of T_0(x), ..., T_order(x) over the eigenvalues x of L - I, estimated by probes.

    Probes of independent signs are unbiased; the columns of the unit matrix are exact. Products of
    T_k give the moments up to 2k, so that half as many propagations do.
    """
    before, squares, neighbours = probes, [], []
    for current in chebyshev_basis(_shifted(graph, self_loops), probes, max(1, (order + 1) // 2)):
        squares.append((current * current).sum())
        neighbours.append((before * current).sum())
        before = current
    size = probes.square().sum()
    # 2 T_k^2 = T_2k + T_0, and 2 T_(k-1) T_k = T_(2k-1) + T_1.
    even = (2 * torch.stack(squares) - squares[0]) / size
    odd = (2 * torch.stack(neighbours) - neighbours[1]) / size
    later = torch.stack([odd[1:], even[1:]], dim=1).flatten()
    return torch.cat([even[:1], later])[: order + 1]


def jackson_damping(order: int) -> Float[Tensor, " order_plus_one"]:
    """Factors that keep a density cut off at this order from going below zero."""
    k = torch.arange(order + 1, dtype=torch.float64)
    size = order + 2
    angle = math.pi / size
    return ((size - k) * torch.cos(angle * k) + torch.sin(angle * k) / math.tan(angle)) / size


def density_shares(moments: Float[Tensor, " terms"], edges: Sequence[float]) -> Shares:
    """Share of the eigenvalues between neighbouring edges, by the kernel polynomial method.

    The damped density is integrated in closed form, so the shares are at least zero and, from 0 to
    2, sum to one. An eigenvalue is smeared over about pi / terms.
    """
    damped = moments * jackson_damping(len(moments) - 1)
    angles = torch.arccos((torch.tensor(edges, dtype=torch.float64) - 1).clamp(-1, 1))
    k = torch.arange(1, len(moments), dtype=torch.float64)
    waves = (torch.sin(k * angles[:, None]) / k) @ damped[1:]
    below = (damped[0] * (math.pi - angles) - 2 * waves) / math.pi
    return below.diff().clamp(min=0)  # rounding alone goes below
