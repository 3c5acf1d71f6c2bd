"""Folders and files that are kept: locked, claimed, written whole, sealed, validated when read.

A run, a bench, a search and a report each own a folder, and all of them are a `Workspace`:
one process at a time, nothing half-written, leftovers of a kill swept, folders of another kind
refused and left untouched. A manifest seals the files of a folder by their SHA-256. A line of JSON
carries its own digest. What is read back is validated by a pydantic model; whatever is wrong with
it becomes one sentence.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import filelock
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import from_json

from aspect.data.files import LEFT_BEHIND, file_bytes, is_file, naming, replacing
from aspect.errors import FileError, RunError, reason

LOCK = ".lock"  # taken while a process works in a folder; what is left of it means nothing
MANIFEST = "manifest.json"

AnyModel = TypeVar("AnyModel", bound=BaseModel)

SEAL = re.compile(rb',"sha256":"([0-9a-f]{64})"\}\Z')
MOST_DIGITS = 16  # of a checksum, in a sentence
MOST_LETTERS = 300  # of what pydantic says


# Files


def write_text(path: Path, text: str, *, once: bool = False) -> None:
    """Write a text file all or nothing; `once` refuses to replace one."""
    with replacing(path, overwrite=not once) as file:
        file.write(text.encode())


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a small JSON file all or nothing."""
    write_text(path, json_text(content))


def json_text(content: Mapping[str, Any]) -> str:
    """What `write_json` writes."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def sealed(model: BaseModel) -> str:
    """The model as a line of JSON whose last value is the SHA-256 of the rest."""
    text = model.model_dump_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f'{text[:-1]},"sha256":"{digest}"}}\n'


def write_json_lines(path: Path, models: Iterable[BaseModel]) -> None:
    """Write one sealed line for each model, all or nothing."""
    write_text(path, "".join(map(sealed, models)))


def read_json(
    path: Path, model: type[AnyModel], *, fix: str, newest: int | None = None
) -> AnyModel:
    """Read a file that holds one JSON object, sealed or not.

    Args:
        path: The file.
        model: What its content must be.
        fix: A sentence on what helps if it is damaged.
        newest: The highest `format` that this version reads; None: it has none.
    """
    return _parse(_bytes(path), model, str(path), fix, newest)


def read_json_lines(
    path: Path, model: type[AnyModel], *, fix: str, newest: int | None = None
) -> list[AnyModel]:
    r"""Read a file with one JSON object a line, sealed or not; `\n` alone ends a line."""
    content = _bytes(path)
    lines = content.removesuffix(b"\n").split(b"\n") if content else []
    return [
        _parse(line, model, f"{path}, line {number}", fix, newest)
        for number, line in enumerate(lines, start=1)
    ]


def _bytes(path: Path) -> bytes:
    try:
        return file_bytes(path)
    except FileError as error:
        raise RunError(str(error)) from error


def _parse(
    content: bytes, model: type[AnyModel], where: str, fix: str, newest: int | None
) -> AnyModel:
    _refuse_newer(content, newest, where)
    line = content.rstrip()
    seal = SEAL.search(line)
    if seal is not None:
        line = line[: seal.start()] + b"}"
        found, expected = hashlib.sha256(line).hexdigest(), seal[1].decode()
        if found != expected:
            raise RunError(
                f"{where} is damaged: its SHA-256 must be {expected[:MOST_DIGITS]}... "
                f"Got {found[:MOST_DIGITS]}... {fix}"
            )
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        what = f"{field}: {first['msg']}" if field else first["msg"]
        raise RunError(f"{where} is damaged ({what[:MOST_LETTERS]}). {fix}") from error


def _refuse_newer(content: bytes, newest: int | None, where: str) -> None:
    if newest is None:
        return
    try:
        values = from_json(content)  # unlike json.loads it bounds the depth
    except ValueError:
        return  # damaged, which validation will say
    given = values.get("format") if isinstance(values, dict) else None
    if isinstance(given, int) and given > newest:
        raise RunError(
            f"{where} has format {given}, newer than this version reads ({newest}). "
            "Upgrade aspect-gcl."
        )


# Folders


@dataclass(frozen=True)
class FolderKind:
    """What makes a folder one of a kind, and what it may hold besides."""

    foreign: str  # ends the refusal of another folder: "not a run's folder"
    owns: Callable[[frozenset[str]], bool]  # whether a folder with these names is of the kind
    ignored: frozenset[str] = frozenset()  # further locks and the like, which mean nothing
    parts: tuple[str, ...] = ()  # subfolders that are swept as well


class Manifest(BaseModel):
    """The SHA-256 of every file of a folder, by name."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    format: int = 1
    files: dict[str, str]


