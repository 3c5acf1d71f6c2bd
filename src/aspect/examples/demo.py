"""The demo: ASPECT against variants and controls on a graph of two unlike halves.

In the homophilic half neighbours share their class, in the heterophilic half they do not. One mix
of the low and the high band cannot be right for both; a gate for every node can. All methods are
trained without labels on the same graph, and probed on the same splits. `aspect demo` runs it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aspect.data.graph import LabelledGraph
from aspect.data.source import MIXED
from aspect.data.splits import Split, make_splits
from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC, embedded_graph, mixed_regions
from aspect.errors import GraphError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.baselines import majority_probe, twin_probe
from aspect.evaluation.headroom import centred_bands
from aspect.evaluation.inspection import (
    HIGHEST,
    ValueRecorder,
    class_energy,
    eigensystem,
    neighbour_agreement,
)
from aspect.evaluation.linear_probe import linear_probe
from aspect.evaluation.metrics import PERCENT, accuracy
from aspect.evaluation.result import ProbeResult
from aspect.evaluation.significance import PairedTest, holm, paired_test
from aspect.examples import page
from aspect.methods.registry import find_method
from aspect.nn.gate import fuse
from aspect.settings import find_experiment
from aspect.training.trainer import EpochReport, Snapshot

__all__ = ["ROWS", "Demo", "demo_files", "findings", "oracle_weights", "run_demo", "summary"]

REGIONS = {"homophilic": HOMOPHILIC, "heterophilic": HETEROPHILIC}
WHOLE = "whole"
PLACES = (WHOLE, *REGIONS)  # where accuracy is measured: both halves together, and each alone

FAIR = 0.5  # a gate weight above prefers the low band
SIGNIFICANT = 0.05  # p values below it
GATE_EVERY = 4  # epochs between two measurements of the gate during training
WEIGHTS = "method/"  # prefix of a method's weights in a snapshot of its training
FREQUENCIES = torch.linspace(0, HIGHEST, 101, dtype=torch.float64)
GATE_AXIS = "gate: weight of the low band"

Advance = Callable[[int, int, str], object]  # trainings done, of how many, and the next one


@dataclass(frozen=True)
class DemoRow:
    """One row of the comparison."""

    name: str
    title: str
    note: str
    role: str  # method, variant, control or oracle
    method: str | None = None  # of the registry; None: computed without a training of its own
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the settings that all share
    is_seeded: bool = True  # another seed gives another embedding

    def __str__(self) -> str:
        return f"{self.title} ({self.note})"


_ALONE = "ASPECT, but the gate sees the node alone"
_SVD = "truncated SVD of the adjacency beside the features"
_TABLE: tuple[tuple[Any, ...], ...] = (
    ("aspect", "ASPECT", "a gate weight for every node", "method", "aspect"),
    ("paper-gate", "Paper's gate", _ALONE, "variant", "aspect", {"gate_hops": 0}),
    ("global", "Global fusion", "one mix for all", "variant", "aspect", {"fusion": "global"}),
    ("half", "Half-half mix", "a fixed mix for all", "variant", "aspect", {"fusion": "half"}),
    ("low", "Low band only", "what neighbours share", "variant", "low"),
    ("high", "High band only", "how neighbours differ", "variant", "high"),
    ("concatenated", "Concatenation", "ASPECT's bands without the gate", "variant"),
    ("random", "Untrained weights", "ASPECT before training", "control", "random"),
    ("propagated", "Propagated features", "[X, SX, S2X]", "control", "propagated", {}, False),
    ("spectral", "Spectral embedding", _SVD, "control", "spectral", {}, False),
    ("raw", "Raw features", "without the graph", "control", "raw", {}, False),
    ("twins", "Nearest neighbour by neighbour sets", "no features", "control"),
    ("majority", "Majority class", "of the validation nodes", "control"),
    ("oracle", "Per-node oracle", "ASPECT's bands, mixed by the true regions", "oracle"),
)
ROWS = {values[0]: DemoRow(*values) for values in _TABLE}


@dataclass(eq=False)
class Demo:
    """The graph, and all that was measured on it."""

    labelled: LabelledGraph
    region: Tensor  # of every node; training does not see it
    splits: Sequence[Split]
    seeds: Sequence[int]
    settings: dict[str, Any]  # of ASPECT, in full
    device: str
    results: dict[str, list[ProbeResult]] = field(default_factory=dict)  # by row, one per seed
    gates: dict[str, list[Tensor]] = field(default_factory=dict)  # low band's weights, per seed
    curves: list[GateRecorder] = field(default_factory=list)  # of ASPECT's trainings
    responses: dict[str, list[Tensor]] = field(default_factory=dict)  # of the filters, by band
    seconds: float = 0.0

    def inside(self, place: str) -> Bool[Tensor, " nodes"]:
        """Which nodes are in a region."""
        return self.region == REGIONS[place] if place in REGIONS else self.region >= 0

    def scores(self, name: str, place: str = WHOLE) -> NDArray[np.float64]:
        """Test accuracies of a row in percent, [seeds, splits].

        The probe is trained and chosen once, on all training and validation nodes: a region differs
        only in which test nodes are counted.
        """
        return np.asarray(
            [
                [
                    self._accuracy(split, predictions, place)
                    for split, predictions in zip(self.splits, result.predictions, strict=True)
                ]
                for result in self.results[name]
            ]
        )

    def _accuracy(self, split: Split, predictions: Tensor, place: str) -> float:
        counted = self.inside(place)[split.test]
        if not bool(counted.any()):
            raise GraphError(f"A split has no test node in the {place} region.")
        return accuracy(self.labelled.labels[split.test][counted], predictions[counted])


class GateRecorder(ValueRecorder):
    """Keeps every epoch's loss terms, and every few epochs the gate's mean in each region.

    The gate is computed by a copy that loads the weights, so that the training is not touched.
    """

    def __init__(self, copy: Embedder, demo: Demo) -> None:
        super().__init__()
        self.method, self.graph = copy.method, copy.as_seen(demo.labelled.graph)
        self.regions = {name: demo.inside(name) for name in REGIONS}
        self.gate_epochs: list[int] = []
        self.gate: dict[str, list[float]] = {name: [] for name in REGIONS}

    @override
    @torch.no_grad()
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        super().epoch_done(report, snapshot)
        if report.epoch not in (1, report.epochs) and report.epoch % GATE_EVERY:
            return
        tensors = snapshot().tensors
        state = {key[len(WEIGHTS) :]: tensors[key] for key in tensors if key.startswith(WEIGHTS)}
        self.method.load_state_dict(state)
        self.method.calibrate(self.graph)
        weights = self.method.eval().policy(self.graph)
        assert weights is not None  # ASPECT has a gate
        self.gate_epochs.append(report.epoch)
        for name, where in self.regions.items():
            self.gate[name].append(float(weights[where.to(weights.device), 0].mean()))


def run_demo(
    seeds: Sequence[int],
    *,
    labelled: LabelledGraph | None = None,
    settings: Mapping[str, Any] | None = None,
    num_splits: int | None = None,
    device: str | None = None,
    advance: Advance = lambda *_: None,
) -> Demo:
    """Train every row with every seed, without labels, and probe all on the same splits.

    Args:
        seeds: Of the trainings.
        labelled: A mixed graph; the embedded one if None.
        settings: That all methods share; those shipped for the embedded graph if None.
        num_splits: Random splits to probe on; all ten if None.
        device: Where to train.
        advance: Called before each training.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise SettingsError(f"Seeds must be one or more, each once. Got {list(seeds)}.")
    started = time.perf_counter()
    labelled = labelled or embedded_graph()
    shared = dict(settings or find_experiment("aspect", MIXED, None)[0].settings)
    aspect = Embedder("aspect", device=device, **shared)
    splits = make_splits("random", labelled.labels, labelled.num_classes, num_splits)
    regions = mixed_regions(labelled.graph.num_nodes)
    config = aspect.config.model_dump(mode="json")
    demo = Demo(labelled, regions, splits, seeds, config, str(aspect.device))
    jobs = [
        (row, seed)
        for row in ROWS.values()
        if row.method is not None
        for seed in (seeds if row.is_seeded else seeds[:1])
    ]
    for done, (row, seed) in enumerate(jobs):
        advance(done, len(jobs), f"{row.title}, seed {seed}")
        _train_and_probe(demo, row, seed, shared)
    advance(len(jobs), len(jobs), "controls")
    labels, classes = labelled.labels, labelled.num_classes
    demo.results["twins"] = [twin_probe(labelled.graph, labels, splits, num_classes=classes)]
    demo.results["majority"] = [majority_probe(labels, splits, num_classes=classes)]
    demo.seconds = time.perf_counter() - started
    return demo


