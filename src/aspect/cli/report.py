"""`aspect report`: one page, tables and pictures from what was run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aspect.cli.options import Overwrite, check_target
from aspect.cli.session import Session, command, require
from aspect.config import Config
from aspect.data.files import is_file, is_folder, is_present, naming, replacing, target_of
from aspect.errors import FileError, SettingsError, counted

if TYPE_CHECKING:
    from aspect.report.page import Section
    from aspect.report.sources import Material, Source

Format = Literal["svg", "pdf", "png"]  # as `aspect.report.plots` has them; it is heavy
DEFAULT_FORMATS: list[Format] = ["svg", "pdf"]


class ReportOptions(Config):
    """What is written, and where."""

    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """The page.  [default: report.html in the first bench, or beside the first run]"""
    tables: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder for the tables as .csv, .md and .tex."""
    figures: Annotated[Path | None, typer.Option(metavar="DIR")] = None
    """Folder for the figures."""
    formats: Annotated[list[Format] | None, typer.Option(metavar="FORMAT")] = None
    """Of the figures: svg, pdf, png.  [default: svg,pdf]"""
    published: bool = False
    """Put the paper's figures beside ours."""
    beside: Literal["published"] | None = None
    """published: put the records that ship with aspect beside yours, of the same graphs, splits and
    probe."""
    reference: Annotated[str | None, typer.Option(metavar="VARIANT")] = None
    """The variant that significance compares with.  [default: aspect]"""
    title: Annotated[str | None, typer.Option(metavar="TEXT")] = None
    """Headline of the page.  [default: the plan's title]"""
    overwrite: Overwrite = False

    def check(self) -> None:
        """Refuse before all the work what could not be written after it."""
        if self.formats and self.figures is None:
            raise SettingsError("--formats belongs to --figures, and no folder for them is named.")
        for folder in (self.tables, self.figures):
            if folder is not None and is_present(folder) and not is_folder(folder):
                raise FileError(f"{folder} must be a folder. Got a file.")

    @property
    def of_the_page(self) -> list[str]:
        """Options that decide the content of the page, as they were typed."""
        words = ["--published"] if self.published else []
        words += [] if self.beside is None else ["--beside", self.beside]
        words += [] if self.reference is None else ["--reference", self.reference]
        return words + ([] if self.title is None else ["--title", self.title])


@command(without=("seed",))
def report(
    session: Session,
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of `aspect bench` or `aspect train`, or .jsonl files of records; or one "
            "folder of `aspect tune`.",
            metavar="RUNS",
        ),
    ],
    options: ReportOptions,
) -> None:
    """Write a page that needs nothing but a browser; tables and figures for a paper on request."""
    require("matplotlib", "jinja2")
    if len(runs) == 1 and is_file(runs[0] / "search.yaml"):
        report_search(session, runs[0], options)
        return
    from aspect.report.sources import find_sources

    options.check()
    sources = find_sources(runs)
    out = options.out or sources[0].page
    check_target(out, overwrite=options.overwrite, inputs=runs)
    material = _read(session, sources, options)
    with session.screen.activity("Drawing"):
        from aspect.report.page import render_page, sections

        reference = options.reference
        parts = sections(material, with_published=options.published, reference=reference)
        page = render_page(material, parts, title=options.title or "", reference=reference)
        # The page comes last: it says that the rest is there.
        files = {
            **_tables(parts, material, options.tables),
            **_figures(parts, material, options),
            out: page.encode(),
        }
    _write(files, overwrite=options.overwrite)
    content = {
        "report": str(out),
        "files": [str(path) for path in files],
        "records": len(material.results.runs),
        "failed": int((material.results.runs["status"] == "failed").sum()),
        "models": len(material.details),
    }
    session.screen.answer(content, lambda: _show(session, content, list(files)))


def report_search(session: Session, folder: Path, options: ReportOptions) -> None:
    """The page of a search of `aspect tune`; only its place can be chosen."""
    if options.model_copy(update={"out": None, "overwrite": False}) != ReportOptions():
        raise SettingsError("A search has one page. Of the options only --out belongs to it.")
    if options.out is not None:
        check_target(options.out, overwrite=options.overwrite)
    with session.screen.activity("Drawing"):
        from aspect.report.study import write_study_page

        out = write_study_page(folder, options.out)
    session.screen.answer(
        {"report": str(out), "files": [str(out)]},
        lambda: session.screen.say(f"Wrote {out}. Next: open {out} in a browser."),
    )


def _read(session: Session, sources: Sequence[Source], options: ReportOptions) -> Material:
    runs = sum(source.kind == "run" for source in sources)
    done = iter(range(runs))
    with session.screen.progress("Inspecting runs") as advance:
        from aspect.report.sources import read_sources

        return read_sources(
            sources,
            options=options.of_the_page,
            beside_published=options.beside is not None,
            device=session.device,
            data_dir=session.data_dir,
            on_run=lambda path: advance(next(done), runs, str(path)),
        )


def _tables(parts: Sequence[Section], material: Material, folder: Path | None) -> dict[Path, bytes]:
    """Those of the page, and `scores.csv`: one row per score, which all others are made from."""
    if folder is None:
        return {}
    from aspect.report.tables import csv_safe

    scores = material.results.scores
    scores = scores.assign(**{name: scores[name].map(csv_safe) for name in ("variant", "graph")})
    return {
        folder / "scores.csv": scores.to_csv(index=False, lineterminator="\n").encode(),
        **{
            folder / name: text.encode()
            for part in parts
            for table in part.all_tables
            for name, text in table.files().items()
        },
    }


def _figures(
    parts: Sequence[Section], material: Material, options: ReportOptions
) -> dict[Path, bytes]:
    """Those of the page, and the maps that the page's script draws there."""
    folder = options.figures
    if folder is None:
        return {}
    from aspect.report.model_plots import map_plots

    plots = [plot for part in parts for plot in part.all_plots]
    return {
        folder / f"{plot.name}.{kind}": plot.render(kind)
        for plot in (*plots, *map_plots(material.details))
        for kind in options.formats or DEFAULT_FORMATS
    }


def _write(files: dict[Path, bytes], *, overwrite: bool) -> None:
    """Each file whole or not at all; none if one of them would replace another unasked."""
    for path in files:
        target_of(path, overwrite)
    for path, content in files.items():
        with naming(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, overwrite=overwrite) as file:
            file.write(content)


def _show(session: Session, content: Mapping[str, Any], files: Sequence[Path]) -> None:
    say, out = session.screen.say, content["report"]
    records, models = counted(content["records"], "record"), counted(content["models"], "model")
    say(f"Wrote {out}: {records}, {models} node by node.")
    for folder, number in Counter(path.parent for path in files[:-1]).items():
        say(f"Wrote {counted(number, 'file')} to {folder}.")
    if content["failed"]:
        say(f"{counted(content['failed'], 'run')} failed; the page lists why.")
    say(f"Next: open {out} in a browser.")
