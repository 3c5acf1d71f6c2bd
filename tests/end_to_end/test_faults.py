"""What happens to a run from outside: a full disk, Ctrl-C, a second process, odd paths."""

import resource
import signal
import subprocess
import time

import pytest

from .conftest import TINY, command, environment

LONG = ["--set", "epochs=200", "--set", "width=8", "--set", "gate_width=4", "--set", "dropout=0.1"]
DEADLINE_SECONDS = 60


def at_most(num_bytes):
    """To be called in a child: files beyond so many bytes fail, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


@pytest.fixture
def running(tables, tmp_path):
    """A training that has done some epochs and is far from its end; its folder is `run`."""
    inputs = [tables / "edges.csv", "--nodes", tables / "nodes.csv"]
    process = subprocess.Popen(
        command("train", *inputs, *LONG, "--out", "run", "--checkpoint-every", 1000),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_epochs(process, tmp_path / "run" / "metrics.jsonl")
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_for_epochs(process, metrics):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (metrics.exists() and metrics.read_text().count("\n") >= 3):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline, "no epoch was logged in time"
        time.sleep(0.02)


def test_interrupted_refused_resumed_and_equal(running, cli, tables):
    inputs = [tables / "edges.csv", "--nodes", tables / "nodes.csv"]
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
    assert cli("train", *inputs, *LONG, "--out", "whole").code == 0
    for name in ("embeddings.npy", "policy.npy", "model.safetensors", "metrics.jsonl"):
        resumed, whole = (cli.cwd / folder / name for folder in ("run", "whole"))
        assert resumed.read_bytes() == whole.read_bytes(), name


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


def test_a_full_disk_while_training(process, tables, tmp_path):
    inputs = [tables / "edges.csv", "--nodes", tables / "nodes.csv"]
    told = process("train", *inputs, *TINY, "--out", "run", preexec=at_most(2_000))
    told.refused("larger than allowed")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left <= {".lock", "config.yaml", "metrics.jsonl"}
    assert process("train", "--out", "run", "--resume", "--json").json["epochs"] == 3


def test_a_full_disk_while_embedding(process, trained, tmp_path):
    (tmp_path / "z.parquet").write_bytes(b"what was here before")
    told = process("embed", trained, "--out", "z.parquet", "--overwrite", preexec=at_most(1_000))
    told.refused("z.parquet", "larger than allowed")
    assert (tmp_path / "z.parquet").read_bytes() == b"what was here before"
    assert [path.name for path in tmp_path.iterdir()] == ["z.parquet"]


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


def test_a_path_that_is_too_long(cli, tables):
    inputs = [tables / "edges.csv", "--nodes", tables / "nodes.csv"]
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
