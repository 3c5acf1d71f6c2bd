"""The folder of a bench: one file per cell, written once; read back by reports.

- plan.yaml: what was asked for; a folder belongs to one plan, by its name, which may grow
- index.jsonl: the plan's cells in its order; records of cells that are no longer asked for stay,
  but are not read
- cells/KEY.json: the record of a cell that is done, never changed again
- failed/KEY.json: the record of one that failed, until it is tried again
- details/KEY.json: what a model shows of its graph, for those that the plan names
- perturbations/: files of attacks that the bench had to make itself, complete or not
- log.txt: when each attack and cell was started and how it ended, with tracebacks
- records.jsonl: all records in the plan's order, rewritten at the end of every bench
- .lock: taken while a process works here; what is left of it afterwards means nothing
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from aspect.config import Config, to_yaml
from aspect.data.files import (
    LEFT_BEHIND,
    LOCK,
    is_file,
    is_folder,
    locked,
    naming,
    reason,
    replacing,
)
from aspect.errors import AspectError, FileError, RunError
from aspect.evaluation.details import DETAILS_FORMAT, Details
from aspect.experiment.plan import Plan, load_plan
from aspect.experiment.record import FORMAT, Cell, Record

__all__ = ["BenchFolder", "read_details", "read_plan", "read_records"]

PLAN, INDEX, LOG, RECORDS = "plan.yaml", "index.jsonl", "log.txt", "records.jsonl"
REMOVE = "Remove the file and run the bench again."
CELLS, FAILED, DETAILS = "cells", "failed", "details"
PERTURBATIONS = "perturbations"

AnyConfig = TypeVar("AnyConfig", bound=Config)


class BenchFolder:
    """Where the records of a plan go; open it with `BenchFolder.open`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def open(cls, path: Path, plan: Plan) -> Iterator[BenchFolder]:
        """Take the folder for this process.

        An empty folder and one of a plan of this name are taken; anything else is refused and left
        untouched.
        """
        folder = cls(path)
        with ExitStack() as cleanup:
            with naming(path):
                folder.check(plan)
                path.mkdir(parents=True, exist_ok=True)
                cleanup.enter_context(locked(path))
                folder._claim(plan)
            yield folder

    def check(self, plan: Plan) -> None:
        """Refuse beforehand, and write nothing, what opening would refuse."""
        with naming(self.path):
            if not self.path.exists():
                return
            if not self.path.is_dir():
                raise FileError(f"{self.path} must be a folder. Got a file.")
            present = {item.name for item in self.path.iterdir()}
        others = {name for name in present - {LOCK} if not LEFT_BEHIND.fullmatch(name)}
        if not others:
            return
        if PLAN not in others or not (others == {PLAN} or CELLS in others):
            raise RunError(
                f"{self.path} is not empty and not a bench's folder. Choose another --out."
            )
        name = read_plan(self.path).name
        if name != plan.name:
            raise RunError(
                f"{self.path} holds the records of the plan {name!r}, not of {plan.name!r}. "
                "Choose another --out."
            )

    def _claim(self, plan: Plan) -> None:
        content = plan.model_dump(mode="json", exclude_defaults=True)
        # First, so that a kill at any moment leaves a folder that can be claimed again.
        _write(self.path / PLAN, to_yaml({"name": plan.name, **content}))
        for name in ("", CELLS, FAILED, DETAILS):
            (self.path / name).mkdir(exist_ok=True)
        for name in ("", CELLS, FAILED, DETAILS, PERTURBATIONS):
            part = self.path / name
            for item in part.iterdir() if part.is_dir() else ():
                if LEFT_BEHIND.fullmatch(item.name):
                    item.unlink()

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
        _write(self.path / INDEX, _lines(known))

    def expected(self) -> list[Cell]:
        """The cells of the folder in the plan's order."""
        return _read_lines(self.path / INDEX, Cell) if is_file(self.path / INDEX) else []

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
        record = _read(path, Record, FORMAT)
        if record.key != cell.key:
            raise RunError(
                f"{path} holds the record of other work, {record.key}. "
                "Remove it to run its cell again."
            )
        # The same work may go by another name by now.
        return record.model_copy(update={"cell": cell})

    def has_details(self, cell: Cell) -> bool:
        """Whether the cell's model was looked into."""
        return is_file(self._file(DETAILS, cell))

    def details(self, cell: Cell) -> Details | None:
        """What the cell's model shows of its graph, if it was asked to."""
        path = self._file(DETAILS, cell)
        if not is_file(path):
            return None
        details = _read(path, Details, DETAILS_FORMAT)
        return details.model_copy(update={"title": cell.title})

    def _file(self, part: str, cell: Cell) -> Path:
        return self.path / part / f"{cell.key}.json"

    def write(self, record: Record, details: Details | None = None) -> None:
        """Keep what became of a cell; a record that is done is never written again."""
        cell = record.cell
        if record.status == "failed":
            _write(self._file(FAILED, cell), record.model_dump_json(indent=1) + "\n")
            return
        if details is not None:  # first: a record says that all is there
            _write(self._file(DETAILS, cell), details.model_dump_json() + "\n")
        if not is_file(self._file(CELLS, cell)):
            _write(self._file(CELLS, cell), record.model_dump_json(indent=1) + "\n", once=True)
        self._file(FAILED, cell).unlink(missing_ok=True)

    def records(self) -> list[Record]:
        """All records in the plan's order, done or failed."""
        found = (self.done(cell) or self.failed(cell) for cell in self.expected())
        return [record for record in found if record is not None]

    def conclude(self) -> None:
        """Write all records into one file."""
        _write(self.path / RECORDS, _lines(self.records()))

    def log(self, event: str, cell: Cell, more: str = "") -> None:
        """Add a line on a cell."""
        what = f"{cell.entry} on {cell.graph}, seed {cell.work.seed}"
        self.write_log(f"{event} {cell.key} {what}", more)

    def write_log(self, what: str, more: str = "") -> None:
        """Add a line with the time; what does not fit a line follows it, indented."""
        now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        first, _, rest = more.strip().partition("\n")
        line = " ".join(filter(None, (now, what, first)))
        text = "\n    ".join(_printable(each) for each in (line, *rest.splitlines()))
        try:
            with (self.path / LOG).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise FileError(f"Cannot write {self.path / LOG}: {reason(error)}.") from error


