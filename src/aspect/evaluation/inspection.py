"""Inspection of a trained model: gate, losses, spectrum and map of every node, as plain numbers.

Beside it what that needs: the values of every epoch, local homophily, the spectrum of a graph's
Laplacian, and embeddings in the plane.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aspect.data.graph import UNLABELLED, Graph, LabelledGraph
from aspect.data.operators import Operator, Propagation
from aspect.data.rows import Rows
from aspect.errors import GraphError
from aspect.estimator import Embedder
from aspect.evaluation.details import Attacked, Details, Sensitivity, SpectrumShares
from aspect.evaluation.result import unit_rows
from aspect.losses.policy_target import channel_costs
from aspect.methods.aspect import AspectMethod
from aspect.methods.aspect_s import AspectSConfig, AspectSMethod, SearchedGraph
from aspect.nn.filters import chebyshev_basis
from aspect.randomness import generator_for, isolated_seed
from aspect.training.trainer import EpochReport, Recorder, Snapshot

HIGHEST = 2.0  # no eigenvalue of a normalised Laplacian lies above
EIGENVALUE_DIGITS = 10  # of an eigenvalue that rounding leaves alone
MOST_EXACT_NODES = 3000  # all eigenvalues take seconds up to here
BINS = 40  # of the spectrum
POINTS = 101  # of a filter's response
MOMENTS = 200  # smear an eigenvalue over less than half a bin
PROBES = 16

MOST_TSNE_NODES = 3000  # beyond, t-SNE takes minutes
FEWEST_TSNE_NODES = 12  # below, nodes have no neighbourhoods to keep
PERPLEXITY = 30.0
TSNE_STEPS = 500
TSNE_DIMENSIONS = 50  # leading components that t-SNE starts from, as is usual

MOST_SHOWN_NODES = 20_000  # kept of a larger graph
MOST_NEIGHBOURS = 30  # listed of a node
MOST_SEARCHED_NODES = 10_000  # a search takes about a minute of one core up to here
STEPS = 8  # of training that a band's loss is averaged over
DIGITS = 4  # that count; a reader sees two or three

Points = NDArray[np.float64]
Losses = dict[str, Float[Tensor, " nodes"]]


class ValueRecorder(Recorder):
    """Keeps every epoch's values: loss, its terms, and what the method monitors."""

    def __init__(self, values: dict[str, list[float | None]] | None = None) -> None:
        # One entry an epoch under every name; None where an epoch had no such value.
        self.values = {} if values is None else values

    @override
    def next_look(self, epoch: int) -> int:
        return sys.maxsize  # values alone

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        for name in report.values:
            self.values.setdefault(name, [None] * (report.epoch - 1))
        for name, values in self.values.items():
            values.append(report.values.get(name))


def neighbour_agreement(graph: Graph, labels: Int[Tensor, " nodes"]) -> list[float | None]:
    """Share of each node's neighbours that are of its class.

    Neighbours without a known class are not counted; None where none is left, or where the node's
    own class is unknown.
    """
    classes = labels.cpu()
    source, target = graph.edge_index.cpu()
    both = (classes[source] != UNLABELLED) & (classes[target] != UNLABELLED)
    source, target = source[both], target[both]
    alike = torch.bincount(source[classes[source] == classes[target]], minlength=graph.num_nodes)
    known = torch.bincount(source, minlength=graph.num_nodes)
    pairs = zip(alike.tolist(), known.tolist(), strict=True)
    return [count / all_known if all_known else None for count, all_known in pairs]


def _shifted(graph: Graph, self_loops: bool) -> Operator:
    """L - I in float64 on the CPU; its spectrum lies in [-1, 1]."""
    exact = graph.to("cpu").to(torch.float64)
    return Propagation(exact, self_loops=self_loops).operator()


def eigenvalues(graph: Graph, *, self_loops: bool) -> Float[Tensor, " nodes"]:
    """Eigenvalues of the normalised Laplacian in rising order.

    Rounding errors are taken off: they would scatter the many that are 1 over two bins.
    """
    ones = torch.eye(graph.num_nodes, dtype=torch.float64)
    values: Tensor = torch.linalg.eigvalsh(ones + _shifted(graph, self_loops)(ones))
    return values.round(decimals=EIGENVALUE_DIGITS).clamp(0, HIGHEST)


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


