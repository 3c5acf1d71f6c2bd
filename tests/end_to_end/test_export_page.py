"""Every command and every line of Python of docs/export.md runs as it stands there."""

import re
import shlex
from pathlib import Path

import pyarrow.parquet
import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def write_files(folder):
    """The two files that the page shows."""
    files = re.findall(r"`(\w+\.csv)`:\n\n```text\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(files) == 2
    for name, content in files:
        (folder / name).write_text(content)


def test_the_page_runs(cli, monkeypatch):
    write_files(cli.cwd)
    lines = [
        line[2:] for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "
    ]
    assert len(lines) >= 8
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "aspect"
        told = cli(*words)
        assert told.code == 0, (line, told.err)
    monkeypatch.chdir(cli.cwd)
    scope = {}
    for block in blocks("python"):
        exec(block, scope)  # noqa: S102 - our own page
    assert scope["z"].shape == (12, 32 + 6)  # two bands, skip connection
    assert list(scope["z"].columns[:2]) == ["z0", "z1"]
    assert scope["gate"].between(0, 1).all()
    assert len(scope["nearest"].rows) == 3
    assert pyarrow.parquet.read_table(cli.cwd / "z.gate.parquet").column_names == ["id", "gate"]


def test_what_the_page_says_of_training_and_embedding_is_what_is_said(cli):
    write_files(cli.cwd)
    (line, *said), (*_, embed, wrote) = (block.splitlines() for block in blocks("console")[:2])
    told = cli(*shlex.split(line[2:])[1:])
    for sentence in said:
        assert sentence.partition(" in ")[0] in told.err + told.out
    notes = [sentence for sentence in told.err.splitlines() if sentence.startswith("Note: ")]
    notes = [note for note in notes if "epochs will take" not in note]  # on a busy machine
    assert notes == [sentence for sentence in said if sentence.startswith("Note: ")]
    written = cli(*shlex.split(embed[2:])[1:]).out
    without_numbers, expected = (re.sub(r"0\.\d+", "", text) for text in (written, wrote))
    assert without_numbers == f"{expected}\n"


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npy", ".vec", ".txt"])
def test_the_page_names_every_ending(ending):
    assert f"`{ending}`" in PAGE