def _train_and_probe(demo: Demo, row: DemoRow, seed: int, shared: Mapping[str, Any]) -> None:
    graph = demo.labelled.graph
    assert row.method is not None
    known = find_method(row.method).config.model_fields
    settings = {name: value for name, value in {**shared, **row.changes}.items() if name in known}
    model = Embedder(row.method, seed=seed, device=demo.device, **settings)
    recorder = None
    if row.name == "aspect":
        recorder = GateRecorder(Embedder("random", device=demo.device, **shared).fit(graph), demo)
    model.fit(graph, recorder=recorder)
    _probe(demo, row.name, model.embed(graph))
    gate = model.policy(graph)
    if gate is not None and row.name in ("aspect", "paper-gate"):
        demo.gates.setdefault(row.name, []).append(gate)
    if recorder is not None:
        demo.curves.append(recorder)
        with torch.no_grad():
            bank = model.method.filter_bank(model.as_seen(graph), FREQUENCIES)
        for band, response in (bank.responses if bank else {}).items():
            demo.responses.setdefault(band, []).append(response)
        bands = centred_bands(model, graph)[0].cpu()
        _probe(demo, "concatenated", torch.cat(list(bands), dim=1))
        _probe(demo, "oracle", fuse(bands, oracle_weights(demo.region)))


