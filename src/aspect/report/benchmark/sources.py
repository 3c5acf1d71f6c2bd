"""What a report is made from: folders of benches, files of records, and folders of trainings.

Nothing heavy is imported before a training is looked into: wrong paths are answered at once.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aspect.data.files import is_file, is_folder, is_present
from aspect.errors import RunError
from aspect.evaluation.details import Details
from aspect.experiment.record import Record
from aspect.experiment.store import read_details, read_records

__all__ = ["Material", "Source", "find_sources", "read_sources"]

Kind = Literal["bench", "records", "run"]

PAGE = "report.html"
# What tells the folders apart; the modules that write these files are too heavy to be asked.
BENCH_SIGNS = ("plan.yaml", "index.jsonl")
RUN_SIGN, RUN_END = "config.yaml", "record.json"


@dataclass(frozen=True)
class Source:
    """One thing to report."""

    path: Path
    kind: Kind

    @property
    def page(self) -> Path:
        """Where its page goes unless somebody says otherwise: never into a run's folder."""
        return (self.path if self.kind == "bench" else self.path.parent) / PAGE


@dataclass(frozen=True)
class Material:
    """All that a report shows."""

    records: tuple[Record, ...]
    details: tuple[Details, ...]
    commands: tuple[str, ...]  # that make it again
    remarks: tuple[str, ...] = ()  # sentences on the sources as a whole


def find_sources(paths: Sequence[Path]) -> list[Source]:
    """Tell what every path is; what cannot be reported is refused."""
    sources = [Source(path, _kind(path)) for path in dict.fromkeys(paths)]
    if not sources:
        raise RunError("A report needs one or more benches, record files or runs. Got none.")
    return sources


def _kind(path: Path) -> Kind:
    if is_file(path) and path.suffix == ".jsonl":
        return "records"
    if is_folder(path):
        if all(is_file(path / sign) for sign in BENCH_SIGNS):
            return "bench"
        if is_file(path / RUN_SIGN) and is_file(path / RUN_END):
            return "run"
        if is_file(path / RUN_SIGN):
            raise RunError(
                f"The run in {path} is not complete. Go on with: aspect train --out {path} "
                "--resume."
            )
    what = "It is none of them" if is_present(path) else "There is no such file or folder"
    raise RunError(
        "A report is made from folders of aspect bench or aspect train, or from .jsonl files of "
        f"records. {what}: {str(path)!r}."
    )


def read_sources(
    sources: Sequence[Source],
    *,
    options: Sequence[str] = (),
    device: str | None = None,
    data_dir: str | None = None,
    on_run: Callable[[Path], object] = str,
) -> Material:
    """Read them all, what comes twice once; trainings are probed and looked into here and now.

    Args:
        sources: What `find_sources` found.
        options: What else `aspect report` was told of the page, for the command that repeats it.
        device: Where trained models are looked into.
        data_dir: Where files of named data sets lie, if not where they lay in training.
        on_run: Told the folder of each training before it is looked into.
    """
    records: list[Record] = []
    details: list[Details] = []
    for source in sources:
        if source.kind != "run":
            own = read_records(source.path)
            if not own:
                raise RunError(f"{source.path} holds no records yet. Let its bench run first.")
            records += own
        if source.kind == "bench":
            details += read_details(source.path)
    runs = [source.path for source in sources if source.kind == "run"]
    if runs:
        from aspect.experiment.trained import read_runs

        trained = read_runs(runs, device=device, data_dir=data_dir, on_run=on_run)
        records += trained.records
        details += trained.details
    from aspect.report.benchmark.caveats import repeated_works
    from aspect.report.benchmark.collection import distinct

    return Material(
        tuple(distinct(records)),
        tuple(_one_per_model(details)),
        tuple(_commands(sources, records, options)),
        tuple(repeated_works(records)),
    )


def _one_per_model(details: Sequence[Details]) -> list[Details]:
    """What several folders show of one model, once: as the folder that attacked it most saw it."""
    kept: dict[tuple[str, str, str, int], Details] = {}
    for each in details:
        key = (each.method, each.title, each.graph, each.seed)
        if len(each.attacked) > len(kept.setdefault(key, each).attacked):
            kept[key] = each
    return list(kept.values())


def _commands(
    sources: Sequence[Source], records: Sequence[Record], options: Sequence[str]
) -> list[str]:
    """What a reader types to get the same page."""
    commands = []
    for source in sources:
        path = shlex.quote(str(source.path))
        if source.kind == "bench":
            commands.append(f"aspect bench {path}/plan.yaml --out {path}")
        elif source.kind == "run":
            commands.append(f"aspect train --config {path}/config.yaml --out {path}")
        else:
            plans = dict.fromkeys(record.cell.plan for record in records)
            commands += [f"aspect bench {shlex.quote(plan)}" for plan in plans]
    report = shlex.join(["aspect", "report", *(str(source.path) for source in sources), *options])
    return [*dict.fromkeys(commands), report]
