"""Looking into a trained model: what it decided at every node, and why."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.errors import GraphError
from aspect.estimator import Embedder
from aspect.evaluation.agreement import neighbour_agreement
from aspect.evaluation.details import Attacked, Details, Sensitivity, SpectrumShares
from aspect.evaluation.node_sensitivity import search_model
from aspect.evaluation.plane import planar_map
from aspect.evaluation.spectrum import HIGHEST, chebyshev_moments, density_shares, eigenvalues
from aspect.losses.policy_target import channel_costs
from aspect.randomness import generator_for

__all__ = ["inspect_model"]

MOST_NODES = 20_000  # kept of a larger graph
MOST_NEIGHBOURS = 30  # listed of a node
STEPS = 8  # of training that a band's loss is averaged over
DIGITS = 4  # that count; a reader sees two or three

MOST_EXACT_NODES = 3000  # all eigenvalues take seconds up to here
BINS = 40  # of the spectrum
POINTS = 101  # of a filter's response
MOMENTS = 200  # smear an eigenvalue over less than half a bin
PROBES = 16

Losses = dict[str, Float[Tensor, " nodes"]]


def inspect_model(
    model: Embedder,
    labelled: LabelledGraph,
    *,
    title: str,
    graph: str,
    curves: Mapping[str, Sequence[float | None]] | None = None,
    perturbed: Sequence[tuple[str, Graph]] = (),
) -> Details:
    """Ask a fitted model of any method about every node of a graph.

    Labels serve the picture alone: nothing here is chosen by them, and the graph may have none.

    Args:
        model: A fitted model.
        labelled: The graph, usually the one that it was trained on.
        title: What the model is called in tables.
        graph: What the graph is called in tables.
        curves: Values of every epoch of its training; None in an epoch without such a value.
        perturbed: Graphs with the same nodes, each with a word on what was done to it.
    """
    own, kept = labelled.graph, _Kept.of(labelled.graph)
    seen = model.as_seen(own)
    gate, losses = model.policy(seen), _mean_losses(model, seen)
    placed = planar_map(model.embed(seen)[kept.nodes])
    has_labels = bool((labelled.labels != UNLABELLED).any())
    return Details(
        method=model.name,
        title=title,
        graph=graph,
        seed=model.seed,
        num_nodes=own.num_nodes,
        nodes=tuple(kept.nodes.tolist()),
        ids=None if own.ids is None else tuple(own.ids[node] for node in kept.nodes.tolist()),
        class_names=labelled.class_names,
        labels=tuple(kept.of_all(labelled.labels).tolist()) if has_labels else (),
        degrees=tuple(kept.of_all(own.degrees()).tolist()),
        neighbours=kept.neighbours(own),
        homophily=_homophily(own, labelled.labels, kept) if has_labels else (),
        gate=None if gate is None else _short(kept.of_all(gate)),
        losses={band: _short(kept.of_all(values)) for band, values in losses.items()},
        cost_gap=_cost_gap(losses, kept),
        sensitivity=_sensitivity(model, seen, kept),
        map_x=_short(placed.x),
        map_y=_short(placed.y),
        map_name=placed.name,
        spectrum=_spectrum(model, seen),
        curves={name: _with_gaps(values) for name, values in (curves or {}).items()},
        attacked=tuple(_attacked(model, labelled, kept, perturbed)),
    )


@dataclass(frozen=True, eq=False)
class _Kept:
    """The nodes that are shown: all, or a sample that is the same at every look."""

    nodes: Int[Tensor, " kept"]  # in rising order
    places: Int[Tensor, " nodes"]  # where a node stands among them; -1: nowhere

    @classmethod
    def of(cls, graph: Graph) -> _Kept:
        generator = generator_for(0, "nodes that are shown", graph.num_nodes)
        drawn = torch.randperm(graph.num_nodes, generator=generator)[:MOST_NODES]
        nodes = drawn.sort().values
        places = torch.full((graph.num_nodes,), -1)
        places[nodes] = torch.arange(len(nodes))
        return cls(nodes, places)

    def of_all(self, values: Tensor) -> Tensor:
        return values.detach().cpu()[self.nodes]

    def neighbours(self, graph: Graph) -> tuple[tuple[int, ...], ...]:
        """The first few of every node's neighbours that are kept too."""
        source, target = self.places[graph.edge_index.cpu()]
        both = (source >= 0) & (target >= 0)
        listed = target[both].tolist()
        counts = torch.bincount(source[both], minlength=len(self.nodes))
        ends = counts.cumsum(0).tolist()
        starts = [0, *ends[:-1]]
        return tuple(
            tuple(listed[start : min(end, start + MOST_NEIGHBOURS)])
            for start, end in zip(starts, ends, strict=True)
        )