def read_plan(folder: Path) -> Plan:
    """The plan whose records a folder holds."""
    try:
        return load_plan(str(folder / PLAN))
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
    return _read_lines(path, Record, FORMAT)


def read_details(folder: str | Path) -> list[Details]:
    """What the models of a bench show of their graphs, in the plan's order."""
    bench = _folder(Path(folder))
    found = (bench.details(cell) for cell in bench.expected() if bench.done(cell) is not None)
    return [details for details in found if details is not None]


def _folder(path: Path) -> BenchFolder:
    if not (is_file(path / PLAN) and is_file(path / INDEX)):
        raise RunError(
            f"{path} is not a bench's folder. Make one with: aspect bench PLAN --out DIR."
        )
    return BenchFolder(path)


def _read(path: Path, kind: type[AnyConfig], newest: int) -> AnyConfig:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RunError(f"Cannot read {path}: {reason(error)}.") from error
    return _parse(text, kind, newest, str(path), "Remove it to run its cell again.")


def _read_lines(path: Path, kind: type[AnyConfig], newest: int = FORMAT) -> list[AnyConfig]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise FileError(f"Cannot read {path}: {reason(error)}.") from error
    return [
        _parse(line, kind, newest, f"{path}, line {number}", REMOVE)
        for number, line in enumerate(lines, start=1)
    ]


def _parse(text: str, kind: type[AnyConfig], newest: int, where: str, mend: str) -> AnyConfig:
    _refuse_newer(text, newest, where)
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise RunError(f"{where} is damaged ({what}). {mend}") from error


def _refuse_newer(text: str, newest: int, where: str) -> None:
    try:
        content = json.loads(text)
    except ValueError:
        return  # damaged, which reading it in earnest will tell
    found = content.get("format") if isinstance(content, dict) else None
    if isinstance(found, int) and found > newest:
        raise RunError(
            f"{where} has format {found}, newer than this version reads ({newest}). "
            "Upgrade aspect-gcl."
        )


def _lines(items: Iterable[Config]) -> str:
    return "".join(f"{item.model_dump_json()}\n" for item in items)


def _write(path: Path, text: str, *, once: bool = False) -> None:
    with replacing(path, overwrite=not once) as file:
        file.write(text.encode())


def _printable(line: str) -> str:
    """The line without letters that move a terminal's cursor."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in line
    )