def density_shares(
    moments: Float[Tensor, " terms"], edges: Sequence[float]
) -> Float[Tensor, " bins"]:
    """Share of the eigenvalues between neighbouring edges, by the kernel polynomial method.

    Jackson's damping keeps the density, cut off at these moments, from going below zero. It is
    integrated in closed form, so the shares from 0 to 2 sum to one. An eigenvalue is smeared over
    about pi / terms.
    """
    k = torch.arange(len(moments), dtype=torch.float64)
    size = len(moments) + 1
    angle = math.pi / size
    damping = ((size - k) * torch.cos(angle * k) + torch.sin(angle * k) / math.tan(angle)) / size
    damped = moments * damping
    angles = torch.arccos((torch.tensor(edges, dtype=torch.float64) - 1).clamp(-1, 1))
    waves = (torch.sin(k[1:] * angles[:, None]) / k[1:]) @ damped[1:]
    below = (damped[0] * (math.pi - angles) - 2 * waves) / math.pi
    return below.diff().clamp(min=0)  # rounding alone goes below


def planar_map(embeddings: Float[Tensor, "nodes dim"]) -> tuple[Points, str]:
    """Points in the unit square, [nodes, 2], and their kind; the same rows give the same map.

    Rows are laid out as the probe sees them, each of length one. Directions and units mean nothing.
    t-SNE keeps neighbourhoods and is slow: graphs of some thousand nodes and tiny ones get their
    two leading principal components.
    """
    rows = unit_rows(embeddings.double().cpu()).numpy()
    centred = rows - rows.mean(axis=0)
    components = _principal(centred, min(TSNE_DIMENSIONS, *centred.shape))
    is_tsne = FEWEST_TSNE_NODES <= len(rows) <= MOST_TSNE_NODES and bool(components.any())
    points = _tsne(components) if is_tsne else _padded(components)
    # Both axes by one scale, each centred, so that no direction looks longer than it is.
    low, high = points.min(axis=0), points.max(axis=0)
    span = float((high - low).max()) or 1.0
    return 0.5 + (points - (low + high) / 2) / span, "t-SNE" if is_tsne else "PCA"


def _principal(centred: Points, count: int) -> Points:
    """Leading principal components; zeros where the rows are all the same."""
    from sklearn.decomposition import PCA

    if np.abs(centred).max() < np.finfo(np.float32).eps:  # rounding, not directions
        return np.zeros((len(centred), count))
    components: Points = PCA(count, random_state=0).fit_transform(centred)
    return components


def _tsne(components: Points) -> Points:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no types

    # The second axis may be missing or flat: t-SNE takes any start.
    start = _padded(components) / components[:, 0].std() * 1e-4
    tsne = TSNE(
        perplexity=min(PERPLEXITY, (len(components) - 1) / 3),
        init=start.astype(np.float32),
        max_iter=TSNE_STEPS,
        random_state=0,
        n_jobs=1,
    )
    with threadpool_limits(1):  # sums over threads would come in any order
        points: Points = tsne.fit_transform(components.astype(np.float32)).astype(np.float64)
    return points


def _padded(components: Points) -> Points:
    """The first two columns; a missing second is zero."""
    return np.hstack([components, np.zeros((len(components), 1))])[:, :2]


def inspect_model(
    model: Embedder,
    labelled: LabelledGraph,
    *,
    title: str,
    graph: str,
    curves: Mapping[str, Sequence[float | None]] | None = None,
    perturbed: Sequence[tuple[str, Graph]] = (),
) -> Details:
    """Measure a fitted model of any method at every node of a graph.

    Labels serve the figures alone: nothing here is chosen by them, and the graph may have none.

    Args:
        model: A fitted model.
        labelled: The graph, usually the one that it was trained on.
        title: What the model is called in tables.
        graph: What the graph is called in tables.
        curves: Values of every epoch of its training; None in an epoch without such a value.
        perturbed: Graphs with the same nodes, each with a word on what was done to it.
    """
    whole, kept = labelled.graph, _Kept.of(labelled.graph)
    seen = model.as_seen(whole)
    gate, losses = model.policy(seen), _mean_losses(model, seen)
    points, map_name = planar_map(model.embed(seen)[kept.nodes])
    has_labels = bool((labelled.labels != UNLABELLED).any())
    return Details(
        method=model.name,
        title=title,
        graph=graph,
        seed=model.seed,
        num_nodes=whole.num_nodes,
        nodes=tuple(kept.nodes.tolist()),
        ids=None if whole.ids is None else tuple(whole.ids[node] for node in kept.nodes.tolist()),
        class_names=labelled.class_names,
        labels=tuple(kept.of_all(labelled.labels).tolist()) if has_labels else (),
        degrees=tuple(kept.of_all(whole.degrees()).tolist()),
        neighbours=kept.neighbours(whole),
        homophily=_homophily(whole, labelled.labels, kept) if has_labels else (),
        gate=None if gate is None else _short(kept.of_all(gate)),
        losses={band: _short(kept.of_all(values)) for band, values in losses.items()},
        cost_gap=_cost_gap(losses, kept),
        sensitivity=_sensitivity(model, seen, losses, kept),
        map_x=_short(points[:, 0]),
        map_y=_short(points[:, 1]),
        map_name=map_name,
        spectrum=_spectrum(model, model.pruned(whole)),
        curves={name: _with_gaps(values) for name, values in (curves or {}).items()},
        attacked=tuple(_attacked(model, labelled, kept, perturbed)),
    )


