"""`aspect theory`: the paper's theorems, measured on mixed graphs, as a table and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aspect.cli.options import OutFolder, Overwrite
from aspect.cli.session import Session, command


@command(without=("data_dir",))
def theory(
    session: Session,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few small graphs: seconds, and rougher numbers.")
    ] = False,
    out: OutFolder = Path("runs/theory"),
    overwrite: Overwrite = False,
) -> None:
    """Measure what one mix for all nodes costs, beside the bounds of the paper's theorems."""
    screen = session.screen
    with screen.activity("Starting"):
        from aspect.estimator import choose_device
        from aspect.examples import theory as example
        from aspect.examples.page import PAGE, report_folder, write_report
        from aspect.provenance import versions
    choose_device(session.device)  # a wrong one is refused while no folder is touched
    with report_folder(out, "theory", overwrite=overwrite) as folder:
        scope, first = example.QUICK if quick else example.TheoryScope(), session.seed or 0
        scope = scope.model_copy(update={"seeds": tuple(first + seed for seed in scope.seeds)})
        with screen.progress("Training and measuring") as advance:
            result = example.run_theory(scope, device=session.device, advance=advance)
        few = "--quick " if quick else ""
        command = f"aspect theory {few}--seed {first} --device {result.device}"
        content = {**example.summary(result), "versions": versions(), "command": command}
        with screen.activity("Drawing"):
            numbers = ", ".join(f"{name} {number}" for name, number in versions().items())
            facts = {"Command": command, "Versions": numbers}
            files = example.theory_files(result, facts)
            write_report(folder, "theory", content, files)

    def show() -> None:
        for caption, cells in example.theory_tables(result).items():
            screen.table(cells.columns.tolist(), cells.to_numpy().tolist(), title=f"{caption}:")
        screen.say(*(f"- {sentence}" for sentence in content["findings"]))
        screen.say(
            f"Trained on {len(result.cases) // 2} mixed graphs of {scope.nodes} nodes without "
            f"labels in {result.seconds:.0f} s. How it was measured stands on the page."
        )
        screen.say(f"The page with the figures is {out / PAGE}: open it in a browser.")

    screen.answer({"out": str(out), "report": str(out / PAGE), **content}, show)
