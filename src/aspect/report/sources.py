"""Sources of a report: folders of `aspect bench` and `aspect train`, and files of records.

Nothing heavy is imported before all of them are found: wrong paths are refused at once.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from aspect.data.files import is_file, is_folder, is_present
from aspect.errors import RunError
from aspect.evaluation.details import Details
from aspect.experiment.record import Record
from aspect.experiment.store import INDEX, PLAN, read_details, read_plan, read_records
from aspect.training.files import CONFIG, check_run

if TYPE_CHECKING:
    from aspect.report.results import Results

Kind = Literal["bench", "records", "run"]

PAGE = "report.html"


@dataclass(frozen=True)
class Source:
    """One thing to report."""

    path: Path
    kind: Kind

    @property
    def page(self) -> Path:
        """Where its page goes by default: never into a run's folder."""
        return (self.path if self.kind == "bench" else self.path.parent) / PAGE


@dataclass(frozen=True)
class Material:
    """All that a report shows."""

    results: Results
    details: tuple[Details, ...]
    commands: tuple[str, ...]  # that make it again
    title: str = ""  # of the plan, where all benches have the same


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """The kind of every path; what cannot be reported is refused."""
    sources = [Source(path, _kind(path)) for path in dict.fromkeys(paths)]
    if not sources:
        raise RunError("A report needs one or more benches, record files or runs. Got none.")
    return sources


def _kind(path: Path) -> Kind:
    if is_file(path) and path.suffix == ".jsonl":
        return "records"
    if is_folder(path):
        if all(is_file(path / sign) for sign in (PLAN, INDEX)):
            return "bench"
        if is_file(path / CONFIG):
            check_run(path)
            return "run"
    what = "It is none of them" if is_present(path) else "There is no such file or folder"
    raise RunError(
        "A report is made from folders of aspect bench or aspect train, or from .jsonl files of "
        f"records. {what}: {str(path)!r}."
    )


def read_sources(
    sources: Sequence[Source],
    *,
    options: Sequence[str] = (),
    beside_published: bool = False,
    device: str | None = None,
    data_dir: str | None = None,
    on_run: Callable[[Path], object] = str,
) -> Material:
    """Read them all, what comes twice once; run folders are probed and inspected here.

    Args:
        sources: From `find_sources`.
        options: Other options of `aspect report`, for the command that repeats it.
        beside_published: Whether the records that ship with the package are added.
        device: Where trained models are inspected.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_run: Called with the folder of each training before it is inspected.
    """
    records: list[Record] = []
    details: list[Details] = []
    titles: list[str] = []
    commands: list[str] = []
    for source in sources:
        path = shlex.quote(str(source.path))
        if source.kind == "run":
            commands.append(f"aspect train --config {path}/{CONFIG} --out {path}")
            continue
        own = read_records(source.path)
        if not own:
            raise RunError(f"{source.path} holds no records yet. Let its bench run first.")
        records += own
        if source.kind == "bench":
            details += read_details(source.path)
            titles.append(read_plan(source.path).title)
            commands.append(f"aspect bench {path}/{PLAN} --out {path}")
        else:
            commands += [f"aspect bench {shlex.quote(record.cell.plan)}" for record in own]
    commands.append(shlex.join(["aspect", "report", *(str(s.path) for s in sources), *options]))
    runs = [source.path for source in sources if source.kind == "run"]
    if runs:
        from aspect.experiment.trained import read_runs

        probed, seen = read_runs(runs, device=device, data_dir=data_dir, on_run=on_run)
        records += probed
        details += seen
    if beside_published:
        from aspect.report.published import published_beside

        records += published_beside(records)
    from aspect.report.results import collect

    return Material(
        collect(records),
        tuple(_one_per_model(details)),
        tuple(dict.fromkeys(commands)),
        titles[0] if len(titles) == len(sources) and len(set(titles)) == 1 else "",
    )


def _one_per_model(details: Sequence[Details]) -> Iterator[Details]:
    """A model that several folders show is shown once: with the most perturbed graphs.

    Models that differ in their seed alone say so beside the graph.
    """
    kept: dict[tuple[object, ...], Details] = {}
    for model in details:
        # Graphs of one name may be different ones.
        key = (model.method, model.title, model.graph, model.degrees, model.seed)
        if len(model.attacked) > len(kept.setdefault(key, model).attacked):
            kept[key] = model
    names = Counter((model.title, model.graph) for model in kept.values())
    for model in kept.values():
        seed = f" (seed {model.seed})" if names[model.title, model.graph] > 1 else ""
        yield model.model_copy(update={"graph": f"{model.graph}{seed}"})
