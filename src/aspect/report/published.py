"""The records that ship with the package, beside a user's own: the same graphs, splits and probe.

They are `results/records` of the repository; a wheel has them as `aspect/published`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from aspect.data.files import is_file
from aspect.errors import FileError, SettingsError, shown
from aspect.experiment.record import Record
from aspect.experiment.spec import Spec
from aspect.experiment.store import read_records

logger = logging.getLogger(__name__)

PLANS = ("clean", "perturbed")  # whose entries are methods; the others vary one of them
PACKAGE = Path(__file__).parents[1]
PLACES = (PACKAGE / "published", PACKAGE.parents[1] / "results" / "records")

Kind = tuple[str, str, tuple[int, ...]]  # splits, probe, numbers of the splits


def published_records() -> list[Record]:
    """All that ship."""
    paths = [folder / f"{plan}.jsonl" for folder in PLACES for plan in PLANS]
    records = [record for path in paths if is_file(path) for record in read_records(path)]
    if not records:
        raise FileError(
            "No records are published with this version. Make some by `aspect bench clean`."
        )
    return records


def published_beside(own: Sequence[Record]) -> list[Record]:
    """The published records that stand in one table with a user's own.

    They are of the same graphs and perturbations. Other splits, numbers of splits or probes are
    refused: their scores are not comparable. A method that the user ran as well is the user's.
    """
    done = [record for record in own if record.status == "done" and record.scores]
    graphs = {record.spec.graph_sha256: record.cell.graph_source.name for record in done}
    published = [record for record in published_records() if record.spec.graph_sha256 in graphs]
    if not published:
        names = sorted({record.cell.graph for record in published_records()})
        raise SettingsError(
            f"No published record is of {shown(graphs.values())}, as its content is. Published are "
            f"those of {', '.join(names)}."
        )
    for record in done:
        _refuse_other_kinds(record, published)
    tables = {_table(record.spec) for record in done}
    chosen = [one for one in published if _table(one.spec) in tables]
    entries = {record.cell.entry for record in own}
    twice = sorted(entries & {record.cell.entry for record in chosen})
    if twice:
        logger.warning("Of %s your own records are shown, not the published.", shown(twice))
    beside = [record for record in chosen if record.cell.entry not in entries]
    named = [_named_as(record, done) for record in beside]
    word = _word_on_versions(done, beside)
    if word:
        logger.warning("%s", word)
        # On the page as well, once a graph.
        first = {record.cell.graph: record.key for record in reversed(named)}
        named = [
            record.model_copy(update={"notices": (*record.notices, word)})
            if record.key == first[record.cell.graph]
            else record
            for record in named
        ]
    return named


def _word_on_versions(own: Sequence[Record], beside: Sequence[Record]) -> str:
    """What to know of records that another version made; empty if there is nothing."""
    versions = sorted({record.spec.version for record in beside})
    if not versions or {record.spec.version for record in own} == set(versions):
        return ""
    return f"The published records were made by aspect {', '.join(versions)}."


def _place(spec: Spec) -> tuple[object, ...]:
    """Graph and perturbation of a number."""
    return spec.graph_sha256, spec.perturbation


def _table(spec: Spec) -> tuple[object, ...]:
    """The same with the kind of splits and the probe: `clean` and `perturbed` share a place."""
    return *_place(spec), *_kind(spec)[:2]


def _kind(spec: Spec) -> Kind:
    return spec.splits, spec.probe or "paper", spec.split_numbers


def _refuse_other_kinds(record: Record, published: Sequence[Record]) -> None:
    """Refuse a record whose scores are of another kind than those published of its place."""
    spec = record.spec
    kinds = {_kind(other.spec) for other in published if _place(other.spec) == _place(spec)}
    if not kinds or _kind(spec) in kinds:
        return
    # Of several kinds, the one that is most like the user's.
    own = _kind(spec)
    closest = min(kinds, key=lambda kind: (kind[:2] != own[:2], kind[0] != own[0], kind))
    splits, probe, numbers = closest
    if closest[:2] == own[:2]:
        raise SettingsError(
            f"Yours and the published records of {record.cell.graph} are not of the same splits: "
            f"{record.cell.entry!r} has the numbers {_listed(spec.split_numbers)}, the published "
            f"have {_listed(numbers)}. Leave num_splits out of the plan."
        )
    raise SettingsError(
        f"Yours and the published records of {record.cell.graph} cannot stand in one table: "
        f"{record.cell.entry!r} is of {spec.splits} splits by the {spec.probe or 'paper'} probe, "
        f"the published are of {splits} splits by the {probe} probe. Bench yours by a plan with "
        f"`splits: {splits}` and `probe: {probe}`."
    )


def _listed(numbers: Sequence[int]) -> str:
    is_range = list(numbers) == list(range(numbers[0], numbers[-1] + 1))
    ends = f"{numbers[0]} to {numbers[-1]}"
    return ends if is_range and len(numbers) > 1 else ", ".join(map(str, numbers))


def _named_as(record: Record, own: Sequence[Record]) -> Record:
    """The record with the graph's name as the user's records have it: a column is a name."""
    sha256 = record.spec.graph_sha256
    graph = next(other.cell.graph for other in own if other.spec.graph_sha256 == sha256)
    return record.model_copy(update={"cell": record.cell.model_copy(update={"graph": graph})})
