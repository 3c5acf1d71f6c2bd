"""`aspect theory`: in small as a user meets it."""

import csv
import json

import pytest

FILES = {"record.json", "report.html", "regret.csv", "trade-off.csv"}


@pytest.fixture
def tiny(monkeypatch):
    """A study of a second or two."""
    from aspect.examples import theory

    small = {"nodes": 40, "epochs": 2, "width": 4, "mixes": 11, "perturbations": 2}
    monkeypatch.setattr(theory, "QUICK", theory.QUICK.model_copy(update=small))


@pytest.mark.usefixtures("tiny")
def test_theory_prints_tables_and_leaves_a_page_the_same_again(cli, tmp_path):
    outcome = cli("theory", "--quick", "--device", "cpu")
    assert outcome.code == 0, outcome.err
    for words in ("bound / regret", "p-", "p+", "mu", "Delta", "d_L (low band)"):
        assert words in outcome.out
    assert "the regret is at least the bound in 12 of 12 cases" in outcome.out
    assert "runs/theory/report.html" in outcome.out.splitlines()[-1]
    folder = tmp_path / "runs" / "theory"
    assert {item.name for item in folder.iterdir()} - {".lock"} == FILES
    record = json.loads((folder / "record.json").read_text("utf-8"))
    assert record["command"] == "aspect theory --quick --seed 0 --device cpu"
    assert record["versions"]["aspect"]
    assert record["command"] in (folder / "report.html").read_text("utf-8")
    with (folder / "regret.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    assert all(float(row["regret"]) >= float(row["bound"]) - 1e-12 for row in rows)
    first = {name: (folder / name).read_bytes() for name in FILES}
    cli("theory", "--quick").refused("runs/theory holds a theory report", "--overwrite")
    content = cli("theory", "--quick", "--device", "cpu", "--overwrite", "--json").json
    assert content["holds"] is True
    assert {row["keys"] for row in content["rows"]} == {"class", "own"}
    assert record.pop("seconds") > 0 < content.pop("seconds")
    assert content["rows"] == record["rows"]
    for name in FILES - {"record.json"}:
        assert (folder / name).read_bytes() == first[name], name


def test_a_foreign_folder_is_refused_before_any_work(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("mine")
    cli("theory", "--out", "mine", "--overwrite").refused("mine is not empty", "another --out")
    assert (tmp_path / "mine" / "report.html").read_text() == "mine"


def test_help_and_wrong_usage_are_answered_at_once(process):
    done = process("theory", "--help")
    assert done.code == 0
    assert "--quick" in done.out
    process("theory", "--quik").refused("--quick")
