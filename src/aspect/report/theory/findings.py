"""What to make of a theory record, in sentences whose numbers and verdicts are computed."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from aspect.evaluation.theory_record import TheoryRecord, TradeOff
from aspect.report.tables import counted
from aspect.report.theory.numbers import (
    RegretRow,
    find_row,
    grid_error,
    holds,
    regret_rows,
    told_from_zero,
)

__all__ = ["caveats", "regret_findings", "stability_findings"]

HALF = 0.5


def regret_findings(record: TheoryRecord) -> Iterator[str]:
    """Whether the regret's bound holds, how tight it is, and what decides both."""
    purest = max(record.scope.purities)
    yield _about_validity(record)
    yield _about_share(record, purest)
    yield _about_separation(record)
    yield _about_own_keys(record, purest)


def stability_findings(record: TheoryRecord) -> Iterator[str]:
    """Whether the bounds under perturbations hold, and which band holds still where."""
    purest = max(record.scope.purities)
    yield _about_stability(record)
    yield _about_bands(next(each for each in record.trade_offs if each.purity == purest))
    yield _about_choice(record)


def caveats(record: TheoryRecord) -> Iterator[str]:
    """How it was measured, and what it therefore does not say."""
    yield (
        "The keys are fixed: of every node the even blend of both bands, of length one, in an "
        f"augmented view, averaged over {counted(record.scope.views, 'view')}. The positive of a "
        "node is drawn from the keys of its class, so that a band is good where it tells the "
        "classes apart; with the node's own key, for comparison, where it tells nodes apart. "
        "Labels are used for this measurement only: training never sees them."
    )
    yield (
        "The query, the blend of both bands of length one, is not brought to length one, so the "
        "risk is convex in the mix. It is computed on a grid of "
        f"{record.scope.mixes} mixes; its second derivative is at most 4 / tau squared, so the "
        f"grid moves the regret by at most {grid_error(record):.5f}."
    )
    yield (
        "The growth mu of a node is the largest that its risk has on the grid. The bound shown is "
        "the largest over every mu and every pair a- < a+, where V- and V+ hold the nodes that "
        "grow by mu at least and whose best mixes are at most a- or at least a+: the proof needs "
        "growth from these nodes only. Choosing after looking is fair, since the theorem holds for "
        "every choice."
    )
    yield (
        f"{_shares_at_ends(record)} of the nodes have their best mix at an end, 0 or 1. Near "
        "there a risk rises in proportion to the distance, not to its square, and one mu must "
        "serve all nodes that are counted: both make the bound loose."
    )
    perturbed, rate = 2 * record.scope.perturbations, f"{record.scope.rate:.0%}"
    yield (
        f"Perturbations are {perturbed} random draws a graph: half flip pairs of nodes, edges or "
        f"not, {rate} as many as there are edges; half set {rate} of the feature entries to 0. The "
        "worst of them is milder than the worst of all, and than an attack. Keys and mixes are "
        "held fixed under them."
    )
    yield (
        "The graphs are drawn so that regions differ, and the settings were chosen on such graphs. "
        "The theorem says what a single mix must cost where preferences differ, not that they "
        "differ on your graph."
    )


def _about_validity(record: TheoryRecord) -> str:
    wrong = sum(not holds(case) for case in record.cases)
    total = len(record.cases)
    ratios = [case.bound / case.regret for case in told_from_zero(record)]
    verdict = (
        f"In {wrong} of {total} cases the measured regret lies below the bound"
        if wrong
        else f"In all {total} cases the measured regret is at least the bound"
    )
    if not ratios:
        return f"{verdict}; there is no regret in any of them that the grid could tell from 0."
    return (
        f"{verdict}, which is {100 * min(ratios):.0f}% to {100 * max(ratios):.0f}% of it, "
        f"{100 * statistics.fmean(ratios):.0f}% on average, in the {len(ratios)} whose regret the "
        "grid can tell from 0."
    )


def _about_share(record: TheoryRecord, purity: float) -> str:
    rows = [row for row in regret_rows(record) if row.purity == purity]
    highest = max(rows, key=lambda row: row.regret)
    others = [f"{row.regret:.4f} at {row.share:g}" for row in rows if row is not highest]
    ends = [row.regret for row in rows if row.share in (0, 1)]
    falls = ends and max(ends) < highest.regret / 10
    verdict = " Where nearly all nodes are alike, one mix costs little." if falls else ""
    return (
        f"At a separation of {purity:g} the regret is highest, {highest.regret:.4f}, where a share "
        f"of {highest.share:g} of the nodes is heterophilic; it is {', '.join(others)}.{verdict}"
        f"{_tightness(rows)}"
    )


