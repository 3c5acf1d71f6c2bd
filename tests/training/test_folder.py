from __future__ import annotations

import json
import logging
import math
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import CheckpointError, FileError, RunError, SettingsError, TrainingError
from aspect.training import folder as folder_module
from aspect.training import trainer
from aspect.training.folder import RunFolder, Start, read_start
from aspect.training.trainer import train
from aspect.workspace import Workspace, write_json, write_text
from training.toys import Toy, tiny_graph

CONFIG = "method: toy\nseed: 0\n"
BEGUN = Start(settings_from="defaults", data_dir="/data", device="cpu")
MOVED = BEGUN.model_copy(update={"device": "cuda"})


def run_into(path, epochs=12, *, stop_at=None, **options):
    """Train a toy into a folder; `stop_at` presses Ctrl-C during that epoch."""
    options = {"checkpoint_every": 5, **options}
    with RunFolder.open(path, CONFIG, **options) as folder:
        if stop_at is not None:
            folder.on_epoch = lambda report: press_ctrl_c() if report.epoch == stop_at else None
        method = Toy(epochs=epochs)
        train(method, tiny_graph(), seed=0, recorder=folder)
        write_text(path / "model.safetensors", "a model")
        folder.complete({"epochs": epochs})
    return method


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def names(path):
    return {item.name for item in path.iterdir()}


def epoch_of_checkpoint(path):
    return read_tensors(path / "checkpoint.safetensors")[1]["state"]["epoch"]


def test_a_run_that_is_ahead_stops_where_its_state_is(tmp_path, monkeypatch):
    """Epochs that a GPU is not waited for are reported together: the last has the state."""
    monkeypatch.setattr(trainer, "AHEAD_ON", ("cpu",))
    monkeypatch.setattr(trainer, "SECONDS_AHEAD", math.inf)
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path / "run", stop_at=7)
    assert epoch_of_checkpoint(tmp_path / "run") == 10
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 11))
    stopped = run_into(tmp_path / "run", resume=True)
    whole = run_into(tmp_path / "whole")
    assert torch.equal(stopped.weights, whole.weights)


# What a folder may be


def test_a_new_folder_is_made_with_its_parents(tmp_path):
    path = tmp_path / "a b" / "ü" / "run"
    run_into(path)
    assert names(path) == {
        ".lock",
        "config.yaml",
        "manifest.json",
        "metrics.jsonl",
        "model.safetensors",
        "record.json",
    }
    assert (path / "config.yaml").read_text() == CONFIG
    assert json.loads((path / "record.json").read_text()) == {"epochs": 12}


@pytest.mark.parametrize("how", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize("foreign", [["config.yaml", "main.py"], ["metrics.jsonl"]])
def test_a_folder_of_another_kind_is_refused_untouched(tmp_path, foreign, how):
    for name in foreign:
        (tmp_path / name).write_text("mine")
    with (
        pytest.raises(
            RunError, match=r"is not empty and not a run's folder\. Choose another --out"
        ),
        RunFolder.open(tmp_path, CONFIG, **how),
    ):
        pass
    assert names(tmp_path) == set(foreign)
    assert {(tmp_path / name).read_text() for name in foreign} == {"mine"}


def test_a_folder_with_a_run_asks_what_to_do(tmp_path):
    run_into(tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match=r"holds a run\. Pass --resume .* or --overwrite"):
        run_into(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_file_in_the_place_of_the_folder_is_said_so(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(FileError, match=r"run must be a folder\. Got a file"):
        run_into(tmp_path / "run")
    with pytest.raises(FileError, match=r"Cannot write to .*not a folder"):
        run_into(tmp_path / "run" / "deeper")


@pytest.mark.parametrize("name", ["n" * 300, "nul\0"])
def test_an_impossible_name_is_said_so(tmp_path, name):
    with pytest.raises(FileError, match="Cannot write to"):
        run_into(tmp_path / name)


def test_a_read_only_folder_is_said_so(server):
    with tempfile.TemporaryDirectory() as place:  # tmp_path is closed to other users
        path = Path(place)
        path.chmod(0o555)
        child = server.run("open_without_rights", out=path)
        assert child.status == 2, child.words
        assert child.words == f"FileError: Cannot write to {path}: permission is denied."
        assert names(path) == set()
        path.chmod(0o700)


def test_checkpoints_every_zero_epochs_are_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"checkpoint_every must be at least 1\. Got 0"):
        run_into(tmp_path / "run", checkpoint_every=0)
    assert not (tmp_path / "run").exists()


def test_tensorboard_that_is_missing_is_refused_before_the_folder_is_touched(tmp_path, monkeypatch):
    run_into(tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    for name in ("run", "new"):
        with pytest.raises(FileError, match=r"not installed.*aspect-gcl\[tensorboard\]"):
            run_into(tmp_path / name, overwrite=True, tensorboard=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert names(tmp_path) == {"run"}


# Overwriting


def test_overwriting_removes_the_run_and_nothing_else(tmp_path):
    run_into(tmp_path, tensorboard=True)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "figures").mkdir()
    with RunFolder.open(tmp_path, "seed: 1\n", overwrite=True) as folder:
        assert not folder.is_complete
        assert names(tmp_path) == {".lock", "config.yaml", "metrics.jsonl", "notes.txt", "figures"}
        assert (tmp_path / "config.yaml").read_text() == "seed: 1\n"
        assert (tmp_path / "metrics.jsonl").read_bytes() == b""
        assert folder.latest() is None


def test_a_linked_event_folder_is_unlinked_and_its_target_kept(tmp_path):
    run_into(tmp_path / "run")
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "precious").write_text("mine")
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "events")
    run_into(tmp_path / "run", overwrite=True)
    assert names(tmp_path / "events") == {"precious"}
    assert "tensorboard" not in names(tmp_path / "run")


@pytest.mark.parametrize("moment", range(9))
def test_an_overwrite_cut_short_can_be_repeated(tmp_path, moment, monkeypatch):
    """Whatever was removed when the power went, the folder is still a run's."""
    run_into(tmp_path, tensorboard=True, start=BEGUN)
    (tmp_path / "notes.txt").write_text("mine")
    steps = 0

    def counted(real):
        def step(*args, **options):
            nonlocal steps
            steps += 1
            if steps > moment:
                raise SystemExit
            return real(*args, **options)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "unlink", counted(type(tmp_path).unlink))
        patch.setattr(folder_module.shutil, "rmtree", counted(folder_module.shutil.rmtree))
        patch.setattr(Workspace, "write", counted(Workspace.write))
        with pytest.raises(SystemExit):
            run_into(tmp_path, overwrite=True, start=MOVED)
    run_into(tmp_path, overwrite=True, start=MOVED)
    assert "record.json" in names(tmp_path)
    assert read_start(tmp_path) == MOVED


