"""Records: what decides the numbers is in the key, and nothing else is."""

import hashlib
import json

import pytest
from pydantic import ValidationError

from aspect.benchmark.perturbation import Perturbation
from aspect.benchmark.record import Cell, Record, Work
from benchmark.grids import cells_of, done, failed, make_plan


@pytest.fixture
def cell():
    return cells_of(make_plan())[0]


def changed(cell, **work):
    return cell.model_copy(update={"work": cell.work.model_copy(update=work)})


@pytest.mark.parametrize(
    "work",
    [
        {"method": "low"},
        {"settings": {"epochs": 1}},
        {"graph_sha256": "1" * 64},
        {"splits": "random"},
        {"splits_sha256": "1" * 64},
        {"split_numbers": (0,)},
        {"perturbation": Perturbation(kind="random")},
        {"perturbation": Perturbation(kind="random", mode="evade")},
        {"perturbation_sha256": ("1" * 64,)},
        {"seed": 1},
        {"device": "cuda"},
        {"doubt": (0.0, 0.1)},
        {"version": "9.9.9"},
    ],
    ids=str,
)
def test_everything_that_decides_the_numbers_changes_the_key(cell, work):
    assert changed(cell, **work).key != cell.key


@pytest.mark.parametrize("label", ["plan", "entry", "title", "note", "group", "graph"])
def test_labels_do_not(cell, label):
    assert cell.model_copy(update={label: "another"}).key == cell.key


def test_the_key_does_not_depend_on_the_order_of_settings(cell):
    backward = dict(reversed(cell.work.settings.items()))
    assert changed(cell, settings=backward).key == cell.key


def test_the_shipped_records_keep_their_keys():
    """As they were written down: what is added to the work must not orphan older records."""
    work = Work(
        method="raw",
        settings={"epochs": 1},
        graph_sha256="0" * 64,
        splits="random",
        split_numbers=(0, 1),
        seed=0,
        version="0.1.0",
    )
    assert work.key == "0a9f44d6109625215369"


def test_a_key_is_the_hash_of_what_is_written(cell):
    digest = {"perturbation_sha256": ("1" * 64, "2" * 64), "splits_sha256": "3" * 64}
    for each in (cell, changed(cell, **digest)):
        written = json.loads(done(each).model_dump_json())["cell"]["work"]
        plain = json.dumps(written, sort_keys=True, ensure_ascii=False)
        assert hashlib.sha256(plain.encode()).hexdigest()[:20] == each.key
        assert ("perturbation_sha256" in written) == (each is not cell)
        assert Work.model_validate(written) == each.work


def test_the_key_is_a_files_name(cell):
    assert len(cell.key) == 20
    assert cell.key.isalnum()


def test_records_come_back_from_json_as_they_were(cell):
    for record in (done(cell), failed(cell)):
        assert Record.model_validate_json(record.model_dump_json()) == record
        assert record.key == cell.key
    assert Cell.model_validate_json(cell.model_dump_json()).key == cell.key


def test_records_hold_numbers_alone(cell):
    with pytest.raises(ValidationError, match="finite"):
        done(cell, strict=float("nan"))
