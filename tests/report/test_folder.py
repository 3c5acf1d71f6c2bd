"""A report replaces its own kind and nothing else."""

import json

import pytest

from aspect.errors import FileError, RunError
from aspect.report.folder import ReportFolder

RECORD = json.dumps({"kind": "mixture"})


def test_an_earlier_report_is_replaced(tmp_path):
    out = tmp_path / "a" / "b"
    for text in ("first", "second"):
        with ReportFolder.open(out, "mixture") as folder:
            folder.write(RECORD, {"report.html": text})
    assert (out / "report.html").read_text() == "second"
    assert json.loads((out / "record.json").read_text()) == {"kind": "mixture"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("report.html", "mine"),
        ("record.json", '{"kind": "other"}'),
        ("record.json", '{"method": "aspect"}'),
        ("record.json", "[]"),
        ("record.json", "no JSON"),
    ],
)
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with (
        pytest.raises(RunError, match=r"holds no mixture report\. Choose another --out"),
        ReportFolder.open(tmp_path, "mixture"),
    ):
        pass
    assert [item.name for item in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == text


def test_what_a_kill_leaves_is_no_obstacle(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".0123456789abcdef.part").touch()
    with ReportFolder.open(tmp_path, "mixture") as folder:
        folder.write(RECORD, {})


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(FileError, match=r"must be a folder\. Got a file"),
        ReportFolder.open(tmp_path / "file", "mixture"),
    ):
        pass


def test_an_impossible_path_is_refused_in_words(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(FileError, match="a part of the path is not a folder"),
        ReportFolder.open(tmp_path / "file" / "below", "mixture"),
    ):
        pass


def test_two_at_once_are_one_too_many(tmp_path):
    with (
        ReportFolder.open(tmp_path, "mixture"),
        pytest.raises(RunError, match="Another process is using"),
        ReportFolder.open(tmp_path, "mixture"),
    ):
        pass