# Resuming


def test_resuming_an_empty_folder_begins(tmp_path):
    run_into(tmp_path, resume=True)
    assert (tmp_path / "record.json").exists()


def test_resuming_with_other_settings_is_refused(tmp_path):
    run_into(tmp_path)
    with (
        pytest.raises(
            RunError,
            match=r"other settings: it has nothing, and was given epochs: 3\. "
            r"Resume with its own .*config\.yaml",
        ),
        RunFolder.open(tmp_path, CONFIG + "epochs: 3\n", resume=True),
    ):
        pass


def test_how_it_was_begun_is_kept_and_does_not_make_another_run(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, stop_at=7, start=BEGUN)
    assert read_start(tmp_path) == BEGUN
    run_into(tmp_path, resume=True, start=MOVED)
    assert read_start(tmp_path) == MOVED
    with RunFolder.open(tmp_path, CONFIG, resume=True, start=BEGUN) as folder:
        assert folder.is_complete
    assert read_start(tmp_path) == MOVED


@pytest.mark.parametrize("content", [b"", b'{"device": 1}'])
def test_a_damaged_start_is_refused_and_says_what_helps(tmp_path, content):
    (tmp_path / "start.json").write_bytes(content)
    with pytest.raises(RunError, match=r"start\.json is damaged .* Remove it, and give --data-dir"):
        read_start(tmp_path)


def test_settings_are_compared_to_the_last_byte(tmp_path):
    run_into(tmp_path)
    (tmp_path / "config.yaml").write_bytes(CONFIG.replace("\n", "\r\n").encode())
    with pytest.raises(RunError, match="other settings"):
        run_into(tmp_path, resume=True)


def test_ctrl_c_ends_the_epoch_writes_a_checkpoint_and_can_be_resumed(tmp_path, caplog):
    whole = run_into(tmp_path / "whole")
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        run_into(tmp_path / "run", stop_at=7)
    assert "Stopped after epoch 7; the run can be resumed." in caplog.text
    assert epoch_of_checkpoint(tmp_path / "run") == 7
    assert read_start(tmp_path / "run") is None  # it was never to tell how it began
    resumed = run_into(tmp_path / "run", resume=True)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (
        tmp_path / "whole" / "metrics.jsonl"
    ).read_bytes()


def test_ctrl_c_in_the_last_epoch_can_be_resumed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, stop_at=12)
    assert epoch_of_checkpoint(tmp_path) == 12
    method = run_into(tmp_path, resume=True)
    assert int(method.last_epoch) == 12


def press_twice(path):
    with RunFolder.open(path, CONFIG) as folder:
        folder.latest()
        press_ctrl_c()
        press_ctrl_c()
        pytest.fail("the second Ctrl-C was lost")


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        press_twice(tmp_path)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def press_outside(path, moment):
    with RunFolder.open(path, CONFIG) as folder:
        if moment == "after":
            train(Toy(epochs=1), tiny_graph(), seed=0, recorder=folder)
        press_ctrl_c()
        pytest.fail("Ctrl-C was lost")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_ctrl_c_outside_of_training_stops_at_once(tmp_path, moment):
    with pytest.raises(KeyboardInterrupt):
        press_outside(tmp_path, moment)


