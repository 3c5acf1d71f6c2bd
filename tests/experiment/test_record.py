"""Records: what decides the numbers is in the key, and nothing else is."""

import hashlib
import json
import sys
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from aspect.attacks.perturbation import Perturbation
from aspect.data.splits import SplitKind
from aspect.evaluation import linear_probe as probe
from aspect.evaluation.metrics import ClassScore
from aspect.evaluation.result import SplitScore
from aspect.experiment import spec
from aspect.experiment.record import Record, SplitScores
from aspect.experiment.spec import Cell, ProbeName, Spec, SplitName
from aspect.methods.registry import find_method, method_names
from experiment.grids import cells_of, done, failed, make_plan


@pytest.fixture
def cell():
    return cells_of(make_plan())[0]


def changed(cell, **work):
    return cell.model_copy(update={"spec": cell.spec.model_copy(update=work)})


@pytest.mark.parametrize(
    "work",
    [
        {"method": "low"},
        {"settings": {"epochs": 1}},
        {"graph_sha256": "1" * 64},
        {"splits": "class-balanced"},
        {"probe": "paper"},
        {"probe": None},
        {"metric": "roc-auc"},
        {"splits_sha256": "1" * 64},
        {"split_numbers": (0,)},
        {"perturbation": Perturbation(kind="random")},
        {"perturbation": Perturbation(kind="random", mode="evade")},
        {"perturbation_sha256": ("1" * 64,)},
        {"seed": 1},
        {"device": "cuda"},
        {"prune": (0.0, 0.1)},
        {"source": "1" * 64},
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
    backward = dict(reversed(cell.spec.settings.items()))
    assert changed(cell, settings=backward).key == cell.key


def test_the_shipped_records_keep_their_keys():
    """As they were written down: what is added to the work must not orphan older records."""
    work = Spec(
        method="raw",
        settings={"epochs": 1},
        graph_sha256="0" * 64,
        splits="random",
        split_numbers=(0, 1),
        seed=0,
        version="0.1.0",
    )
    assert work.key == "0a9f44d6109625215369"


def test_names_are_those_that_the_library_knows():
    assert get_args(ProbeName) == get_args(probe.ProbeName)
    searched = {"search", "class-balanced-search"}
    assert set(get_args(SplitName)) == set(get_args(SplitKind)) - searched


def test_a_probes_score_becomes_a_record_of_its_split():
    classes = (
        ClassScore(0, 80.0, 50.0, 61.5, 70.0, 5.0),
        ClassScore(1, None, None, None, None, 0.0),
    )
    score = SplitScore(0.1, None, 60.0, 55.0, None, 50.0, None, (), (1,), 0.5, classes, True)
    found = SplitScores.of(3, score, majority=40.0, twins=45.0)
    assert (found.split, found.strict, found.choice) == (3, 55.0, 0.1)
    assert found.per_class_recall == (80.0, None)
    assert found.at_path_end
    assert (found.majority, found.twins, found.prune) == (40.0, 45.0, None)


def test_a_key_is_the_hash_of_what_is_written(cell):
    digest = {"perturbation_sha256": ("1" * 64, "2" * 64), "splits_sha256": "3" * 64}
    for each in (cell, changed(cell, **digest)):
        written = json.loads(done(each).model_dump_json())["cell"]["work"]
        plain = json.dumps(written, sort_keys=True, ensure_ascii=False)
        assert hashlib.sha256(plain.encode()).hexdigest()[:20] == each.key
        assert ("perturbation_sha256" in written) == (each is not cell)
        assert Spec.model_validate(written) == each.spec


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


def test_a_key_is_computed_once(cell, monkeypatch):
    fresh = cell.spec.model_copy()
    dump = Mock(wraps=hashlib.sha256)
    monkeypatch.setattr("aspect.experiment.spec.hashlib.sha256", dump)
    assert fresh.key == fresh.key
    assert dump.call_count == 1


@pytest.fixture
def released(monkeypatch, tmp_path):
    """The table of the release, as a test has it."""
    table = tmp_path / "released.json"
    table.write_text("{}")
    monkeypatch.setattr(spec, "RELEASED", table)
    spec.method_source.cache_clear()
    yield table
    spec.method_source.cache_clear()


def test_an_edited_method_has_other_keys_and_a_released_one_the_old(released):
    module = find_method("raw").method.__module__
    digest = hashlib.sha256(Path(sys.modules[module].__file__).read_bytes()).hexdigest()
    assert spec.method_source("raw") == digest, "unknown to the release"
    spec.method_source.cache_clear()
    edited = cells_of(make_plan(entries=["raw"]))[0]
    released.write_text(json.dumps({module: digest}))
    spec.method_source.cache_clear()
    assert spec.method_source("raw") is None
    same = cells_of(make_plan(entries=["raw"]))[0]
    assert edited.spec.source == digest
    assert "source" not in same.spec.model_dump()
    assert edited.key != same.key


def test_the_table_of_the_release_names_modules_of_methods():
    modules = {find_method(name).method.__module__ for name in method_names()}
    assert set(json.loads(spec.RELEASED.read_text())) <= modules
