"""The paper's theorems on mixed block-model graphs: what is measured, and beside it the bounds.

ASPECT is trained on every graph without labels. Its bands, rows brought to length one, are then
mixed by every weight of a grid while the keys stay fixed, so that nothing but the mix decides the
risk. Labels and regions serve for looking only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from aspect.data.graph import Graph
from aspect.data.synthetic import mixed_graph, mixed_regions
from aspect.errors import SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.mixture import REGIONS, Advance, ignore
from aspect.evaluation.regret import Draw, attractions, crowding, largest_bound, regret
from aspect.evaluation.sensitivity import Kind, Moves, perturb, stability
from aspect.evaluation.theory_record import (
    Case,
    Example,
    KeyChoice,
    Scope,
    Sensitivity,
    TheoryRecord,
    TradeOff,
)
from aspect.methods.aspect import AspectMethod
from aspect.randomness import generator_for
from aspect.settings import Experiment

__all__ = ["QUICK", "draw_keys", "study_theory"]

HALF = 0.5  # the share at which regions are compared
SHOWN = 12  # nodes of each region whose risks are drawn
COARSE = 5  # every so many mixes the trade-off is looked at
TOLERANCE = 1e-9  # of a bound, for rounding
DIGITS = 6  # kept of what is drawn; what is compared is kept in full

QUICK = Scope(
    shares=(0.0, 0.5, 1.0),
    purities=(0.5, 0.95),
    seeds=(0,),
    nodes=120,
    epochs=25,
    width=16,
    mixes=41,
    perturbations=4,
)


def study_theory(
    scope: Scope,
    experiment: Experiment,
    *,
    device: str | None = None,
    advance: Advance = ignore,
) -> TheoryRecord:
    """Draw every graph, train on it, and measure.

    Args:
        scope: which graphs, and how closely they are looked at.
        experiment: settings of ASPECT; epochs and width are the scope's.
        device: where to train; risks are computed on the CPU in float64.
        advance: told before each graph how far it is.
    """
    if HALF not in scope.shares:
        raise SettingsError(f"The shares must include {HALF}. Got {list(scope.shares)}.")
    started = time.perf_counter()
    sizes = {"epochs": scope.epochs, "width": scope.width, "gate_width": scope.width}
    study = _Study(scope, Embedder("aspect", device=device, **{**experiment.settings, **sizes}))
    jobs = [
        (purity, share, seed)
        for purity in scope.purities
        for share in scope.shares
        for seed in scope.seeds
    ]
    for done, (purity, share, seed) in enumerate(jobs):
        advance(done, len(jobs), f"separation {purity:g}, share {share:g}, seed {seed}")
        study.run(purity, share, seed)
    advance(len(jobs), len(jobs), "summing up")
    return TheoryRecord(
        scope=scope,
        temperature=study.temperature,
        settings=study.model.config.model_dump(mode="json"),
        settings_from=experiment.origin,
        cases=tuple(study.cases),
        examples=tuple(study.examples),
        trade_offs=tuple(study.trade_offs),
        device=str(study.model.device),
        seconds=time.perf_counter() - started,
    )


def draw_keys(
    bands: Float[Tensor, "2 nodes dim"], labels: Int[Tensor, " nodes"], choice: KeyChoice
) -> Draw:
    """Keys from one augmented view: the even blend of each node's bands, brought to length one.

    The blend prefers neither band: with bands z_L and z_H of length one, a node's own key is
    equally near to both. With `own` each node's positive is its own key (instance discrimination,
    as in training). With `class` it is drawn from the keys of its class, its own among them: then
    that band has the lower risk that tells the classes apart.
    """
    keys = _unit(bands.mean(dim=0))
    if choice == "own":
        return Draw(keys, keys)
    same = (labels[:, None] == labels).double()
    return Draw(keys, same @ keys / same.sum(dim=1, keepdim=True))


@dataclass(frozen=True, eq=False)
class _Trained:
    """One graph, and what a model trained on it makes of it."""

    share: float
    purity: float
    model: Embedder
    graph: Graph
    region: Int[Tensor, " nodes"]
    bands: Float[Tensor, "2 nodes dim"]  # of length one, in float64
    draws: Mapping[KeyChoice, list[Draw]]

    @property
    def places(self) -> dict[str, Tensor]:
        """The nodes of every region that has some."""
        found = {name: self.region == number for name, number in REGIONS.items()}
        return {name: where for name, where in found.items() if bool(where.any())}


class _Study:
    """Looks at one graph after the other and keeps the numbers."""

    def __init__(self, scope: Scope, model: Embedder) -> None:
        self.scope, self.model = scope, model
        settings = model.config.model_dump()
        self.settings = settings
        self.temperature = float(settings["temperature"])
        self.mixes = torch.linspace(0, 1, scope.mixes, dtype=torch.float64)
        self.cases: list[Case] = []
        self.examples: list[Example] = []
        self.trade_offs: list[TradeOff] = []

    def run(self, purity: float, share: float, seed: int) -> None:
        """Train, and measure the regret; with equal regions the trade-off as well."""
        trained = self._train(purity, share, seed)
        is_first = share == HALF and seed == self.scope.seeds[0]
        for choice, risks in self._risks(trained).items():
            self.cases.append(self._case(trained, risks, choice))
            if is_first and choice == "class":
                self.examples.append(self._example(trained, risks))
        if is_first:
            self.trade_offs.append(self._trade_off(trained))

    def _risks(self, trained: _Trained) -> dict[KeyChoice, Tensor]:
        """By choice of the positives: the keys, and what they cost, are the same for all."""
        asked = (self.temperature, self.mixes)
        keys = [draw.keys for draw in trained.draws["own"]]
        crowd = crowding(trained.bands, keys, *asked)
        pulls = {
            choice: attractions(trained.bands, [draw.positives for draw in draws], *asked)
            for choice, draws in trained.draws.items()
        }
        return {choice: crowd - pull for choice, pull in pulls.items()}

    def _case(self, trained: _Trained, risks: Tensor, choice: KeyChoice) -> Case:
        best, found = self.mixes[risks.argmin(dim=1)], largest_bound(risks, self.mixes)
        return Case(
            share=trained.share,
            purity=trained.purity,
            seed=trained.model.seed,
            keys=choice,
            regret=regret(risks),
            best_mix=float(self.mixes[risks.mean(dim=0).argmin()]),
            bound=found.value,
            growth=found.growth,
            prefers_high=found.prefers_high,
            prefers_low=found.prefers_low,
            gap=found.gap,
            best_mixes={name: float(best[where].mean()) for name, where in trained.places.items()},
        )

    def _train(self, purity: float, share: float, seed: int) -> _Trained:
        nodes = self.scope.nodes
        labelled = mixed_graph(nodes, purity=purity, share=share, seed=seed)
        graph = labelled.graph.to(torch.float32)
        device = self.model.device
        model = Embedder("aspect", seed=seed, device=str(device), **self.settings).fit(graph)
        views = [
            _augmented_bands(model, graph, generator_for(seed, "keys", number, device=device))
            for number in range(self.scope.views)
        ]
        draws = {
            choice: [draw_keys(view, labelled.labels, choice) for view in views]
            for choice in get_args(KeyChoice)
        }
        region = mixed_regions(nodes, share)
        bands = _clean_bands(model, graph)
        return _Trained(share, purity, model, graph, region, bands, draws)

    def _example(self, trained: _Trained, risks: Tensor) -> Example:
        rise = risks - risks.min(dim=1, keepdim=True).values
        best = self.mixes[risks.argmin(dim=1)]
        return Example(
            purity=trained.purity,
            mixes=_rounded(self.mixes),
            curves={
                name: tuple(_rounded(row) for row in _spread_out(rise[where]))
                for name, where in trained.places.items()
            },
            mean=_rounded(rise.mean(dim=0)),
            best_mixes={name: _rounded(best[where]) for name, where in trained.places.items()},
        )

    def _trade_off(self, trained: _Trained) -> TradeOff:
        sets = {kind: self._moved(trained, kind) for kind in get_args(Kind)}
        moves = Moves(trained.bands, [bands for each in sets.values() for bands in each])
        mixes = self.mixes[::COARSE]
        found = stability(moves, trained.draws["class"], self.temperature, mixes)
        distances, places = moves.distances(), trained.places
        by_kind = {kind: Moves(trained.bands, each).distances() for kind, each in sets.items()}
        return TradeOff(
            purity=trained.purity,
            mixes=_rounded(mixes),
            rise=_means(found.rise, places),
            shift=_means(found.shift, places),
            bound=_means(found.bound, places),
            low={name: _rounded(distances[0, where]) for name, where in places.items()},
            high={name: _rounded(distances[1, where]) for name, where in places.items()},
            sensitivities=tuple(_sensitivities({**by_kind, "all": distances}, places)),
            pairs=found.rise.numel(),
            broken=int(found.broken(TOLERANCE).sum()),
            tightest=found.tightest,
            moved=float(found.moved.double().mean()),
        )

    def _moved(self, trained: _Trained, kind: Kind) -> list[Tensor]:
        """The bands of every perturbed graph of one kind."""
        model, moved = trained.model, []
        for number in range(self.scope.perturbations):
            generator = generator_for(model.seed, "perturbation", kind, number)
            graph = perturb(trained.graph, kind, self.scope.rate, generator)
            moved.append(_clean_bands(model, graph))
        return moved


def _clean_bands(model: Embedder, graph: Graph) -> Float[Tensor, "2 nodes dim"]:
    """The bands as the contrast sees them: directions, not centred."""
    with torch.no_grad():
        return _unit(_aspect(model).encode(model.as_seen(graph)).bands.cpu())


def _augmented_bands(
    model: Embedder, graph: Graph, generator: torch.Generator
) -> Float[Tensor, "2 nodes dim"]:
    """The same of a random view, as the method draws them in training but without dropout."""
    method = _aspect(model)
    with torch.no_grad():
        return _unit(method(method.augmented(graph.to(model.device), generator)).bands.cpu())


def _aspect(model: Embedder) -> AspectMethod:
    method = model.method.eval()
    assert isinstance(method, AspectMethod)  # trained here
    return method


def _unit(x: Tensor) -> Tensor:
    return normalize(x.double(), dim=-1)


def _spread_out(rows: Tensor) -> Tensor:
    """Some of the rows, at even distances."""
    places = torch.linspace(0, len(rows) - 1, min(SHOWN, len(rows)))
    return rows[places.round().long()]


def _sensitivities(
    distances: Mapping[str, Float[Tensor, "2 nodes"]], places: Mapping[str, Tensor]
) -> Iterator[Sensitivity]:
    for region, where in places.items():
        for kind, (low, high) in distances.items():
            yield Sensitivity(
                region=region,
                kind=kind,
                low=float(low[where].mean()),
                high=float(high[where].mean()),
            )


def _means(values: Tensor, places: Mapping[str, Tensor]) -> dict[str, tuple[float, ...]]:
    return {name: _rounded(values[where].mean(dim=0)) for name, where in places.items()}


def _rounded(values: Tensor) -> tuple[float, ...]:
    return tuple(round(value, DIGITS) for value in values.tolist())
