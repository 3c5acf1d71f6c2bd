"""A data set of the user's own: added by one command, used by name, refused where it is wrong."""

import csv

import pytest

from end_to_end.conftest import TINY

NODES = [["id", "height", "width", "label"], *([f"n{k}", k % 3, k, k % 2] for k in range(12))]
EDGES = [
    ["source", "target"],
    *([f"n{k}", f"n{(k + step) % 12}"] for k in range(12) for step in (1, 2)),
]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "data"))
    for name, rows in (("edges.csv", EDGES), ("nodes.csv", NODES)):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return "edges.csv", "--nodes", "nodes.csv"


def test_an_added_graph_is_listed_trained_on_and_embedded_with_its_ids(cli, tables, tmp_path):
    added = cli(
        "datasets",
        "add",
        *tables,
        "--name",
        "ring",
        "--source",
        "Me",
        "--note",
        "A ring.",
        "--json",
    ).json
    assert added["path"] == str(tmp_path / "data" / "ring.npz")
    listed = {entry["name"]: entry for entry in cli("datasets", "--json").json["datasets"]}
    assert listed["ring"] == added
    assert (added["nodes"], added["edges"], added["classes"]) == (12, 24, 2)
    assert "A ring." in cli("datasets").out
    record = cli("train", "ring", *TINY, "--out", "run", "--json").json
    assert record["graph"]["name"] == "ring"
    assert cli("embed", "run", "--out", "z.csv").code == 0
    with (tmp_path / "z.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == [f"n{k}" for k in range(12)]


def test_what_cannot_be_added_is_refused(cli, tables, tmp_path):
    cli("datasets", "add", *tables).refused("aspect datasets add GRAPH --name NAME")
    cli("datasets", "add", "--name", "ring").refused("aspect datasets add GRAPH --name NAME")
    cli("datasets", "--name", "ring").refused("belong to `datasets add`")
    cli("datasets", "add", *tables, "--name", "cora").refused("must be new", "'cora'")
    cli("datasets", "add", *tables, "--name", "../ring").refused("'../ring'")
    cli("datasets", "add", "missing.npz", "--name", "ring").refused("there is no such file")
    assert not (tmp_path / "data").exists()
    assert cli("datasets", "add", *tables, "--name", "ring").code == 0
    cli("datasets", "add", *tables, "--name", "ring").refused("exists", "--overwrite")
    assert cli("datasets", "add", *tables, "--name", "ring", "--overwrite").code == 0
    cli("train", "rign", *TINY).refused("Did you mean 'ring'?")
    elsewhere = cli("datasets", "add", *tables, "--name", "other", "--data-dir", "elsewhere")
    assert "Set ASPECT_DATA=elsewhere to use it." in elsewhere.out + elsewhere.err