def _probe(demo: Demo, name: str, embeddings: Float[Tensor, "nodes dim"]) -> None:
    labels, classes = demo.labelled.labels, demo.labelled.num_classes
    result = linear_probe(embeddings, labels, demo.splits, num_classes=classes)
    demo.results.setdefault(name, []).append(result)


def oracle_weights(region: Tensor) -> Float[Tensor, "nodes bands"]:
    """The low band alone in homophilic regions, the high band alone in heterophilic ones."""
    low = (region == HOMOPHILIC).float()
    return torch.stack([low, 1 - low], dim=1)


def significance(demo: Demo) -> dict[str, tuple[PairedTest, float]]:
    """ASPECT against every row but the oracle: the test, and p after Holm's correction."""
    names = [name for name, row in ROWS.items() if row.role in ("variant", "control")]
    tests = [paired_test(demo.scores("aspect"), demo.scores(name)) for name in names]
    p_values = holm([max(test.p_value, test.corrected_p_value) for test in tests])
    return {name: (test, p) for name, test, p in zip(names, tests, p_values, strict=True)}


def gate_facts(demo: Demo) -> list[dict[str, Any]]:
    """Every gate in every region: the weight of the low band."""
    facts = []
    for name, gates in demo.gates.items():
        for place in REGIONS:
            inside = torch.stack(gates)[:, demo.inside(place)].double()
            means = inside.mean(dim=1)
            suits = inside > FAIR if place == "homophilic" else inside < FAIR
            facts.append(
                {
                    "entrant": name,
                    "region": place,
                    "mean": float(means.mean()),
                    "std_nodes": float(inside.std(dim=1).mean()),
                    "std_seeds": float(means.std()) if len(means) > 1 else None,
                    "right": PERCENT * float(suits.double().mean()),
                }
            )
    return facts


def _spread(scores: NDArray[np.float64]) -> dict[str, float | None]:
    """Mean over seeds and splits; standard deviation of the seeds' means."""
    means = scores.mean(axis=1)
    std = float(means.std(ddof=1)) if len(means) > 1 else None
    return {"mean": float(means.mean()), "std_seeds": std}


