"""What a bench must know of a graph: its content, its splits, and what a reader should be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aspect.attacks.file import AttackFacts
from aspect.data.archives import content_sha256
from aspect.data.graph import UNLABELLED, LabelledGraph
from aspect.data.source import GraphSource
from aspect.data.splits import make_splits, published_sha256
from aspect.errors import GraphError
from aspect.experiment.attack_plan import wanted_attacks
from aspect.experiment.plan import Plan
from aspect.experiment.record import GraphFacts, SplitName

__all__ = ["ReadFacts", "graph_facts", "read_facts"]

LETTERS = 12  # of a checksum, enough to tell graphs apart


@dataclass(frozen=True)
class ReadFacts:
    """What a plan must know of a graph to lay out its cells."""

    sha256: str
    num_splits: int  # that the kind of splits offers
    splits_sha256: str | None = None  # of published ones
    nodes: int = 0
    edges: int = 0
    attacks: tuple[AttackFacts, ...] = ()  # whose files the cells need


def read_facts(
    plan: Plan, data_dir: str | None, graphs: Sequence[str] = ()
) -> Iterator[tuple[str, ReadFacts]]:
    """Read one graph after the other; what no probe or attack could use is refused here.

    Args:
        plan: The whole plan, since a part of it must find the same files.
        data_dir: Where files of named data sets lie.
        graphs: Of the plan; all, if none are named.
    """
    names = plan.short_names()
    for graph in graphs or plan.graphs:
        labelled = plan.source(graph).read(data_dir)
        sha256, own = content_sha256(labelled), plan.source(graph).name
        offered = _num_splits(graph, labelled, plan.splits)
        # Two graphs of one name must not share a perturbation file.
        name = own if names[graph] == own else f"{own}-{sha256[:LETTERS]}"
        wanted = min(offered, plan.num_splits or offered)
        yield (
            graph,
            ReadFacts(
                sha256=sha256,
                num_splits=offered,
                splits_sha256=published_sha256(plan.splits, labelled.masks),
                nodes=labelled.graph.num_nodes,
                edges=labelled.graph.num_edges,
                attacks=wanted_attacks(plan, graph, name, labelled, wanted),
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
