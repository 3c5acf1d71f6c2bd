"""The paper's theorems on mixed graphs: what is measured, and beside it the bounds.

ASPECT is trained on every graph without labels. Its bands, rows of length one, are then mixed by
every weight of a grid while the keys stay fixed, so that nothing but the mix decides the risk.
Labels and regions serve the measurement only. `aspect theory` runs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean, stdev
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aspect.config import Config
from aspect.data.graph import Graph
from aspect.data.source import MIXED
from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC, mixed_graph, mixed_regions
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.examples import page
from aspect.examples.theorems import (
    BandMoves,
    Draw,
    PerturbationKind,
    RegretBound,
    attractions,
    crowding,
    largest_bound,
    perturb,
    perturbation_risk,
    regret,
)
from aspect.methods.aspect import AspectMethod
from aspect.randomness import generator_for
from aspect.settings import find_experiment

__all__ = ["QUICK", "Theory", "TheoryScope", "caveats", "findings", "run_theory", "summary"]

REGIONS = {"homophilic": HOMOPHILIC, "heterophilic": HETEROPHILIC}
HALF = 0.5  # the ratio of heterophilic nodes at which regions are compared
SHOWN = 12  # nodes of each region whose risks are drawn
COARSE = 5  # every so many mixes the trade-off is measured
TOLERANCE = 1e-9  # of a bound, for rounding
KINDS = {"edges": "edges flipped", "features": "entries masked", "all": "either"}
MIX_AXIS = "mix: weight of the low band"

# Where a node's positive key comes from: a node of its class, or itself in an augmented view.
KeyChoice = Literal["class", "own"]
Advance = Callable[[int, int, str], object]  # graphs done, of how many, and the next one


class TheoryScope(Config):
    """Which graphs are drawn and how closely they are measured."""

    shares: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    """Ratios of heterophilic nodes."""
    purities: tuple[float, ...] = (0.5, 0.65, 0.8, 0.95)
    """Separations: ratios of a region's edges that join as the region does; at 0.5 both are one."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Each decides a graph, first weights and all draws."""
    nodes: int = 400
    epochs: int = 80
    width: int = 32
    """Dimensions of a band."""
    mixes: int = 101
    """Points of the grid of mixes, both ends included."""
    views: int = 2
    """Augmented views whose keys the risk is averaged over."""
    perturbations: int = 12
    """Draws of each kind for the trade-off."""
    rate: float = 0.05
    """Ratio of feature entries that a perturbation masks, or of flips to edges."""


QUICK = TheoryScope(
    shares=(0.0, 0.5, 1.0),
    purities=(0.5, 0.95),
    seeds=(0,),
    nodes=120,
    epochs=25,
    width=16,
    mixes=41,
    perturbations=4,
)


@dataclass(frozen=True)
class RegretCase:
    """One graph under one choice of keys: measured regret, and the largest bound."""

    share: float
    purity: float
    seed: int
    keys: KeyChoice
    regret: float
    bound: RegretBound
    best_mixes: Mapping[str, float]  # mean over the nodes of each region that has some

    @property
    def holds(self) -> bool:
        """Whether the theorem's inequality is met, but for rounding."""
        return self.regret >= self.bound.value - 1e-12


