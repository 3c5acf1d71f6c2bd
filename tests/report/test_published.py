"""A user's own records beside those that ship: of the same kind, or refused."""

import logging
import tomllib
from pathlib import Path

import pytest

from aspect.errors import FileError, SettingsError
from aspect.report import published
from aspect.report.published import published_beside, published_records
from aspect.report.results import collect
from report.benchmark_records import make_records, poison

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """Records as they ship: two kinds of splits, by different probes."""
    shared = {"splits": 10, "seeds": 1, "version": "0.2.0"}
    entries = ["aspect", "grace", "raw"]
    records = {
        "clean": [
            *make_records(entries, probe="paper", **shared),
            *make_records(entries, probe="neutral", split_kind="published", **shared),
        ],
        "perturbed": make_records(entries, ["cora"], [poison()], probe="paper", **shared),
    }
    for plan, some in records.items():
        lines = [f"{record.model_dump_json()}\n" for record in some]
        (tmp_path / f"{plan}.jsonl").write_text("".join(lines), encoding="utf-8")
    monkeypatch.setattr(published, "PLACES", (tmp_path / "none", tmp_path))
    return published_records()


def own_of(records, entry="mine", graph="texas", cell=None, **changes):
    """What a user's bench of the same plan would leave: an entry of theirs in place of one."""
    return [
        record.model_copy(
            update={
                "cell": record.cell.model_copy(
                    update={
                        "entry": entry,
                        "title": entry,
                        "spec": record.spec.model_copy(update={"method": "m:Mine", **changes}),
                        **(cell or {}),
                    }
                )
            }
        )
        for record in records
        if (record.cell.entry, record.cell.graph) == ("raw", graph)
        and not record.spec.perturbation
        and record.spec.splits == "class-balanced"
    ]


def test_an_own_method_stands_beside_all_of_ours(shipped):
    own = own_of(shipped)
    beside = published_beside(own)
    assert {record.cell.graph for record in beside} == {"texas"}
    entries = {record.cell.entry for record in shipped if record.cell.graph == "texas"}
    assert {record.cell.entry for record in beside} == entries
    results = collect([*own, *beside])
    assert set(results.methods) == {"mine", *entries}
    assert results.kinds == ["class-balanced"]


def test_a_graph_goes_by_the_users_name(shipped):
    own = own_of(shipped, cell={"graph": "data/my_texas.npz"})
    assert {record.cell.graph for record in published_beside(own)} == {"data/my_texas.npz"}


def test_only_perturbations_that_the_user_ran_are_shown(shipped):
    own = own_of(shipped, graph="cora")
    assert all(record.spec.perturbation is None for record in published_beside(own))
    attacked = [
        record.model_copy(update={"cell": record.cell.model_copy(update={"entry": "mine"})})
        for record in shipped
        if record.cell.entry == "raw" and record.cell.graph == "cora" and record.spec.perturbation
    ]
    beside = published_beside(attacked)
    assert {record.spec.perturbation for record in beside} == {
        record.spec.perturbation for record in attacked
    }


def test_of_two_probes_on_the_same_splits_the_users_is_shown(shipped, monkeypatch):
    other = make_records(["aspect", "raw"], probe="neutral", splits=10, seeds=1, version="0.2.0")
    monkeypatch.setattr(published, "published_records", lambda: [*shipped, *other])
    for probe in ("paper", "neutral"):
        beside = published_beside(own_of(shipped, probe=probe))
        assert {record.spec.probe for record in beside} == {probe}


def test_a_method_of_both_is_the_users(shipped, caplog):
    own = [*own_of(shipped), *own_of(shipped, entry="raw", version="9.9.9")]
    with caplog.at_level(logging.WARNING):
        beside = published_beside(own)
    assert "raw" not in {record.cell.entry for record in beside}
    assert "Of raw (1 in all) your own records are shown" in caplog.text
    assert "The published records were made by aspect" in caplog.text
    told = [notice for record in beside for notice in record.notices if "were made by" in notice]
    assert len(told) == 1, "once a graph"
    assert any(notice.startswith("texas: The published") for notice in collect(beside).notices)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"splits": "random"}, r"is of random splits by the paper probe, the published are of"),
        ({"probe": "neutral"}, r"by the neutral probe, .* with `splits: .*` and `probe: paper`\."),
        ({"split_numbers": (0, 1, 2)}, r"has the numbers 0 to 2, the published have 0 to 9"),
        ({"split_numbers": (3,)}, r"has the numbers 3, the published"),
        ({"graph_sha256": "0" * 64}, r"No published record is of texas .*, as its content is"),
    ],
)
def test_what_is_not_comparable_is_refused(shipped, changes, sentence):
    with pytest.raises(SettingsError, match=sentence):
        published_beside(own_of(shipped, **changes))


def test_an_installation_without_records_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(published, "PLACES", (tmp_path / "none",))
    with pytest.raises(FileError, match="No records are published with this version"):
        published_records()


def test_the_wheel_has_what_is_read():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"].get("force-include", {})
    paths = {plan: Path(f"results/records/{plan}.jsonl") for plan in published.PLANS}
    shipped = {plan: path for plan, path in paths.items() if (ROOT / path).is_file()}
    assert wheel == {str(path): f"aspect/published/{plan}.jsonl" for plan, path in shipped.items()}
