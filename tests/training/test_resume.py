"""Kill and resume: whatever the moment, the end is the same as without the kill, byte for byte."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

PLAIN = {
    "epochs": 40,
    "width": 8,
    "order": 2,
    "gate_width": 8,
    "batch_norm": False,
    "dropout": 0.0,
    "input_dropout": 0.0,
}
NOISY = {**PLAIN, "batch_norm": True, "dropout": 0.4, "input_dropout": 0.4, "views": "both"}
STOPPING = {**PLAIN, "epochs": 400, "patience": 8, "edge_drop": 0.6, "learning_rate": 0.01}

RESULTS = (
    "model.safetensors",
    "embeddings.npy",
    "metrics.jsonl",
    "manifest.json",
    "record.json",
    "config.yaml",
)
PACE = 0.008  # seconds that a child sleeps after each epoch, so that kills fall into training


@pytest.fixture(scope="module", params=["plain", "noisy", "stopping"])
def uninterrupted(request, server, tmp_path_factory):
    """Settings and the folder of a run that nobody disturbed."""
    settings = {"plain": PLAIN, "noisy": NOISY, "stopping": STOPPING}[request.param]
    out = tmp_path_factory.mktemp("whole") / "run"
    assert server.run("train", out=out, settings=settings).status == 0
    return settings, out


@pytest.fixture(scope="module")
def plain_run(server, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    assert server.run("train", out=out, settings=PLAIN).status == 0
    return out


def logged_epochs(out: Path) -> int:
    log = out / "metrics.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def assert_same_run(actual: Path, expected: Path) -> None:
    names = {item.name for item in actual.iterdir()}
    assert names == {*RESULTS, ".lock"}, "no checkpoint and nothing half-written may stay"
    for name in RESULTS:
        assert (actual / name).read_bytes() == (expected / name).read_bytes(), name


def kill_when(child, out: Path, epoch: int, delay: float) -> int:
    """Kill once so many epochs are logged and a little later; return the epoch reached."""
    deadline = time.monotonic() + 30
    while logged_epochs(out) < epoch:
        assert time.monotonic() < deadline, f"the child does not reach epoch {epoch}"
        time.sleep(0.001)
    time.sleep(delay)
    child.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    return logged_epochs(out)


def test_three_kills(server, uninterrupted, tmp_path):
    settings, expected = uninterrupted
    out = tmp_path / "run"
    draw = random.Random(str(settings))  # noqa: S311 - no secret
    last = logged_epochs(expected)
    reached = []
    # The last kill comes right after the last checkpoint: with patience, after the best epoch.
    after_last_checkpoint = (last - 2) // 5 * 5 + 1
    for epoch in (draw.randrange(2, 9), draw.randrange(10, 17), after_last_checkpoint):
        child = server.start(
            "train", out=out, settings=settings, seconds_per_epoch=PACE, hold_at=last - 1
        )
        reached.append(kill_when(child, out, epoch, draw.uniform(0, PACE)))
    assert len(set(reached)) == 3
    assert max(reached) < last
    assert server.run("train", out=out, settings=settings).status == 0
    assert_same_run(out, expected)


def test_the_stopping_variant_stops_early_between_checkpoints(uninterrupted):
    settings, expected = uninterrupted
    record = json.loads((expected / "record.json").read_text())
    assert record["stopped_early"] == ("patience" in settings)
    assert record["epochs"] == logged_epochs(expected) <= settings["epochs"]


@pytest.mark.slow
def test_twenty_kills_at_any_time(server, uninterrupted, tmp_path):
    settings, expected = uninterrupted
    draw = random.Random(20)  # noqa: S311 - no secret
    started = time.monotonic()
    paced = server.run("train", out=tmp_path / "paced", settings=settings, seconds_per_epoch=PACE)
    whole = time.monotonic() - started
    assert paced.status == 0
    reached, completed = [], 0
    while len(reached) < 20 or completed == 0:
        out = tmp_path / f"run-{completed}"
        child = server.start("train", out=out, settings=settings, seconds_per_epoch=PACE)
        time.sleep(draw.uniform(0, whole))
        with suppress(ProcessLookupError):  # the run may be over already
            child.signal(signal.SIGKILL)
        if child.wait() == 0 or (out / "record.json").exists():
            assert server.run("train", out=out, settings=settings).status == 0
            assert_same_run(out, expected)
            completed += 1
        else:
            reached.append(logged_epochs(out))
    assert len(set(reached)) >= 8
    assert any(epoch % 5 for epoch in reached), "some kill must leave the log ahead"


@pytest.mark.parametrize("moment", ["half-written", "written", "renamed"])
def test_killed_while_a_checkpoint_is_written(server, plain_run, tmp_path, moment):
    out = tmp_path / "run"
    child = server.run("train", out=out, settings=PLAIN, die=moment, die_at=3)
    assert child.status == -signal.SIGKILL
    assert logged_epochs(out) == 15
    left_behind = list(out.glob(".*.part"))
    assert len(left_behind) == (0 if moment == "renamed" else 1)
    assert server.run("train", out=out, settings=PLAIN).status == 0
    assert_same_run(out, plain_run)


def test_killed_while_the_first_checkpoint_is_written(server, plain_run, tmp_path):
    out = tmp_path / "run"
    child = server.run("train", out=out, settings=PLAIN, die="written", die_at=1)
    assert child.status == -signal.SIGKILL
    assert not (out / "checkpoint.safetensors").exists()
    assert server.run("train", out=out, settings=PLAIN).status == 0
    assert_same_run(out, plain_run)


def test_killed_while_the_model_is_written(server, plain_run, tmp_path):
    out = tmp_path / "run"
    writes_before = PLAIN["epochs"] // 5
    child = server.run("train", out=out, settings=PLAIN, die="written", die_at=writes_before + 1)
    assert child.status == -signal.SIGKILL
    assert logged_epochs(out) == PLAIN["epochs"]
    assert server.run("train", out=out, settings=PLAIN).status == 0
    assert_same_run(out, plain_run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_flushes_a_checkpoint_and_can_be_resumed(server, plain_run, tmp_path, number):
    out = tmp_path / "run"
    child = server.start("train", out=out, settings=PLAIN, seconds_per_epoch=4 * PACE)
    deadline = time.monotonic() + 30
    while logged_epochs(out) < 12:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    child.signal(number)
    assert child.wait() == 130
    reached = logged_epochs(out)
    assert 12 <= reached < 40
    last_line = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert last_line["epoch"] == reached
    # Cut the log to nothing beyond the checkpoint: it is already there, so resuming keeps it all.
    before = (out / "metrics.jsonl").read_bytes()
    child = server.start("train", out=out, settings=PLAIN, hold_at=reached + 1)
    kill_when(child, out, reached + 1, 0)
    assert (out / "metrics.jsonl").read_bytes().startswith(before)
    assert server.run("train", out=out, settings=PLAIN).status == 0
    assert_same_run(out, plain_run)


def test_a_complete_run_is_left_alone(server, plain_run, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(plain_run, out)
    times = {item.name: item.stat().st_mtime_ns for item in out.iterdir() if item.name != ".lock"}
    assert server.run("train", out=out, settings=PLAIN).status == 0
    assert times == {name: (out / name).stat().st_mtime_ns for name in times}