@dataclass(frozen=True, eq=False)
class MixExample:
    """The nodes of one case, by region."""

    purity: float
    curves: Mapping[str, Float[Tensor, "shown mixes"]]  # rise of the risk of some nodes
    mean: Float[Tensor, " mixes"]  # of all nodes; its lowest point is the regret
    best_mixes: Mapping[str, Float[Tensor, " nodes"]]


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Eq. (7), channel trade-off, on one graph with both regions; curves are means by region."""

    purity: float
    mixes: Float[Tensor, " mixes"]
    rise: Mapping[str, Tensor]  # what the worst perturbation adds to the risk
    shift: Mapping[str, Tensor]  # L S(m), the bound of Theorem 2.2 on that
    bound: Mapping[str, Tensor]  # L (m d_L + (1 - m) d_H)
    moves: Mapping[str, Float[Tensor, "2 nodes"]]  # d_L and d_H of every node, by region
    sensitivities: list[dict[str, Any]]  # their means by region and kind of perturbation
    pairs: int  # nodes times mixes at which the bounds were checked
    broken: int  # at how many of them a bound did not hold
    tightest: float  # largest ratio of rise to bound
    moved: float  # ratio of nodes whose mix of lowest clean risk is not that of the lowest bound


@dataclass(eq=False)
class Theory:
    """All that was measured."""

    scope: TheoryScope
    settings: dict[str, Any]  # of ASPECT, in full
    device: str
    cases: list[RegretCase] = field(default_factory=list)
    examples: list[MixExample] = field(default_factory=list)  # with equal regions, first seed
    trade_offs: list[TradeOff] = field(default_factory=list)  # on the graphs of the examples
    seconds: float = 0.0

    @property
    def temperature(self) -> float:
        """Of the contrast."""
        return float(self.settings["temperature"])

    @property
    def mixes(self) -> Float[Tensor, " mixes"]:
        """The grid."""
        return torch.linspace(0, 1, self.scope.mixes, dtype=torch.float64)

    @property
    def grid_error(self) -> float:
        """By how much the grid of mixes may move a regret.

        The risk's second derivative is the variance of `(low - high) . key / tau` under the
        softmax, at most 4 / tau^2, and a grid point lies within half a step of every best mix.
        """
        return (1 / (self.scope.mixes - 1)) ** 2 / (2 * self.temperature**2)

    def above_grid_error(self) -> list[RegretCase]:
        """The cases whose regret is more than the grid may have moved it by."""
        return [case for case in self.cases if case.regret > self.grid_error]

    def rows(self, keys: KeyChoice = "class") -> list[dict[str, Any]]:
        """Every kind of graph: means over the seeds."""
        groups: dict[tuple[float, float], list[RegretCase]] = {}
        for case in self.cases:
            if case.keys == keys:
                groups.setdefault((case.purity, case.share), []).append(case)
        return [_row(cases) for cases in groups.values()]

    def row(self, purity: float, share: float, keys: KeyChoice = "class") -> dict[str, Any]:
        """The row of one kind of graph."""
        rows = self.rows(keys)
        return next(row for row in rows if (row["purity"], row["share"]) == (purity, share))


def _row(cases: list[RegretCase]) -> dict[str, Any]:
    first, regrets = cases[0], [case.regret for case in cases]
    bounds = [case.bound for case in cases]
    ratios = [case.bound.value / case.regret for case in cases if case.regret > 0]
    return {
        "share": first.share,
        "purity": first.purity,
        "keys": first.keys,
        "regret": fmean(regrets),
        "regret_std": stdev(regrets) if len(regrets) > 1 else None,
        "bound": fmean(bound.value for bound in bounds),
        "ratio": fmean(ratios) if ratios else None,
        "prefers_high": fmean(bound.prefers_high for bound in bounds),
        "prefers_low": fmean(bound.prefers_low for bound in bounds),
        "growth": fmean(bound.growth for bound in bounds),
        "gap": fmean(bound.gap for bound in bounds),
        "best_mixes": {
            region: fmean(case.best_mixes[region] for case in cases) for region in first.best_mixes
        },
    }


def run_theory(
    scope: TheoryScope,
    settings: Mapping[str, Any] | None = None,
    *,
    device: str | None = None,
    advance: Advance = lambda *_: None,
) -> Theory:
    """Draw every graph, train on it, and measure.

    Args:
        scope: Which graphs, and how closely they are measured.
        settings: Of ASPECT, those shipped for the mixed graph if None; epochs and width are the
            scope's.
        device: Where to train; risks are computed on the CPU in float64.
        advance: Called before each graph.
    """
    if HALF not in scope.shares:
        raise SettingsError(f"The shares must include {HALF}. Got {list(scope.shares)}.")
    started = time.perf_counter()
    shared = dict(settings or find_experiment("aspect", MIXED, None)[0].settings)
    sizes = {"epochs": scope.epochs, "width": scope.width, "gate_width": scope.width}
    model = Embedder("aspect", device=device, **{**shared, **sizes})
    theory = Theory(scope, model.config.model_dump(mode="json"), str(model.device))
    jobs = [
        (purity, share, seed)
        for purity in scope.purities
        for share in scope.shares
        for seed in scope.seeds
    ]
    for done, (purity, share, seed) in enumerate(jobs):
        advance(done, len(jobs), f"separation {purity:g}, share {share:g}, seed {seed}")
        _measure(theory, purity, share, seed)
    advance(len(jobs), len(jobs), "tables")
    theory.seconds = time.perf_counter() - started
    return theory


def _measure(theory: Theory, purity: float, share: float, seed: int) -> None:
    """Train, and measure the regret; with equal regions the trade-off as well."""
    scope, mixes = theory.scope, theory.mixes
    labelled = mixed_graph(scope.nodes, purity=purity, share=share, seed=seed)
    graph = labelled.graph.to(torch.float32)
    model = Embedder("aspect", seed=seed, device=theory.device, **theory.settings).fit(graph)
    bands = clean_bands(model, graph)
    views = [augmented_bands(model, graph, number) for number in range(scope.views)]
    region = mixed_regions(scope.nodes, share)
    inside = {name: region == number for name, number in REGIONS.items()}
    inside = {name: where for name, where in inside.items() if bool(where.any())}
    # The keys, and what they cost, are the same for both choices of the positives.
    draws = {
        choice: [draw_keys(view, labelled.labels, choice) for view in views]
        for choice in get_args(KeyChoice)
    }
    crowd = crowding(bands, [draw.keys for draw in draws["own"]], theory.temperature, mixes)
    for choice, drawn in draws.items():
        positives = [draw.positives for draw in drawn]
        risks = crowd - attractions(bands, positives, theory.temperature, mixes)
        best = mixes[risks.argmin(dim=1)]
        preferred = {name: float(best[where].mean()) for name, where in inside.items()}
        bound = largest_bound(risks, mixes)
        case = RegretCase(share, purity, seed, choice, regret(risks), bound, preferred)
        theory.cases.append(case)
        if choice == "class" and share == HALF and seed == scope.seeds[0]:
            theory.examples.append(_example(purity, risks, best, inside))
            theory.trade_offs.append(_trade_off(theory, purity, model, graph, drawn, inside))


def draw_keys(
    bands: Float[Tensor, "2 nodes dim"], labels: Int[Tensor, " nodes"], choice: KeyChoice
) -> Draw:
    """Keys from one augmented view: the even blend of each node's bands, brought to length one.

    The blend prefers neither band: with bands z_L and z_H of length one, a node's own key is
    equally near to both. With `own` each node's positive is its own key (instance discrimination,
    as in training). With `class` it is drawn from the keys of its class, its own among them: then
    that band has the lower risk that tells the classes apart.
    """
    keys = normalize(bands.mean(dim=0), dim=-1)
    if choice == "own":
        return Draw(keys, keys)
    same = (labels[:, None] == labels).double()
    return Draw(keys, same @ keys / same.sum(dim=1, keepdim=True))


def clean_bands(model: Embedder, graph: Graph) -> Float[Tensor, "2 nodes dim"]:
    """The bands as the contrast sees them: directions, not centred."""
    with torch.no_grad():
        return normalize(_aspect(model).encode(model.as_seen(graph)).bands.cpu().double(), dim=-1)


def augmented_bands(model: Embedder, graph: Graph, number: int) -> Float[Tensor, "2 nodes dim"]:
    """The same of a random view, as the method draws them in training but without dropout."""
    method = _aspect(model)
    generator = generator_for(model.seed, "keys", number, device=model.device)
    with torch.no_grad():
        views = method(method.augmented(graph.to(model.device), generator)).bands
    return normalize(views.cpu().double(), dim=-1)


def _aspect(model: Embedder) -> AspectMethod:
    method = model.method.eval()
    assert isinstance(method, AspectMethod)  # trained here
    return method


def _example(
    purity: float, risks: Tensor, best: Tensor, inside: Mapping[str, Tensor]
) -> MixExample:
    rise = risks - risks.min(dim=1, keepdim=True).values
    curves = {}
    for name, where in inside.items():
        rows = rise[where]
        shown = torch.linspace(0, len(rows) - 1, min(SHOWN, len(rows))).round().long()
        curves[name] = rows[shown]
    best_mixes = {name: best[where] for name, where in inside.items()}
    return MixExample(purity, curves, rise.mean(dim=0), best_mixes)


def _trade_off(
    theory: Theory,
    purity: float,
    model: Embedder,
    graph: Graph,
    draws: list[Draw],
    inside: Mapping[str, Tensor],
) -> TradeOff:
    clean, moved = clean_bands(model, graph), {}
    for kind in get_args(PerturbationKind):
        generators = [
            generator_for(model.seed, "perturbation", kind, number)
            for number in range(theory.scope.perturbations)
        ]
        graphs = [perturb(graph, kind, theory.scope.rate, generator) for generator in generators]
        moved[kind] = [clean_bands(model, perturbed) for perturbed in graphs]
    moves = BandMoves(clean, [bands for perturbed in moved.values() for bands in perturbed])
    mixes = theory.mixes[::COARSE]
    risk = perturbation_risk(moves, draws, theory.temperature, mixes)
    distances = {kind: BandMoves(clean, bands).distances() for kind, bands in moved.items()}
    distances["all"] = moves.distances()

    def means(values: Tensor) -> dict[str, Tensor]:
        return {name: values[where].mean(dim=0) for name, where in inside.items()}

    return TradeOff(
        purity=purity,
        mixes=mixes,
        rise=means(risk.rise),
        shift=means(risk.shift),
        bound=means(risk.bound),
        moves={name: distances["all"][:, where] for name, where in inside.items()},
        sensitivities=[
            {
                "region": name,
                "kind": kind,
                "low": float(low[where].mean()),
                "high": float(high[where].mean()),
            }
            for name, where in inside.items()
            for kind, (low, high) in distances.items()
        ],
        pairs=risk.rise.numel(),
        broken=int(risk.broken(TOLERANCE).sum()),
        tightest=risk.tightest,
        moved=float(risk.moved.double().mean()),
    )


def summary(theory: Theory) -> dict[str, Any]:
    """All numbers as plain values."""
    kept = ("purity", "sensitivities", "pairs", "broken", "tightest", "moved")
    return {
        "rows": [row for keys in get_args(KeyChoice) for row in theory.rows(keys)],
        "holds": all(case.holds for case in theory.cases),
        "trade_offs": [
            {name: getattr(trade_off, name) for name in kept} for trade_off in theory.trade_offs
        ],
        "scope": theory.scope.model_dump(mode="json"),
        "temperature": theory.temperature,
        "settings": theory.settings,
        "device": theory.device,
        "seconds": theory.seconds,
    }


def findings(theory: Theory) -> list[str]:
    """Whether the bounds hold, how tight they are, and what decides that."""
    return [
        _about_validity(theory),
        _about_share(theory),
        _about_separation(theory),
        _about_own_keys(theory),
        _about_stability(theory),
        _about_bands(max(theory.trade_offs, key=lambda trade_off: trade_off.purity)),
        "The mix of lowest clean risk is not the one of the lowest bound on the worst risk for "
        "this percentage of the nodes, by separation: "
        + ", ".join(
            f"{100 * trade_off.moved:.0f}% at {trade_off.purity:g}"
            for trade_off in theory.trade_offs
        )
        + ". There, how stable the bands are decides with how useful they are.",
    ]


def _about_validity(theory: Theory) -> str:
    wrong, total = sum(not case.holds for case in theory.cases), len(theory.cases)
    ratios = [case.bound.value / case.regret for case in theory.above_grid_error()]
    verdict = (
        f"In {wrong} of {total} cases the measured regret lies below the bound"
        if wrong
        else f"In all {total} cases the measured regret is at least the bound"
    )
    if not ratios:
        return f"{verdict}; no regret exceeds the error of the grid."
    return (
        f"{verdict}, which is {100 * min(ratios):.0f}% to {100 * max(ratios):.0f}% of it, "
        f"{100 * fmean(ratios):.0f}% on average, in the {len(ratios)} whose regret exceeds the "
        "error of the grid."
    )


def _about_share(theory: Theory) -> str:
    purity = max(theory.scope.purities)
    rows = [row for row in theory.rows() if row["purity"] == purity]
    highest = max(rows, key=lambda row: float(row["regret"]))
    others = [f"{row['regret']:.4f} at {row['share']:g}" for row in rows if row is not highest]
    text = (
        f"At a separation of {purity:g} the regret is highest, {highest['regret']:.4f}, where a "
        f"ratio of {highest['share']:g} of the nodes is heterophilic; it is {', '.join(others)}."
    )
    ends = [row["regret"] for row in rows if row["share"] in (0, 1)]
    if ends and max(ends) < highest["regret"] / 10:
        text += " Where nearly all nodes are alike, one mix costs little."
    ratios = [(row["ratio"], row["share"]) for row in rows if row["ratio"] and 0 < row["share"] < 1]
    if len(ratios) > 1:
        (loosest, where), (tightest, at) = min(ratios), max(ratios)
        text += (
            f" The bound is tightest at {at:g} ({100 * tightest:.0f}% of the regret) and loosest "
            f"at {where:g} ({100 * loosest:.0f}%)."
        )
    return text


def _about_separation(theory: Theory) -> str:
    rows = [row for row in theory.rows() if row["share"] == HALF]
    purest = max(rows, key=lambda row: float(row["purity"]))
    regrets = [f"{row['regret']:.4f} at {row['purity']:g}" for row in rows]
    mixes = [f"{mix:.2f} in the {region} region" for region, mix in purest["best_mixes"].items()]
    text = (
        f"With equal regions the regret is, by separation, {', '.join(regrets)}; at "
        f"{purest['purity']:g} the mean best mix is {' and '.join(mixes)}."
    )
    if HALF in theory.scope.purities:
        text += (
            " What is left where the regions do not differ, "
            f"{theory.row(HALF, HALF)['regret']:.4f}, comes from single nodes to which chance made "
            "one band the better: the theorem counts them."
        )
    return text


def _about_own_keys(theory: Theory) -> str:
    purity = max(theory.scope.purities)
    own, by_class = (theory.row(purity, HALF, keys) for keys in ("own", "class"))
    apart = [abs(float.__sub__(*row["best_mixes"].values())) for row in (own, by_class)]
    ends = [
        f", and {other['regret']:.4f} at a ratio of {row['share']:g} (by class: "
        f"{row['regret']:.4f})"
        for other, row in zip(theory.rows("own"), theory.rows(), strict=True)
        if row["purity"] == purity and row["share"] in (0, 1)
    ]
    return (
        "With each node's own key as its positive, as in training, the same graphs of separation "
        f"{purity:g} have a regret of {own['regret']:.4f} with equal regions, whose mean best "
        f"mixes are {apart[0]:.2f} apart (by class: {apart[1]:.2f}){''.join(ends)}: to be told "
        "from all others, a node may need another mix than to be told by its class."
    )


def _about_stability(theory: Theory) -> str:
    pairs, broken = (
        sum(getattr(trade_off, name) for trade_off in theory.trade_offs)
        for name in ("pairs", "broken")
    )
    tightest = max(trade_off.tightest for trade_off in theory.trade_offs)
    held = "all" if broken == 0 else f"all but {broken:,}"
    return (
        "Under perturbations both bounds, L S(m) and L (m d_L + (1 - m) d_H) with L = 2 / tau = "
        f"{2 / theory.temperature:g}, held at {held} of {pairs:,} pairs of node and mix; the risk "
        f"rose by at most {100 * tightest:.0f}% of what the second allows, which takes the worst "
        "direction of every move."
    )


def _about_bands(trade_off: TradeOff) -> str:
    moves = {move["region"]: move for move in trade_off.sensitivities if move["kind"] == "all"}
    parts = [
        f"in the {region} region the low band moves by {move['low']:.2f} and the high band by "
        f"{move['high']:.2f}"
        for region, move in moves.items()
    ]
    suits = [
        (move["low"] < move["high"]) == (region == "homophilic") for region, move in moves.items()
    ]
    if all(suits):
        verdict = "the band that suits a region is on average the more stable one there, too"
    elif any(suits):
        verdict = "on average one band is the more stable in both, whichever suits the region"
    else:
        verdict = "the band that suits a region is on average the less stable one there"
    return f"At a separation of {trade_off.purity:g}, {'; '.join(parts)}: {verdict}."


def caveats(theory: Theory) -> list[str]:
    """How it was measured, and what it therefore does not say."""
    scope, ends = theory.scope, []
    for example in theory.examples:
        best = torch.cat(list(example.best_mixes.values()))
        at_end = 100 * float(((best == 0) | (best == 1)).double().mean())
        ends.append(f"{at_end:.0f}% at separation {example.purity:g}")
    return [
        "The keys are fixed: of every node the even blend of both bands, of length one, in an "
        f"augmented view, averaged over {scope.views} views. The positive of a node is drawn from "
        "the keys of its class; with the node's own key for comparison. Labels are used for this "
        "measurement only: training never sees them.",
        "The query, the blend of both bands, is not brought to length one, so the risk is convex "
        f"in the mix. It is computed on a grid of {scope.mixes} mixes; its second derivative is at "
        f"most 4 / tau squared, so the grid moves the regret by at most {theory.grid_error:.5f}.",
        "The bound shown is the largest over every growth mu and every pair a- < a+, where V- and "
        "V+ hold the nodes that grow by mu at least and whose best mixes are at most a- or at "
        "least a+: the proof needs growth from these nodes only, and holds for every choice.",
        f"With equal regions {', '.join(ends)} of the nodes have their best mix at an end, 0 or 1. "
        "There a risk rises in proportion to the distance, not to its square, and one mu must "
        "serve all nodes that are counted: both make the bound loose.",
        f"Perturbations are {2 * scope.perturbations} random draws a graph: half flip pairs of "
        f"nodes, {scope.rate:.0%} as many as there are edges; half set {scope.rate:.0%} of the "
        "feature entries to 0. An attack is worse. Keys and mixes are held fixed under them.",
        "The graphs are drawn so that regions differ. The theorem says what a single mix must cost "
        "where preferences differ, not that they differ on your graph.",
    ]


def theory_tables(theory: Theory) -> tuple[page.ExampleTable, page.ExampleTable]:
    """Regret beside its bound, and how far the bands move under perturbations."""
    regrets = [
        (
            f"{row['share']:g}",
            f"{row['purity']:.2f}",
            f"{row['regret']:.4f}"
            + ("" if row["regret_std"] is None else f" ± {row['regret_std']:.4f}"),
            f"{row['bound']:.4f}",
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
            *(f"{row[name]:.2f}" for name in ("prefers_high", "prefers_low")),
            f"{row['growth']:.3f}",
            f"{row['gap']:.2f}",
        )
        for row in theory.rows()
    ]
    moves = []
    for trade_off in theory.trade_offs:
        for move in trade_off.sensitivities:
            region = move["region"]
            used = (
                f"{100 * float(trade_off.rise[region].mean() / trade_off.bound[region].mean()):.1f}"
            )
            numbers = (f"{trade_off.purity:.2f}", f"{move['low']:.3f}", f"{move['high']:.3f}")
            last = used if move["kind"] == "all" else "-"
            moves.append((f"{region}, {KINDS[move['kind']]}", *numbers, last))
    return (
        page.ExampleTable(
            "regret",
            "Regret of the best single mix, and the largest bound that the theorem gives: "
            "mu/2 · p- p+ / (p- + p+) · Delta²",
            (
                *("ratio heterophilic", "separation", "regret", "bound", "bound / regret"),
                *("p-", "p+", "mu", "Delta"),
            ),
            regrets,
        ),
        page.ExampleTable(
            "trade-off",
            "How far the bands move when the graph is perturbed, mean over the nodes of a region",
            ("region", "separation", "d_L (low band)", "d_H (high band)", "rise in % of its bound"),
            moves,
        ),
    )


def theory_files(theory: Theory, facts: Mapping[str, object]) -> dict[str, str]:
    """The page and the tables, by file name.

    Args:
        theory: What was measured.
        facts: What the page says on how it was made.
    """
    regrets, moves = theory_tables(theory)
    records = [
        {**asdict(case), **asdict(case.bound), "bound": case.bound.value} for case in theory.cases
    ]
    sensitivities = [
        {"purity": trade_off.purity, **move}
        for trade_off in theory.trade_offs
        for move in trade_off.sensitivities
    ]
    return {
        "report.html": _page(theory, regrets, moves, facts),
        "regret.csv": page.csv_text(records),
        "regret.md": regrets.to_markdown(),
        "trade-off.csv": page.csv_text(sensitivities),
        "trade-off.md": moves.to_markdown(),
    }


def _page(
    theory: Theory,
    regrets: page.ExampleTable,
    moves: page.ExampleTable,
    facts: Mapping[str, object],
) -> str:
    sentences = findings(theory)
    graphs = len(theory.cases) // len(get_args(KeyChoice))
    settings = ", ".join(f"{name}={value}" for name, value in theory.settings.items())
    return page.render_page(
        "What one mix for all nodes costs",
        "Some graphs have homophilic regions, where neighbours share their class, and heterophilic "
        "ones, where they do not. A theorem says that one mix of the low and the high band for all "
        "nodes must then cost something, and gives a lower bound. Here both are measured, on "
        f"{graphs} graphs with such regions of every size and clarity.",
        [
            page.PageSection(
                "Regret and bound", "", sentences[:4], _regret_figures(theory), [regrets]
            ),
            page.PageSection("Where it comes from", "", (), _example_figures(theory)),
            page.PageSection(
                "When the graph is perturbed",
                "A blend can move no further than its bands do. So a node's risk under the worst "
                "of the perturbations is at most its clean risk plus L (m d_L + (1 - m) d_H).",
                sentences[4:],
                _trade_off_figures(max(theory.trade_offs, key=lambda graph: graph.purity)),
                [moves],
            ),
            page.PageSection("How it was measured", "", caveats(theory)),
        ],
        {**facts, "Seeds": ", ".join(map(str, theory.scope.seeds)), "Settings": settings},
    )


def _regret_figures(theory: Theory) -> list[page.ExampleFigure]:
    purities, shares = sorted(theory.scope.purities, reverse=True), theory.scope.shares
    labels = ("ratio of heterophilic nodes", "risk")
    by_purity = {
        purity: {
            name: [
                [
                    case.regret if name == "regret" else case.bound.value
                    for case in theory.cases
                    if (case.purity, case.seed, case.keys) == (purity, seed, "class")
                ]
                for seed in theory.scope.seeds
            ]
            for name in ("regret", "bound")
        }
        for purity in purities
    }
    clear = theory.above_grid_error()
    dots = {
        f"positive: {keys}": (
            [case.regret for case in clear if case.keys == keys],
            [case.bound.value for case in clear if case.keys == keys],
        )
        for keys in get_args(KeyChoice)
    }
    return [
        page.line_figure(
            "Regret by ratio and separation",
            "What the best single mix costs over each node's own, one line per seed. At 0.5 the "
            "regions do not differ.",
            shares,
            {f"separation {purity:g}": by_purity[purity]["regret"] for purity in purities},
            labels,
        ),
        page.dot_figure(
            "All cases: bound against regret",
            "One dot per graph, seed and choice of the positive key. On the line the bound would "
            "be exact; above it, wrong. Regrets within the error of the grid are left out.",
            dots,
            ("measured regret", "bound"),
            is_compared=True,
        ),
        *(
            page.line_figure(
                f"Separation {purity:g}: regret and bound",
                "Measured regret and the largest lower bound that the theorem gives, one line per "
                "seed. The scale differs from figure to figure.",
                shares,
                by_purity[purity],
                labels,
            )
            for purity in purities
        ),
    ]


def _example_figures(theory: Theory) -> list[page.ExampleFigure]:
    """Of the two purest graphs with equal regions."""
    figures = []
    for example in sorted(theory.examples, key=lambda graph: graph.purity, reverse=True)[:2]:
        curves = {name: list(rows) for name, rows in example.curves.items()}
        figures += [
            page.line_figure(
                f"Separation {example.purity:g}: what another mix costs a node",
                "Risk above its lowest value: some nodes of each region, and the mean of all "
                "nodes of the graph, whose lowest point is the regret.",
                theory.mixes,
                {**curves, "all nodes": [example.mean]},
                (MIX_AXIS, "risk above the node's lowest"),
            ),
            page.histogram_figure(
                f"Separation {example.purity:g}: which mix is best",
                "Each node's mix of lowest risk, on the same graph.",
                {name: (mixes, None) for name, mixes in example.best_mixes.items()},
                (MIX_AXIS, "% of the region's nodes"),
            ),
        ]
    return figures


def _trade_off_figures(trade_off: TradeOff) -> list[page.ExampleFigure]:
    return [
        page.dot_figure(
            "Which band is stable, node by node",
            "Furthest move of each node's bands under the perturbations. Below the diagonal the "
            f"low band moves further, above it the high band. Separation {trade_off.purity:g}.",
            {name: (low, high) for name, (low, high) in trade_off.moves.items()},
            ("d_L: move of the low band", "d_H: move of the high band"),
            is_compared=True,
        ),
        *(
            page.line_figure(
                f"What perturbations cost: {region}",
                "Rise of the risk under the worst perturbation, mean over the region's nodes, "
                "beside what the move of the blend and the moves of the bands allow.",
                trade_off.mixes,
                {
                    "measured": [trade_off.rise[region]],
                    "L S(m)": [trade_off.shift[region]],
                    "bound": [trade_off.bound[region]],
                },
                (MIX_AXIS, "added risk"),
            )
            for region in trade_off.rise
        ),
    ]