def summary(demo: Demo) -> dict[str, Any]:
    """All numbers as plain values."""
    graph = demo.labelled.graph
    base = demo.scores("global").mean()
    oracle, won = (float(demo.scores(name).mean() - base) for name in ("oracle", "aspect"))
    return {
        "graph": {
            "name": MIXED,
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": demo.labelled.num_classes,
        },
        "seeds": list(demo.seeds),
        "splits": len(demo.splits),
        "rows": [
            {
                "name": name,
                "title": row.title,
                "role": row.role,
                "strict": {place: _spread(demo.scores(name, place)) for place in PLACES},
            }
            for name, row in ROWS.items()
        ],
        "gate": gate_facts(demo),
        "tests": [
            {"name": name, "p_value": p_value, "test": asdict(test)}
            for name, (test, p_value) in significance(demo).items()
        ],
        "gap": {
            "oracle": oracle,
            "won": won,
            "share": PERCENT * won / oracle if oracle > 0 else None,
        },
        "settings": demo.settings,
        "device": demo.device,
        "seconds": demo.seconds,
    }


def findings(demo: Demo) -> list[str]:
    """What follows, in sentences whose numbers and verdicts are computed."""
    tests, means = significance(demo), {name: demo.scores(name).mean() for name in ROWS}
    controls = [name for name, row in ROWS.items() if row.role == "control"]

    def against(name: str) -> str:
        return f"{ROWS[name]} reaches {means[name]:.1f}%: {_verdict(*tests[name])}."

    return [
        "With a gate weight for every node, a linear probe predicts the class of "
        f"{means['aspect']:.1f}% of the test nodes; with one learned mix for all, "
        f"{means['global']:.1f}%: {_verdict(*tests['global'])}.",
        "Of the controls, none of which is trained, "
        + against(max(controls, key=lambda name: float(means[name]))),
        _about_gap(**summary(demo)["gap"]),
        _about_gate(demo),
        *(against(name) for name in ("paper-gate", "half", "concatenated")),
        _caveat(demo),
    ]


def _verdict(test: PairedTest, p_value: float) -> str:
    chance = f"{p_value:.3f}" if p_value >= 0.001 else "less than 0.001"  # noqa: PLR2004
    interval = f"95% interval {test.low:.1f} to {test.high:.1f}, p = {chance}"
    if p_value >= SIGNIFICANT:
        return f"a difference of {test.difference:.1f} points, not significant ({interval})"
    word = "more" if test.difference > 0 else "fewer"
    return f"ASPECT has {abs(test.difference):.1f} points {word} ({interval})"


def _about_gap(oracle: float, won: float, share: float | None) -> str:
    if share is None:
        return (
            "An oracle that is given each node's region does no better than one mix for all "
            f"({oracle:+.1f} points), so there is nothing here for a gate to win."
        )
    return (
        f"An oracle that is given each node's region gains {oracle:.1f} points over one mix for "
        f"all; the gate, which is given nothing, gains {won:.1f}, or {share:.0f}% of what there is "
        "to win."
    )


def _about_gate(demo: Demo) -> str:
    facts = [fact for fact in gate_facts(demo) if fact["entrant"] == "aspect"]
    parts = [f"{fact['mean']:.2f} in the {fact['region']} half" for fact in facts]
    right = sum(fact["right"] for fact in facts) / len(facts)
    return (
        f"Without a label, the gate weight of the low band is {' and '.join(parts)} on average; "
        f"{right:.1f}% of the nodes prefer the band that suits their region."
    )


def _caveat(demo: Demo) -> str:
    graph, homophily = demo.labelled.graph, _homophily(demo)
    source, target = demo.region[graph.edge_index.cpu()]
    crossing = int((source != target).sum()) // 2
    means = [f"{np.nanmean(homophily[demo.inside(place)]):.0f}%" for place in REGIONS]
    return (
        f"{' and '.join(means)} of a node's neighbours share its class in the "
        f"{' and the '.join(REGIONS)} half, where chance gives "
        f"{PERCENT / demo.labelled.num_classes:.0f}%. The graph is made so that no single mix can "
        f"be right, only {crossing:,} of its {graph.num_edges:,} edges join the two halves, and "
        "graph and settings were chosen for this: it shows what node-wise fusion can do, not what "
        "it gains on your graph. Where all neighbourhoods are alike there is nothing for a gate to "
        "win."
    )


