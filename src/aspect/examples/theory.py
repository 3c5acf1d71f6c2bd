"""The paper's theorems on mixed graphs: what is measured, and beside it the bounds.

ASPECT is trained on every graph without labels. Its bands, rows of length one, are then mixed by
every weight of a grid while the keys stay fixed, so that nothing but the mix decides the risk.
Labels and regions serve the measurement only. `aspect theory` runs it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import pandas as pd
import torch
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn.functional import normalize

from aspect.config import Config
from aspect.data.graph import Graph
from aspect.data.source import MIXED
from aspect.data.synthetic import mixed_graph, mixed_regions
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.examples import page, theorems
from aspect.examples.demo import REGIONS
from aspect.examples.theorems import BandMoves, Draw, PerturbationKind, PerturbationRisk
from aspect.methods.aspect import AspectMethod
from aspect.randomness import generator_for
from aspect.report.html import render
from aspect.report.plots import COLOURS, Plot
from aspect.settings import find_experiment
from aspect.training.progress import Advance

HALF = 0.5  # the ratio of heterophilic nodes at which regions are compared
COARSE = 5  # every so many mixes the trade-off is measured
TOLERANCE = 1e-9  # of a bound, for rounding
BOUND_PARTS = ("growth", "prefers_high", "prefers_low", "gap_start", "gap_end", "gap")
KINDS = {"edges": "edges flipped", "features": "entries masked", "all": "either"}

# Where a node's positive key comes from: a node of its class, or itself in an augmented view.
KeyChoice = Literal["class", "own"]


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


@dataclass(eq=False)
class Theory:
    """All that was measured."""

    scope: TheoryScope
    settings: dict[str, Any]  # of ASPECT, in full
    device: str
    cases: list[dict[str, Any]] = field(default_factory=list)  # of a graph and choice of keys each
    trade_offs: list[dict[str, Any]] = field(default_factory=list)  # equal regions, first seed
    risks: dict[float, dict[str, PerturbationRisk]] = field(default_factory=dict)  # by separation
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

    def rows(self) -> pd.DataFrame:
        """Every kind of graph under both choices of keys: means over the seeds."""
        cases = pd.DataFrame(self.cases).drop(columns="seed")
        cases["ratio"] = (cases["bound"] / cases["regret"]).where(cases["regret"] > 0)
        groups = cases.groupby(["keys", "purity", "share"], sort=False)
        return groups.mean().assign(regret_std=groups["regret"].std()).reset_index()


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
    scope, mixes, temperature = theory.scope, theory.mixes, theory.temperature
    labelled = mixed_graph(scope.nodes, purity=purity, share=share, seed=seed)
    graph = labelled.graph.to(torch.float32)
    model = Embedder("aspect", seed=seed, device=theory.device, **theory.settings)
    model.fit(graph, progress=False)
    bands = clean_bands(model, graph)
    views = [augmented_bands(model, graph, number) for number in range(scope.views)]
    region = mixed_regions(scope.nodes, share)
    inside = {name: region == number for name, number in REGIONS.items()}
    # The keys, and what they cost, are the same for both choices of the positives.
    draws = {
        choice: [draw_keys(view, labelled.labels, choice) for view in views]
        for choice in get_args(KeyChoice)
    }
    crowd = theorems.crowding(bands, [draw.keys for draw in draws["own"]], temperature, mixes)
    for choice, drawn in draws.items():
        positives = [draw.positives for draw in drawn]
        risks = crowd - theorems.attractions(bands, positives, temperature, mixes)
        best, bound = mixes[risks.argmin(dim=1)], theorems.largest_bound(risks, mixes)
        theory.cases.append(
            {
                "share": share,
                "purity": purity,
                "seed": seed,
                "keys": choice,
                "regret": theorems.regret(risks),
                "bound": bound.value,
                **{name: getattr(bound, name) for name in BOUND_PARTS},
                **{f"mix_{name}": float(best[where].mean()) for name, where in inside.items()},
            }
        )
    if share == HALF and seed == scope.seeds[0]:
        _trade_off(theory, purity, model, graph, draws["class"], inside)


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


def _trade_off(
    theory: Theory,
    purity: float,
    model: Embedder,
    graph: Graph,
    draws: Sequence[Draw],
    inside: Mapping[str, Tensor],
) -> None:
    """Eq. (7), channel trade-off, on one graph with both regions."""
    clean, moved = clean_bands(model, graph), {}
    for kind in get_args(PerturbationKind):
        generators = [
            generator_for(model.seed, "perturbation", kind, number)
            for number in range(theory.scope.perturbations)
        ]
        graphs = [
            theorems.perturb(graph, kind, theory.scope.rate, generator) for generator in generators
        ]
        moved[kind] = [clean_bands(model, perturbed) for perturbed in graphs]
    moved["all"] = [bands for perturbed in list(moved.values()) for bands in perturbed]
    distances = {kind: BandMoves(clean, bands).distances() for kind, bands in moved.items()}
    risk = theorems.perturbation_risk(
        BandMoves(clean, moved["all"]), draws, theory.temperature, theory.mixes[::COARSE]
    )
    theory.risks[purity] = {name: risk.of(where) for name, where in inside.items()}
    theory.trade_offs.append(
        {
            "purity": purity,
            "sensitivities": [
                {"region": name, "kind": kind}
                | {"low": float(low[where].mean()), "high": float(high[where].mean())}
                for name, where in inside.items()
                for kind, (low, high) in distances.items()
            ],
            "pairs": risk.rise.numel(),
            "broken": int(risk.broken(TOLERANCE).sum()),
            "tightest": risk.tightest,
            "moved": float(risk.moved.double().mean()),
        }
    )


def summary(theory: Theory) -> dict[str, Any]:
    """All numbers as plain values, and what they say."""
    return {
        "rows": page.plain_records(theory.rows()),
        "holds": not _wrong(theory),
        "trade_offs": theory.trade_offs,
        "scope": theory.scope.model_dump(mode="json"),
        "temperature": theory.temperature,
        "settings": theory.settings,
        "device": theory.device,
        "seconds": theory.seconds,
        "findings": findings(theory),
        "caveats": caveats(theory),
    }


def _wrong(theory: Theory) -> int:
    """In how many cases Theorem 2.1 does not hold, but for rounding."""
    return sum(case["regret"] < case["bound"] - 1e-12 for case in theory.cases)


def findings(theory: Theory) -> list[str]:
    """Whether the bounds hold, and how tight they are."""
    total, trades = len(theory.cases), theory.trade_offs
    ratios = [
        100 * case["bound"] / case["regret"]
        for case in theory.cases
        if case["regret"] > theory.grid_error
    ]
    tight = (
        f"the bound is {min(ratios):.0f}% to {max(ratios):.0f}% of the {len(ratios)} regrets that "
        "exceed the error of the grid"
        if ratios
        else "no regret exceeds the error of the grid"
    )
    pairs, broken = (sum(trade[name] for trade in trades) for name in ("pairs", "broken"))
    moved = [f"{100 * trade['moved']:.0f}% at {trade['purity']:g}" for trade in trades]
    return [
        f"Theorem 2.1: the regret is at least the bound in {total - _wrong(theory)} of {total} "
        f"cases; {tight}.",
        "Theorem 2.2 and Eq. (7), channel trade-off: both bounds, L S(m) and L (m d_L + (1 - m) "
        f"d_H) with L = 2 / tau = {2 / theory.temperature:g}, hold at {pairs - broken:,} of "
        f"{pairs:,} pairs of node and mix; the risk rises by at most "
        f"{100 * max(trade['tightest'] for trade in trades):.0f}% of the second.",
        "Proposition B.5: the mix of lowest clean risk is not the one of the lowest bound on the "
        f"worst risk for some nodes, by separation: {', '.join(moved)}.",
    ]


def caveats(theory: Theory) -> list[str]:
    """How it was measured, and what it therefore does not say."""
    scope = theory.scope
    return [
        "The keys are fixed: of every node the even blend of both bands, of length one, in an "
        f"augmented view, averaged over {scope.views} views. The positive of a node is drawn from "
        "the keys of its class, or is its own key. Training never sees a label.",
        f"The risk is convex in the mix. The grid of {scope.mixes} mixes moves the regret by at "
        f"most {theory.grid_error:.5f}. The bound is the largest over every growth mu and every "
        "pair a- < a+; it is loose where best mixes are 0 or 1.",
        f"Perturbations are {2 * scope.perturbations} random draws a graph: half flip pairs of "
        f"nodes, {scope.rate:.0%} as many as there are edges; half set {scope.rate:.0%} of the "
        "feature entries to 0. An attack is worse. Keys and mixes are held fixed under them.",
        "The graphs are drawn so that regions differ. The theorem says what a single mix must cost "
        "where preferences differ, not that they differ on your graph.",
    ]


def theory_tables(theory: Theory) -> dict[str, pd.DataFrame]:
    """Regret beside its bound, and how far the bands move under perturbations: text by caption."""
    rows = theory.rows()
    shown = rows[rows["keys"] == "class"]
    std = ["" if pd.isna(value) else f" ± {value:.4f}" for value in shown["regret_std"]]
    regrets = {
        "ratio heterophilic": shown["share"].map("{:g}".format),
        "separation": shown["purity"].map("{:.2f}".format),
        "regret": shown["regret"].map("{:.4f}".format) + std,
        "bound": shown["bound"].map("{:.4f}".format),
        "bound / regret": ["-" if pd.isna(value) else f"{value:.2f}" for value in shown["ratio"]],
        "p-": shown["prefers_high"].map("{:.2f}".format),
        "p+": shown["prefers_low"].map("{:.2f}".format),
        "mu": shown["growth"].map("{:.3f}".format),
        "Delta": shown["gap"].map("{:.2f}".format),
        "own keys": rows["regret"][rows["keys"] == "own"].map("{:.4f}".format).tolist(),
    }
    moves = _moves(theory)
    risks = [theory.risks[move["purity"]][move["region"]] for _, move in moves.iterrows()]
    used = [f"{100 * float(risk.rise.mean() / risk.bound.mean()):.1f}" for risk in risks]
    distances = {
        "region": moves["region"] + ", " + moves["kind"].map(KINDS),
        "separation": moves["purity"].map("{:.2f}".format),
        "d_L (low band)": moves["low"].map("{:.3f}".format),
        "d_H (high band)": moves["high"].map("{:.3f}".format),
        "rise in % of its bound": pd.Series(used).where(moves["kind"] == "all", "-"),
    }
    return {
        "Regret of the best single mix, and the largest bound that the theorem gives: "
        "mu/2 · p- p+ / (p- + p+) · Delta²": pd.DataFrame(regrets),
        "How far the bands move when the graph is perturbed, mean over the nodes of a region": (
            pd.DataFrame(distances)
        ),
    }


def _moves(theory: Theory) -> pd.DataFrame:
    return pd.json_normalize(theory.trade_offs, "sensitivities", ["purity"])


def theory_files(theory: Theory, facts: Mapping[str, object]) -> dict[str, str]:
    """The page and the tables, by file name; the facts say how they were made."""
    (regret_title, regrets), (moves_title, moves) = theory_tables(theory).items()
    first, *others = findings(theory)
    settings = ", ".join(f"{name}={value}" for name, value in theory.settings.items())
    content = {
        "title": "What one mix for all nodes costs",
        "lead": "Some graphs have homophilic regions, where neighbours share their class, and "
        "heterophilic ones, where they do not. A theorem says that one mix of the low and the high "
        "band for all nodes must then cost something, and gives a lower bound. Here both are "
        f"measured, on {len(theory.cases) // 2} graphs with such regions of every size and "
        "clarity.",
        "sections": [
            page.PageSection(
                "Regret", "", [first], [_regret_plot(theory)], {regret_title: regrets}
            ),
            page.PageSection(
                "When the graph is perturbed",
                "A blend can move no further than its bands do. So a node's risk under the worst "
                "of the perturbations is at most its clean risk plus L (m d_L + (1 - m) d_H).",
                others,
                [_trade_off_plot(theory)],
                {moves_title: moves},
            ),
            page.PageSection("How it was measured", "", caveats(theory)),
        ],
        "facts": {**facts, "Seeds": ", ".join(map(str, theory.scope.seeds)), "Settings": settings},
    }
    return {
        page.PAGE: render("example.html.j2", content, scripts=()),
        "regret.csv": pd.DataFrame(theory.cases).to_csv(index=False),
        "trade-off.csv": _moves(theory).to_csv(index=False),
    }


def _regret_plot(theory: Theory) -> Plot:
    rows = theory.rows()

    def paint(axes: Axes) -> None:
        for purity, colour in zip(theory.scope.purities, COLOURS, strict=False):
            shown = rows[(rows["keys"] == "class") & (rows["purity"] == purity)]
            label = f"separation {purity:g}"
            axes.plot(shown["share"], shown["regret"], color=colour, label=label)
            axes.plot(shown["share"], shown["bound"], color=colour, ls="--")

    return page.example_plot(
        "Regret and bound by ratio and separation",
        "What the best single mix costs over each node's best mix, and (dashed) the largest lower "
        "bound of Theorem 2.1; means over seeds. At separation 0.5 the regions do not differ.",
        ("ratio of heterophilic nodes", "risk"),
        paint,
    )


def _trade_off_plot(theory: Theory) -> Plot:
    purity, mixes = max(theory.risks), theory.mixes[::COARSE]

    def paint(axes: Axes) -> None:
        for (region, risk), colour in zip(theory.risks[purity].items(), COLOURS, strict=False):
            axes.plot(mixes, risk.rise.mean(dim=0), color=colour, label=region)
            axes.plot(mixes, risk.shift.mean(dim=0), color=colour, ls=":")
            axes.plot(mixes, risk.bound.mean(dim=0), color=colour, ls="--")

    return page.example_plot(
        "What perturbations cost",
        "Rise of the risk under the worst perturbation, mean over the region's nodes, beside "
        f"L S(m) (dotted) and L (m d_L + (1 - m) d_H) (dashed). Separation {purity:g}.",
        ("mix: weight of the low band", "added risk"),
        paint,
    )
