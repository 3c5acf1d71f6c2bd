"""`aspect demo`: in small as a user meets it, and in full against what it promises."""

import csv
import json

import pytest

from aspect.examples.demo import ROWS

FILES = {"record.json", "report.html", "accuracy.csv", "gate.csv"}


@pytest.fixture
def tiny(monkeypatch):
    """A demo of seconds: a small graph, three epochs, three splits."""
    from functools import partial

    from aspect import mixed_graph
    from aspect.examples import demo

    settings = {"epochs": 3, "width": 4, "gate_width": 4}
    small = {"labelled": mixed_graph(80, num_features=6), "settings": settings, "num_splits": 3}
    monkeypatch.setattr(demo, "run_demo", partial(demo.run_demo, **small))


@pytest.mark.usefixtures("tiny")
def test_the_demo_prints_a_table_and_leaves_a_page_the_same_again(cli, tmp_path):
    outcome = cli("demo", "--seeds", 1, "--seed", 3, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    for row in ROWS.values():
        assert row.title in outcome.out
    *_, page, following, last = outcome.out.splitlines()
    assert "runs/demo/report.html" in page
    assert following.startswith("Next: aspect train")
    assert "make test" in last
    folder = tmp_path / "runs" / "demo"
    assert {item.name for item in folder.iterdir()} - {".lock"} == FILES
    first = {name: (folder / name).read_bytes() for name in FILES}
    record = json.loads(first["record.json"])
    assert [row["name"] for row in record["rows"]] == list(ROWS)
    assert record["command"] == "aspect demo --seeds 1 --seed 3 --device cpu"
    assert record["command"].encode() in first["report.html"]
    with (folder / "accuracy.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 3 * len(ROWS)
    cli("demo", "--seeds", 1).refused("runs/demo holds a mixture report", "--overwrite")
    again = ["demo", "--seeds", 1, "--seed", 3, "--device", "cpu", "--overwrite", "--json"]
    content = cli(*again).json
    assert content["report"] == "runs/demo/report.html"
    assert record.pop("seconds") > 0 < content.pop("seconds")
    assert {"kind": "mixture", "out": "runs/demo", "report": content["report"]} | record == {
        "kind": "mixture",
        **content,
    }
    for name in FILES - {"record.json"}:
        assert (folder / name).read_bytes() == first[name], name


def test_a_foreign_folder_is_refused_before_any_work(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("mine")
    cli("demo", "--out", "mine", "--overwrite").refused("mine is not empty", "another --out")
    assert (tmp_path / "mine" / "report.html").read_text() == "mine"


def test_a_demo_needs_a_seed(cli):
    cli("demo", "--seeds", 0).refused("--seeds")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_gate_finds_the_regions_and_beats_every_control_and_every_single_mix(cli):
    content = cli("demo", "--seeds", 5, "--device", "cpu", "--json").json
    gate = {(facts["entrant"], facts["region"]): facts["mean"] for facts in content["gate"]}
    assert gate["aspect", "homophilic"] >= 0.8
    assert gate["aspect", "heterophilic"] <= 0.2
    strict = {row["name"]: row["strict"]["whole"]["mean"] for row in content["rows"]}
    for name in set(strict) - {"aspect", "oracle"}:
        assert strict["aspect"] >= strict[name] + 3, name
    assert content["gap"]["share"] >= 50
    chances = {test["name"]: test["p_value"] for test in content["tests"]}
    for name in ("global", "half", "concatenated", "propagated", "spectral"):
        assert chances[name] < 0.05, name
