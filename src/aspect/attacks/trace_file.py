"""The file that a running attack writes: taken, resumed, replaced, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aspect.attacks.trace import AttackFacts, Trace
from aspect.data.files import is_present, reason
from aspect.errors import CheckpointError, FileError, GraphError, RunError

__all__ = ["Difference", "TraceFile", "find_difference"]

# What may change between the processes of one attack: budgets are nested, time goes by.
FREE = frozenset({"wanted", "complete", "seconds"})


class TraceFile:
    """Where one attack is kept; open it with `TraceFile.open`, which writes nothing."""

    def __init__(self, path: Path, begun: Trace | None) -> None:
        self.path = path
        self.begun = begun  # what the file holds of this attack
        self.kept = 0 if begun is None else len(begun.keys)  # flips that a kill does not lose
        self._stamp = _stamp_of(path)

    @classmethod
    def open(
        cls, path: Path, facts: AttackFacts, *, resume: bool = False, overwrite: bool = False
    ) -> TraceFile:
        """Look at what is there: nothing, the same attack to go on with, or what is refused.

        Args:
            path: The file.
            facts: Of the attack that is to be run.
            resume: Go on with what the file holds; where there is no file, begin.
            overwrite: Replace whatever it holds, as soon as there is something to replace it with.
        """
        if overwrite or not is_present(path):
            return cls(path, None)
        if not resume:
            raise FileError(
                f"{str(path)!r} exists. Pass --resume to go on with it, --overwrite to replace it, "
                "or choose another --out."
            )
        try:
            begun = Trace.read(path)
        except CheckpointError as error:
            raise CheckpointError(f"{error} Pass --overwrite to begin anew.") from error
        _check_same(path, begun.facts, facts)
        if begun.facts.complete and len(begun.keys) < facts.wanted:
            raise RunError(
                f"{str(path)!r} is complete with {len(begun.keys)} flips, and cannot go on to "
                f"{facts.wanted}. Pass --overwrite to begin anew, or choose another --out."
            )
        return cls(path, begun)

    def write(self, trace: Trace) -> None:
        """Replace the file, unless someone else did meanwhile."""
        if _stamp_of(self.path) != self._stamp:
            raise RunError(
                f"Another process has written {str(self.path)!r} meanwhile. "
                "Let one of them end, or choose another --out."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"Cannot write {str(self.path)!r}: {reason(error)}.") from error
        trace.write(self.path)
        self._stamp, self.kept = _stamp_of(self.path), len(trace.keys)


def _check_same(path: Path, before: AttackFacts, now: AttackFacts) -> None:
    """Refuse to go on with another attack; the first difference is named."""
    if before.graph.sha256 != now.graph.sha256:
        raise GraphError(
            f"{str(path)!r} belongs to another graph, {before.graph.name!r} with sha256 "
            f"{before.graph.sha256[:16]}... Got {now.graph.name!r} with {now.graph.sha256[:16]}... "
            "Choose another --out, or pass --overwrite."
        )
    found = find_difference(before, now, of_machine=not before.complete)
    if found is not None:
        mend = f"Pass --device {before.device}, c" if found.name == "device" else "C"
        raise RunError(
            f"{str(path)!r} holds another attack, with {found.name} {found.before!r}. "
            f"Got {found.now!r}. {mend}hoose another --out, or pass --overwrite."
        )


@dataclass(frozen=True)
class Difference:
    """What two attacks on one graph differ in."""

    name: str  # as a user knows it: `split`, `setting ridge`
    before: object
    now: object


def find_difference(
    before: AttackFacts, now: AttackFacts, *, of_machine: bool
) -> Difference | None:
    """The first thing that makes the flips of two attacks differ; the budget does not.

    Args:
        before: Of one attack.
        now: Of the other; the graphs are compared elsewhere.
        of_machine: Whether device and versions count.
    """
    first, second = (_plain(facts, of_machine=of_machine) for facts in (before, now))
    for name in dict.fromkeys([*first, *second]):
        if first.get(name) != second.get(name):
            return Difference(name, first.get(name), second.get(name))
    return None


def _plain(facts: AttackFacts, *, of_machine: bool) -> dict[str, Any]:
    """All that decides the flips, each under a name that a user knows.

    The machine decides how sums are rounded, which matters only where there is more to find.
    """
    values = facts.model_dump(mode="json", exclude={*FREE, "graph"})
    values |= {f"setting {name}": value for name, value in values.pop("settings").items()}
    versions, device = values.pop("versions"), values.pop("device")
    if of_machine:
        values |= {"device": device, **{f"{name} version": versions[name] for name in versions}}
    return values


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    """What changes whenever a file is replaced; None without one."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