def _homophily(demo: Demo) -> NDArray[np.float64]:
    """Percentage of each node's neighbours that are of its class; NaN without neighbours."""
    shares = neighbour_agreement(demo.labelled.graph, demo.labelled.labels)
    return np.asarray([np.nan if share is None else PERCENT * share for share in shares])


def demo_tables(demo: Demo) -> tuple[page.ExampleTable, page.ExampleTable]:
    """Accuracy of every row on the whole graph and by half, and the gate weights."""
    tests = significance(demo)
    means = {place: {name: demo.scores(name, place).mean() for name in ROWS} for place in PLACES}

    def cell(name: str, place: str) -> str:
        ranked = sorted((value for key, value in means[place].items() if key != "oracle"))
        marks = {ranked[-2]: "'", ranked[-1]: "*"} if name != "oracle" else {}
        return _text(_spread(demo.scores(name, place))) + marks.get(means[place][name], "")

    rows = [
        (
            row.title,
            *(cell(name, place) for place in PLACES),
            f"{tests[name][0].difference:.1f}" if name in tests else "-",
        )
        for name, row in ROWS.items()
    ]
    gates = [
        (
            f"{ROWS[fact['entrant']].title}, {fact['region']}",
            _text(fact),
            f"{fact['std_nodes']:.2f}",
            f"{fact['right']:.1f}",
        )
        for fact in gate_facts(demo)
    ]
    caption = "Accuracy on test nodes in percent, mean ± standard deviation over seeds"
    columns = ("method", "whole graph", *REGIONS, "ahead by")
    return (
        page.ExampleTable("accuracy", f"{caption}; * best, ' second best", columns, rows),
        page.ExampleTable(
            "gate",
            "The gate: weight of the low band, mean ± standard deviation over seeds",
            ("gate", "mean", "std over nodes", "% as the region suits"),
            gates,
        ),
    )


def _text(values: Mapping[str, Any]) -> str:
    std = values["std_seeds"]
    return f"{values['mean']:.2f}" + ("" if std is None else f" ± {std:.2f}")


def demo_files(demo: Demo, facts: Mapping[str, object]) -> dict[str, str]:
    """The page and the tables, by file name.

    Args:
        demo: What was measured.
        facts: What the page says on how it was made.
    """
    accuracies, gates = demo_tables(demo)
    records = [
        {"method": name, "place": place, **_spread(demo.scores(name, place))}
        for name in ROWS
        for place in PLACES
    ]
    return {
        "report.html": _page(demo, accuracies, gates, facts),
        "accuracy.csv": page.csv_text(records),
        "accuracy.md": accuracies.to_markdown(),
        "gate.csv": page.csv_text(gate_facts(demo)),
        "gate.md": gates.to_markdown(),
    }


def _page(
    demo: Demo,
    accuracies: page.ExampleTable,
    gates: page.ExampleTable,
    facts: Mapping[str, object],
) -> str:
    graph = demo.labelled.graph
    sections = [
        page.PageSection(
            "How well the classes can be predicted",
            f"A linear probe on frozen embeddings, chosen on validation nodes alone; "
            f"{len(demo.splits)} random splits of 60 / 20 / 20, {len(demo.seeds)} pre-trainings. "
            "The last column is by how many points ASPECT is ahead. Intervals are corrected for "
            "overlapping splits; p is the larger of a sign-flip and a corrected t test over the "
            "splits, after Holm's correction for all other rows.",
            findings(demo),
            [_accuracy_figure(demo)],
            [accuracies],
        ),
        page.PageSection("Gate weights by region", "", (), _gate_figures(demo), [gates]),
        page.PageSection("Why two filters", "", (), _spectrum_figures(demo)),
        page.PageSection("Training", "", (), _training_figures(demo)),
    ]
    settings = ", ".join(f"{name}={value}" for name, value in demo.settings.items())
    return page.render_page(
        "A gate for every node",
        f"A graph of {graph.num_nodes} nodes is half homophilic, where neighbours share their "
        "class, and half heterophilic, where they do not. ASPECT filters the features of every "
        "node by a low-pass and a high-pass filter and learns, without any label, how to weigh the "
        "two bands where.",
        sections,
        {**facts, "Seeds": ", ".join(map(str, demo.seeds)), "Settings": settings},
    )


