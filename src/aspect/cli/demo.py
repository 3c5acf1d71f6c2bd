"""`aspect demo`: ASPECT, its rivals and the controls on the embedded graph: a table, a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aspect.cli.session import Session
from aspect.data.source import MIXED
from aspect.settings import find_experiment

if TYPE_CHECKING:
    from aspect.evaluation.mixture_record import MixtureRecord, Row
    from aspect.report.tables import Cell

__all__ = ["SEEDS", "demo"]

SEEDS = 5


def demo(
    session: Session,
    *,
    out: Path,
    overwrite: bool = False,
    seeds: int = SEEDS,
) -> None:
    """Train all entrants with several seeds, print the table, and leave the page in a folder.

    An earlier demo is replaced if `overwrite` says so; a folder of anything else is refused.
    """
    with session.screen.activity("Starting"):
        from aspect.estimator import choose_device
        from aspect.report.folder import PAGE, ReportFolder
    choose_device(session.device)  # a wrong one is refused while no folder is touched
    with ReportFolder.open(out, "mixture", overwrite=overwrite) as folder:
        record = _study(session, seeds)
        with session.screen.activity("Drawing"):
            from aspect.report.mixture.findings import findings
            from aspect.report.mixture.numbers import gate_table, score_table, summary
            from aspect.report.mixture.page import mixture_page

            tables = [score_table(record), gate_table(record)]
            text = record.model_dump_json() + "\n"
            folder.write_report(text, mixture_page(record), tables)
    content = {
        "out": str(out),
        "report": str(out / PAGE),
        **summary(record),
        "findings": list(findings(record)),
    }
    session.screen.answer(content, lambda: _show(session, record, content))


def _study(session: Session, seeds: int) -> MixtureRecord:
    from aspect.data.synthetic import embedded_graph, mixed_regions
    from aspect.evaluation.mixture import study_mixture
    from aspect.provenance import versions

    experiment, _ = find_experiment("aspect", MIXED, None)
    labelled = embedded_graph()
    first = session.seed or 0
    with session.screen.progress("Training") as advance:
        record = study_mixture(
            labelled,
            mixed_regions(labelled.graph.num_nodes),
            experiment,
            seeds=range(first, first + seeds),
            device=session.device,
            advance=advance,
        )
    command = f"aspect demo --seeds {seeds} --seed {first} --device {record.device}"
    return record.model_copy(update={"command": command, "versions": versions()})


def _show(session: Session, record: MixtureRecord, content: dict[str, Any]) -> None:
    from aspect.evaluation.entrants import ENTRANTS
    from aspect.report.mixture.numbers import gate_table, score_table

    say, scores, gate = session.screen.say, score_table(record), gate_table(record)
    rows = [[line.title, *map(_short, line.cells)] for line in scores.lines]
    session.screen.table([scores.head, *scores.columns], rows, title=f"{scores.caption}:")
    say("* best, ' second best. The oracle mixes by the true regions, which no method knows.")
    say("Not trained: " + "; ".join(f"{row.title} ({row.note})" for row in _controls(record)) + ".")
    rows = [[f"{line.title}, {line.note}", *map(_short, line.cells)] for line in gate.lines]
    session.screen.table([gate.head, *gate.columns], rows, title=f"{gate.caption}:")
    for sentence in content["findings"]:
        say(f"- {sentence}")
    trained = len(record.seeds) * sum(entrant.role != "control" for entrant in ENTRANTS)
    say(
        f"Trained {trained} models without labels on the embedded graph ({record.graph.nodes} "
        f"nodes) in {record.seconds['all']:.0f} s, and probed each on {record.splits} splits."
    )
    say(f"The page with the pictures is {content['report']}: open it in a browser.")
    say("Next: aspect train cora (a data set), aspect train edges.csv --nodes nodes.csv (your own")
    say("tables), aspect --help (all commands), or make test (the whole test suite).")


def _controls(record: MixtureRecord) -> list[Row]:
    return [row for row in record.rows if row.role == "control"]


def _short(cell: Cell) -> str:
    """A cell that fits a terminal: its interval is left to the page."""
    return replace(cell, low=None).text + {"best": "*", "second": "'", "": ""}[cell.mark]
