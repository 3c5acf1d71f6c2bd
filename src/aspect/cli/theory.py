"""`aspect theory`: the paper's theorems, measured on mixed graphs, as a table and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aspect.cli.options import OutFolder, Overwrite
from aspect.cli.session import Session, command
from aspect.data.source import MIXED
from aspect.settings import find_experiment

if TYPE_CHECKING:
    from aspect.evaluation.theory_record import TheoryRecord
    from aspect.report.tables import Table

__all__ = ["theory"]


@command
def theory(
    session: Session,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few small graphs: seconds, and rougher numbers.")
    ] = False,
    out: OutFolder = Path("runs/theory"),
    overwrite: Overwrite = False,
) -> None:
    """Measure what one mix for all nodes costs, beside the bounds of the paper's theorems."""
    with session.screen.activity("Starting"):
        from aspect.estimator import choose_device
        from aspect.report.folder import PAGE, ReportFolder
    choose_device(session.device)  # a wrong one is refused while no folder is touched
    with ReportFolder.open(out, "theory", overwrite=overwrite) as folder:
        record = _study(session, quick=quick)
        with session.screen.activity("Drawing"):
            from aspect.report.theory.findings import caveats, regret_findings, stability_findings
            from aspect.report.theory.numbers import regret_table, summary, trade_off_table
            from aspect.report.theory.page import theory_page

            tables = [regret_table(record), trade_off_table(record)]
            text = record.model_dump_json() + "\n"
            folder.write_report(text, theory_page(record), tables)
    content = {
        "out": str(out),
        "report": str(out / PAGE),
        **summary(record),
        "findings": [*regret_findings(record), *stability_findings(record)],
        "caveats": list(caveats(record)),
    }
    session.screen.answer(content, lambda: _show(session, record, content))


def _study(session: Session, *, quick: bool) -> TheoryRecord:
    from aspect.evaluation.theory import QUICK, study_theory
    from aspect.evaluation.theory_record import Scope
    from aspect.provenance import versions

    experiment, _ = find_experiment("aspect", MIXED, None)
    scope, first = QUICK if quick else Scope(), session.seed or 0
    seeds = tuple(first + seed for seed in scope.seeds)
    with session.screen.progress("Training and measuring") as advance:
        record = study_theory(
            scope.model_copy(update={"seeds": seeds}),
            experiment,
            device=session.device,
            advance=advance,
        )
    words = ["aspect theory", *(["--quick"] if quick else []), f"--seed {first}"]
    made = {"command": f"{' '.join(words)} --device {record.device}", "versions": versions()}
    return record.model_copy(update=made)


def _show(session: Session, record: TheoryRecord, content: dict[str, Any]) -> None:
    from aspect.report.theory.numbers import regret_table, trade_off_table

    _print(session, regret_table(record))
    _print(session, trade_off_table(record))
    for sentence in content["findings"]:
        session.screen.say(f"- {sentence}")
    graphs = len(record.cases) // 2  # each under two choices of the positive key
    session.screen.say(
        f"Trained on {graphs} mixed graphs of {record.scope.nodes} nodes without labels in "
        f"{record.seconds:.0f} s. How it was measured stands on the page."
    )
    session.screen.say(f"The page with the pictures is {content['report']}: open it in a browser.")


def _print(session: Session, table: Table) -> None:
    rows = [
        [f"{line.title}, {line.note}" if line.note else line.title, *(c.text for c in line.cells)]
        for line in table.lines
    ]
    session.screen.table([table.head, *table.columns], rows, title=f"{table.caption}:")