def test_signals_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with RunFolder.open(tmp_path, CONFIG):
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_an_ignored_signal_stays_ignored(tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with RunFolder.open(tmp_path, CONFIG):
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_run_in_another_thread_leaves_signals_alone(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    during = []

    def work():
        with RunFolder.open(tmp_path, CONFIG):
            during.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert during == [before]


def test_the_last_good_checkpoint_remains_when_the_loss_is_no_number(tmp_path):
    class Breaking(Toy):
        def loss_terms(self, graph, step):
            terms = super().loss_terms(graph, step)
            return terms if step.epoch < 13 else {"fit": terms["fit"] * float("nan")}

    with (
        pytest.raises(TrainingError, match=r"at epoch 13 \(term: fit\)"),
        RunFolder.open(tmp_path, CONFIG, checkpoint_every=5) as folder,
    ):
        train(Breaking(epochs=20), tiny_graph(), seed=0, recorder=folder)
    tensors, manifest = read_tensors(tmp_path / "checkpoint.safetensors")
    assert manifest["state"]["epoch"] == 10
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 12


def test_a_damaged_checkpoint_is_refused_and_says_what_helps(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, stop_at=7)
    checkpoint = tmp_path / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    log = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match=r"is damaged .* Pass --overwrite to begin anew"):
        run_into(tmp_path, resume=True)
    assert (tmp_path / "metrics.jsonl").read_bytes() == log
    run_into(tmp_path, overwrite=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config": "other: 1\n"}, "belongs to a run with other settings"),
        ({"version": "9.0"}, "9.0"),
    ],
)
def test_a_checkpoint_of_another_run_or_version_is_refused(tmp_path, change, words):
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, stop_at=7)
    tensors, manifest = read_tensors(tmp_path / "checkpoint.safetensors")
    write_tensors(tmp_path / "checkpoint.safetensors", tensors, {**manifest, **change})
    with pytest.raises(CheckpointError, match=words):
        run_into(tmp_path, resume=True)


def test_a_lost_log_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, stop_at=7)
    (tmp_path / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(
        RunError, match="lacks the line of epoch 1, but the checkpoint is of epoch 7"
    ):
        run_into(tmp_path, resume=True)


def test_the_log_is_on_the_disk_before_the_checkpoint(tmp_path, monkeypatch):
    order = []
    real_write, real_sync = folder_module.write_tensors, folder_module.JsonLinesLog.sync
    monkeypatch.setattr(
        folder_module, "write_tensors", lambda *a: (order.append("checkpoint"), real_write(*a))
    )
    monkeypatch.setattr(
        folder_module.JsonLinesLog, "sync", lambda log: (order.append("log"), real_sync(log))
    )
    run_into(tmp_path)
    assert order == ["log", "checkpoint", "log", "checkpoint", "log"]


def test_a_folder_with_nothing_but_leftovers_is_empty(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / ".0123456789abcdef.part").write_bytes(b"half a config")
    run_into(tmp_path)
    assert ".0123456789abcdef.part" not in names(tmp_path)


# Complete


def test_a_complete_run_is_not_trained_again(tmp_path):
    run_into(tmp_path)
    log = (tmp_path / "metrics.jsonl").read_bytes()
    with RunFolder.open(tmp_path, CONFIG, resume=True) as folder:
        assert folder.is_complete
        with pytest.raises(RunError, match=r"is complete\. Pass --overwrite"):
            folder.latest()
    assert (tmp_path / "metrics.jsonl").read_bytes() == log


def test_a_checkpoint_that_outlived_its_run_is_removed(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path, stop_at=7)
    write_json(tmp_path / "record.json", {})
    with RunFolder.open(tmp_path, CONFIG, resume=True) as folder:
        assert folder.is_complete
    assert "checkpoint.safetensors" not in names(tmp_path)


def test_tensorboard_is_written_where_it_is_wanted(tmp_path):
    run_into(tmp_path / "without")
    run_into(tmp_path / "with", tensorboard=True)
    assert "tensorboard" not in names(tmp_path / "without")
    assert len(list((tmp_path / "with" / "tensorboard").glob("events.*"))) == 1


# The lock


def wait_for(path):
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_another_processs_lock_is_heeded_and_freed_by_its_death(server, tmp_path):
    out = tmp_path / "run"
    child = server.start("hold", out=out)
    wait_for(out / "metrics.jsonl")
    try:
        before = names(out)
        with (
            pytest.raises(RunError, match="Another process is using"),
            RunFolder.open(out, "held: true\n", resume=True),
        ):
            pass
        assert names(out) == before
    finally:
        child.signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert ".lock" in names(out)
    with RunFolder.open(out, "held: true\n", resume=True) as folder:
        assert not folder.is_complete


def test_lock_and_log_are_let_go_after_an_error(tmp_path):
    class Faulty(Toy):
        def loss_terms(self, graph, step):  # noqa: ARG002
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"), RunFolder.open(tmp_path, CONFIG) as folder:
        train(Faulty(epochs=1), tiny_graph(), seed=0, recorder=folder)
    assert folder.logs == []
    run_into(tmp_path, resume=True)
