"""Large graphs on the command line: drawn, stored, checked, and planned for."""

import json

import numpy as np
import pandas as pd
import pytest

from aspect.scale.plan import Speeds
from aspect.scale.rows import BATCH

DRAWN = ["generate", "--nodes", "400", "--edges", "2000", "--features", "6", "--classes", "2"]


@pytest.fixture
def drawn(cli):
    return cli(*DRAWN, "--out", "large", "--json").json


def test_a_graph_is_drawn_and_checked(cli, drawn):
    assert (drawn["nodes"], drawn["features"], drawn["classes"]) == (400, 6, 2)
    assert 1500 < drawn["edges"] <= 2000
    assert cli("store", "large", "--json").json == {**drawn, "schema": "aspect/store/1"}
    said = cli("store", "large")
    assert "400 nodes" in said.out
    assert "2 classes in 1 block, 0.03 MiB." in said.out
    assert cli(*DRAWN, "--out", "large", "--json").json == drawn  # it is complete
    cli(*DRAWN, "--out", "large", "--seed", "1").refused("was begun with other input or settings")


@pytest.mark.usefixtures("drawn")
def test_a_damaged_block_is_named(cli, tmp_path):
    file = next(tmp_path.rglob("neighbours-00000.npy"))
    file.write_bytes(file.read_bytes()[:-4])
    cli("store", "large").refused("neighbours-00000.npy is damaged")


def test_tables_become_a_store(cli, tmp_path):
    edges = pd.DataFrame({"source": ["a", "b", "c", "a"], "target": ["b", "c", "a", "a"]})
    edges.to_csv(tmp_path / "edges.csv", index=False)
    nodes = pd.DataFrame(
        {"id": ["c", "a", "b"], "height": [1.0, 2.0, 6.0], "label": ["x", "y", "x"]}
    )
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    made = cli(
        *("store", tmp_path / "edges.csv", "--nodes", tmp_path / "nodes.csv"),
        *("--out", "s", "--json"),
    ).json
    assert (made["nodes"], made["edges"], made["classes"], made["weighted"]) == (3, 3, 2, False)
    assert made["notices"] == [
        "1 self-loops removed; methods that need them add them.",
        "3 edges had no reverse and were made undirected.",
    ]
    cli("store", tmp_path / "edges.csv").refused("with --out")
    cli("store", tmp_path / "edges.csv", "--out", "t").refused("A store needs features")
    cli("store", tmp_path / "gone.parquet", "--out", "t", "--features", "random").refused("no such")


def test_a_folder_of_igb_becomes_a_store(cli, tmp_path):
    papers, cites = (tmp_path / "processed" / name for name in ("paper", "paper__cites__paper"))
    papers.mkdir(parents=True)
    cites.mkdir()
    np.save(papers / "node_feat.npy", np.ones((5, 1024), np.float32))
    np.save(papers / "node_label_19.npy", np.arange(5.0))
    np.save(cites / "edge_index.npy", np.array([[0, 1], [1, 2], [3, 4]]))
    made = cli("store", tmp_path, "--out", tmp_path / "s", "--dtype", "float16", "--json").json
    assert (made["nodes"], made["edges"], made["features"]) == (5, 3, 1024)


# Plans


@pytest.fixture
def calibrated(monkeypatch):
    """As if the machine had been measured."""
    speeds = Speeds(
        1e-6, 1e-9, 1e-9, 2e-9, 1e-9, 3 * 10**8, 1.0, 5 * 10**8, 1e-5, 1e4, 512, 1e-4, 1e5
    )
    monkeypatch.setattr("aspect.scale.plan.calibrate", lambda *_, **__: speeds)


SIZES = ["--nodes", "1000000", "--edges", "10000000", "--features", "128"]


@pytest.mark.usefixtures("calibrated")
def test_a_plan_for_sizes(cli):
    found = cli("plan", *SIZES, "--memory", "12", "--disk", "100", "--json").json
    assert found["advice"].startswith("Take --scale rows")
    assert not found["modes"]["full"]["fits"]
    steps = [step["step"] for step in found["modes"]["rows"]["steps"]]
    assert steps == ["make the store", "5 bases of order 5", "an epoch", "embed"]
    more = cli("plan", *SIZES, "--epochs", "10", "--workers", "2", "--json").json
    assert more["modes"]["rows"]["steps"][2] == {
        "step": "10 epochs",
        "seconds": 10 * -(-1_000_000 // BATCH["cpu"]) / 2,
        "memory_bytes": found["modes"]["rows"]["steps"][2]["memory_bytes"],
        "disk_bytes": 0,
    }
    said = cli("plan", *SIZES, "--memory", "12", "--disk", "100")
    assert "(does not fit)" in said.out
    assert "Take --scale rows" in said.out


@pytest.mark.usefixtures("calibrated")
def test_a_plan_for_a_graph(cli, drawn):
    found = cli("plan", "large", "--json").json
    assert (found["nodes"], found["edges"]) == (400, drawn["edges"])
    steps = [step["step"] for step in found["modes"]["rows"]["steps"]]
    assert steps[0] == "5 bases of order 5"  # the store is there
    assert json.loads(cli("plan", "mixed", "--json").out)["nodes"] == 900
    cli("plan").refused("Give a graph, or its --nodes, --edges and --features")
    for wrong in (["nowhere"], ["mixed", "--method", "gracee"], ["mixed", "--method", "greet"]):
        refused = cli("plan", *wrong)
        refused.refused()
        assert "Measuring" not in refused.err  # which takes half a minute
    cli("plan", "--nodes", "5").refused("Give a graph")
    cli("plan", "mixed", "--nodes", "5").refused("belong to a plan without GRAPH")
    cli("plan", "mixed", "--method", "mvgrl").refused(
        "A plan compares rows with the whole graph. Got mvgrl"
    )


@pytest.mark.usefixtures("drawn")
def test_a_store_that_is_not_complete_says_so(cli, tmp_path):
    next(tmp_path.rglob("manifest.json")).unlink()
    for command in ("store", "plan", "train"):
        cli(command, "large").refused("is not complete. Run the command that makes it again")