@dataclass(frozen=True, eq=False)
class _Kept:
    """The nodes that are shown: all, or a sample that is always the same."""

    nodes: Int[Tensor, " kept"]  # in rising order
    places: Int[Tensor, " nodes"]  # where a node stands among them; -1: nowhere

    @classmethod
    def of(cls, graph: Graph) -> _Kept:
        generator = generator_for(0, "nodes that are shown", graph.num_nodes)
        drawn = torch.randperm(graph.num_nodes, generator=generator)[:MOST_SHOWN_NODES]
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
        counts = torch.bincount(source[both], minlength=len(self.nodes))
        by_node = torch.split(target[both], counts.tolist())
        return tuple(tuple(others[:MOST_NEIGHBOURS].tolist()) for others in by_node)


@torch.no_grad()
def _mean_losses(model: Embedder, seen: Graph) -> Losses:
    """Each band's loss at every node, over a few steps that are always the same.

    A gate follows what training showed it: augmented views, dropout and the batch's statistics.
    """
    method, total = copy.deepcopy(model.method).train(), Losses()
    for number in range(STEPS):
        generator = generator_for(0, "step to look at", number, device=seen.device)
        for band, values in method.band_losses(seen, generator).items():
            total[band] = total.get(band, torch.zeros_like(values)) + values / STEPS
    return total


def _cost_gap(losses: Losses, kept: _Kept) -> tuple[float, ...] | None:
    """b_H - b_L of Eq. (14), channel cost: above zero where the low band is the cheaper one."""
    if len(losses) < 2:  # noqa: PLR2004 - one band has no rival
        return None
    costs = channel_costs(torch.stack(list(losses.values())).double())
    return _short(kept.of_all(costs[-1] - costs[0]))


def search_model(model: Embedder, seen: Graph) -> SearchedGraph | None:
    """The most harmful small change of a graph that a search finds, always with the same draws.

    ASPECT-S searches as its settings say, ASPECT as those of ASPECT-S do by default. None for a
    method without a policy over bands, for rows, which have no edges, and for a graph whose search
    would take too long.
    """
    method = model.method
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        return None
    if isinstance(seen, Rows) or seen.num_nodes > MOST_SEARCHED_NODES:
        return None
    told = method.config.model_dump()
    settings = {name: told[name] for name in AspectSConfig.model_fields if name in told}
    with isolated_seed(0):
        copy = AspectSMethod(AspectSConfig(**settings), method.encoder.linear.in_features)
    weight: Tensor = method.encoder.linear.weight
    copy.to(weight.device, weight.dtype).load_state_dict(method.state_dict())
    generator = generator_for(0, "search to look at", device=seen.device)
    return copy.eval().search(seen, generator)


def _sensitivity(
    model: Embedder, seen: Graph, bands: Iterable[str], kept: _Kept
) -> Sensitivity | None:
    searched = search_model(model, seen)
    if searched is None:
        return None
    change, distances = searched.found.change, map(kept.of_all, searched.sensitivity)
    return Sensitivity(
        flips=int(change.flips.sum()),
        moves=int(change.moves.count_nonzero()),
        distances=dict(zip(bands, map(_short, distances), strict=True)),
    )


@torch.no_grad()
def _spectrum(model: Embedder, graph: Graph) -> SpectrumShares | None:
    frequencies = torch.linspace(0, HIGHEST, POINTS, dtype=torch.float64)
    bank = model.method.eval().filter_bank(graph, frequencies)
    if bank is None:
        return None
    edges = np.linspace(0, HIGHEST, BINS + 1).tolist()
    is_exact = graph.num_nodes <= MOST_EXACT_NODES
    if is_exact:
        counts, _ = np.histogram(eigenvalues(graph, self_loops=bank.self_loops).numpy(), bins=edges)
        shares = torch.from_numpy(counts / graph.num_nodes)
    else:
        generator = generator_for(0, "probes of the spectrum")
        signs = torch.randint(2, (graph.num_nodes, PROBES), generator=generator)
        probes = 2 * signs.double() - 1
        moments = chebyshev_moments(graph, MOMENTS, self_loops=bank.self_loops, probes=probes)
        shares = density_shares(moments, edges)
    return SpectrumShares(
        edges=_short(edges),
        shares=_short(shares),
        is_exact=is_exact,
        frequencies=_short(frequencies),
        responses={band: _short(values) for band, values in bank.responses.items()},
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
    return _with_gaps(shares[node] for node in kept.nodes.tolist())


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
