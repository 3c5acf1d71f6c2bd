"""Files are written whole or not at all, and impossible paths get a sentence."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from aspect.data import files
from aspect.data.files import available_bytes, file_bytes, is_file, replacing
from aspect.errors import FileError


def write(path, content=b"new", **options):
    with replacing(path, **options) as file:
        file.write(content)


def test_content_appears_under_its_name_alone(tmp_path):
    path = tmp_path / "Füße und Spaces.npy"
    write(path)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileError, match=r"exists\. Pass --overwrite"):
        write(path, b"newer")
    assert path.read_bytes() == b"new"
    (tmp_path / "link").symlink_to(path)
    write(tmp_path / "link", b"newer", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == b"newer"


def test_a_file_that_another_process_wrote_meanwhile_is_kept(tmp_path):
    path = tmp_path / "mine.txt"

    def write_late():
        with replacing(path) as file:
            file.write(b"second")
            path.write_bytes(b"first")

    with pytest.raises(FileError, match=r"exists\. Pass --overwrite"):
        write_late()
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fault", [KeyboardInterrupt(), ValueError("bad")])
def test_interrupted_writing_leaves_the_old_file(tmp_path, fault):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_half():
        with replacing(path, overwrite=True) as file:
            file.write(b"half")
            raise fault

    with pytest.raises(type(fault)):
        write_half()
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_full_disk_leaves_the_old_file(tmp_path, limited_file_size):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with limited_file_size(1000), pytest.raises(FileError, match="larger than allowed here"):
        write(path, bytes(100_000), overwrite=True)
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_numpy_on_a_full_disk_is_noticed(tmp_path, limited_file_size):
    """Numbers that numpy writes past Python's buffer, and whose loss it does not report."""

    def save():
        with replacing(tmp_path / "z.npy") as file:
            np.save(file, np.ones(1000, dtype=np.float32))

    with limited_file_size(4096), pytest.raises(FileError, match="Cannot write"):
        save()
    assert list(tmp_path.iterdir()) == []


def test_what_the_system_refuses_is_said_in_words(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(FileError, match=r"Cannot write '.*file': the file system is read-only"):
        write(tmp_path / "file")


def test_impossible_places_to_write(tmp_path):
    (tmp_path / "plain").write_bytes(b"x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    places = {
        tmp_path / "missing" / "file": "no such file or folder",
        tmp_path / "plain" / "file": "not a folder",
        tmp_path / ("n" * 300): "too long",
        tmp_path / "loop": "form a loop",
        tmp_path / "nul\0byte": "NUL character",
    }
    for path, sentence in places.items():
        with pytest.raises(FileError, match=sentence):
            write(path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["loop", "plain"]


def test_impossible_places_to_read(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")  # reading it would wait for ever
    places = {
        tmp_path: "must be a file. Got a folder",
        tmp_path / "pipe": "must be a file. Got a pipe or device",
        tmp_path / "missing": "no such file or folder",
        tmp_path / ("n" * 300): "too long",
        tmp_path / "loop": "form a loop",
        tmp_path / "nul\0byte": "Cannot read",
    }
    for path, sentence in places.items():
        assert not is_file(path)
        with pytest.raises(FileError, match=sentence):
            file_bytes(path)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ({"memory.max": "1000\n", "memory.current": "300\n"}, 700),
        ({"memory.max": "1000\n", "memory.current": "1200\n"}, 0),
        ({"memory.max": "max\n", "memory.current": "300\n"}, 5000),
        (  # files that were read make room when it is needed
            {
                "memory.max": "1000\n",
                "memory.current": "900\n",
                "memory.stat": "anon 200\ninactive_anon 5\ninactive_file 600\n",
            },
            700,
        ),
    ],
)
def test_what_the_container_uses_already_is_not_available(tmp_path, monkeypatch, told, left):
    monkeypatch.setattr(files, "CGROUP", tmp_path)
    monkeypatch.setattr(files, "_free_memory", lambda: 5000)
    for name, text in told.items():
        (tmp_path / name).write_text(text)
    assert available_bytes() == left
