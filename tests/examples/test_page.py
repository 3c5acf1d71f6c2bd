"""The examples' page and folder: fetches nothing, escapes all text, replaces its kind alone."""

import errno
import json
import re
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from aspect.errors import FileError, RunError
from aspect.examples.demo import demo_files
from aspect.examples.page import PageSection, example_plot, report_folder, write_report
from aspect.examples.theory import theory_files
from aspect.report.html import PALETTE, render
from examples.pages import FACTS, small_demo, small_theory
from report.parsed_page import ParsedPage

HOSTILE = '</style></title><img src=x onerror="alert(1)">\'"=cmd()$_\x1b[31m'


@pytest.mark.parametrize(("example", "figures"), [("demo", 3), ("theory", 2)])
def test_a_page_is_whole_and_fetches_nothing(example, figures):
    files = {
        "demo": lambda: demo_files(small_demo(), FACTS),
        "theory": lambda: theory_files(small_theory(), FACTS),
    }[example]
    made = files()
    assert made == files()
    text = made["report.html"]
    parsed = ParsedPage(text)
    assert (parsed.counts["table"], parsed.counts["script"]) == (2, 0)
    assert parsed.counts["svg"] == parsed.counts["figure"] == figures
    assert "aspect demo --seeds 2" in parsed.text
    assert not re.search(r"https?:|//[a-z]|@import|src=", text)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    parsed.check_names()
    assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', text)) <= set(parsed.ids)
    for tag, attributes in parsed.tags:
        if tag == "svg":
            assert attributes["role"] == "img"
            assert len(attributes["aria-label"]) > 20


def test_hostile_text_stays_text():
    plot = example_plot(
        HOSTILE,
        HOSTILE,
        (HOSTILE, "y"),
        lambda axes: axes.plot([0, 1], color=PALETTE["blue"], label=HOSTILE),
    )
    table = pd.DataFrame({HOSTILE: [HOSTILE], "b": [HOSTILE]})
    section = PageSection(HOSTILE, HOSTILE, [HOSTILE], [plot], {HOSTILE: table})
    content = {"title": HOSTILE, "lead": HOSTILE, "sections": [section], "facts": {HOSTILE: 1}}
    text = render("example.html.j2", content, scripts=())
    parsed = ParsedPage(text)
    assert parsed.counts["img"] == 0
    assert (parsed.counts["title"], parsed.counts["style"]) == (1, 2)  # page and figure
    parsed.check_names()
    assert " ".join(HOSTILE.split()) in parsed.text
    assert "stroke: var(--blue)" in text


def write(out, text="earlier", kind="mixture", **content):
    with report_folder(out, kind, overwrite=True) as folder:
        write_report(folder, kind, content, {"report.html": text, "gate.csv": text})
    return {path.name: path.read_text() for path in out.iterdir()}


def test_an_earlier_report_is_replaced_if_asked(tmp_path):
    before = write(tmp_path / "a" / "b")
    with (
        pytest.raises(RunError, match=r"b holds a mixture report\. Pass --overwrite"),
        report_folder(tmp_path / "a" / "b", "mixture", overwrite=False),
    ):
        pass
    assert {path.name: path.read_text() for path in (tmp_path / "a" / "b").iterdir()} == before
    after = write(tmp_path / "a" / "b", "second", number=1)
    assert (after["report.html"], after.keys()) == ("second", before.keys())
    assert json.loads(after["record.json"]) == {"kind": "mixture", "number": 1}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("report.html", "mine"),
        ("record.json", '{"kind": "theory"}'),
        ("record.json", '{"method": "aspect"}'),
        ("record.json", "no JSON"),
        (".unfinished", "theory"),
    ],
)
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(RunError, match=r"holds no mixture report\. Choose another --out"):
        write(tmp_path)
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [(name, text)]


def test_two_at_once_are_one_too_many(tmp_path):
    with (
        report_folder(tmp_path, "mixture", overwrite=True),
        pytest.raises(RunError, match="Another process is using"),
    ):
        write(tmp_path)


class FullDisk(str):
    def encode(self, *_):
        raise OSError(errno.ENOSPC, "full")


def test_a_report_on_a_full_disk_leaves_the_earlier_one(tmp_path):
    before = write(tmp_path)
    with pytest.raises(FileError, match="the disk is full"):
        write(tmp_path, FullDisk())
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert {name: left[name] for name in before} == before


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
    earlier = write(tmp_path).keys() if replaces else ()
    with killed_after(steps, monkeypatch):
        write(tmp_path, "new", new=1)
    left = {path.name: path.read_text() for path in tmp_path.iterdir()}
    record = json.loads(left.get("record.json", "{}"))
    if record.get("new"):
        assert left["report.html"] == left["gate.csv"] == "new"
    elif record:
        assert left["report.html"] == "earlier"
        assert left.keys() - earlier <= {".unfinished"}
    after = write(tmp_path, "new", new=1)
    assert after.keys() - {".lock"} == {"record.json", "report.html", "gate.csv"}
