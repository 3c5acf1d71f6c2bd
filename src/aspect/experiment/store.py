"""The folder of a bench: one file per run, written once; read back by reports.

- plan.yaml: what was asked for; a folder belongs to one plan, by its name, which may grow
- index.jsonl: the plan's runs in its order; records of runs that are no longer asked for stay,
  but are not read
- cells/KEY.json: the record of a run that is done, never changed again
- failed/KEY.json: the record of one that failed, until it is tried again
- details/KEY.json: what a model shows of its graph, for those that the plan names
- perturbations/: files of attacks that the bench had to make itself, complete or not
- log.txt: when each attack and run was started and how it ended, with tracebacks
- records.jsonl: all records in the plan's order, rewritten at the end of every bench
- .lock: taken while a process works here; what is left of it afterwards means nothing
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from aspect.config import load_yaml, make_config, to_yaml
from aspect.data.files import is_file, is_folder, naming
from aspect.errors import AspectError, FileError, RunError, harmless, reason
from aspect.evaluation.details import DETAILS_FORMAT, Details
from aspect.experiment.plan import Plan
from aspect.experiment.record import FORMAT, Record
from aspect.experiment.spec import Cell
from aspect.workspace import (
    FolderKind,
    Workspace,
    read_json,
    read_json_lines,
    sealed,
    write_json_lines,
)

PLAN, INDEX, LOG, RECORDS = "plan.yaml", "index.jsonl", "log.txt", "records.jsonl"
CELLS, FAILED, DETAILS, PERTURBATIONS = "cells", "failed", "details", "perturbations"

BENCH = FolderKind(
    foreign="not a bench's folder",
    owns=lambda names: PLAN in names and (names == {PLAN} or CELLS in names),
    parts=(CELLS, FAILED, DETAILS, PERTURBATIONS),
)
RUN_AGAIN = "Remove it to repeat the run."
BENCH_AGAIN = "Remove the file and run the bench again."


class BenchFolder:
    """Where the records of a plan go; open it with `BenchFolder.open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.workspace = Workspace(path, BENCH)

    @classmethod
    @contextmanager
    def open(cls, path: Path, plan: Plan) -> Iterator[BenchFolder]:
        """Take the folder for this process.

        An empty folder and one of a plan of this name are taken; anything else is refused and left
        untouched.
        """
        folder = cls(path)
        folder.check(plan)
        with Workspace.open(path, BENCH):
            folder.check(plan)
            with naming(path):
                content = plan.model_dump(mode="json", exclude_defaults=True)
                # First, so that a kill at any moment leaves a folder that can be claimed again.
                folder.workspace.write(PLAN, to_yaml({"name": plan.name, **content}))
                for name in (CELLS, FAILED, DETAILS):
                    (path / name).mkdir(exist_ok=True)
            yield folder

    def check(self, plan: Plan) -> None:
        """Refuse beforehand, and write nothing, what opening would refuse."""
        self.workspace.check()
        if not self.workspace.has(PLAN):
            return
        name = read_plan(self.path).name
        if name != plan.name:
            raise RunError(
                f"{self.path} holds the records of the plan {name!r}, not of {plan.name!r}. "
                "Choose another --out."
            )

    @property
    def perturbations(self) -> Path:
        """Where files of attacks go; made when there is one."""
        return self.path / PERTURBATIONS

    def expect(self, plan: Plan, cells: Sequence[Cell]) -> None:
        """Make these the cells of the folder, beside those of the plan's other graphs and entries.

        `cells` are all that the plan has of some entries on some graphs; what was expected of the
        same before and is not among them is no longer asked for.
        """
        replaced = {(cell.graph, cell.entry) for cell in cells}
        kept = [cell for cell in self.expected() if (cell.graph, cell.entry) not in replaced]
        entries = [entry.name for entry in plan.entries]
        known = [
            cell for cell in (*kept, *cells) if cell.graph in plan.graphs and cell.entry in entries
        ]
        # Stable: the cells of one entry on one graph stay in their order.
        known.sort(key=lambda cell: (plan.graphs.index(cell.graph), entries.index(cell.entry)))
        write_json_lines(self.path / INDEX, known)

    def expected(self) -> list[Cell]:
        """The cells of the folder in the plan's order."""
        if not self.workspace.has(INDEX):
            return []
        return read_json_lines(self.path / INDEX, Cell, fix=BENCH_AGAIN)

    def done(self, cell: Cell) -> Record | None:
        """The record of a cell that is done."""
        return self._record(CELLS, cell)

    def failed(self, cell: Cell) -> Record | None:
        """The record of a cell that failed."""
        return self._record(FAILED, cell)

    def _record(self, part: str, cell: Cell) -> Record | None:
        path = self._file(part, cell)
        if not is_file(path):
            return None
        record = read_json(path, Record, fix=RUN_AGAIN, newest=FORMAT)
        if record.key != cell.key:
            raise RunError(f"{path} holds the record of another run, {record.key}. {RUN_AGAIN}")
        # The same spec may go by another name by now.
        return record.model_copy(update={"cell": cell})

    def has_details(self, cell: Cell) -> bool:
        """Whether the cell's model was looked into."""
        return is_file(self._file(DETAILS, cell))

    def details(self, cell: Cell) -> Details | None:
        """What the cell's model shows of its graph, if it was asked to."""
        path = self._file(DETAILS, cell)
        if not is_file(path):
            return None
        details = read_json(path, Details, fix=RUN_AGAIN, newest=DETAILS_FORMAT)
        return details.model_copy(update={"title": cell.title})

    def _file(self, part: str, cell: Cell) -> Path:
        return self.path / part / f"{cell.key}.json"

    def write(self, record: Record, details: Details | None = None) -> None:
        """Keep what became of a run; a record that is done is never written again."""
        cell, write = record.cell, self.workspace.write
        if record.status == "failed":
            write(f"{FAILED}/{cell.key}.json", sealed(record))
            return
        if details is not None:  # first: a record says that all is there
            write(f"{DETAILS}/{cell.key}.json", sealed(details))
        if not is_file(self._file(CELLS, cell)):
            write(f"{CELLS}/{cell.key}.json", sealed(record), once=True)
        self._file(FAILED, cell).unlink(missing_ok=True)

    def forget(self, cell: Cell) -> None:
        """Let a run that is over be run again."""
        for part in (CELLS, FAILED, DETAILS):
            self._file(part, cell).unlink(missing_ok=True)

    def records(self) -> list[Record]:
        """All records in the plan's order, done or failed."""
        records = (self.done(cell) or self.failed(cell) for cell in self.expected())
        return [record for record in records if record is not None]

    def conclude(self) -> None:
        """Write all records into one file."""
        write_json_lines(self.path / RECORDS, self.records())

    def log(self, event: str, cell: Cell, more: str = "") -> None:
        """Add a line on a cell."""
        what = f"{cell.entry} on {cell.graph}, seed {cell.spec.seed}"
        self.write_log(f"{event} {cell.key} {what}", more)

    def write_log(self, what: str, more: str = "") -> None:
        """Add a line with the time; what does not fit a line follows it, indented."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        first, _, rest = more.strip().partition("\n")
        line = " ".join(filter(None, (now, what, first)))
        text = "\n    ".join(harmless(part) for part in (line, *rest.splitlines()))
        try:
            with (self.path / LOG).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise FileError(f"Cannot write {self.path / LOG}: {reason(error)}.") from error


def read_plan(folder: Path) -> Plan:
    """The plan whose records a folder holds, as it was resolved when they were made."""
    file = folder / PLAN
    try:
        return make_config(Plan, load_yaml(file), owner=f"the plan {file}")
    except AspectError as error:
        raise RunError(f"{folder} is not a bench's folder. {error}") from error


def read_records(path: str | Path) -> list[Record]:
    """The records of a bench's folder, or of a `.jsonl` file, in the plan's order.

    A bench that is still at work, or was stopped, gives what it has so far.
    """
    path = Path(path)
    if is_folder(path):
        return _folder(path).records()
    if path.suffix != ".jsonl":
        raise FileError(f"Records are read from a bench's folder or a .jsonl file. Got {path}.")
    return read_json_lines(path, Record, fix=BENCH_AGAIN, newest=FORMAT)


def read_details(folder: str | Path) -> list[Details]:
    """What the models of a bench show of their graphs, in the plan's order."""
    bench = _folder(Path(folder))
    details_of_cells = (bench.details(cell) for cell in bench.expected() if bench.done(cell))
    return [details for details in details_of_cells if details is not None]


def _folder(path: Path) -> BenchFolder:
    if not (is_file(path / PLAN) and is_file(path / INDEX)):
        raise RunError(
            f"{path} is not a bench's folder. Make one with: aspect bench PLAN --out DIR."
        )
    return BenchFolder(path)
