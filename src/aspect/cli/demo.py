"""`aspect demo`: ASPECT, variants and controls on the embedded graph: a table, a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aspect.cli.options import OutFolder, Overwrite
from aspect.cli.session import Session, command
from aspect.errors import counted

FULL = 5  # seeds of the full table; three take about 80 seconds of one core


@command(without=("data_dir",))
def demo(
    session: Session,
    seeds: Annotated[int, typer.Option(help="Pre-trainings, one seed each.", min=1)] = 3,
    out: OutFolder = Path("runs/demo"),
    overwrite: Overwrite = False,
) -> None:
    """Train on the embedded mixed graph, compare, and draw the gate weight of every node."""
    screen = session.screen
    with screen.activity("Starting"):
        from aspect.estimator import choose_device
        from aspect.examples import demo as example
        from aspect.examples.page import PAGE, report_folder, write_report
        from aspect.provenance import versions
    choose_device(session.device)  # a wrong one is refused while no folder is touched
    with report_folder(out, "mixture", overwrite=overwrite) as folder:
        first = session.seed or 0
        with screen.progress("Training") as advance:
            result = example.run_demo(
                range(first, first + seeds), device=session.device, advance=advance
            )
        command = f"aspect demo --seeds {seeds} --seed {first} --device {result.device}"
        content = {**example.summary(result), "versions": versions(), "command": command}
        with screen.activity("Drawing"):
            numbers = ", ".join(f"{name} {number}" for name, number in versions().items())
            files = example.demo_files(result, {"Command": command, "Versions": numbers})
            write_report(folder, "mixture", content, files)

    def show() -> None:
        for caption, cells in example.demo_tables(result).items():
            screen.table(cells.columns.tolist(), cells.to_numpy().tolist(), title=f"{caption}:")
        controls = [str(row) for row in example.ROWS.values() if row.role == "control"]
        screen.say(f"Not trained: {'; '.join(controls)}.")
        screen.say(*(f"- {sentence}" for sentence in content["findings"]))
        screen.say(
            f"Trained and probed in {result.seconds:.0f} s, each on {content['splits']} splits"
            f" with {counted(seeds, 'seed')}."
            + (" The full table: aspect demo --seeds 5." if seeds < FULL else "")
        )
        screen.say(f"The page with the figures is {out / PAGE}: open it in a browser.")
        screen.say("Next: aspect train cora (a data set), aspect train edges.csv --nodes nodes.csv")
        screen.say("(your own tables), aspect --help (all commands), or make test (all tests).")

    screen.answer({"out": str(out), "report": str(out / PAGE), **content}, show)
