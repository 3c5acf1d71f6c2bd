"""The numbers of a mixed graph's record: tables, tests, the gap that a gate could close."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from aspect.evaluation.entrants import GLOBAL, METHOD, ORACLE
from aspect.evaluation.metrics import PERCENT
from aspect.evaluation.mixture_record import WHOLE, MixtureRecord, Row
from aspect.evaluation.protocol import Spread
from aspect.evaluation.significance import PairedTest, holm, paired_test
from aspect.report.tables import Cell, Line, Table, marked

__all__ = [
    "Duel",
    "Gap",
    "GateFacts",
    "duels",
    "find_row",
    "gap",
    "gate_facts",
    "gate_table",
    "holm",
    "score_table",
    "spread",
    "summary",
]

FAIR = 0.5  # a gate weight above prefers the low band
HIGHEST_CHANCE = 0.05


@dataclass(frozen=True)
class Duel:
    """The method against one rival, on the whole graph."""

    name: str
    title: str
    test: PairedTest  # difference = method - rival
    p_value: float  # the larger of the two tests', Holm's correction for many rivals applied

    @property
    def is_decided(self) -> bool:
        """Whether the difference is significant, whoever is ahead."""
        return self.p_value < HIGHEST_CHANCE


@dataclass(frozen=True)
class GateFacts:
    """What one entrant's gate answers in one region: the weight of the low band."""

    entrant: str
    title: str
    region: str
    mean: float  # over nodes and seeds
    std_nodes: float  # over the nodes of one seed, averaged over the seeds
    std_seeds: float | None  # of the seeds' means; None for a single seed
    right: float  # percent of nodes that lean to the band that suits the region


@dataclass(frozen=True)
class Gap:
    """What there is to win over one mix for all nodes, and what is won, in points."""

    oracle: float  # oracle - global fusion
    won: float  # method - global fusion

    @property
    def share(self) -> float | None:
        """Percent of the gap that is won; None where the oracle wins nothing."""
        return PERCENT * self.won / self.oracle if self.oracle > 0 else None


def spread(row: Row, place: str = WHOLE) -> Spread:
    """Mean and spreads of a row's accuracy in one place."""
    return Spread.of(_tensor(row.scores[place]))


def _tensor(table: Sequence[Sequence[float]]) -> Tensor:
    return torch.tensor(table, dtype=torch.float64)


def find_row(record: MixtureRecord, name: str) -> Row:
    """The row of one entrant."""
    return next(row for row in record.rows if row.name == name)


def duels(record: MixtureRecord) -> list[Duel]:
    """The method against every other row but the oracle, in the order of the rows."""
    own = _tensor(find_row(record, METHOD.name).scores[WHOLE])
    rivals = [row for row in record.rows if row.role not in ("method", "oracle")]
    tests = [paired_test(own, _tensor(row.scores[WHOLE])) for row in rivals]
    p_values = holm([max(test.p_value, test.corrected_p_value) for test in tests])
    return [
        Duel(row.name, row.title, test, p_value)
        for row, test, p_value in zip(rivals, tests, p_values, strict=True)
    ]


def gap(record: MixtureRecord) -> Gap:
    """How far the oracle and the method are above global fusion."""
    base = spread(find_row(record, GLOBAL.name)).mean
    oracle = spread(find_row(record, ORACLE.name)).mean
    return Gap(oracle - base, spread(find_row(record, METHOD.name)).mean - base)


def gate_facts(record: MixtureRecord) -> list[GateFacts]:
    """Every gate in every region."""
    region = torch.tensor(record.graph.region)
    return [
        _facts(record, name, place, _tensor(table)[:, region == number])
        for name, table in record.gates.items()
        for number, place in enumerate(record.graph.regions)
    ]


def _facts(record: MixtureRecord, name: str, place: str, gates: Tensor) -> GateFacts:
    means = gates.mean(dim=1)
    suits_low = place == record.graph.regions[0]
    right = (gates > FAIR) if suits_low else (gates < FAIR)
    return GateFacts(
        entrant=name,
        title=find_row(record, name).title,
        region=place,
        mean=float(means.mean()),
        std_nodes=float(gates.std(dim=1).mean()),
        std_seeds=float(means.std()) if len(means) > 1 else None,
        right=PERCENT * float(right.double().mean()),
    )


def score_table(record: MixtureRecord) -> Table:
    """Strict accuracy of every row, on the whole graph and by region, and the method's lead."""
    places = (WHOLE, *record.graph.regions)
    leads = {duel.name: duel.test for duel in duels(record)}
    lines = [
        Line(
            row.title,
            row.note,
            tuple(_score(row, place) for place in places),
            apart=row.role == "oracle",
        )
        for row in record.rows
    ]
    with_leads = [
        Line(line.title, line.note, (*line.cells, _lead(leads.get(row.name))), line.apart)
        for line, row in zip(marked(lines), record.rows, strict=True)
    ]
    return Table(
        "accuracy",
        "Accuracy on unseen nodes in percent, mean ± standard deviation over pre-training seeds",
        ("whole graph", *record.graph.regions, "ahead by"),
        tuple(with_leads),
    )


def _score(row: Row, place: str) -> Cell:
    found = spread(row, place)
    return Cell(found.mean, std=found.std_seeds)


def _lead(test: PairedTest | None) -> Cell:
    if test is None:
        return Cell()
    return Cell(test.difference, low=test.low, high=test.high, digits=1)


def gate_table(record: MixtureRecord) -> Table:
    """What the gates answer, by region."""
    lines = tuple(
        Line(
            facts.title,
            facts.region,
            (
                Cell(facts.mean, std=facts.std_seeds),
                Cell(facts.std_nodes),
                Cell(facts.right, digits=1),
            ),
        )
        for facts in gate_facts(record)
    )
    return Table(
        "gate",
        "The gate: weight of the low band, mean ± standard deviation over seeds",
        ("mean", "std over nodes", "% leaning as they should"),
        lines,
        head="gate",
    )


def summary(record: MixtureRecord) -> dict[str, Any]:
    """The same for machines: plain values."""
    found = gap(record)
    return {
        "graph": {
            "name": record.graph.name,
            "nodes": record.graph.nodes,
            "edges": record.graph.edges,
            "features": record.graph.features,
            "classes": record.graph.classes,
        },
        "seeds": list(record.seeds),
        "splits": record.splits,
        "rows": [
            {
                "name": row.name,
                "title": row.title,
                "role": row.role,
                "strict": {place: spread(row, place).to_dict() for place in row.scores},
            }
            for row in record.rows
        ],
        "gate": [asdict(facts) for facts in gate_facts(record)],
        "tests": [asdict(duel) for duel in duels(record)],
        "gap": {"oracle": found.oracle, "won": found.won, "share": found.share},
        "settings": record.settings,
        "versions": record.versions,
        "device": record.device,
        "seconds": record.seconds,
        "command": record.command,
    }