def _accuracy_figure(demo: Demo) -> page.ExampleFigure:
    titles = [row.title for row in ROWS.values()]

    def paint(axes: Axes) -> None:
        for place, colour in zip((*REGIONS, WHOLE), ("blue", "orange", "ink"), strict=True):
            means = [demo.scores(name, place).mean() for name in ROWS]
            axes.plot(means, titles, "o", color=page.COLOURS[colour], ms=4, label=place)
        axes.invert_yaxis()

    caption = "The distance of two dots is what one half loses against the other."
    return page.draw("Accuracy by half", caption, ("accuracy (%)", ""), paint)


def _gate_figures(demo: Demo) -> list[page.ExampleFigure]:
    inside = {place: demo.inside(place) for place in REGIONS}
    distributions = [
        page.histogram_figure(
            f"Gate weights: {ROWS[name].title}",
            "All nodes of all seeds. Right: the low band alone; left: the high band alone.",
            {place: (torch.stack(gates)[:, at].flatten(), None) for place, at in inside.items()},
            (GATE_AXIS, "% of the half's nodes"),
        )
        for name, gates in demo.gates.items()
    ]
    gate, homophily = torch.stack(demo.gates["aspect"]).mean(dim=0), _homophily(demo)
    return [
        *distributions,
        page.dot_figure(
            "Node by node",
            "One dot per node in the order of the graph, mean over seeds. Training never saw the "
            "regions.",
            {place: (at.nonzero().flatten(), gate[at]) for place, at in inside.items()},
            ("node", GATE_AXIS),
        ),
        page.dot_figure(
            "Against each node's own neighbours",
            "The gate sees a neighbourhood, so that a node with misleading neighbours can still "
            "follow its region.",
            {place: (homophily[at], gate[at]) for place, at in inside.items()},
            ("% of neighbours in the node's class", GATE_AXIS),
        ),
    ]


def _spectrum_figures(demo: Demo) -> list[page.ExampleFigure]:
    values, vectors = eigensystem(demo.labelled.graph, self_loops=demo.settings["self_loops"])
    labels, axis = demo.labelled.labels, "frequency (eigenvalue of the Laplacian)"
    energies = {place: class_energy(vectors, labels, demo.inside(place)) for place in REGIONS}
    return [
        page.histogram_figure(
            "Where the classes lie",
            "Energy of the class labels by frequency of the graph. A low-pass filter keeps the "
            "classes of the homophilic half and loses those of the heterophilic one. (Labels are "
            "used for this figure only.)",
            {place: (values, energy) for place, energy in energies.items()},
            (axis, "% of the energy"),
            HIGHEST,
        ),
        page.line_figure(
            "What the filters learned",
            "Response of both bands, one line per seed.",
            FREQUENCIES,
            {f"{band} band": curves for band, curves in demo.responses.items()},
            (axis, "response"),
        ),
    ]


def _training_figures(demo: Demo) -> list[page.ExampleFigure]:
    curves = [recorder.whole for recorder in demo.curves]
    terms = [name for name in curves[0] if name not in ("loss", "gate_mean", "gate_std")]
    changes = {
        term: [np.subtract(curve[term], curve[term][0]) for curve in curves] for term in terms
    }
    return [
        page.line_figure(
            "Loss terms",
            "How far each term of the loss moved since the first epoch, one line per seed.",
            range(1, len(curves[0]["loss"]) + 1),
            changes,
            ("epoch", "change since the first epoch"),
        ),
        page.line_figure(
            "How the regions part",
            "Mean gate of each half on the clean graph, one line per seed.",
            demo.curves[0].gate_epochs,
            {place: [recorder.gate[place] for recorder in demo.curves] for place in REGIONS},
            ("epoch", GATE_AXIS),
        ),
    ]
