"""What an example leaves: a page of sentences, figures and tables, and its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from pydantic import BaseModel

from aspect.data.files import replacing
from aspect.errors import RunError
from aspect.report.plots import Plot, place_legend
from aspect.report.tables import slug
from aspect.workspace import FolderKind, Workspace, read_json

PAGE, RECORD = "report.html", "record.json"
UNFINISHED = ".unfinished"  # holds the kind while a report is written; left there by a kill


@dataclass(frozen=True, eq=False)
class PageSection:
    """A heading of `example.html.j2`, and under it a paragraph, sentences, figures and tables."""

    heading: str
    text: str = ""
    sentences: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)  # text by caption


def example_plot(
    title: str, caption: str, labels: tuple[str, str], paint: Callable[[Axes], object]
) -> Plot:
    """Let a function paint on axes; name both, and set a legend above them."""

    def paint_all(axes: Axes) -> None:
        paint(axes)
        axes.set(xlabel=labels[0], ylabel=labels[1])
        place_legend(axes, *axes.get_legend_handles_labels())

    return Plot(slug(title), title, caption, f"{title}. {caption}", paint_all)


def plain_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows for JSON, which knows no NaN."""
    rows: list[dict[str, Any]] = (
        frame.astype(object).where(frame.notna(), None).to_dict("records")  # type: ignore[assignment] # columns are named
    )
    return rows


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
