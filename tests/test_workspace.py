"""Folders on disk: claimed by one process, swept, sealed; files are validated when read."""

import os
import random

import pytest
from pydantic import BaseModel, ConfigDict

from aspect.errors import FileError, RunError
from aspect.workspace import (
    MANIFEST,
    FolderKind,
    Workspace,
    read_json,
    read_json_lines,
    sealed,
    write_json,
    write_json_lines,
)

NOTES = FolderKind("holds no notes", lambda names: "notes.txt" in names, parts=("inner",))
LEFT_BEHIND = ".0123456789abcdef.part"
FIX = "Write it again."


class Note(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    format: int = 1
    text: str
    number: float = 0.5


def test_a_folder_is_made_held_and_let_go(tmp_path):
    path = tmp_path / "a" / "b"
    with Workspace.open(path, NOTES) as workspace:
        workspace.write("notes.txt", "mine")
        with pytest.raises(RunError, match="Another process is using"), Workspace.open(path, NOTES):
            pass
    with Workspace.open(path, NOTES) as workspace:
        assert workspace.names() == {"notes.txt"}


def test_what_is_not_of_the_kind_is_refused_and_left_untouched(tmp_path):
    (tmp_path / "photo.jpg").write_text("mine")
    for path, error, words in (
        (tmp_path, RunError, "not empty and holds no notes. Choose another --out"),
        (tmp_path / "photo.jpg", FileError, "must be a folder. Got a file"),
        (tmp_path / "photo.jpg" / "below", FileError, "Cannot write to"),
        (tmp_path / ("n" * 300), FileError, "too long"),
        (tmp_path / "nul\0", FileError, "Cannot write to"),
    ):
        with pytest.raises(error, match=words), Workspace.open(path, NOTES):
            pass
    assert [item.name for item in tmp_path.iterdir()] == ["photo.jpg"]


def test_leftovers_of_a_kill_are_swept_and_nothing_else(tmp_path):
    (tmp_path / "inner").mkdir()
    for folder in (tmp_path, tmp_path / "inner"):
        (folder / LEFT_BEHIND).write_text("half")
        (folder / "download.part").write_text("mine")
    (tmp_path / "notes.txt").write_text("")
    with Workspace.open(tmp_path, NOTES):
        left = {path.name for path in tmp_path.rglob("*.part")}
    assert left == {"download.part"}


def test_a_file_that_is_written_once_is_not_replaced(tmp_path):
    with Workspace.open(tmp_path, NOTES) as workspace:
        workspace.write("notes.txt", "first", once=True)
        with pytest.raises(FileError, match="exists"):
            workspace.write("notes.txt", "second", once=True)
        assert (tmp_path / "notes.txt").read_text() == "first"


@pytest.fixture
def whole(tmp_path):
    with Workspace.open(tmp_path, NOTES) as workspace:
        workspace.write("notes.txt", "a note")
        workspace.write("other.txt", "another")
        workspace.seal(["notes.txt", "other.txt", "missing.txt"], coming={"last.txt": "the end"})
        workspace.write("last.txt", "the end")
    return Workspace(tmp_path, NOTES)


def test_a_sealed_folder_is_verified(whole):
    assert whole.verify(FIX)
    whole.remove(MANIFEST)
    assert not whole.verify(FIX), "a folder of an older version has none"


@pytest.mark.parametrize("name", ["notes.txt", "other.txt", "last.txt"])
def test_a_file_that_changed_or_is_gone_is_refused(whole, name):
    (whole.path / name).write_text("A note")
    with pytest.raises(RunError, match=rf"{name} is damaged or of another folder.*{FIX}"):
        whole.verify(FIX)
    (whole.path / name).unlink()
    with pytest.raises(RunError, match=f"{name} is missing"):
        whole.verify(FIX)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"files": 3}', b'{"files": {"../x": "0"}}', b'{"format": 9, "files": {}}'],
)
def test_a_damaged_manifest_is_one_sentence(whole, content):
    (whole.path / MANIFEST).write_bytes(content)
    with pytest.raises(RunError, match=r"manifest\.json (is damaged|has format 9)"):
        whole.verify(FIX)


def test_every_flipped_bit_of_a_sealed_line_is_noticed(tmp_path):
    path, draw = tmp_path / "notes.jsonl", random.Random(0)  # noqa: S311 - no secret
    notes = [Note(text=f"note {number}", number=number / 7) for number in range(3)]
    write_json_lines(path, notes)
    content = path.read_bytes()
    assert read_json_lines(path, Note, fix=FIX) == notes
    for _ in range(400):
        place = draw.randrange(len(content) - 1)  # the last line break carries nothing
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(bytes(flipped))
        with pytest.raises(RunError, match=r"damaged|newer"):
            read_json_lines(path, Note, fix=FIX, newest=1)


def test_lines_end_at_a_line_feed_alone(tmp_path):
    path = tmp_path / "notes.jsonl"
    notes = [Note(text="one\u2028two\u0085three\x0bfour"), Note(text="\r")]
    write_json_lines(path, notes)
    assert read_json_lines(path, Note, fix=FIX) == notes
    write_json_lines(path, [])
    assert read_json_lines(path, Note, fix=FIX) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "null",
        '{"text": 3}',
        '{"text": "a", "more": 1}',
        '{"text": "a", "number": NaN}',
        '{"text": "a", "number": "1"}',
        '{"text": ' + 100_000 * "[" + 100_000 * "]" + "}",
        100_000 * '{"text":' + "1" + 100_000 * "}",
        "\xff\xfe",
    ],
    ids=range(10),
)
def test_what_is_damaged_or_typed_wrongly_is_one_sentence(tmp_path, content):
    path = tmp_path / "note.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(RunError, match=r"note\.json is damaged") as caught:
        read_json(path, Note, fix=FIX, newest=1)
    assert str(caught.value).endswith(FIX)
    assert len(str(caught.value)) < 1000


def test_what_is_newer_asks_for_an_upgrade(tmp_path):
    path = tmp_path / "note.json"
    write_json(path, {"format": 2, "text": "a"})
    with pytest.raises(RunError, match=r"format 2, newer than this version reads \(1\)"):
        read_json(path, Note, fix=FIX, newest=1)


def test_lines_of_older_versions_have_no_seal(tmp_path):
    path = tmp_path / "notes.jsonl"
    path.write_text('{"text":"a"}\n' + sealed(Note(text="b")))
    assert [note.text for note in read_json_lines(path, Note, fix=FIX)] == ["a", "b"]


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none"):
        with pytest.raises(RunError):
            read_json(path, Note, fix=FIX)
