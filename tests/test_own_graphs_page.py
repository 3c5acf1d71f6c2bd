"""What docs/own_graphs.md shows works as it stands there."""

import re
import shlex
from pathlib import Path

import pytest

from aspect.cli.main import run
from aspect.data import encoder

PAGE = (Path(__file__).parents[1] / "docs" / "own_graphs.md").read_text(encoding="utf-8")
TINY = ["--set", "epochs=2", "--set", "width=8"]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The files that the page names."""
    monkeypatch.chdir(tmp_path)
    for prefix, start, count in (("", 0, 30), ("other_", 50, 12), ("new_", 90, 5)):
        names = [f"n{start + k}" for k in range(count)]
        rows = [
            f"{name},Name {k},{30_000 + 997 * (k % 7)},{'ab'[k % 2]}"
            for k, name in enumerate(names)
        ]
        header = "id,name,income,group"
        (tmp_path / f"{prefix}nodes.csv").write_text("\n".join([header, *rows]) + "\n")
        known = 30 if prefix == "new_" else 0
        ends = [
            (name, f"n{k}" if known else names[(k + 1) % count]) for k, name in enumerate(names)
        ]
        edges = "".join(f"{a},{b}\n" for a, b in ends)
        (tmp_path / f"{prefix}edges.csv").write_text(f"source,target\n{edges}")
    return tmp_path


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_command_runs(tables):
    for line in "".join(blocks("console")).splitlines():
        _, name, *words = shlex.split(line)
        assert run([name, *words, *(TINY if name == "train" else [])]) == 0, line
    assert (tables / "new.parquet").is_file()


@pytest.mark.usefixtures("tables")
def test_the_python_example_runs():
    (code,) = blocks("python")
    variables = {}
    exec(compile(code, "own_graphs.md", "exec"), variables)  # noqa: S102 - our own text
    assert variables["embeddings"].shape[0] == 12


def test_the_numbers_of_the_page_are_those_of_the_code():
    for number, words in (
        (encoder.MOST_VALUES, "text with at most {} values"),
        (encoder.HASHED_COLUMNS, "hashed into {} features |"),
        (encoder.WORD_COLUMNS, "words hashed into {} features"),
        (encoder.BAG_COLUMNS, "at least {} columns"),
        (int(100 * encoder.DOMINANT), "more than {}% of the mean row size"),
    ):
        assert words.format(number) in PAGE
