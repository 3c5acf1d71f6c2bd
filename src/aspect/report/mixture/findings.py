"""What to make of a mixed graph's record, in sentences whose numbers and verdicts are computed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from aspect.evaluation.entrants import CONCATENATED, GLOBAL, HALF, METHOD, PAPER_GATE
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.mixture_record import GraphFacts, MixtureRecord
from aspect.report.mixture.numbers import Duel, Gap, duels, find_row, gap, gate_facts, spread

__all__ = ["findings"]


def findings(record: MixtureRecord) -> Iterator[str]:
    """What to make of it, in sentences whose numbers and verdicts are computed."""
    by_name = {duel.name: duel for duel in duels(record)}
    yield _headline(record, by_name[GLOBAL.name])
    yield _about_controls(record, by_name)
    yield _about_gap(gap(record))
    yield _about_gate(record)
    for rival in (PAPER_GATE, HALF, CONCATENATED):
        yield _about_rival(record, by_name[rival.name])
    yield _caveat(record)


def _headline(record: MixtureRecord, duel: Duel) -> str:
    own, other = spread(find_row(record, METHOD.name)), spread(find_row(record, GLOBAL.name))
    return (
        f"With a gate for every node, a linear probe names the class of {own.mean:.1f}% of the "
        f"unseen nodes; with one learned mix for all, {other.mean:.1f}%: {_verdict(duel)}."
    )


def _about_controls(record: MixtureRecord, by_name: Mapping[str, Duel]) -> str:
    controls = [row for row in record.rows if row.role == "control"]
    best = max(controls, key=lambda row: spread(row).mean)
    return f"Of the controls, none of which is trained, {_about_rival(record, by_name[best.name])}"


def _verdict(duel: Duel) -> str:
    test = duel.test
    interval = f"95% interval {test.low:.1f} to {test.high:.1f}, p = {_chance(duel.p_value)}"
    if not duel.is_decided:
        return f"a difference of {test.difference:.1f} points, not significant ({interval})"
    word = "more" if test.difference > 0 else "fewer"
    return f"{abs(test.difference):.1f} points {word} ({interval})"


def _chance(p_value: float) -> str:
    return f"{p_value:.3f}" if p_value >= 0.001 else "less than 0.001"  # noqa: PLR2004


def _about_gap(found: Gap) -> str:
    if found.share is None:
        return (
            "An oracle that is told each node's region does no better than one mix for all "
            f"({found.oracle:+.1f} points), so there is nothing here for a gate to win."
        )
    return (
        f"An oracle that is told each node's region gains {found.oracle:.1f} points over one mix "
        f"for all; the gate, which is told nothing, gains {found.won:.1f}, or {found.share:.0f}% "
        "of what there is to win."
    )


def _about_gate(record: MixtureRecord) -> str:
    own = [facts for facts in gate_facts(record) if facts.entrant == METHOD.name]
    parts = [f"{facts.mean:.2f} in the {facts.region} half" for facts in own]
    right = math.fsum(facts.right for facts in own) / len(own)
    return (
        f"Without a label, the gate weight of the low band is {' and '.join(parts)} on average; "
        f"{right:.1f}% of the nodes lean to the band that suits their region."
    )


def _about_rival(record: MixtureRecord, duel: Duel) -> str:
    row = find_row(record, duel.name)
    ahead = "ASPECT has " if duel.is_decided else ""
    return f"{row.title} ({row.note}) reaches {spread(row).mean:.1f}%: {ahead}{_verdict(duel)}."


def _caveat(record: MixtureRecord) -> str:
    graph = record.graph
    shares = [f"{_agreement(graph, region):.0f}%" for region in range(len(graph.regions))]
    return (
        f"{' and '.join(shares)} of a node's neighbours share its class in the "
        f"{' and the '.join(graph.regions)} half, where chance gives {PERCENT / graph.classes:.0f}"
        "%. The graph is made so that no single mix can be right, only "
        f"{graph.crossing:,} of its {graph.edges:,} edges join the two halves, and graph and "
        "settings were chosen for this: it shows what node-wise fusion can do, not what it gains "
        "on your graph. Where all neighbourhoods are alike there is nothing for a gate to win."
    )


def _agreement(graph: GraphFacts, region: int) -> float:
    """Percent of neighbours of a node's own class, on average over the nodes of a region."""
    known = [
        share
        for share, place in zip(graph.agreement, graph.region, strict=True)
        if place == region and share is not None
    ]
    return PERCENT * math.fsum(known) / max(1, len(known))
