"""What happens to a run from outside: a full disk, Ctrl-C, a second process, odd paths."""

import importlib
import json
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from aspect import mixed_graph
from aspect.data.source import GraphSource
from aspect.errors import FileError, RunError

from .conftest import DEADLINE_SECONDS, TINY, command, environment, wait_for

LONG = ["--set", "epochs=200", "--set", "width=8", "--set", "gate_width=4", "--set", "dropout=0.1"]


def at_most(num_bytes):
    """To be called in a child: files beyond so many bytes fail, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


@pytest.fixture
def running(inputs, tmp_path):
    """A training that has done some epochs and is far from its end; its folder is `run`."""
    importlib.import_module("aspect.experiment.trained")  # or it is done before a test sees it
    process = subprocess.Popen(
        command("train", *inputs, *LONG, "--out", "run", "--checkpoint-every", 1000),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        metrics = tmp_path / "run" / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 3, process)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_interrupted_refused_resumed_and_equal(running, cli, inputs, monkeypatch):
    cli("train", *inputs, *LONG, "--out", "run", "--resume").refused("Another process", "run")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=DEADLINE_SECONDS)
    assert running.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    assert err.splitlines()[-1].endswith("aspect train --out run --resume")
    assert (cli.cwd / "run" / "checkpoint.safetensors").exists()
    assert not (cli.cwd / "run" / "record.json").exists()
    assert cli("train", "--out", "run", "--resume", "--json").json["epochs"] == 200
    (cli.cwd / "whole").mkdir()
    monkeypatch.chdir(cli.cwd / "whole")  # there under the same name, which the record holds
    assert cli("train", *inputs, *LONG, "--out", "run").code == 0
    resumed, whole = cli.cwd / "run", cli.cwd / "whole" / "run"
    assert {path.name for path in resumed.iterdir()} == {path.name for path in whole.iterdir()}
    for path in resumed.iterdir():
        if path.name not in ("record.json", "manifest.json"):  # which hold the time
            assert path.read_bytes() == (whole / path.name).read_bytes(), path.name
    records = [json.loads((path / "record.json").read_text()) for path in (resumed, whole)]
    assert all(record.pop("seconds") > 0 for record in records)
    assert records[0] == records[1]
    assert records[0]["settings_from"].startswith("defaults, epochs=200")


@pytest.fixture
def stopped(trained, tmp_path):
    """A run that was stopped before its first checkpoint."""
    path = Path(shutil.copytree(trained, tmp_path / "stopped"))
    (path / "record.json").unlink()
    return path


def test_a_resumed_run_knows_where_its_data_lies(cli, monkeypatch):
    asked = []

    def read(source, data_dir=None):
        asked.append((source.graph, data_dir))
        return mixed_graph(num_nodes=40, num_features=4)

    monkeypatch.setattr(GraphSource, "read", read)
    begin = ["train", "texas", "--config", "defaults", *TINY, "--out", "run", "--data-dir", "data"]
    record = cli(*begin, "--json").json
    (cli.cwd / "run" / "record.json").unlink()
    monkeypatch.chdir(cli.cwd.parent)
    again = cli("train", "--out", cli.cwd / "run", "--resume", "--json").json
    assert asked == [("texas", "data"), ("texas", str(cli.cwd / "data"))]
    assert again["graph"] == record["graph"]
    assert again["settings_from"] == record["settings_from"]
    (cli.cwd / "run" / "record.json").unlink()
    moved = ["train", "--out", cli.cwd / "run", "--resume", "--data-dir", cli.cwd / "moved"]
    assert cli(*moved, "--json").json["graph"]["data_dir"] == str(cli.cwd / "moved")
    config = ["train", "--config", cli.cwd / "run" / "config.yaml", "--out", cli.cwd / "new"]
    assert cli(*config, "--json").json["graph"]["data_dir"] is None


def test_a_resumed_run_stays_on_its_kind_of_device(cli, stopped, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    start = json.loads((stopped / "start.json").read_text())
    assert start["device"] in ("cpu", "cuda")
    (stopped / "start.json").write_text(json.dumps({**start, "device": "cuda"}))
    before = {path: path.read_bytes() for path in stopped.iterdir()}
    told = cli("train", "--out", stopped, "--resume")
    told.refused("began on cuda, which is not there", "--device cpu")
    assert {path: path.read_bytes() for path in stopped.iterdir()} == before
    resume = ["train", "--out", stopped, "--resume", "--json"]
    assert cli(*resume, "--device", "cpu").json["device"] == "cpu"
    assert json.loads((stopped / "start.json").read_text())["device"] == "cpu"


def test_a_complete_run_needs_no_device(cli, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    path = Path(shutil.copytree(trained, tmp_path / "complete"))
    (path / "start.json").write_text(json.dumps({"device": "cuda"}))
    (path / "manifest.json").unlink()
    assert cli("train", "--out", path, "--resume", "--json").json["epochs"] == 2


def test_a_run_that_began_without_a_gpu_does_not_move_to_one(cli, stopped, monkeypatch):
    given = Mock(side_effect=RunError("seen"))
    monkeypatch.setattr("aspect.experiment.trained.Embedder", given)
    start = json.loads((stopped / "start.json").read_text())
    (stopped / "start.json").write_text(json.dumps({**start, "device": "cpu"}))
    cli("train", "--out", stopped, "--resume").refused("seen")
    assert given.call_args.kwargs["device"] == "cpu"


def test_a_tampered_checkpoint_is_refused(running, cli):
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=DEADLINE_SECONDS)
    assert running.returncode == 130
    checkpoint = cli.cwd / "run" / "checkpoint.safetensors"
    content = bytearray(checkpoint.read_bytes())
    content[-8] ^= 64
    checkpoint.write_bytes(content)
    cli("train", "--out", "run", "--resume").refused("checkpoint.safetensors", "damaged")
    assert checkpoint.read_bytes() == bytes(content)


def test_a_full_disk_while_training(process, inputs, tmp_path):
    told = process("train", *inputs, *TINY, "--out", "run", preexec=at_most(2_000))
    told.refused("larger than allowed")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left <= {".lock", "config.yaml", "start.json", "metrics.jsonl"}
    assert process("train", "--out", "run", "--resume", "--json").json["epochs"] == 2


def test_a_full_disk_while_embedding(process, trained, tmp_path):
    (tmp_path / "z.parquet").write_bytes(b"what was here before")
    told = process("embed", trained, "--out", "z.parquet", "--overwrite", preexec=at_most(1_000))
    told.refused("z.parquet", "larger than allowed")
    assert (tmp_path / "z.parquet").read_bytes() == b"what was here before"
    assert [path.name for path in tmp_path.iterdir()] == ["z.parquet"]


def test_a_full_disk_does_not_cost_the_scores(cli, trained, monkeypatch):
    full = Mock(side_effect=FileError("Cannot write 's.json': the disk is full."))
    monkeypatch.setattr("aspect.workspace.write_json", full)
    told = cli("evaluate", trained, "--out", "s.json", "--json")
    assert told.code == 2
    assert "strict" in json.loads(told.out)
    assert told.err.splitlines()[-1].endswith("the disk is full.")


def test_spaces_and_letters_of_all_kinds_in_paths(process, tables, tmp_path):
    folder = tmp_path / "mein Ördner 图 [bold]"
    folder.mkdir()
    for name in ("edges.csv", "nodes.csv"):
        (folder / name).write_bytes((tables / name).read_bytes())
    inputs = [folder / "edges.csv", "--nodes", folder / "nodes.csv"]
    found = process("train", *inputs, *TINY, "--out", folder / "der Lauf", "--json").json
    assert found["run"] == str(folder / "der Lauf")
    told = process("evaluate", folder / "der Lauf", LC_ALL="C")
    assert told.code == 0, told.err


def test_a_path_that_is_too_long(cli, inputs):
    cli("train", *inputs, *TINY, "--out", "x" * 300).refused("too long")
    cli("train", "y" * 300 + ".csv").refused("too long")


def test_links_in_a_loop(cli):
    (cli.cwd / "loop").symlink_to("loop")
    cli("train", "mixed", *TINY, "--out", "loop").refused("loop")
    cli("embed", "loop", "--out", "z.npy").refused("loop")


def test_without_a_home(process, tmp_path):
    told = process("datasets", "--json", HOME=None, XDG_CACHE_HOME=None, ASPECT_DATA=None)
    assert told.json["datasets"]
    told = process("train", "mixed", *TINY, HOME=None, MPLCONFIGDIR=None)
    assert told.code == 0, told.err
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


def test_whoever_reads_the_output_may_stop_early():
    shell = " ".join(command("datasets")) + " | head -n 1"
    done = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, env=environment(), check=True
    )
    assert "Traceback" not in done.stderr
    assert done.stdout