class Workspace:
    """A folder of a kind; open it with `Workspace.open` to write, or read from it as it is."""

    def __init__(self, path: Path, kind: FolderKind) -> None:
        self.path, self.kind = path, kind

    @classmethod
    @contextmanager
    def open(cls, path: Path, kind: FolderKind) -> Iterator[Workspace]:
        """Hold the folder for this process, made if need be; leftovers of a kill are swept.

        A file in its place, a folder of another kind and one that another process holds are refused
        and left untouched. The system lets go of it when the process ends, however it ends.
        """
        workspace = cls(path, kind)
        with ExitStack() as cleanup:
            with naming(path):
                workspace.check()
                path.mkdir(parents=True, exist_ok=True)
                try:
                    cleanup.enter_context(filelock.FileLock(path / LOCK, blocking=False))
                except filelock.Timeout as error:
                    raise RunError(
                        f"Another process is using {path}. Wait for it, or choose another --out."
                    ) from error
                workspace.check()  # by the folder as it is now that nobody else changes it
                workspace._sweep()
            yield workspace

    def check(self) -> None:
        """Refuse beforehand, and write nothing, what `open` would refuse but for the lock."""
        with naming(self.path):
            if not self.path.exists():
                return
            if not self.path.is_dir():
                raise FileError(f"{self.path} must be a folder. Got a file.")
            names = self.names()
        if names and not self.kind.owns(names):
            raise RunError(
                f"{self.path} is not empty and {self.kind.foreign}. Choose another --out."
            )

    def names(self) -> frozenset[str]:
        """What the folder holds, without locks and leftovers."""
        names = {item.name for item in self.path.iterdir()} - {LOCK} - self.kind.ignored
        return frozenset(name for name in names if not LEFT_BEHIND.fullmatch(name))

    def has(self, name: str) -> bool:
        """Whether the folder holds a file of that name."""
        return is_file(self.path / name)

    def write(self, name: str, text: str, *, once: bool = False) -> None:
        """Write a text file all or nothing; `once` refuses to replace one."""
        write_text(self.path / name, text, once=once)

    def remove(self, *names: str) -> None:
        """Remove files that may be there."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def seal(self, names: Iterable[str], coming: Mapping[str, str] | None = None) -> None:
        """Write the manifest of these files, as far as they are there.

        Args:
            names: Files of the folder.
            coming: Texts of files that are written next: the one that says "complete" comes last.
        """
        files = {name: _sha256_of_file(self.path / name) for name in names if self.has(name)}
        for name, text in (coming or {}).items():
            files[name] = hashlib.sha256(text.encode()).hexdigest()
        write_json(self.path / MANIFEST, Manifest(files=files).model_dump())

    def verify(self, fix: str) -> bool:
        """Refuse a folder whose files are not those of its manifest; False: it has no manifest.

        Args:
            fix: A sentence on what helps.
        """
        if not self.has(MANIFEST):
            return False
        manifest = read_json(self.path / MANIFEST, Manifest, fix=fix, newest=1)
        for name, expected in manifest.files.items():
            file = self.path / name
            if Path(name).name != name:
                raise RunError(f"{self.path / MANIFEST} is damaged: it names {name!r}. {fix}")
            if not is_file(file):
                raise RunError(f"{file} is missing, which {MANIFEST} names. {fix}")
            found = _sha256_of_file(file)
            if found != expected:
                raise RunError(
                    f"{file} is damaged or of another folder: its SHA-256 must be "
                    f"{expected[:MOST_DIGITS]}... Got {found[:MOST_DIGITS]}... {fix}"
                )
        return True

    def _sweep(self) -> None:
        """Remove what a process that was killed in the middle of writing left behind."""
        for name in ("", *self.kind.parts):
            folder = self.path / name
            for item in folder.iterdir() if folder.is_dir() else ():
                if LEFT_BEHIND.fullmatch(item.name):
                    item.unlink()


def _sha256_of_file(path: Path) -> str:
    """Of a file of any size; it is read piece by piece."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FileError(f"Cannot read {str(path)!r}: {reason(error)}.") from error
