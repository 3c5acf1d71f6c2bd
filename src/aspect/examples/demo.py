"""The demo: ASPECT against variants and controls on a graph of two unlike halves.

In the homophilic half neighbours share their class, in the heterophilic half they do not. One mix
of the low and the high band cannot be right for both; a gate for every node can. All methods are
trained without labels on the same graph, and probed on the same splits. `aspect demo` runs it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.graph import LabelledGraph
from aspect.data.source import MIXED
from aspect.data.splits import Split, make_splits
from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC, embedded_graph, mixed_regions
from aspect.errors import GraphError, SettingsError
from aspect.estimator import Embedder
from aspect.evaluation.baselines import majority_probe, twin_probe
from aspect.evaluation.headroom import centred_bands
from aspect.evaluation.inspection import HIGHEST
from aspect.evaluation.linear_probe import linear_probe
from aspect.evaluation.metrics import PERCENT, accuracy
from aspect.evaluation.result import ProbeResult
from aspect.evaluation.significance import PairedTest, holm, paired_test
from aspect.examples import page
from aspect.methods.registry import find_method
from aspect.nn.gate import fuse
from aspect.report.html import PALETTE, render
from aspect.report.plots import Plot
from aspect.report.statistics import LEVEL
from aspect.report.tables import p_text
from aspect.settings import find_experiment
from aspect.training.progress import Advance

REGIONS = {"homophilic": HOMOPHILIC, "heterophilic": HETEROPHILIC}
REGION_COLOURS = {"homophilic": PALETTE["blue"], "heterophilic": PALETTE["orange"]}
WHOLE = "whole"
PLACES = (WHOLE, *REGIONS)  # where accuracy is measured: both halves together, and each alone

FAIR = 0.5  # a gate weight above prefers the low band
FREQUENCIES = torch.linspace(0, HIGHEST, 101, dtype=torch.float64)


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
        table = np.empty((len(self.results[name]), len(self.splits)))
        for column, split in enumerate(self.splits):
            counted = self.inside(place)[split.test]
            if not bool(counted.any()):
                raise GraphError(f"A split has no test node in the {place} region.")
            truth = self.labelled.labels[split.test][counted]
            for row, result in enumerate(self.results[name]):
                table[row, column] = accuracy(truth, result.predictions[column][counted])
        return table


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
    model.fit(graph, progress=False)
    _probe(demo, row.name, model.embed(graph))
    gate = model.policy(graph)
    if gate is not None and row.name in ("aspect", "paper-gate"):
        demo.gates.setdefault(row.name, []).append(gate)
    if row.name == "aspect":
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


def accuracies(demo: Demo) -> pd.DataFrame:
    """Every row in every place: the mean over seeds and splits, the std of the seeds' means."""
    facts = []
    for name in ROWS:
        for place in PLACES:
            means = demo.scores(name, place).mean(axis=1)
            std = float(means.std(ddof=1)) if len(means) > 1 else None
            mean = float(means.mean())
            facts.append({"method": name, "place": place, "mean": mean, "std_seeds": std})
    return pd.DataFrame(facts)


def gate_weights(demo: Demo) -> pd.DataFrame:
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
    return pd.DataFrame(facts)


def summary(demo: Demo) -> dict[str, Any]:
    """All numbers as plain values, and what they say."""
    graph = demo.labelled.graph
    base = demo.scores("global").mean()
    oracle, won = (float(demo.scores(name).mean() - base) for name in ("oracle", "aspect"))
    strict: dict[str, dict[str, Any]] = {name: {} for name in ROWS}
    for fact in page.plain_records(accuracies(demo)):
        strict[fact.pop("method")][fact.pop("place")] = fact
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
            {"name": name, "title": row.title, "role": row.role, "strict": strict[name]}
            for name, row in ROWS.items()
        ],
        "gate": page.plain_records(gate_weights(demo)),
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
        "findings": findings(demo),
    }


def findings(demo: Demo) -> list[str]:
    """What the table does not say by itself; numbers and verdicts are computed."""
    tests, means = significance(demo), {name: demo.scores(name).mean() for name in ROWS}
    controls = [name for name, row in ROWS.items() if row.role == "control"]
    control = max(controls, key=lambda name: float(means[name]))
    source, target = demo.region[demo.labelled.graph.edge_index.cpu()]
    crossing = int((source != target).sum()) // 2
    return [
        "With a gate weight for every node, a linear probe predicts the class of "
        f"{means['aspect']:.1f}% of the test nodes; with one learned mix for all, "
        f"{means['global']:.1f}%: {_verdict(*tests['global'])}.",
        f"The best untrained control is {ROWS[control]} with {means[control]:.1f}%: "
        f"{_verdict(*tests[control])}.",
        "Over one mix for all, an oracle that is given each node's region gains "
        f"{means['oracle'] - means['global']:.1f} points; the gate, which is given nothing, gains "
        f"{means['aspect'] - means['global']:.1f}.",
        "Graph and settings were chosen so that no single mix can be right; only "
        f"{crossing:,} of the {demo.labelled.graph.num_edges:,} edges join the two halves. This "
        "shows what node-wise fusion can do, not what it gains on your graph.",
    ]


def _verdict(test: PairedTest, p_value: float) -> str:
    interval = f"95% interval {test.low:.1f} to {test.high:.1f}, p {p_text(p_value)}"
    if p_value >= LEVEL:
        return f"a difference of {test.difference:.1f} points, not significant ({interval})"
    word = "more" if test.difference > 0 else "fewer"
    return f"ASPECT has {abs(test.difference):.1f} points {word} ({interval})"