@torch.no_grad()
def _mean_losses(model: Embedder, seen: Graph) -> Losses:
    """Each band's loss at every node, over a few steps that are the same at every look.

    A gate follows what training showed it: augmented views, dropout and the batch's statistics.
    """
    method, total = copy.deepcopy(model.method).train(), Losses()
    for number in range(STEPS):
        generator = generator_for(0, "step to look at", number, device=seen.device)
        for band, values in method.band_losses(seen, generator).items():
            total[band] = total.get(band, torch.zeros_like(values)) + values / STEPS
    return total


def _cost_gap(losses: Losses, kept: _Kept) -> tuple[float, ...] | None:
    """b_H - b_L (`eq:channel_cost`): above zero where the low band is the cheaper one."""
    if len(losses) < 2:  # noqa: PLR2004 - one band has no rival
        return None
    costs = channel_costs(torch.stack(list(losses.values())).double())
    return _short(kept.of_all(costs[-1] - costs[0]))


def _sensitivity(model: Embedder, seen: Graph, kept: _Kept) -> Sensitivity | None:
    """What one search, the same at every look, does to the bands."""
    moved = search_model(model, seen)
    if moved is None:
        return None
    distances = {band: _short(kept.of_all(values)) for band, values in moved.distances.items()}
    return Sensitivity(flips=moved.flips, moves=moved.moves, distances=distances)


@torch.no_grad()
def _spectrum(model: Embedder, seen: Graph) -> SpectrumShares | None:
    frequencies = torch.linspace(0, HIGHEST, POINTS, dtype=torch.float64)
    bank = model.method.eval().filter_bank(seen, frequencies)
    if bank is None:
        return None
    edges = np.linspace(0, HIGHEST, BINS + 1).tolist()
    is_exact = seen.num_nodes <= MOST_EXACT_NODES
    shares = _exact_shares if is_exact else _estimated_shares
    return SpectrumShares(
        edges=_short(edges),
        shares=_short(shares(seen, bank.self_loops, edges)),
        is_exact=is_exact,
        frequencies=_short(frequencies),
        responses={band: _short(values) for band, values in bank.responses.items()},
    )


def _exact_shares(graph: Graph, self_loops: bool, edges: Sequence[float]) -> Tensor:
    counts, _ = np.histogram(eigenvalues(graph, self_loops=self_loops).numpy(), bins=edges)
    return torch.from_numpy(counts / graph.num_nodes)


def _estimated_shares(graph: Graph, self_loops: bool, edges: Sequence[float]) -> Tensor:
    generator = generator_for(0, "probes of the spectrum")
    signs = torch.randint(2, (graph.num_nodes, PROBES), generator=generator)
    probes = 2 * signs.double() - 1
    return density_shares(
        chebyshev_moments(graph, MOMENTS, self_loops=self_loops, probes=probes), edges
    )


def _attacked(
    model: Embedder,
    labelled: LabelledGraph,
    kept: _Kept,
    perturbed: Sequence[tuple[str, Graph]],
) -> Iterator[Attacked]:
    """The gate on other graphs; nothing without a gate, or where only one graph can be embedded."""
    if not model.method.inductive:
        return
    for label, graph in perturbed:
        if graph.num_nodes != labelled.graph.num_nodes:
            raise GraphError(
                f"A perturbed graph must have the {labelled.graph.num_nodes} nodes of the clean "
                f"one. Got {graph.num_nodes} ({label})."
            )
        gate = model.policy(graph)
        if gate is not None:
            homophily = _homophily(graph, labelled.labels, kept)
            yield Attacked(label=label, gate=_short(kept.of_all(gate)), homophily=homophily)


def _homophily(
    graph: Graph, labels: Int[Tensor, " nodes"], kept: _Kept
) -> tuple[float | None, ...]:
    shares = neighbour_agreement(graph, labels)
    return tuple(
        None if (share := shares[node]) is None else _rounded(share) for node in kept.nodes.tolist()
    )


def _short(values: Iterable[float] | Tensor) -> tuple[float, ...]:
    """Numbers without the digits that nobody reads: they would make up most of a page."""
    plain = values.tolist() if isinstance(values, Tensor) else values
    return tuple(_rounded(value) for value in plain)


def _with_gaps(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """The same of a curve; JSON knows no number that is not finite."""
    return tuple(
        None if value is None or not math.isfinite(value) else _rounded(value) for value in values
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
