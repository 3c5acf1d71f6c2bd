"""Graphs of the user's own, from their files to embeddings with their ids."""

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from torch_geometric.data import Data

from aspect.data.archives import write_npz

from .conftest import TINY

NODES = "id,f,g,label\n007,1,0,x\n7,0,1,y\nNA,1,1,x\n=cmd(),2,1,y\n"
EDGES = "source,target\n007,7\n7,NA\nNA,=cmd()\n"
IDS = ["007", "7", "NA", "=cmd()"]


@pytest.fixture
def own(cli):
    (cli.cwd / "nodes.csv").write_text(NODES)
    (cli.cwd / "edges.csv").write_text(EDGES)
    return cli


def test_ids_are_kept_to_the_output(own):
    run = own("train", "edges.csv", "--nodes", "nodes.csv", *TINY, "--json").json["run"]
    assert own("embed", run, "--out", "z.parquet").code == 0
    assert pyarrow.parquet.read_table(own.cwd / "z.parquet")["id"].to_pylist() == IDS
    assert own("embed", run, "--out", "z.csv").code == 0
    text = (own.cwd / "z.csv").read_text()
    assert '"\'=cmd()"' in text  # a spreadsheet must not run it
    assert '"007"' in text


def test_parquet_tables_give_the_same_embedding(own):
    for name in ("nodes", "edges"):
        strings = dict.fromkeys(("id", "source", "target"), pyarrow.string())
        options = pyarrow.csv.ConvertOptions(column_types=strings, strings_can_be_null=False)
        table = pyarrow.csv.read_csv(own.cwd / f"{name}.csv", convert_options=options)
        pyarrow.parquet.write_table(table, own.cwd / f"{name}.parquet")
    for kind in ("csv", "parquet"):
        inputs = [f"edges.{kind}", "--nodes", f"nodes.{kind}"]
        assert own("train", *inputs, *TINY, "--out", kind).code == 0
    files = [own.cwd / kind / "embeddings.npy" for kind in ("csv", "parquet")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_archive_from_training_to_scores(cli, small_graph):
    write_npz(cli.cwd / "mine.npz", small_graph)
    run = cli("train", "mine.npz", *TINY, "--json").json["run"]
    assert run == "runs/mine-aspect-0"
    assert cli("evaluate", run, "--json").json["graph"] == "mine"


def test_a_saved_data(cli):
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    torch.save(Data(x=x, edge_index=ring), cli.cwd / "ring.pt")
    told = cli("train", "ring.pt", *TINY, "--json")
    assert told.json["graph"]["edges"] == 12
    assert "12 edges had no reverse" in told.err
    assert np.load(cli.cwd / told.json["run"] / "embeddings.npy").shape == (12, 16)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("edges.csv", b"", "edges.csv"),
        ("edges.csv", b"source,target\n", "edges.csv"),
        ("edges.csv", b"source;target\n7;NA\n", "--delimiter"),
        ("edges.csv", b"source,target\n7,8\n", "8"),
        ("edges.csv", b"source,target\n7\n", "line 2"),
        ("edges.csv", b"source,target\n7,\xe9\n", "--encoding"),
        ("nodes.csv", b"id,f\n7,1\n7,2\n", "7"),
        ("nodes.csv", b"id,f\n007,1\n7,nan\nNA,2\n=cmd(),3\n", "--impute"),
        ("nodes.csv", b"id,f\n007,1\n7,inf\nNA,2\n=cmd(),3\n", "--impute"),
        ("nodes.csv", b"id,f\n007,1\n7,red\nNA,2\n=cmd(),3\n", "'f'"),
        ("nodes.csv", b"id\n007\n7\nNA\n=cmd()\n", "--features"),
    ],
)
def test_bad_tables(own, file, content, words):
    (own.cwd / file).write_bytes(content)
    own("train", "edges.csv", "--nodes", "nodes.csv", *TINY).refused(words)
    assert not (own.cwd / "runs").exists()


@pytest.mark.parametrize("name", ["graph.npz", "graph.pt", "graph.parquet"])
def test_files_that_are_something_else(cli, name):
    (cli.cwd / name).write_bytes(b"neither this nor that")
    cli("train", name, *TINY).refused(name)
    assert not (cli.cwd / "runs").exists()


def test_directed_edges_can_be_an_error(own):
    own("train", "edges.csv", "--nodes", "nodes.csv", "--directed", "error").refused("directed")
    told = own("train", "edges.csv", "--nodes", "nodes.csv", *TINY)
    assert "3 edges had no reverse" in told.err
