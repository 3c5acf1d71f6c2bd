"""A self-contained page from sentences, tables and matplotlib figures: nothing is fetched."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

__all__ = [
    "COLOURS",
    "ExampleFigure",
    "ExampleTable",
    "PageSection",
    "csv_text",
    "dot_figure",
    "draw",
    "histogram_figure",
    "line_figure",
    "render_page",
]

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

CYCLE = [COLOURS[name] for name in ("blue", "orange", "green", "purple", "ink", "soft")]
BINS = 40  # of a histogram
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


@dataclass(frozen=True)
class ExampleTable:
    """A table as readers see it: cells are text."""

    name: str
    caption: str
    columns: Sequence[str]  # the first one names the rows
    rows: Sequence[Sequence[str]]

    def to_markdown(self) -> str:
        """For a README."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        texts = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) for row in lines]
        return "".join(f"{text} |\n" for text in texts)


@dataclass(frozen=True)
class ExampleFigure:
    """A drawing with its words."""

    title: str
    caption: str
    svg: str

    @property
    def inline(self) -> Markup:
        """The SVG as a part of a page: ids are its own, colours are the page's."""
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
    """A heading, and under it sentences, figures and a table."""

    heading: str
    text: str = ""
    findings: Sequence[str] = ()
    figures: Sequence[ExampleFigure] = ()
    tables: Sequence[ExampleTable] = ()


def draw(
    title: str, caption: str, labels: tuple[str, str], paint: Callable[[Axes], None]
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


def line_figure(
    title: str,
    caption: str,
    x: ArrayLike,
    groups: Mapping[str, Sequence[ArrayLike]],
    labels: tuple[str, str],
) -> ExampleFigure:
    """Curves over common points, several of each group in one colour."""

    def paint(axes: Axes) -> None:
        for (label, curves), colour in zip(groups.items(), CYCLE, strict=False):
            for number, curve in enumerate(curves):
                name = None if number else label
                axes.plot(np.asarray(x), np.asarray(curve), color=colour, lw=1, label=name)

    return draw(title, caption, labels, paint)


def dot_figure(
    title: str,
    caption: str,
    groups: Mapping[str, tuple[ArrayLike, ArrayLike]],
    labels: tuple[str, str],
    *,
    is_compared: bool = False,
) -> ExampleFigure:
    """A dot for every pair of x and y; compared values have a line where both are the same."""

    def paint(axes: Axes) -> None:
        for (label, (x, y)), colour in zip(groups.items(), CYCLE, strict=False):
            places = (np.asarray(x), np.asarray(y))
            axes.plot(*places, "o", color=colour, markersize=2.5, alpha=0.6, mew=0, label=label)
        if is_compared:
            axes.axline((0, 0), slope=1, color=COLOURS["soft"], lw=1, ls="--")

    return draw(title, caption, labels, paint)


def histogram_figure(
    title: str,
    caption: str,
    groups: Mapping[str, tuple[ArrayLike, ArrayLike | None]],
    labels: tuple[str, str],
    end: float = 1.0,
) -> ExampleFigure:
    """Values from 0 to an end in percent of their weights; without weights all count alike."""

    def paint(axes: Axes) -> None:
        for (label, (values, weights)), colour in zip(groups.items(), CYCLE, strict=False):
            x = np.asarray(values)
            mass = np.ones(len(x)) if weights is None else np.asarray(weights)
            bins = np.linspace(0, end, BINS + 1).tolist()
            percent = 100 * mass / mass.sum()
            axes.hist(x, bins, weights=percent, color=colour, alpha=0.6, label=label)

    return draw(title, caption, labels, paint)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Records with the same keys as CSV, numbers in full."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def render_page(
    title: str, lead: str, sections: Sequence[PageSection], facts: Mapping[str, object]
) -> str:
    """The page; all text is escaped.

    Args:
        title: Its heading.
        lead: A paragraph below it.
        sections: In their order.
        facts: What is needed to make it again, by name.
    """
    environment = Environment(
        loader=PackageLoader("aspect.examples", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html.j2")
    return template.render(title=title, lead=lead, sections=sections, facts=facts) + "\n"
