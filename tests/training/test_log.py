from __future__ import annotations

import json
import sys

import pytest

from aspect.errors import FileError, RunError
from aspect.training import log
from aspect.training.log import JsonLinesLog, TensorBoardLog


def write_epochs(path, first, last, keep=0):
    lines = JsonLinesLog(path, keep_epochs=keep)
    for epoch in range(first, last + 1):
        lines.write(epoch, {"loss": 1 / epoch, "gate_mean": 0.5})
    lines.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.jsonl"


def test_one_line_an_epoch_reads_back_exactly(path):
    write_epochs(path, 1, 7)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"epoch": epoch, "loss": 1 / epoch, "gate_mean": 0.5} for epoch in range(1, 8)]


def test_what_is_no_number_becomes_null_and_the_line_stays_json(path):
    lines = JsonLinesLog(path, keep_epochs=0)
    lines.write(1, {"a": float("nan"), "b": float("-inf"), "c": 2.0})
    lines.close()
    assert path.read_text() == '{"epoch": 1, "a": null, "b": null, "c": 2.0}\n'


def test_lines_beyond_the_checkpoint_are_cut_off(path):
    write_epochs(path, 1, 9)
    whole = path.read_bytes()
    write_epochs(path, 6, 9, keep=5)
    assert path.read_bytes() == whole


def test_a_line_in_flight_is_cut_off(path):
    write_epochs(path, 1, 5)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"epoch": 6, "lo')
    JsonLinesLog(path, keep_epochs=5).close()
    assert path.read_bytes() == whole


def test_without_a_checkpoint_the_log_begins_anew(path):
    path.write_bytes(b"anything\nat all")
    JsonLinesLog(path, keep_epochs=0).close()
    assert path.read_bytes() == b""


def test_the_kept_lines_are_never_off_the_disk(path, monkeypatch):
    """The file is cut, not rewritten: a kill at any moment of opening finds every kept line."""
    write_epochs(path, 1, 9)
    kept = b"".join(path.read_bytes().splitlines(keepends=True)[:5])
    seen = []
    real = log._length_of

    def look(content, epochs, where):
        seen.append(path.read_bytes())
        return real(content, epochs, where)

    monkeypatch.setattr(log, "_length_of", look)
    JsonLinesLog(path, keep_epochs=5).close()
    assert len(seen) == 1
    assert all(content.startswith(kept) for content in [*seen, path.read_bytes()])


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        (b"", 1),
        (b'{"epoch": 1}\n{"epoch": 2}\n', 3),
        (b'{"epoch": 1}\n{"epoch": 2}\n{"epoch": 3}', 3),
        (b'{"epoch": 1}\n{"epoch": 3}\n{"epoch": 4}\n', 2),
        (b'{"epoch": 1}\n\0\0\0\0\n{"epoch": 3}\n', 2),
        (b'[1]\n{"epoch": 2}\n{"epoch": 3}\n', 1),
        (b'{"epoch": 1}\n{"loss": 2}\n{"epoch": 3}\n', 2),
    ],
)
def test_a_log_behind_its_checkpoint_is_refused(path, content, missing):
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"lacks the line of epoch {missing}, .* of epoch 3\. Pass"):
        JsonLinesLog(path, keep_epochs=3)
    assert path.read_bytes() == content


def test_a_log_that_cannot_be_written_is_said_so(tmp_path):
    with pytest.raises(FileError, match=r"Cannot write .*nowhere.*no such file or folder"):
        JsonLinesLog(tmp_path / "nowhere" / "metrics.jsonl", keep_epochs=0)


def test_a_full_disk_is_one_clear_error(server, tmp_path):
    child = server.run("log_limited", out=tmp_path / "run", limit=2000)
    assert child.status == 2, child.words
    assert child.words.startswith("FileError: Cannot write ")
    assert "larger than allowed" in child.words
    log_bytes = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    assert len(log_bytes) <= 2000


# TensorBoard


def points(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(name)]


def test_tensorboard_reads_what_was_written(tmp_path):
    board = TensorBoardLog(tmp_path, keep_epochs=0)
    for epoch in range(1, 4):
        board.write(epoch, {"loss": 1 / 2**epoch, "gate_mean": 0.25})
    board.close()
    assert points(tmp_path, "loss") == [(1, 0.5), (2, 0.25), (3, 0.125)]
    assert points(tmp_path, "gate_mean") == [(1, 0.25), (2, 0.25), (3, 0.25)]


def test_tensorboard_forgets_what_lies_beyond_the_checkpoint(tmp_path):
    """Values that only some epochs have are resumed like all others."""
    for keep, epochs in ((0, range(1, 6)), (2, range(3, 7))):
        board = TensorBoardLog(tmp_path, keep_epochs=keep)
        for epoch in epochs:
            odd = {"search": float(keep)} if epoch % 2 else {}
            board.write(epoch, {"loss": float(10 * keep + epoch), **odd})
        board.sync()
        board.close()
    assert points(tmp_path, "loss") == [(1, 1), (2, 2), (3, 23), (4, 24), (5, 25), (6, 26)]
    assert points(tmp_path, "search") == [(1, 0), (3, 2), (5, 2)]


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(FileError, match=r"pip install 'aspect-gcl\[tensorboard\]'"):
        TensorBoardLog(tmp_path, keep_epochs=0)