def demo_tables(demo: Demo) -> dict[str, pd.DataFrame]:
    """Accuracy of every row with its paired test, and the gate weights: text by caption."""
    tests = significance(demo)
    numbers = accuracies(demo)
    cells = {"method": [row.title for row in ROWS.values()]}
    for place in PLACES:
        inside = numbers[numbers["place"] == place].set_index("method")
        ends = inside["mean"].drop("oracle").drop_duplicates().nlargest(2)
        marks = dict(zip(ends, "*'", strict=False))
        cells["whole graph" if place == WHOLE else place] = [
            text + ("" if name == "oracle" else marks.get(mean, ""))
            for name, text, mean in zip(ROWS, _with_std(inside), inside["mean"], strict=True)
        ]
    ahead = {name: f"{test.difference:.1f}" for name, (test, _) in tests.items()}
    chance = {name: p_text(p_value).removeprefix("= ") for name, (_, p_value) in tests.items()}
    cells["ahead by"] = [ahead.get(name, "-") for name in ROWS]
    cells["p"] = [chance.get(name, "-") for name in ROWS]
    gates = gate_weights(demo)
    return {
        "Accuracy on test nodes in percent, mean ± standard deviation over seeds; "
        "* best, ' second best": pd.DataFrame(cells),
        "The gate: weight of the low band, mean ± standard deviation over seeds": pd.DataFrame(
            {
                "gate": gates["entrant"].map(lambda name: ROWS[name].title)
                + ", "
                + gates["region"],
                "mean": _with_std(gates),
                "std over nodes": gates["std_nodes"].map("{:.2f}".format),
                "% as the region suits": gates["right"].map("{:.1f}".format),
            }
        ),
    }


def _with_std(numbers: pd.DataFrame) -> list[str]:
    return [
        f"{mean:.2f}" + ("" if pd.isna(std) else f" ± {std:.2f}")
        for mean, std in zip(numbers["mean"], numbers["std_seeds"], strict=True)
    ]


def demo_files(demo: Demo, facts: Mapping[str, object]) -> dict[str, str]:
    """The page and the tables, by file name; the facts say how they were made."""
    (accuracy_title, accuracy_table), (gate_title, gate_table) = demo_tables(demo).items()
    settings = ", ".join(f"{name}={value}" for name, value in demo.settings.items())
    content = {
        "title": "A gate for every node",
        "lead": f"A graph of {demo.labelled.graph.num_nodes} nodes is half homophilic, where "
        "neighbours share their class, and half heterophilic, where they do not. ASPECT filters "
        "the features of every node by a low-pass and a high-pass filter and learns, without any "
        "label, how to weigh the two bands where.",
        "sections": [
            page.PageSection(
                "How well the classes can be predicted",
                f"A linear probe on frozen embeddings, chosen on validation nodes alone; "
                f"{len(demo.splits)} random splits of 60 / 20 / 20, {len(demo.seeds)} "
                "pre-trainings. The last columns are by how many points ASPECT is ahead, and p: "
                "the larger of a sign-flip and a corrected t test over the splits, after Holm's "
                "correction for all other rows.",
                findings(demo),
                [_accuracy_plot(demo)],
                {accuracy_title: accuracy_table},
            ),
            page.PageSection(
                "Gate weights by region",
                plots=[_gate_plot(demo), _filter_plot(demo)],
                tables={gate_title: gate_table},
            ),
        ],
        "facts": {**facts, "Seeds": ", ".join(map(str, demo.seeds)), "Settings": settings},
    }
    return {
        page.PAGE: render("example.html.j2", content, scripts=()),
        "accuracy.csv": accuracies(demo).to_csv(index=False),
        "gate.csv": gate_weights(demo).to_csv(index=False),
    }


def _accuracy_plot(demo: Demo) -> Plot:
    titles, numbers = [row.title for row in ROWS.values()], accuracies(demo)

    def paint(axes: Axes) -> None:
        for place, colour in {**REGION_COLOURS, WHOLE: PALETTE["ink"]}.items():
            means = numbers.loc[numbers["place"] == place, "mean"]
            axes.plot(means, titles, "o", color=colour, ms=4, label=place)
        axes.invert_yaxis()

    caption = "The distance of two dots is what one half loses against the other."
    return page.example_plot("Accuracy by half", caption, ("accuracy (%)", ""), paint)


def _gate_plot(demo: Demo) -> Plot:
    gates, bins = torch.stack(demo.gates["aspect"]), np.linspace(0, 1, 41).tolist()

    def paint(axes: Axes) -> None:
        for place, colour in REGION_COLOURS.items():
            weights = gates[:, demo.inside(place)].flatten().numpy()
            percent = np.full(len(weights), PERCENT / len(weights))
            axes.hist(weights, bins, weights=percent, color=colour, alpha=0.6, label=place)

    caption = (
        "All nodes of all seeds. Right: the low band alone; left: the high band alone. Training "
        "never saw the regions."
    )
    labels = ("gate: weight of the low band", "% of the half's nodes")
    return page.example_plot("Gate by region", caption, labels, paint)


def _filter_plot(demo: Demo) -> Plot:
    def paint(axes: Axes) -> None:
        for (band, curves), colour in zip(demo.responses.items(), ("blue", "orange"), strict=True):
            for number, curve in enumerate(curves):
                label = None if number else f"{band} band"
                axes.plot(FREQUENCIES, curve, color=PALETTE[colour], lw=1, label=label)

    caption = "Response of both bands, one line per seed."
    labels = ("frequency (eigenvalue of the Laplacian)", "response")
    return page.example_plot("What the filters learned", caption, labels, paint)