def _tightness(rows: Sequence[RegretRow]) -> str:
    """At which shares the bound is tightest and loosest; nothing where there is one at most."""
    ratios = [(row.ratio, row.share) for row in rows if row.ratio and 0 < row.share < 1]
    if len(ratios) < 2:  # noqa: PLR2004 - one cannot be compared
        return ""
    (loosest, where), (tightest, place) = min(ratios), max(ratios)
    return (
        f" The bound is tightest at a share of {place:g} ({100 * tightest:.0f}% of the regret) and "
        f"loosest at {where:g} ({100 * loosest:.0f}%)."
    )


def _about_separation(record: TheoryRecord) -> str:
    rows = [row for row in regret_rows(record) if row.share == HALF]
    parts = [f"{row.regret:.4f} at {row.purity:g}" for row in rows]
    purest = max(rows, key=lambda row: row.purity)
    left = [row for row in rows if row.purity == HALF]
    verdict = (
        f" What is left where the regions do not differ, {left[0].regret:.4f}, comes from single "
        "nodes to which chance made one band the better: the theorem counts them as well."
        if left
        else ""
    )
    return (
        f"With equal regions the regret is, by separation, {', '.join(parts)}; at {purest.purity:g}"
        f" the mean best mix is {_preferences(purest)}.{verdict}"
    )


def _preferences(row: RegretRow) -> str:
    parts = [f"{mix:.2f} in the {region} region" for region, mix in row.best_mixes.items()]
    return " and ".join(parts)


def _about_own_keys(record: TheoryRecord, purity: float) -> str:
    own, by_class = (find_row(record, purity, HALF, keys) for keys in ("own", "class"))
    pairs = zip(regret_rows(record, "own"), regret_rows(record), strict=True)
    alone = [
        f"{other.regret:.4f} at a share of {other.share:g} (by class: {row.regret:.4f})"
        for other, row in pairs
        if row.purity == purity and row.share in (0, 1)
    ]
    return (
        "With each node's own key as its positive, as in training, the same graphs of separation "
        f"{purity:g} have a regret of {own.regret:.4f} with equal regions, whose mean best mixes "
        f"are {_distance(own):.2f} apart (by class: {_distance(by_class):.2f})"
        f"{''.join(f', and {part}' for part in alone)}: to be told from all others, a node may "
        "need another mix than to be told by its class."
    )


def _distance(row: RegretRow) -> float:
    """Between the mean best mixes of the two regions."""
    low, high = row.best_mixes.values()
    return abs(low - high)


def _about_stability(record: TheoryRecord) -> str:
    pairs = sum(each.pairs for each in record.trade_offs)
    broken = sum(each.broken for each in record.trade_offs)
    tightest = max(each.tightest for each in record.trade_offs)
    held = "all" if broken == 0 else f"all but {broken:,}"
    return (
        "Under perturbations both bounds, L S(m) and L (m d_L + (1 - m) d_H) with L = 2 / tau = "
        f"{2 / record.temperature:g}, held at {held} of {pairs:,} pairs of node and mix; the risk "
        f"rose by at most {100 * tightest:.0f}% of what the second allows, which takes the worst "
        "direction of every move."
    )


def _about_bands(trade_off: TradeOff) -> str:
    moves = {each.region: each for each in trade_off.sensitivities if each.kind == "all"}
    parts = [
        f"in the {region} region the low band moves by {each.low:.2f} and the high band by "
        f"{each.high:.2f}"
        for region, each in moves.items()
    ]
    suits = {
        region: each.low < each.high if region == "homophilic" else each.high < each.low
        for region, each in moves.items()
    }
    if all(suits.values()):
        verdict = "the band that suits a region is on average the steadier one there, too"
    elif any(suits.values()):
        verdict = "on average one band is the steadier in both, whichever suits the region"
    else:
        verdict = "the band that suits a region is on average the less steady one there"
    return f"At a separation of {trade_off.purity:g}, {'; '.join(parts)}: {verdict}."


def _about_choice(record: TheoryRecord) -> str:
    parts = [f"{100 * each.moved:.0f}% at {each.purity:g}" for each in record.trade_offs]
    return (
        "The mix of lowest clean risk is not the one of the lowest bound on the worst risk for "
        f"this share of the nodes, by separation: {', '.join(parts)}. There, how steady the bands "
        "are decides with how useful they are."
    )


def _shares_at_ends(record: TheoryRecord) -> str:
    """With equal regions, by separation."""
    parts = []
    for example in record.examples:
        mixes = [mix for region in example.best_mixes.values() for mix in region]
        share = sum(mix in (0.0, 1.0) for mix in mixes) / len(mixes)
        parts.append(f"{100 * share:.0f}% at separation {example.purity:g}")
    return f"With equal regions {', '.join(parts)}"
