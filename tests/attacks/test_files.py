"""Files, folders and patterns."""

import pytest

from aspect.errors import FileError
from aspect.attacks.files import files_at


@pytest.fixture
def folder(tmp_path):
    for name in ("b-1.safetensors", "a-0.safetensors", "a-1.safetensors", "notes.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "inner.safetensors").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("place", "names"),
    [
        ("notes.txt", ["notes.txt"]),
        ("", ["a-0.safetensors", "a-1.safetensors", "b-1.safetensors"]),
        ("a-*", ["a-0.safetensors", "a-1.safetensors"]),
        ("?-[1-9].safetensors", ["a-1.safetensors", "b-1.safetensors"]),
    ],
)
def test_what_a_place_stands_for(folder, place, names):
    assert [path.name for path in files_at(folder / place)] == names


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("missing", "no perturbation file or folder at"),
        ("missing/*", "no perturbation file or folder at"),
        ("c-*", "No file fits the pattern"),
        ("inner.safetensors", "holds no perturbation files"),
        ("nul\0", "no perturbation file or folder at"),
    ],
)
def test_places_without_files(folder, place, words):
    with pytest.raises(FileError, match=words):
        files_at(folder / place)
