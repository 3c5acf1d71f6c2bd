"""A graph of unlike regions: does node-wise fusion beat one mix for all, and every control?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aspect.data.graph import Graph, LabelledGraph
from aspect.data.splits import Split, make_splits
from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC
from aspect.errors import GraphError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.agreement import neighbour_agreement
from aspect.evaluation.curves import CurveRecorder
from aspect.evaluation.entrants import (
    CONCATENATED,
    ENTRANTS,
    LINES,
    MAJORITY,
    METHOD,
    ORACLE,
    TWINS,
    Entrant,
)
from aspect.evaluation.metrics import accuracy
from aspect.evaluation.mixture_record import WHOLE, Curve, GraphFacts, MixtureRecord, Row, Spectrum
from aspect.evaluation.neighbours import majority_probe
from aspect.evaluation.probe import linear_probe
from aspect.evaluation.result import ProbeResult
from aspect.evaluation.spectrum import HIGHEST, class_energy, eigensystem
from aspect.evaluation.twins import twin_probe
from aspect.methods.aspect import AspectMethod
from aspect.methods.base import Method
from aspect.methods.registry import find_method
from aspect.nn.fusion import fuse
from aspect.settings import Experiment

__all__ = [
    "REGIONS",
    "Advance",
    "bands_of",
    "ignore",
    "oracle_weights",
    "regional_scores",
    "study_mixture",
]

REGIONS = {"homophilic": HOMOPHILIC, "heterophilic": HETEROPHILIC}

GATE_EVERY = 4  # epochs between two looks at the gate
BINS = 40  # of the spectrum
POINTS = 101  # of a filter's response
DIGITS = 6  # kept in the record

Advance = Callable[[int, int, str], object]  # done, of how many, and what comes next


def ignore(done: int, total: int, word: str) -> None:
    """Nobody asked how far it is."""


def study_mixture(
    labelled: LabelledGraph,
    region: Int[Tensor, " nodes"],
    experiment: Experiment,
    *,
    seeds: Sequence[int],
    num_splits: int | None = None,
    device: str | None = None,
    advance: Advance = ignore,
) -> MixtureRecord:
    """Train every entrant with every seed, without labels, and probe all on the same splits.

    Args:
        labelled: The graph; its labels are seen by the probe alone.
        region: HOMOPHILIC or HETEROPHILIC for every node; only scores and oracle see it.
        experiment: The settings that all entrants share, and where they come from.
        seeds: Pre-training seeds.
        num_splits: Random splits to probe on; all ten if None.
        device: Where to train.
        advance: Told before each training how far it is.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingsError(f"Seeds must be one or more, each once. Got {list(seeds)}.")
    started = time.perf_counter()
    study = _Study(labelled, region, experiment, num_splits, device)
    jobs = [
        (entrant, seed)
        for entrant in ENTRANTS
        for seed in (seeds if entrant.is_seeded else seeds[:1])
    ]
    for done, (entrant, seed) in enumerate(jobs):
        advance(done, len(jobs), f"{entrant.title}, seed {seed}")
        study.run(entrant, seed)
    advance(len(jobs), len(jobs), "summing up")
    study.add(TWINS.name, study.twins())
    study.add(MAJORITY.name, _majority(labelled, study.splits))
    return MixtureRecord(
        graph=study.facts(experiment.graph or "the graph"),
        settings=study.own_settings,
        settings_from=experiment.origin,
        seeds=tuple(seeds),
        splits=len(study.splits),
        rows=tuple(study.rows()),
        gates={entrant: _table(gates) for entrant, gates in study.gates.items()},
        curves=tuple(study.curves),
        spectrum=study.spectrum(),
        device=study.device,
        seconds={"all": time.perf_counter() - started, **study.seconds},
    )


