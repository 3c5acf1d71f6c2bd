"""`aspect demo`: in small as a user meets it, and in full against what it promises."""

import csv
import errno
import json
from contextlib import contextmanager
from pathlib import Path

import pytest

from aspect.errors import FileError
from aspect.examples.demo import ROWS
from aspect.report.folder import ReportFolder

FILES = {"record.json", "report.html", "accuracy.csv", "accuracy.md", "gate.csv", "gate.md"}


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
def test_the_demo_prints_a_table_and_leaves_a_page(cli, tmp_path):
    outcome = cli("demo", "--seeds", 1, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    for row in ROWS.values():
        assert row.title in outcome.out
    *_, page, following, last = outcome.out.splitlines()
    assert "runs/demo/report.html" in page
    assert following.startswith("Next: aspect train")
    assert "make test" in last
    folder = tmp_path / "runs" / "demo"
    assert {item.name for item in folder.iterdir()} - {".lock"} == FILES
    record = json.loads((folder / "record.json").read_text("utf-8"))
    assert [row["name"] for row in record["rows"]] == list(ROWS)
    assert record["command"] == "aspect demo --seeds 1 --seed 0 --device cpu"
    assert record["command"] in (folder / "report.html").read_text("utf-8")
    with (folder / "accuracy.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == 3 * len(ROWS)


@pytest.mark.usefixtures("tiny")
def test_two_demos_leave_the_same_bytes_but_for_timings(cli, tmp_path):
    found = []
    for _ in range(2):  # the second replaces the first
        command = ["demo", "--seeds", 1, "--seed", 3, "--device", "cpu", "--overwrite", "--json"]
        content = cli(*command).json
        folder = tmp_path / "runs" / "demo"
        record = json.loads((folder / "record.json").read_text("utf-8"))
        assert record.pop("seconds") > 0
        assert content.pop("seconds") > 0
        others = {name: (folder / name).read_bytes() for name in FILES - {"record.json"}}
        found.append((content, record, others))
    assert found[0] == found[1]
    content = found[0][0]
    assert content["seeds"] == [3]
    assert [row["name"] for row in content["rows"]] == list(ROWS)
    assert {facts["region"] for facts in content["gate"]} == {"homophilic", "heterophilic"}
    assert content["report"] == "runs/demo/report.html"


def test_a_foreign_folder_is_refused_before_any_work(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("mine")
    cli("demo", "--out", "mine", "--overwrite").refused("mine is not empty", "another --out")
    assert (tmp_path / "mine" / "report.html").read_text() == "mine"


def earlier_demo(out):
    with ReportFolder.open(out, "mixture") as folder:
        folder.write('{"kind": "mixture"}', {"report.html": "earlier"})
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_an_earlier_demo_is_not_replaced_unasked(cli, tmp_path):
    before = earlier_demo(tmp_path / "demo")
    cli("demo", "--out", "demo").refused("demo holds a mixture report", "--overwrite")
    assert {path.name: path.read_bytes() for path in (tmp_path / "demo").iterdir()} == before


def test_a_report_on_a_full_disk_leaves_the_earlier_one(tmp_path):
    before = earlier_demo(tmp_path / "demo")
    with (
        pytest.raises(FileError, match="the disk is full"),
        ReportFolder.open(tmp_path / "demo", "mixture") as folder,
    ):
        folder.write("{}", {"report.html": FullDisk()})
    left = {path.name: path.read_bytes() for path in (tmp_path / "demo").iterdir()}
    assert {name: left[name] for name in before} == before


class FullDisk(str):
    def encode(self, *_):
        raise OSError(errno.ENOSPC, "full")


@contextmanager
def killed_after(steps, monkeypatch):
    """Let so many files take or lose their name, then end as a kill would."""

    def counted(real):
        def step(path, *given, **options):
            nonlocal steps
            if given or path.suffix != ".part":  # leftovers are removed only by the living
                steps -= 1
                if steps < 0:
                    raise SystemExit
            return real(path, *given, **options)

        return step

    with monkeypatch.context() as patch:
        for name in ("unlink", "replace"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        with pytest.raises(SystemExit):
            yield


@pytest.mark.parametrize("steps", range(6))
@pytest.mark.parametrize("replaces", [False, True])
def test_the_record_says_that_the_report_is_whole(tmp_path, monkeypatch, steps, replaces):
    out, record = tmp_path / "demo", '{"kind": "mixture", "new": 1}'
    files = {"report.html": "new", "gate.md": "new"}
    earlier = earlier_demo(out).keys() if replaces else ()
    with (
        killed_after(steps, monkeypatch),
        ReportFolder.open(out, "mixture", overwrite=True) as folder,
    ):
        folder.write(record, files)
    left = {path.name: path.read_text() for path in out.iterdir()}
    if left.get("record.json") == record:
        assert files.items() <= left.items()
    elif "record.json" in left:
        assert left["report.html"] == "earlier"
        assert left.keys() - earlier <= {".unfinished"}
    with ReportFolder.open(out, "mixture", overwrite="record.json" in left) as folder:
        folder.write(record, files)
    assert {path.name for path in out.iterdir()} - {".lock"} == {"record.json", *files}


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
