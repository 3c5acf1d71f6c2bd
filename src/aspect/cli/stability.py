"""`aspect stability`: how far a trained model moves when its graph is perturbed a little."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from aspect.attacks.perturbation import files_at
from aspect.attacks.registry import attack_info, attack_names
from aspect.cli.console import number_text
from aspect.cli.options import NumbersFile, SplitsName
from aspect.cli.session import Session, command
from aspect.config import Config
from aspect.errors import counted
from aspect.evaluation.stability_request import (
    DEFAULT_BUDGETS,
    DEFAULT_KINDS,
    DEFAULT_SPLIT_KIND,
    DEFAULT_SPLITS,
    TRANSFERRED,
    StabilityRequest,
)
from aspect.training.files import check_run

UNTARGETED = [name for name in attack_names() if not attack_info(name).targeted]

MORE = "--out FILE and --json tell more: medians, 95th percentiles, bands, every split."


class StabilityOptions(Config):
    """How the graph is perturbed, and on which splits the probe is trained and evaluated."""

    kind: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Attacks of {', '.join(UNTARGETED)}.  "
            f"[default: {','.join(DEFAULT_KINDS)}, as far as the graph allows]",
            metavar="ATTACK",
        ),
    ] = None
    budget: Annotated[
        list[float] | None,
        typer.Option(
            help="Flips as a ratio of the edges, for `feature` of the entries.  "
            f"[default: {','.join(f'{b:g}' for b in DEFAULT_BUDGETS)}]",
            metavar="RATIO",
        ),
    ] = None
    perturbation: Annotated[list[Path] | None, typer.Option(metavar="FILE|FOLDER")] = None
    """File of `aspect attack`, folder of such files, or pattern in quotes, in place of the
    metattack made here."""
    splits: Annotated[
        SplitsName | None,
        typer.Option(
            help=f"Kind of splits. [default: {DEFAULT_SPLIT_KIND}, or that of the perturbation "
            "files]"
        ),
    ] = None
    num_splits: Annotated[
        int | None,
        Field(ge=1),
        typer.Option(
            help="Splits, and draws of what is random.  "
            f"[default: {DEFAULT_SPLITS}, or all of the perturbation files]"
        ),
    ] = None


@command
def stability(
    session: Session,
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    options: StabilityOptions,
    file: NumbersFile,
) -> None:
    """Perturb the graph of a run a little, and measure how far embeddings and a probe move.

    The model is not trained again. random: edges flipped at random; feature: entries masked;
    gradient: flips that move the embedding far, searched for without labels; metattack: flips
    that mislead a classifier, found with the labels of training nodes.
    """
    request = StabilityRequest(
        options.kind or (),
        options.budget or (),
        splits=options.splits,
        num_splits=options.num_splits,
        seed=session.seed or 0,
    )
    check_run(run)
    file.check(options.perturbation or ())
    for place in options.perturbation or ():
        files_at(place)
    with session.screen.activity("Starting"):
        from aspect.experiment.stability import study_run
    with session.screen.progress("Perturbing the graph") as advance:
        content = study_run(
            run,
            request,
            perturbations=options.perturbation or (),
            device=session.device,
            data_dir=session.data_dir,
            on_step=advance,
        )
    session.screen.warn(*content["warnings"])
    session.screen.answer(content, lambda: _show(session, content), file.out)


def _show(session: Session, content: Mapping[str, Any]) -> None:
    """The table, and what its columns mean."""
    rows, screen, count = content["rows"], session.screen, len(content["split_numbers"])
    judged = f"; {counted(count, content['splits'] + ' split')}" if count else ""
    title = (
        f"{content['method']} on {content['graph']} ({content['nodes']} nodes, "
        f"{content['edges']} edges), not trained again{judged}"
    )
    columns = _columns(rows)
    cells = [[columns[name](row) for name in columns] for row in rows]
    screen.table(list(columns), cells, title=title)
    screen.say(_finding(rows), *_legend(rows), *content["notices"], MORE)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Callable[[Mapping[str, Any]], str]]:
    """The columns that these rows have something for."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "perturbation": lambda row: row["title"],
        "budget": lambda row: f"{100 * row['budget']:.4g}%",
        "changed": lambda row: f"{row['flips'] or row['masked_entries']:.0f}",
        "relative shift": lambda row: number_text(row["relative_shift"]["mean"], 4),
        "shift": lambda row: number_text(row["shift"]["mean"], 4),
    }
    if any(row["gate_shift"] is not None for row in rows):
        columns["gate"] = lambda row: number_text(row["gate_shift"], 4)
    if any(row["perturbed"] for row in rows):
        columns["accuracy"] = lambda row: (
            f"{row['clean']['mean']:.2f} -> {row['perturbed']['mean']:.2f}"
        )
        columns["drop"] = lambda row: number_text(row["drop"])
    return columns


def _finding(rows: Sequence[Mapping[str, Any]]) -> str:
    """The answer in a sentence: what lowers the accuracy most at the largest budget."""
    largest = max(row["budget"] for row in rows)
    tried, at = [row for row in rows if row["budget"] == largest], f"At {100 * largest:.4g}%"
    judged = [row for row in tried if row["drop"] is not None]
    if not judged:
        worst = max(tried, key=lambda row: float(row["relative_shift"]["mean"]))
        shift = worst["relative_shift"]["mean"]
        return f"{at} {worst['title']} moves embeddings most: a relative shift of {shift:.4f}."
    worst = max(judged, key=lambda row: float(row["drop"]))
    if worst["drop"] <= 0:
        return f"{at} nothing that was tried lowers the accuracy."
    return f"{at} {worst['title']} lowers the accuracy most, by {worst['drop']:.2f}%."


def _legend(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    kinds = dict.fromkeys(row["kind"] for row in rows)
    yield (
        "relative shift: distance of a node's embedding before and after, divided by the mean "
        "distance of two nodes before; mean over nodes."
    )
    yield (
        "shift: 1 - cosine of the two, both centred by the mean embedding before, from 0 to 2; "
        "mean over nodes."
    )
    if rows[0]["gate_shift"] is not None:
        yield "gate: absolute change of a node's gate weight, from 0 to 1; mean over nodes."
    if any(row["perturbed"] for row in rows):
        yield (
            "accuracy: test accuracy in percent, before and after, of a probe trained and chosen "
            "before."
        )
        yield "drop: (before - after) / before of the two, in percent."
    for kind in kinds:
        if attack_info(kind).changes == "features":
            yield f"changed: flipped edges; of {kind}, masked entries."
    for title in dict.fromkeys(row["title"] for row in rows if TRANSFERRED in row["title"]):
        yield (
            f"{title}: found on an ASPECT trained on the same graph, since no gradient of this "
            "method reaches the edges."
        )
