"""A self-contained page from sentences, tables and matplotlib figures, and its folder."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel

from aspect.data.files import replacing
from aspect.errors import RunError
from aspect.workspace import FolderKind, Workspace, read_json

__all__ = [
    "COLOURS",
    "PAGE",
    "ExampleFigure",
    "ExampleTable",
    "PageSection",
    "draw",
    "render_page",
    "report_folder",
    "write_report",
]

PAGE, RECORD = "report.html", "record.json"
UNFINISHED = ".unfinished"  # holds the kind while a report is written; left there by a kill

# Told apart with red-green blindness too. The page replaces them by those of its light or dark
# scheme.
COLOURS = {
    "blue": "#0072b2",
    "orange": "#c24f00",
    "green": "#00815e",
    "purple": "#b3589a",
    "ink": "#1b1f24",
    "soft": "#5c6470",
    "line": "#d4d8de",
}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))  # it names addresses
STYLE: dict[Any, Any] = {
    "axes.edgecolor": COLOURS["soft"],
    "axes.labelcolor": COLOURS["soft"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "legend.frameon": False,
    "savefig.transparent": True,
    "svg.fonttype": "none",  # letters stay letters
    "svg.hashsalt": "aspect",  # the same numbers, the same bytes
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["soft"],
    "ytick.color": COLOURS["soft"],
}


@dataclass(frozen=True, eq=False)
class ExampleTable:
    """A table as readers see it: cells are text, and the first column names the rows."""

    caption: str
    cells: pd.DataFrame

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return [str(name) for name in self.cells]

    @property
    def rows(self) -> list[list[str]]:
        """The cells, row by row."""
        return self.cells.to_numpy().tolist()


@dataclass(frozen=True)
class ExampleFigure:
    """A drawing with its title and caption."""

    title: str
    caption: str
    svg: str

    @property
    def inline(self) -> Markup:
        """The SVG as a part of a page: ids are unique, colours are the page's."""
        name = re.sub(r"\W+", "-", self.title.lower())
        head, body = self.svg[self.svg.index("<svg") :].split(">", 1)
        view = re.search(r'viewBox="[\d. ]+"', head)
        assert view is not None  # matplotlib always writes one
        body = re.sub(r'\bid="', f'id="{name}-', body)
        body = body.replace("url(#", f"url(#{name}-")
        body = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', body)
        for variable, colour in COLOURS.items():
            body = body.replace(colour, f"var(--{variable})")
        words = escape(f"{self.title}. {self.caption}")
        # matplotlib escapes what is written in the figure.
        return Markup(f'<svg role="img" aria-label="{words}" {view[0]}>{body}')  # noqa: S704


@dataclass(frozen=True)
class PageSection:
    """A heading, and under it a paragraph, sentences, figures and tables."""

    heading: str
    text: str = ""
    sentences: Sequence[str] = ()
    figures: Sequence[ExampleFigure] = ()
    tables: Sequence[ExampleTable] = ()


def draw(
    title: str, caption: str, labels: tuple[str, str], paint: Callable[[Axes], object]
) -> ExampleFigure:
    """Let a function paint on axes, name both axes, and keep the result as SVG."""
    with rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.2), layout="constrained")
        axes = figure.add_subplot()
        paint(axes)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        if axes.get_legend_handles_labels()[1]:
            figure.legend(loc="outside upper left", ncols=4, handlelength=1)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=NO_METADATA)
    return ExampleFigure(title, caption, text.getvalue())


def render_page(
    title: str, lead: str, sections: Sequence[PageSection], facts: Mapping[str, object]
) -> str:
    """The page; all text is escaped. The facts say how to make it again."""
    environment = Environment(
        loader=PackageLoader("aspect.examples", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(title=title, lead=lead, sections=sections, facts=facts) + "\n"


class _Kind(BaseModel):
    kind: str


@contextmanager
def report_folder(path: Path, kind: str, *, overwrite: bool) -> Iterator[Workspace]:
    """Hold the folder of a report of this kind for this process.

    An empty folder and one with an unfinished report of the kind are accepted. A complete report is
    replaced, or refused without `overwrite`; anything else is refused and left untouched.
    """

    def is_own(_: frozenset[str]) -> bool:
        try:
            return read_json(path / RECORD, _Kind, fix="").kind == kind
        except RunError:  # missing, not JSON, or of another command
            unfinished = path / UNFINISHED
            return unfinished.is_file() and unfinished.read_bytes() == kind.encode()

    with Workspace.open(path, FolderKind(f"holds no {kind} report", owns=is_own)) as workspace:
        if workspace.has(RECORD) and not overwrite:
            raise RunError(
                f"{path} holds a {kind} report. "
                "Pass --overwrite to replace it, or choose another --out."
            )
        yield workspace


def write_report(
    workspace: Workspace, kind: str, content: Mapping[str, Any], files: Mapping[str, str]
) -> None:
    """Write the files and last the record, whose presence says that the report is complete."""
    workspace.write(UNFINISHED, kind)
    record = json.dumps({"kind": kind, **content}) + "\n"
    with ExitStack() as stack:
        # All are written before the first takes its name, so that a full disk leaves an earlier
        # report whole; the first one opened, the record, is the last one named.
        for name, text in {RECORD: record, **files}.items():
            file = stack.enter_context(replacing(workspace.path / name, overwrite=True))
            file.write(text.encode())
            file.flush()
        workspace.remove(RECORD)
    workspace.remove(UNFINISHED)
