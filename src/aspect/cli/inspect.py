"""`aspect inspect`: whether node-wise fusion can pay on the graph of trained runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from aspect.cli.console import interval_text, score_text
from aspect.cli.options import NumbersFile, SplitsName
from aspect.cli.session import Session, command
from aspect.errors import RunError, counted
from aspect.training.files import check_run

# Of each fusion of the bands, its title and what it is.
FUSIONS = {
    "low": ("low band alone", ""),
    "high": ("high band alone", ""),
    "one-mix": (
        "one mix for all",
        "the bands scaled by m and 1 - m, one m of 0, 0.1, ..., 1 for all nodes; validation "
        "chooses.",
    ),
    "concatenated": ("concatenation", "the bands side by side, m = 0.5."),
    "gate": ("learned gate", "the bands scaled by the gate weights of each node."),
    "shuffled-gate": (
        "learned gate, shuffled",
        "the same weights dealt to other nodes: what node-wise noise does.",
    ),
    "supervised-gate": (
        "gate trained with labels",
        "on the frozen bands, with the labels of training nodes: about what a gate without labels "
        "could hope for, less what it overfits where labels are few.",
    ),
}


@command
def inspect(
    session: Session,
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs (seeds of one method).", metavar="RUN"),
    ],
    file: NumbersFile,
    splits: Annotated[SplitsName, typer.Option(help="Kind of splits.")] = "random",
    num_splits: Annotated[
        int | None, typer.Option(help="Splits.  [default: all]", metavar="N", min=1)
    ] = None,
) -> None:
    """Measure whether node-wise fusion can pay on the graph of trained runs of aspect or aspect-s.

    The bands are probed alone, in one mix for all nodes, weighed by the learned gate, and by a gate
    that is trained with labels; all by the same probe.
    """
    for path in runs:
        check_run(path)
    file.check()
    screen = session.screen
    with screen.activity("Starting"):
        from aspect.evaluation.headroom import headroom
        from aspect.experiment.evaluate import check_labels, open_seeds
    stored = open_seeds(runs)
    for run in stored:
        if run.is_poisoned:
            raise RunError(
                f"{run.path} was trained on a graph that was perturbed for one split, and must not "
                "be evaluated on others. Inspect a run on the clean graph."
            )
    models = [run.load_model(session.device) for run in stored]
    labelled = stored[0].read_graph(session.data_dir)
    check_labels(labelled, f"The graph of {stored[0].path}")
    with screen.progress("Probing") as advance:
        result = headroom(
            models,
            labelled,
            splits,
            num_splits=num_splits,
            seed=session.seed or 0,
            on_step=advance,
        )
    for run in stored:
        screen.warn(*run.warnings)
    content = {
        "runs": list(map(str, runs)),
        "graph": stored[0].record["graph"]["name"],
        **result.to_dict(),
    }
    screen.answer(content, lambda: _show(session, content), file.out)


def _show(session: Session, content: Mapping[str, Any]) -> None:
    """The table, what its rows are, and what follows."""
    screen, gate = session.screen, content["gate"]
    models, splits = len(content["runs"]), content["rows"][0]["accuracy"]["splits"]
    title = (
        f"{content['method']} on {content['graph']} ({content['nodes']} nodes): percent over "
        f"{counted(models, 'run')} and {counted(splits, content['splits'] + ' split')}; "
        f"gate weight of the low band {gate['mean']:.2f} ± {gate['std']:.2f}"
    )
    bases = ("one-mix", "concatenated")
    columns = [f"over {FUSIONS[base][0]}" for base in bases]
    cells = [
        [
            FUSIONS[row["name"]][0],
            score_text(row["accuracy"]),
            interval_text(row["accuracy"]),
            *(_gain_cell(row, base) for base in bases),
        ]
        for row in content["rows"]
    ]
    columns = ["bands", "accuracy", "95% interval", *columns]
    screen.table(columns, cells, title=title)
    screen.say(*_legend(content), *content["notices"], content["conclusion"])


def _gain_cell(row: Mapping[str, Any], base: str) -> str:
    """The difference with its paired interval; a dash for the fusion itself."""
    gain = next((gain for gain in row["gains"] if gain["over"] == base), None)
    if gain is None:
        return "-"
    half = "" if gain["high"] is None else f" ± {gain['high'] - gain['mean']:.2f}"
    return f"{gain['mean']:+.2f}{half}"


def _legend(content: Mapping[str, Any]) -> Iterator[str]:
    for title, meaning in FUSIONS.values():
        if meaning:
            yield f"{title}: {meaning}"
    fewest = content["rows"][-1]["accuracy"]["splits"]
    if fewest < content["rows"][0]["accuracy"]["splits"]:
        yield f"The last row is of the first {fewest} splits, and so are its differences."
    yield "Differences are paired over splits, with a 95% interval corrected for their overlap."
