"""The pictures of a theory record: regret and bound, risks over the mix, the trade-off."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from aspect.evaluation.theory_record import Case, Example, TheoryRecord, TradeOff
from aspect.report.canvas import PALETTE, SERIES, Axis, Drawing, Picture, name_above, picture
from aspect.report.figures import Area, Bundle, Cloud, areas, bundles
from aspect.report.panels import Trend, trends
from aspect.report.tables import counted
from aspect.report.theory.numbers import holds, regret_rows, told_from_zero

__all__ = ["example_drawings", "regret_drawings", "trade_off_drawings"]

COLOURS = ("blue", "orange")  # of the regions
BINS = 20
MIX = Axis("mix: weight of the low band", 0, 1)
SHARE = Axis("share of heterophilic nodes", 0, 1)


def regret_drawings(record: TheoryRecord) -> list[Drawing]:
    """Regret of all separations over the share, all cases at once, and each with its bound."""
    return [
        _overview(record),
        _against(record),
        *(
            _with_bound(record, purity, number)
            for number, purity in enumerate(sorted(record.scope.purities, reverse=True))
        ),
    ]


def _overview(record: TheoryRecord) -> Drawing:
    purities = sorted(record.scope.purities, reverse=True)
    groups = []
    for number, purity in enumerate(purities):
        rows = [row for row in regret_rows(record) if row.purity == purity]
        groups.append(
            Trend(
                f"separation {purity:g}",
                SERIES[number % len(SERIES)],
                [row.share for row in rows],
                [row.regret for row in rows],
                [row.regret_std or 0.0 for row in rows],
            )
        )
    highest = max(regret_rows(record), key=lambda row: row.regret)
    return Drawing(
        "regret",
        "Regret by share and separation",
        "What the best single mix costs over each node's own. Bars: standard deviation over "
        f"{counted(len(record.scope.seeds), 'seed')}. At 0.5 the regions do not differ.",
        f"Regret over the share of heterophilic nodes; highest, {highest.regret:.3f}, at a share "
        f"of {highest.share:g} and a separation of {highest.purity:g}.",
        trends(groups, Axis(SHARE.label, -0.03, 1.03), Axis("regret", 0)),
    )


def _against(record: TheoryRecord) -> Drawing:
    cases = [case for case in told_from_zero(record) if case.bound > 0]
    groups = [
        Cloud(
            label,
            colour,
            [case.regret for case in cases if case.keys == keys],
            [case.bound for case in cases if case.keys == keys],
        )
        for label, colour, keys in (
            ("positive: its class", "blue", "class"),
            ("positive: itself", "orange", "own"),
        )
    ]
    below = sum(holds(case) for case in cases)
    return Drawing(
        "bound-against-regret",
        "All cases: bound against regret",
        "One dot per graph, seed and choice of the positive key, on logarithmic scales. On the "
        "line the bound would be exact; above it, wrong. Regrets that the grid cannot tell from 0 "
        "are left out.",
        f"Bound against regret: {below} of {len(cases)} dots lie on or below the diagonal.",
        _beside_equality(groups, Axis("measured regret"), Axis("bound"), logarithmic=True),
    )


def _beside_equality(
    groups: Sequence[Cloud], x: Axis, y: Axis, *, logarithmic: bool = False
) -> Picture:
    """Dots, and the line on which both values are the same."""

    def paint(axes: Axes) -> None:
        if logarithmic:
            axes.set(xscale="log", yscale="log")
            for axis in (axes.xaxis, axes.yaxis):  # powers would need mathematical letters
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_formatter(NullFormatter())
        for group in groups:
            colour = PALETTE[group.colour]
            axes.plot(group.x, group.y, "o", color=colour, markersize=3, alpha=0.6, mew=0)
        values = sorted(value for group in groups for value in group.x)
        if len(set(values)) > 1:
            low, high = values[0], values[-1]
            axes.axline((low, low), (high, high), color=PALETTE["soft"], lw=1, ls=(0, (3, 2)))
        name_above(axes, [(group.label, group.colour) for group in groups])

    return picture(paint, x, y)


def _over_shares(
    record: TheoryRecord, purity: float, value: Callable[[Case], float]
) -> list[list[float]]:
    """One curve per seed over the shares."""
    found = {
        (case.seed, case.share): case
        for case in record.cases
        if case.purity == purity and case.keys == "class"
    }
    return [
        [value(found[seed, share]) for share in record.scope.shares] for seed in record.scope.seeds
    ]


def _with_bound(record: TheoryRecord, purity: float, number: int) -> Drawing:
    groups = [
        Bundle("regret", "blue", _over_shares(record, purity, lambda case: case.regret)),
        Bundle("bound", "orange", _over_shares(record, purity, lambda case: case.bound)),
    ]
    rows = [row for row in regret_rows(record) if row.purity == purity]
    described = "; ".join(
        f"share {row.share:g}: regret {row.regret:.4f}, bound {row.bound:.4f}" for row in rows
    )
    return Drawing(
        f"bound-{number}",
        f"Separation {purity:g}: regret and bound",
        "Measured regret and the largest lower bound that the theorem gives, one thin line per "
        "seed. Mind the scale: it differs from picture to picture.",
        f"At a separation of {purity:g}: {described}.",
        bundles(record.scope.shares, groups, SHARE, Axis("risk", 0)),
    )


def example_drawings(record: TheoryRecord) -> list[Drawing]:
    """Risks over the mix and best mixes, on the two purest graphs with equal regions."""
    examples = sorted(record.examples, key=lambda each: each.purity, reverse=True)[:2]
    return [
        drawing
        for number, example in enumerate(examples)
        for drawing in (_risks(example, number), _best_mixes(example, number))
    ]


def _risks(example: Example, number: int) -> Drawing:
    groups = [
        Bundle(region, colour, curves)
        for (region, curves), colour in zip(example.curves.items(), COLOURS, strict=False)
    ]
    groups.append(Bundle("all nodes", "ink", [example.mean]))
    lowest = int(np.argmin(example.mean))
    return Drawing(
        f"risks-{number}",
        f"Separation {example.purity:g}: what another mix costs a node",
        "Risk above its lowest value: some nodes of each region (thin), their means (thick), and "
        "the mean of all nodes of the graph (dark), whose lowest point is the regret.",
        "Rise of the risk over the mix; over all nodes it is lowest at a mix of "
        f"{example.mixes[lowest]:.2f}, where it is {example.mean[lowest]:.3f}.",
        bundles(example.mixes, groups, MIX, Axis("risk above the node's lowest", 0)),
    )


def _best_mixes(example: Example, number: int) -> Drawing:
    edges = np.linspace(0, 1, BINS + 1)
    groups = []
    for (region, mixes), colour in zip(example.best_mixes.items(), COLOURS, strict=False):
        counts, _ = np.histogram(mixes, bins=edges)
        shares = (100 * counts / len(mixes)).tolist()
        groups.append(Area(region, colour, shares, float(np.mean(mixes))))
    means = " and ".join(f"{group.mark:.2f} in the {group.label} region" for group in groups)
    return Drawing(
        f"best-mixes-{number}",
        f"Separation {example.purity:g}: which mix is best",
        "Each node's mix of lowest risk, on the same graph. Dashed: the mean of each region.",
        f"Histogram of the nodes' best mixes: mean {means}.",
        areas(edges.tolist(), groups, MIX, Axis("% of the region's nodes")),
    )


def trade_off_drawings(record: TheoryRecord) -> list[Drawing]:
    """The purest graph: how far each band moves, and what that adds to the risk by region."""
    trade_off = max(record.trade_offs, key=lambda each: each.purity)
    return [
        _moves(trade_off),
        *(_allowed(trade_off, region, number) for number, region in enumerate(trade_off.rise)),
    ]


def _moves(trade_off: TradeOff) -> Drawing:
    groups = [
        Cloud(region, colour, trade_off.low[region], trade_off.high[region])
        for region, colour in zip(trade_off.low, COLOURS, strict=False)
    ]
    described = "; ".join(
        f"{region}: low band {np.mean(trade_off.low[region]):.2f}, "
        f"high band {np.mean(trade_off.high[region]):.2f}"
        for region in trade_off.low
    )
    return Drawing(
        "moves",
        "Which band holds still, node by node",
        "Furthest move of each node's bands under the perturbations. Below the diagonal the low "
        f"band moves further, above it the high band. Separation {trade_off.purity:g}.",
        f"Mean of the furthest moves, {described}.",
        _beside_equality(
            groups, Axis("d_L: move of the low band", 0), Axis("d_H: move of the high band", 0)
        ),
    )


def _allowed(trade_off: TradeOff, region: str, number: int) -> Drawing:
    groups = [
        Bundle("measured", "blue", [trade_off.rise[region]]),
        Bundle("L S(m)", "green", [trade_off.shift[region]]),
        Bundle("bound", "orange", [trade_off.bound[region]]),
    ]
    ends = "; ".join(_ends(group) for group in groups)
    return Drawing(
        f"rise-{number}",
        f"What perturbations cost: {region}",
        "Rise of the risk under the worst perturbation, mean over the region's nodes, beside what "
        "the move of the blend and the moves of the bands allow.",
        f"From the high band alone to the low band alone: {ends}.",
        bundles(trade_off.mixes, groups, MIX, Axis("added risk", 0)),
    )


def _ends(group: Bundle) -> str:
    curve: Sequence[float] = group.curves[0]
    return f"{group.label} from {curve[0]:.2f} to {curve[-1]:.2f}"
