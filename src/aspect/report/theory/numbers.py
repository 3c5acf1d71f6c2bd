"""The numbers of a theory record: regret beside its bound, and the trade-off between the bands."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aspect.evaluation.theory_record import Case, KeyChoice, TheoryRecord
from aspect.report.tables import Cell, Line, Table

__all__ = [
    "RegretRow",
    "find_row",
    "grid_error",
    "holds",
    "regret_rows",
    "regret_table",
    "summary",
    "told_from_zero",
    "trade_off_table",
]

DIGITS = 4  # of risks
ROUNDING = 1e-12  # by which a mean over nodes may be off
CHANGES = {"edges": "edges flipped", "features": "entries masked", "all": "either"}


@dataclass(frozen=True)
class RegretRow:
    """One kind of graph: means over the seeds."""

    share: float
    purity: float
    keys: KeyChoice
    regret: float
    regret_std: float | None  # over the seeds; None for a single one
    bound: float
    ratio: float | None  # of bound to regret; None where no seed has any regret
    prefers_high: float  # p_-
    prefers_low: float  # p_+
    growth: float  # mu
    gap: float  # Delta
    best_mixes: dict[str, float]  # mean over the nodes, by region


def grid_error(record: TheoryRecord) -> float:
    """By how much the grid of mixes may move a regret.

    The risk's second derivative is the variance of `(low - high) . key / tau` under the softmax,
    at most 4 / tau^2, and a grid point lies within half a step of every best mix.
    """
    step = 1 / (record.scope.mixes - 1)
    return step**2 / (2 * record.temperature**2)


def told_from_zero(record: TheoryRecord) -> list[Case]:
    """The cases whose regret is more than the grid may have moved it by."""
    least = grid_error(record)
    return [case for case in record.cases if case.regret > least]


def holds(case: Case) -> bool:
    """Whether the theorem's inequality is met, but for rounding."""
    return case.regret >= case.bound - ROUNDING


def regret_rows(record: TheoryRecord, keys: KeyChoice = "class") -> list[RegretRow]:
    """Every kind of graph, in the order of the record."""
    groups: dict[tuple[float, float], list[Case]] = {}
    for case in record.cases:
        if case.keys == keys:
            groups.setdefault((case.purity, case.share), []).append(case)
    return [_row(cases) for cases in groups.values()]


def _row(cases: Sequence[Case]) -> RegretRow:
    first, regrets = cases[0], [case.regret for case in cases]
    ratios = [case.bound / case.regret for case in cases if case.regret > 0]
    return RegretRow(
        share=first.share,
        purity=first.purity,
        keys=first.keys,
        regret=statistics.fmean(regrets),
        regret_std=statistics.stdev(regrets) if len(regrets) > 1 else None,
        bound=statistics.fmean(case.bound for case in cases),
        ratio=statistics.fmean(ratios) if ratios else None,
        prefers_high=statistics.fmean(case.prefers_high for case in cases),
        prefers_low=statistics.fmean(case.prefers_low for case in cases),
        growth=statistics.fmean(case.growth for case in cases),
        gap=statistics.fmean(case.gap for case in cases),
        best_mixes={
            region: statistics.fmean(case.best_mixes[region] for case in cases)
            for region in first.best_mixes
        },
    )


def find_row(
    record: TheoryRecord, purity: float, share: float, keys: KeyChoice = "class"
) -> RegretRow:
    """The row of one kind of graph."""
    rows = regret_rows(record, keys)
    return next(row for row in rows if (row.purity, row.share) == (purity, share))


def regret_table(record: TheoryRecord) -> Table:
    """Measured regret and the largest bound, with what the bound is made of."""
    lines = tuple(
        Line(
            f"{row.share:g}",
            "",
            (
                Cell(row.purity),
                Cell(row.regret, std=row.regret_std, digits=DIGITS),
                Cell(row.bound, digits=DIGITS),
                Cell(row.ratio),
                Cell(row.prefers_high),
                Cell(row.prefers_low),
                Cell(row.growth, digits=3),
                Cell(row.gap),
            ),
        )
        for row in regret_rows(record)
    )
    return Table(
        "regret",
        "Regret of the best single mix, and the largest bound that the theorem gives",
        ("separation", "regret", "bound", "bound / regret", "p-", "p+", "mu", "Delta"),
        lines,
        head="share heterophilic",
    )


def trade_off_table(record: TheoryRecord) -> Table:
    """How far the bands of every region move, by what is changed."""
    lines = []
    for trade_off in record.trade_offs:
        rise, bound = trade_off.rise, trade_off.bound
        for each in trade_off.sensitivities:
            used = statistics.fmean(rise[each.region]) / statistics.fmean(bound[each.region])
            cells = (
                Cell(trade_off.purity),
                Cell(each.low, digits=3),
                Cell(each.high, digits=3),
                Cell(100 * used, digits=1) if each.kind == "all" else Cell(),
            )
            lines.append(Line(each.region, CHANGES[each.kind], cells))
    return Table(
        "trade-off",
        "How far the bands move when the graph is perturbed, mean over the nodes of a region",
        ("separation", "d_L (low band)", "d_H (high band)", "rise in % of its bound"),
        tuple(lines),
        head="region",
    )


def summary(record: TheoryRecord) -> dict[str, Any]:
    """The same for machines: plain values."""
    return {
        "rows": [asdict(row) for keys in ("class", "own") for row in regret_rows(record, keys)],
        "holds": all(holds(case) for case in record.cases),
        "trade_offs": [
            each.model_dump(
                include={"purity", "sensitivities", "pairs", "broken", "tightest", "moved"}
            )
            for each in record.trade_offs
        ],
        "scope": record.scope.model_dump(mode="json"),
        "temperature": record.temperature,
        "settings": record.settings,
        "versions": record.versions,
        "device": record.device,
        "seconds": record.seconds,
        "command": record.command,
    }
