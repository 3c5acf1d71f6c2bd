"""Ideas for ASPECT, each as a variant beside the base: what does it gain, and on how many graphs?

- `tf-idf N`: the leading N components (truncated SVD) of tf-idf weighted features as input; `svd N`
  the same without idf.
- `projector`: two layers between embedding and loss, as in GRACE; they embed nothing.
- `vicreg W`, `barlow W`: columns of the fused embedding decorrelated beside InfoNCE, with weight W
  (VICReg's variance and covariance terms, Bardes et al., ICLR 2022; Barlow Twins as in GBT).
- `average D`: an exponential moving average of the weights with decay D is what embeds.
- `masked W`: half of the nodes lose their features, and a decoder has to find them from the fused
  embedding (GraphMAE, Hou et al., KDD 2022), with weight W.
- `clusters K`: the gate has one weight for each of K clusters of nodes in place of one per node.
- `weak`, `strong`: rates of dropped edges and masked columns 0.3 and 0.7, beside 0.5 of the base.
  Can numbers that need no label tell which is best?

Those that follow are about edges: their directions, which ASPECT leaves aside, hubs, and nodes with
the same neighbours.

- `directed 4`: bands of the graph's double cover, where every node has a copy that points at others
  and one that is pointed at; low and high of both copies are four bands.
- `directed 6`: these beside low and high of the undirected graph.
- `hubs A`: each edge weighs its ends' degrees to the power -A, so that hubs count for less.
- `twins`: nodes that point at the same nodes share the mean of their features.
- `neighbour sets`: the nodes that a node points at are further columns of its features;
  `undirected sets`: all of its neighbours are.
- `wide`: twice the width, a control: as many columns as four bands have.

Scored as trials of a search are, on validation nodes of splits that no table reports; no test label
is read. Rows are written as they are done, and a run that was stopped goes on.

python benchmarks/ideas.py cora texas --set epochs=100 --set width=128 --seeds 2

Without a graph it prints the tables of what is in `results/ideas.csv`.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import numpy as np  # noqa: E402 - the path comes first
import pandas as pd  # noqa: E402
import torch  # noqa: E402
from jaxtyping import Float, Int  # noqa: E402
from sklearn.cluster import KMeans  # noqa: E402
from sklearn.metrics import calinski_harabasz_score  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.functional import normalize  # noqa: E402
from typing_extensions import override  # noqa: E402

from aspect.config import Count, Share, Weight, make_config, parse_overrides  # noqa: E402
from aspect.data.features import dense, take_rows  # noqa: E402
from aspect.data.graph import Features, Graph, edge_keys, pair_keys  # noqa: E402
from aspect.data.operators import Operator, Propagation, RescaledLaplacian  # noqa: E402
from aspect.data.source import cache_dir, find  # noqa: E402
from aspect.errors import GraphError  # noqa: E402
from aspect.experiment.search import SearchRequest, plan_search  # noqa: E402
from aspect.experiment.trial import Problem, load_problem  # noqa: E402
from aspect.losses.correlation import barlow_loss  # noqa: E402
from aspect.losses.similarity import cosines  # noqa: E402
from aspect.methods.aspect import (  # noqa: E402
    AspectConfig,
    AspectMethod,
    PreparedGraph,
    SpectralEmbedding,
)
from aspect.methods.base import Step  # noqa: E402
from aspect.nn.augmentations import keep_mask  # noqa: E402
from aspect.nn.filters import Band  # noqa: E402
from aspect.nn.gate import NodePolicy, neighbourhood_mean, with_zero_logit  # noqa: E402
from aspect.nn.mlp import MLP  # noqa: E402
from aspect.nn.skip import principal_components  # noqa: E402
from aspect.nn.spectral_encoder import Signal  # noqa: E402
from aspect.randomness import isolated_seed, seed_for  # noqa: E402
from aspect.settings import Experiment  # noqa: E402
from aspect.training.trainer import train  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import markdown, positive, told_in_a_line  # noqa: E402
from settings import GRAPHS  # noqa: E402

COVARIANCE_WEIGHT = 1 / 25  # beside VICReg's variance term
TINY = 1e-4  # within the root of a variance, as in VICReg
MASKED_NODES = 0.5
SHARPNESS = 2  # the exponent of GraphMAE's error
SEPARATED = 8  # clusters whose separability is measured
STARTS = 4  # of k-means

View = Float[Tensor, "nodes dim"]


class IdeaConfig(AspectConfig):
    """Settings of ASPECT and of all ideas; each reads its own."""

    term_weight: Weight = 1.0
    """Weight of the term that is added to the loss."""
    decay: Share = 0.95
    """What the moving average of the weights keeps of itself at a step."""
    clusters: Count = 16
    """Clusters of nodes that share a gate weight."""


class Projector(AspectMethod):
    """ASPECT with two layers between embedding and loss."""

    def __init__(self, config: AspectConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.projector = MLP([config.width] * 3, activation="elu")

    @override
    def _contrast(
        self, graph: Graph, step: Step, name: str, views: Sequence[View]
    ) -> Float[Tensor, " nodes"]:
        return super()._contrast(graph, step, name, [self.projector(view) for view in views])


class Decorrelated(AspectMethod):
    """ASPECT with a term on the columns of both views' fused embeddings."""

    config: IdeaConfig
    fused: tuple[View, ...] = ()  # of the last step

    def decorrelation(self, one: View, other: View) -> Float[Tensor, ""]:
        """Small where columns vary and say different things."""
        return (variance_and_covariance(one) + variance_and_covariance(other)) / 2

    @override
    def _contrast(
        self, graph: Graph, step: Step, name: str, views: Sequence[View]
    ) -> Float[Tensor, " nodes"]:
        if name == "fused":
            self.fused = tuple(views)
        return super()._contrast(graph, step, name, views)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        terms = super().loss_terms(graph, step)
        if self.config.term_weight > 0:
            terms["decorrelation"] = self.config.term_weight * self.decorrelation(*self.fused)
        self.fused = ()
        return terms


