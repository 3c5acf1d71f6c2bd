"""What a bench must know of a graph: its content, its splits, and what a reader should be told."""

from __future__ import annotations

from collections.abc import Iterator

from aspect.benchmark.plan import Plan, ReadFacts
from aspect.benchmark.record import GraphFacts, SplitName
from aspect.errors import GraphError
from aspect.graph.data import UNLABELLED, LabelledGraph
from aspect.graph.npz import content_sha256
from aspect.graph.source import GraphSource
from aspect.graph.splits import make_splits, published_sha256

__all__ = ["graph_facts", "read_facts"]


def read_facts(plan: Plan, data_dir: str | None) -> Iterator[tuple[str, ReadFacts]]:
    """Read one graph of a plan after the other; what no probe could use is refused here."""
    for graph in plan.graphs:
        labelled = plan.source(graph).read(data_dir)
        yield (
            graph,
            ReadFacts(
                sha256=content_sha256(labelled),
                num_splits=_num_splits(graph, labelled, plan.splits),
                splits_sha256=published_sha256(plan.splits, labelled.masks),
                nodes=labelled.graph.num_nodes,
                edges=labelled.graph.num_edges,
            ),
        )


def _num_splits(graph: str, labelled: LabelledGraph, kind: SplitName) -> int:
    try:
        drawn = make_splits(kind, labelled.labels, labelled.num_classes, masks=labelled.masks)
    except GraphError as error:
        raise GraphError(f"The graph {graph!r} cannot be split. {error}") from error
    return len(drawn)


def graph_facts(source: GraphSource, labelled: LabelledGraph) -> GraphFacts:
    """What a reader should know of a graph."""
    graph = labelled.graph
    return GraphFacts(
        name=source.name,
        nodes=graph.num_nodes,
        edges=graph.num_edges,
        features=graph.num_features,
        classes=labelled.num_classes,
        homophily=_edge_homophily(labelled),
    )


def _edge_homophily(labelled: LabelledGraph) -> float | None:
    """Share of the edges between labelled nodes that join nodes of one class."""
    source, target = labelled.labels[labelled.graph.edge_index]
    known = (source != UNLABELLED) & (target != UNLABELLED)
    if not bool(known.any()):
        return None
    return float((source == target)[known].double().mean())