def regional_scores(
    result: ProbeResult,
    labels: Int[Tensor, " nodes"],
    splits: Sequence[Split],
    places: Mapping[str, Bool[Tensor, " nodes"]],
) -> dict[str, list[float]]:
    """Test accuracy per split, of the whole graph and of each place, by one and the same probe.

    The probe is trained and chosen once, on all training and validation nodes: a place differs only
    in which test nodes are counted.
    """
    scores = {WHOLE: [score.strict for score in result.splits]}
    for place, where in places.items():
        scores[place] = []
        for number, (split, predictions) in enumerate(zip(splits, result.predictions, strict=True)):
            inside = where[split.test]
            if not bool(inside.any()):
                raise GraphError(f"Split {number} has no test node in the {place} region.")
            scores[place].append(accuracy(labels[split.test[inside]], predictions[inside]))
    return scores


def _majority(labelled: LabelledGraph, splits: Sequence[Split]) -> ProbeResult:
    """The most frequent class, with its one answer spelt out for every test node."""
    result = majority_probe(labelled.labels, splits, num_classes=labelled.num_classes)
    answers = zip(splits, result.splits, strict=True)
    predictions = [torch.full_like(split.test, int(score.choice)) for split, score in answers]
    return replace(result, predictions=tuple(predictions))


def bands_of(model: Embedder, graph: Graph) -> Float[Tensor, "bands nodes dim"]:
    """The bands of a trained ASPECT as they are read out, lowest first."""
    placed = graph.to(torch.float32).to(model.device)
    with torch.no_grad():
        method = _as_aspect(model).eval()
        return method.centred(method.encode(placed)).bands.cpu()


def oracle_weights(region: Int[Tensor, " nodes"]) -> Float[Tensor, "nodes bands"]:
    """The low band alone in homophilic regions, the high band alone in heterophilic ones."""
    low = (region == HOMOPHILIC).float()
    return torch.stack([low, 1 - low], dim=1)