def variance_and_covariance(x: View) -> Float[Tensor, ""]:
    """VICReg's terms: deviations below one, and squared covariances, for each column."""
    centred = x - x.mean(0)
    covariance = centred.t() @ centred / (len(x) - 1)
    variance = covariance.diagonal()
    across = (covariance.square().sum() - variance.square().sum()) / len(variance)
    return (1 - (variance + TINY).sqrt()).relu().mean() + COVARIANCE_WEIGHT * across


class Barlow(Decorrelated):
    """The same with the loss of Barlow Twins, for each column."""

    @override
    def decorrelation(self, one: View, other: View) -> Float[Tensor, ""]:
        return barlow_loss(one, other) / one.shape[1]


class Averaged(AspectMethod):
    """ASPECT that ends with a moving average of its weights."""

    config: IdeaConfig
    anytime = False  # the average takes the weights' place after the last epoch

    def __init__(self, config: IdeaConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.average: list[Tensor] = []

    @override
    @torch.no_grad()
    def after_step(self, step: Step) -> None:
        weights = list(self.parameters())
        if not self.average:
            self.average = [weight.clone() for weight in weights]
        for average, weight in zip(self.average, weights, strict=True):
            average.lerp_(weight, 1 - self.config.decay)
            if step.epoch == self.config.epochs:
                weight.copy_(average)


class Masked(AspectMethod):
    """ASPECT that also finds masked features from the fused embedding."""

    config: IdeaConfig

    def __init__(self, config: IdeaConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.decoder = MLP([config.width, config.width, num_features], activation="prelu")

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        terms = super().loss_terms(graph, step)
        if self.config.term_weight > 0:
            found = self.reconstruction(graph, step.apart("masked features"))
            terms["reconstruction"] = self.config.term_weight * found
        return terms

    def reconstruction(self, graph: Graph, generator: torch.Generator) -> Float[Tensor, ""]:
        """GraphMAE's scaled cosine error, over the nodes that are masked."""
        ready = self.ready(graph)
        features = dense(ready.features)
        keep = keep_mask(graph.num_nodes, MASKED_NODES, generator, graph.dtype)
        assert keep is not None
        signal = Signal(features * keep.unsqueeze(1), ready.signal.operator)
        masked = (keep == 0).nonzero().flatten()
        decoded = self.decoder(self(signal, generator).fused[masked])
        return (1 - cosines(decoded, features[masked])).pow(SHARPNESS).mean()


class ClusterPolicy(NodePolicy):
    """A gate whose logits are averaged over each cluster, in place of hops."""

    cluster_of: Int[Tensor, " nodes"]

    @override
    def forward(
        self, views: Float[Tensor, "bands nodes dim"], operator: Operator
    ) -> Float[Tensor, "nodes bands"]:
        logits = self.network(torch.cat(list(self.norm(views)), dim=1))
        return with_zero_logit(cluster_mean(logits, self.cluster_of)).log_softmax(1)


class Clustered(AspectMethod):
    """ASPECT with one gate weight per cluster of nodes that look alike."""

    config: IdeaConfig
    gate: ClusterPolicy

    def __init__(self, config: IdeaConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        policy = ClusterPolicy(config.width, len(self.bands), config.gate_width, config.gate_input)
        policy.load_state_dict(self.gate.state_dict())  # the weights that the seed gave the base
        self.gate = policy

    @override
    def _prepare(self, graph: Graph) -> PreparedGraph:
        ready = super()._prepare(graph)
        rows = normalize(dense(ready.features), dim=1)
        around = normalize(neighbourhood_mean(rows, ready.signal.operator, 1), dim=1)
        found = k_means(torch.cat([rows, around], dim=1), self.config.clusters)
        self.gate.cluster_of = found.to(graph.device)
        return ready

    @override
    def _pooled(
        self, evidence: Float[Tensor, "bands nodes"], operator: Operator
    ) -> Float[Tensor, "bands nodes"]:
        return cluster_mean(evidence.t(), self.gate.cluster_of).t()


def k_means(rows: View, clusters: int) -> Int[Tensor, " nodes"]:
    """The cluster of every row, the same at every call; no more clusters than rows."""
    means = KMeans(min(clusters, len(rows)), n_init=STARTS, random_state=0)
    return torch.from_numpy(means.fit_predict(rows.cpu().numpy())).long()


def cluster_mean(x: View, cluster_of: Int[Tensor, " nodes"]) -> View:
    """Each row replaced by the mean over its cluster."""
    count = int(cluster_of.max()) + 1
    sums = x.new_zeros(count, x.shape[1]).index_add(0, cluster_of, x)
    return (sums / cluster_of.bincount().unsqueeze(1))[cluster_of]


def rarity(features: Features) -> Float[Tensor, " features"]:
    """How rare an entry is in each column, by the logarithm: idf."""
    entries = dense(features)
    holders = (entries != 0).sum(0).clamp(min=1)
    return (len(entries) / holders).log()


def with_components(graph: Graph, count: int, *, idf: bool = True) -> Graph:
    """The graph with the leading components of its features, at unit rows, in their place."""
    entries = dense(graph.features)
    rows = normalize(entries * rarity(entries) if idf else entries, dim=1)
    axes = principal_components(rows, min(count, *rows.shape)).to(rows)
    return replace(graph, features=rows @ axes, feature_names=None)


@dataclass(frozen=True, eq=False)
class DirectedGraph(Graph):
    """A graph that also knows which way its edges were given."""

    arcs: Int[Tensor, "2 arcs"] | None = None  # from, to; sorted, no self-loops

    @classmethod
    def of(cls, graph: Graph, pairs: Int[Tensor, "2 pairs"]) -> DirectedGraph:
        """The same graph with the directed pairs that it was made of."""
        own = {known.name: getattr(graph, known.name) for known in fields(Graph)}
        pairs = pairs[:, pairs[0] != pairs[1]].long().to(graph.device)
        return cls(**own, arcs=torch.unique(pairs, dim=1))


def arcs_of(graph: Graph) -> Int[Tensor, "2 arcs"]:
    """Its directed edges."""
    if not isinstance(graph, DirectedGraph) or graph.arcs is None:
        raise GraphError("Directions need the graph's own file in the folder of ASPECT_DATA.")
    return graph.arcs


@dataclass(frozen=True, eq=False)
class CopiedLaplacian(RescaledLaplacian):
    """The operator of the undirected graph, and beside it that of several copies of its nodes."""

    copies: RescaledLaplacian


class CopiedPropagation(Propagation):
    """Propagation on the double cover: an arc joins its source's first copy to its target's second.

    With N the normalised adjacency of the arcs, that of the cover is symmetric: blocks N and N^T.
    Even orders compare nodes that point at the same ones, or that the same ones point at. A third
    set of copies, before the other two, is the undirected graph.
    """

    def __init__(self, graph: Graph, *, copies: int, self_loops: bool) -> None:
        super().__init__(graph, self_loops=self_loops)
        nodes, known = graph.num_nodes, edge_keys(graph)
        source, target = arcs_of(graph)
        pairs = torch.stack([source, target + nodes])
        of_pairs = torch.searchsorted(known, pair_keys(source, target, nodes))
        if copies > 2:  # noqa: PLR2004 - the two ends of an arc
            undirected = torch.stack([known // nodes, known % nodes])
            pairs = torch.cat([undirected, pairs + nodes], dim=1)
            of_pairs = torch.cat([torch.arange(len(known), device=known.device), of_pairs])
        empty = torch.zeros(copies * nodes, 1, dtype=graph.dtype, device=graph.device)
        self.edge_of_pair: Int[Tensor, " pairs"] = of_pairs
        self.cover = Propagation(Graph.build(empty, pairs), self_loops=self_loops)

    @override
    def operator(self, edge_weights: Float[Tensor, " edges"] | None = None) -> CopiedLaplacian:
        """A dropped edge is gone in all copies."""
        own = super().operator(edge_weights)
        weights = None if edge_weights is None else edge_weights[self.edge_of_pair]
        return CopiedLaplacian(own.neighbours, own.diagonal, self.cover.operator(weights))


class Directed(AspectMethod):
    """ASPECT with a low and a high band of the nodes that point, and of those pointed at.

    The copies share both filters. Gate and skip connection keep to the undirected graph.
    """

    bands: ClassVar[tuple[Band, ...]] = ("low", "high") * 2

    def __init__(self, config: AspectConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        del self.encoder.filters[2:]

    @override
    def _prepare(self, graph: Graph) -> PreparedGraph:
        ready, copies = super()._prepare(graph), len(self.bands) // 2
        along = CopiedPropagation(graph, copies=copies, self_loops=self.config.self_loops)
        return replace(ready, propagation=along, signal=Signal(ready.features, along.operator()))

    @override
    def forward(
        self,
        signal: Signal,
        generator: torch.Generator | None = None,
        coefficients: Float[Tensor, "filters terms"] | None = None,
    ) -> SpectralEmbedding:
        operator, copies = signal.operator, len(self.bands) // 2
        assert isinstance(operator, CopiedLaplacian)
        rows = torch.arange(signal.features.shape[0], device=self.encoder.linear.weight.device)
        copied = Signal(take_rows(signal.features, rows.repeat(copies)), operator.copies)
        filtered = self.encoder(copied, generator, coefficients)  # [filters, copies * nodes, dim]
        bands = filtered.unflatten(1, (copies, -1)).transpose(0, 1).flatten(0, 1)
        return SpectralEmbedding(bands, self.gate(bands, operator))


class DirectedBeside(Directed):
    """The same beside the bands of the undirected graph."""

    bands: ClassVar[tuple[Band, ...]] = ("low", "high") * 3


def with_light_hubs(graph: Graph, power: float) -> Graph:
    """Every edge weighs its ends' degrees to minus a power; propagation normalises after that."""
    degrees = graph.degrees().to(graph.dtype)
    source, target = graph.edge_index
    return replace(graph, weights=(degrees[source] * degrees[target]).pow(-power))


def neighbour_sets(num_nodes: int, pairs: Int[Tensor, "2 pairs"]) -> Float[Tensor, "nodes nodes"]:
    """One where the first of a pair of nodes has the second for a neighbour."""
    rows = torch.zeros(num_nodes, num_nodes, device=pairs.device)
    rows[pairs[0], pairs[1]] = 1
    return rows


def with_shared_features(graph: Graph) -> Graph:
    """Nodes that point at the same nodes have the mean of their features; others keep theirs."""
    sets = neighbour_sets(graph.num_nodes, arcs_of(graph))
    _, twins = torch.unique(sets, dim=0, return_inverse=True)
    alone = len(sets) + torch.arange(len(sets), device=sets.device)
    _, twins = torch.unique(torch.where(sets.any(1), twins, alone), return_inverse=True)
    return graph.with_features(cluster_mean(dense(graph.features), twins))


def with_neighbour_sets(graph: Graph, *, directed: bool = True) -> Graph:
    """The features and, beside them, the nodes that a node points at, or all its neighbours."""
    sets = neighbour_sets(graph.num_nodes, arcs_of(graph) if directed else graph.edge_index)
    return graph.with_features(torch.cat([dense(graph.features), sets.to(graph.dtype)], dim=1))


@dataclass(frozen=True)
class Variant:
    """A method with changes of its settings, and what is done to the graph before."""

    kind: type[AspectMethod] = AspectMethod
    settings: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[Graph], Graph] = lambda graph: graph


BASE = "base"
STRENGTHS = {"weak": 0.3, BASE: 0.5, "strong": 0.7}
COLUMNS = [
    *("graph", "settings", "variant", "seed"),
    *("validation", "rank", "separability", "agreement", "seconds"),
]
CRITERIA = ("rank", "separability", "agreement")  # more is taken for better
GENERAL: Mapping[str, Variant] = {
    "svd 64": Variant(prepare=lambda graph: with_components(graph, 64, idf=False)),
    "tf-idf 64": Variant(prepare=lambda graph: with_components(graph, 64)),
    "tf-idf 256": Variant(prepare=lambda graph: with_components(graph, 256)),
    "projector": Variant(Projector),
    "vicreg 1": Variant(Decorrelated, {"term_weight": 1.0}),
    "vicreg 10": Variant(Decorrelated, {"term_weight": 10.0}),
    "barlow 1": Variant(Barlow, {"term_weight": 1.0}),
    "barlow 10": Variant(Barlow, {"term_weight": 10.0}),
    "average 0.95": Variant(Averaged, {"decay": 0.95}),
    "masked 1": Variant(Masked, {"term_weight": 1.0}),
    "masked 10": Variant(Masked, {"term_weight": 10.0}),
    "clusters 16": Variant(Clustered, {"clusters": 16}),
    **{
        name: Variant(settings={"edge_drop": rate, "column_mask": rate})
        for name, rate in STRENGTHS.items()
        if name != BASE
    },
}
STRUCTURAL: Mapping[str, Variant] = {
    "wide": Variant(settings={"width": 256}),  # twice what the comparisons are made at
    "directed 4": Variant(Directed),
    "directed 6": Variant(DirectedBeside),
    "hubs 0.5": Variant(prepare=lambda graph: with_light_hubs(graph, 0.5)),
    "hubs 1": Variant(prepare=lambda graph: with_light_hubs(graph, 1.0)),
    "twins": Variant(prepare=with_shared_features),
    "neighbour sets": Variant(prepare=with_neighbour_sets),
    "undirected sets": Variant(prepare=lambda graph: with_neighbour_sets(graph, directed=False)),
}
VARIANTS: Mapping[str, Variant] = {BASE: Variant(), **GENERAL, **STRUCTURAL}


def trained(variant: Variant, graph: Graph, seed: int, settings: Mapping[str, Any]) -> AspectMethod:
    """The variant after training on a graph that was prepared for it."""
    config = make_config(IdeaConfig, {**settings, **variant.settings}, owner="aspect")
    with isolated_seed(seed_for(seed, "weights")):
        method = variant.kind(config, graph.num_features)
    method = method.to(graph.device).to(graph.dtype)
    train(method, graph, seed=seed)
    return method


def agreement(one: View, other: View) -> float:
    """Linear CKA of two embeddings (Kornblith et al., ICML 2019), from 0 to 1."""
    first, second = (x.double() - x.double().mean(0) for x in (one, other))
    together = (first.t() @ second).norm().square()
    return float(together / ((first.t() @ first).norm() * (second.t() @ second).norm()))


def separability(embedding: View) -> float:
    """How far apart clusters of the embedding's directions are (Calinski-Harabasz)."""
    rows = normalize(embedding, dim=1).cpu()
    return float(calinski_harabasz_score(rows.numpy(), k_means(rows, SEPARATED).numpy()))


def results_of(
    problem: Problem, variant: Variant, seeds: int, settings: Mapping[str, Any]
) -> list[dict[str, float]]:
    """Train with every seed; validation accuracy, and what can be known without a label."""
    problem = replace(problem, graph=variant.prepare(problem.graph))
    rows: list[dict[str, float]] = []
    embeddings: list[View] = []
    for seed in range(seeds):
        started = time.perf_counter()
        method = trained(variant, problem.graph, seed, settings)
        seconds = time.perf_counter() - started
        score = problem.score(method)
        with torch.no_grad():
            embeddings.append(method.output(problem.graph).uncentred)
        row = {
            "seed": seed,
            "validation": round(score.validation, 2),
            "rank": round(score.health.effective_rank, 1),
            "separability": round(separability(embeddings[-1]), 1),
            "seconds": round(seconds, 1),
        }
        rows.append(row)
    pairs = [agreement(one, other) for one, other in itertools.combinations(embeddings, 2)]
    mean = round(sum(pairs) / len(pairs), 3) if pairs else float("nan")
    return [{**row, "agreement": mean} for row in rows]


def problem_of(graph: str) -> Problem:
    """A graph with its splits, as a search on a CPU has them."""
    request = SearchRequest(max_cosine=1.0)
    search = plan_search(Experiment(graph=graph), request, settings_from="defaults", device="cpu")
    problem = load_problem(search.model_dump_json(), None)
    path = find(graph)
    if path is None or path.parent == cache_dir():  # downloads are kept without directions
        return problem
    with np.load(path, allow_pickle=False) as arrays:
        pairs = torch.from_numpy(arrays["edge_index"])
    return replace(problem, graph=DirectedGraph.of(problem.graph, pairs))


def read_results(path: Path) -> pd.DataFrame:
    """What was found before; without a file there is nothing."""
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_csv(path, dtype={"settings": str}).fillna({"settings": ""})


def gains(results: pd.DataFrame, names: Iterable[str] = VARIANTS) -> pd.DataFrame:
    """Validation accuracy of the base, and below it each variant's gain with the same seeds.

    Graphs are those on which one of the named variants was trained.
    """
    results = results[results.variant.isin([BASE, *names])]
    tried = set(results[results.variant != BASE].graph)
    base = results[results.variant == BASE]
    paired = results.merge(base, on=["graph", "seed"], suffixes=("", "_base"))
    paired["gain"] = paired.validation - paired.validation_base
    means = paired.pivot_table(index="variant", columns="graph", values="gain").round(1)
    graphs = [graph for graph in GRAPHS if graph in tried and graph in means]
    accuracies = base.groupby("graph").validation.mean()
    if not graphs:
        return pd.DataFrame()
    rows = {BASE: [*(f"{accuracies[graph]:.1f}" for graph in graphs), "", ""]}
    for name in [name for name in VARIANTS if name in means.index and name != BASE]:
        gained = means.loc[name, graphs]
        numbers = [_signed(value) for value in [*gained, gained.mean(skipna=False)]]
        rows[name] = [*numbers, str((gained > 0).sum())]
    return pd.DataFrame.from_dict(rows, orient="index", columns=[*graphs, "mean", "gained on"])


def strengths(results: pd.DataFrame) -> pd.DataFrame:
    """Validation accuracy by strength; what each criterion chooses, and what that loses."""
    rows = {}
    for graph in [name for name in GRAPHS if name in set(results.graph)]:
        of_graph = results[results.graph == graph]
        if set(STRENGTHS) <= set(of_graph.variant):
            means = of_graph.groupby("variant")[["validation", *CRITERIA]].mean()
            rows[graph] = _choices(means.loc[list(STRENGTHS)])
    return pd.DataFrame.from_dict(rows, orient="index")


def _choices(means: pd.DataFrame) -> dict[str, str]:
    """A row of `strengths`, from the means of each strength."""
    validation = means.validation.to_dict()
    row = {str(name): f"{value:.1f}" for name, value in validation.items()}
    for name in CRITERIA:
        row[f"by {name}"] = "-"
        if means[name].notna().all():
            chosen = means[name].idxmax()
            lost = max(validation.values()) - validation[chosen]
            row[f"by {name}"] = f"{chosen} ({lost:.1f})"
    return row


def _signed(gain: float) -> str:
    return "-" if pd.isna(gain) else f"{round(gain, 1) + 0:+.1f}"  # no -0.0


def in_lab_book(table: pd.DataFrame) -> str:
    """The table as the lab book has it."""
    return markdown(["", *table], [list(map(str, row)) for row in table.itertuples()])


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is not there yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH", help=", ".join(GRAPHS))
    parser.add_argument("--variant", action="append", choices=VARIANTS, default=[])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "ideas.csv")
    given = parser.parse_args(arguments)
    logging.getLogger("aspect").setLevel(logging.ERROR)
    results = read_results(given.out)
    for graph, name in itertools.product(given.graphs, given.variant or VARIANTS):
        key = {"graph": graph, "settings": " ".join(given.set), "variant": name}
        is_same = (results[list(key)] == list(key.values())).all(axis=1)
        if is_same.sum() >= given.seeds:
            continue
        settings = parse_overrides(given.set)
        found = results_of(problem_of(graph), VARIANTS[name], given.seeds, settings)
        new = pd.DataFrame([{**key, **row} for row in found], columns=COLUMNS)
        results = new if results.empty else pd.concat([results[~is_same], new], ignore_index=True)
        write_text(given.out, results.to_csv(index=False))
    for told, part in results.groupby("settings"):
        made = gains(part, GENERAL), strengths(part), gains(part, STRUCTURAL)
        tables = [in_lab_book(table) for table in made if len(table)]
        print("\n\n".join([str(told) or "defaults", *tables]), end="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