class _Study:
    """Trains one entrant after the other, scores each on the same splits, and keeps the numbers."""

    def __init__(
        self,
        labelled: LabelledGraph,
        region: Int[Tensor, " nodes"],
        experiment: Experiment,
        num_splits: int | None,
        device: str | None,
    ) -> None:
        self.graph = labelled.graph.to(torch.float32)
        self.labels, self.num_classes = labelled.labels, labelled.num_classes
        self.region = region
        self.places = {name: region == number for name, number in REGIONS.items()}
        self.splits = make_splits("random", self.labels, self.num_classes, num_splits)
        self.shared = experiment.settings
        method = Embedder(METHOD.method, device=device, **self.shared)
        self.own_settings = method.config.model_dump(mode="json")
        self.device = str(method.device)
        self.scores: dict[str, dict[str, list[list[float]]]] = {}
        self.gates: dict[str, list[list[float]]] = {}
        self.responses: dict[str, list[list[float]]] = {}
        self.curves: list[Curve] = []
        self.seconds: dict[str, float] = {}

    def run(self, entrant: Entrant, seed: int) -> None:
        """Train, embed, probe; look into the method itself."""
        model = self._model(entrant, seed)
        recorder = self._recorder(model) if entrant is METHOD else None
        started = time.perf_counter()
        model.fit(self.graph, recorder=recorder)
        before = self.seconds.get(entrant.name, 0.0)
        self.seconds[entrant.name] = before + time.perf_counter() - started
        self._probe(entrant.name, model.embed(self.graph))
        policy = model.policy(self.graph)
        if entrant.has_gate and policy is not None:
            self.gates.setdefault(entrant.name, []).append(policy.tolist())
        if recorder is not None:
            self.curves.append(_curve(seed, recorder))
            self._keep_responses(model.method)
            bands = bands_of(model, self.graph)
            self._probe(CONCATENATED.name, torch.cat(list(bands), dim=1))
            self._probe(ORACLE.name, fuse(bands, oracle_weights(self.region)))

    def _model(self, entrant: Entrant, seed: int) -> Embedder:
        known = find_method(entrant.method).config.model_fields
        wanted = {**self.shared, **entrant.changes}
        own = {name: value for name, value in wanted.items() if name in known}
        return Embedder(entrant.method, seed=seed, device=self.device, **own)

    def _recorder(self, model: Embedder) -> CurveRecorder:
        """It asks the gate through a method of the same shape that is not in training."""
        twin = Embedder("random", device=self.device, **self.shared).fit(self.graph)
        placed = self.graph.to(model.device)
        return CurveRecorder(twin.method, placed, self.places, GATE_EVERY)

    def _keep_responses(self, method: Method) -> None:
        with torch.no_grad():
            bank = method.filter_bank(self.graph, _frequencies())
        for band, response in (bank.responses if bank else {}).items():
            self.responses.setdefault(band, []).append(response.tolist())

    def _probe(self, name: str, embeddings: Float[Tensor, "nodes dim"]) -> None:
        self.add(
            name,
            linear_probe(embeddings, self.labels, self.splits, num_classes=self.num_classes),
        )

    def twins(self) -> ProbeResult:
        """The rule that looks at no features."""
        return twin_probe(self.graph, self.labels, self.splits, num_classes=self.num_classes)

    def add(self, name: str, result: ProbeResult) -> None:
        """Keep the scores of one more seed."""
        scores = regional_scores(result, self.labels, self.splits, self.places)
        places = self.scores.setdefault(name, {})
        for place, values in scores.items():
            places.setdefault(place, []).append(values)

    def rows(self) -> Iterator[Row]:
        """The comparison: the method, its rivals, the controls, and the oracle."""
        for line in LINES:
            scores = {place: _table(table) for place, table in self.scores[line.name].items()}
            yield Row(
                name=line.name, title=line.title, note=line.note, role=line.role, scores=scores
            )

    def facts(self, name: str) -> GraphFacts:
        """What the report says of the graph."""
        shares = neighbour_agreement(self.graph, self.labels)
        source, target = self.graph.edge_index.cpu()
        return GraphFacts(
            name=name,
            edges=self.graph.num_edges,
            crossing=int((self.region[source] != self.region[target]).sum()) // 2,
            features=self.graph.num_features,
            classes=self.num_classes,
            regions=tuple(REGIONS),
            region=tuple(self.region.tolist()),
            agreement=tuple(None if share is None else round(share, DIGITS) for share in shares),
        )

    def spectrum(self) -> Spectrum:
        """The graph's frequencies, its classes among them, and the responses of all seeds."""
        values, vectors = eigensystem(self.graph, self_loops=self.own_settings["self_loops"])
        edges = np.linspace(0, HIGHEST, BINS + 1)

        def binned(weights: Float[Tensor, " nodes"]) -> tuple[float, ...]:
            shares, _ = np.histogram(values.numpy(), bins=edges, weights=weights.numpy())
            return _rounded(shares.tolist())

        return Spectrum(
            edges=_rounded(edges.tolist()),
            nodes=binned(torch.full_like(values, 1 / len(values))),
            classes={
                place: binned(class_energy(vectors, self.labels, where))
                for place, where in self.places.items()
            },
            frequencies=_rounded(_frequencies().tolist()),
            responses={band: _table(rows) for band, rows in self.responses.items()},
        )


def _as_aspect(model: Embedder) -> AspectMethod:
    if not isinstance(model.method, AspectMethod):
        raise SettingsError(f"Only ASPECT and its kin have bands. Got {model.name!r}.")
    return model.method


def _curve(seed: int, recorder: CurveRecorder) -> Curve:
    return Curve(
        seed=seed,
        values={name: _rounded(values) for name, values in recorder.whole.items()},
        gate_epochs=tuple(recorder.gate_epochs),
        gate={name: _rounded(values) for name, values in recorder.gate.items()},
    )


def _frequencies() -> Float[Tensor, " points"]:
    return torch.linspace(0, HIGHEST, POINTS, dtype=torch.float64)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, DIGITS) for value in values)


def _table(rows: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    return tuple(_rounded(row) for row in rows)
