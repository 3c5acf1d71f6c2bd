"""Graphs of the user's own, as files or under a name, to embeddings with their ids."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from torch_geometric.data import Data

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


def test_a_saved_data(cli):
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    ring = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    torch.save(Data(x=x, edge_index=ring), cli.cwd / "ring.pt")
    told = cli("train", "ring.pt", *TINY, "--json")
    assert told.json["graph"]["edges"] == 12
    assert "12 edges had no reverse" in told.err
    assert np.load(cli.cwd / told.json["run"] / "embeddings.npy").shape == (12, 16 + 3 * 3)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("edges.csv", b"", "edges.csv"),
        ("edges.csv", b"source;target\n7;NA\n", "--delimiter"),
        ("edges.csv", b"source,target\n7,8\n", "8"),
        ("edges.csv", b"source,target\n7\n", "line 2"),
        ("edges.csv", b"source,target\n7,\xe9\n", "--encoding"),
        ("nodes.csv", b"id,f\n7,1\n7,2\n", "7"),
        ("nodes.csv", b"id,f\n007,1\n7,inf\nNA,2\n=cmd(),3\n", "--impute"),
        ("nodes.csv", b"id,f\n007,1\n7,red\nNA,2\n=cmd(),3\n", "'f'"),
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


# Under a name

RING_NODES = [["id", "height", "width", "label"], *([f"n{k}", k % 3, k, k % 2] for k in range(12))]
RING_EDGES = [
    ["source", "target"],
    *([f"n{k}", f"n{(k + step) % 12}"] for k in range(12) for step in (1, 2)),
]


@pytest.fixture
def ring(tmp_path, monkeypatch):
    monkeypatch.setenv("ASPECT_DATA", str(tmp_path / "data"))
    for name, rows in (("edges.csv", RING_EDGES), ("nodes.csv", RING_NODES)):
        with (tmp_path / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    return "edges.csv", "--nodes", "nodes.csv"


def test_an_added_graph_is_listed_trained_on_and_embedded_with_its_ids(cli, ring, tmp_path):
    entry = ["--name", "ring", "--citation", "Me", "--note", "A ring."]
    added = cli("datasets", "add", *ring, *entry, "--json").json
    assert added["path"] == str(tmp_path / "data" / "ring.npz")
    listed = {entry["name"]: entry for entry in cli("datasets", "--json").json["datasets"]}
    assert {"schema": added["schema"], **listed["ring"]} == added
    assert (added["nodes"], added["edges"], added["classes"]) == (12, 24, 2)
    assert "A ring." in cli("datasets").out
    record = cli("train", "ring", *TINY, "--out", "run", "--json").json
    assert record["graph"]["name"] == "ring"
    assert cli("embed", "run", "--out", "z.csv").code == 0
    with (tmp_path / "z.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == [f"n{k}" for k in range(12)]


def test_what_cannot_be_added_is_refused(cli, ring, tmp_path):
    cli("datasets", "add", *ring).refused("aspect datasets add GRAPH --name NAME")
    cli("datasets", "add", "--name", "ring").refused("aspect datasets add GRAPH --name NAME")
    cli("datasets", "--name", "ring").refused("belong to `datasets add`")
    cli("datasets", "add", *ring, "--name", "cora").refused("must be new", "'cora'")
    cli("datasets", "add", *ring, "--name", "../ring").refused("'../ring'")
    cli("datasets", "add", "missing.npz", "--name", "ring").refused("there is no such file")
    assert not (tmp_path / "data").exists()
    assert cli("datasets", "add", *ring, "--name", "ring").code == 0
    cli("datasets", "add", *ring, "--name", "ring").refused("exists", "--overwrite")
    assert cli("datasets", "add", *ring, "--name", "ring", "--overwrite").code == 0
    cli("train", "rign", *TINY).refused("Did you mean 'ring'?")


def test_an_added_graph_is_found_in_the_folder_of_data_dir(cli, ring, tmp_path):
    there = ("--data-dir", "elsewhere")
    added = cli("datasets", "add", *ring, "--name", "other", *there)
    assert "Use it with the same --data-dir." in added.out + added.err
    cli("train", "other", *TINY).refused("Unknown data set or file 'other'")
    assert cli("train", "other", *TINY, "--out", "run", *there).code == 0
    assert cli("evaluate", "other", *TINY, "--splits", "random", *there).code == 0
    plan = "name: p\nentries: [raw]\ngraphs: [other]\nsplits: random\nsettings: defaults\n"
    (tmp_path / "p.yaml").write_text(plan)
    bench = cli("bench", "p.yaml", "--out", "b", "--workers", "2", *there, "--json")
    assert bench.code == 0, bench.err
    assert cli("train", "other", *TINY).code != 0  # the folder is that of its commands alone


# Tables as people have them

PEOPLE = 24


def people(folder, *, count=PEOPLE, start=0, gap=False, prefix="p"):
    """A node table with text, dates, flags and incomes, and a ring of edges to known people."""
    rows = [["person", "name", "income", "joined", "vip", "colour", "team"]]
    for k in range(start, start + count):
        income = "" if gap and k % 7 == 0 else 1000 * (k % 2) + 30_000 + 17 * k
        colour = ("red", "green", "blue")[k % 3]
        flags = ("yes", "no")[k % 2]
        rows.append(
            [f"{prefix}{k}", f"N{k}", income, f"2020-01-{k % 28 + 1:02d}", flags, colour, k % 2]
        )
    edges = [["a", "b"]]
    edges += [
        [f"{prefix}{k}", f"p{(k + s) % PEOPLE}"]
        for k in range(start, start + count)
        for s in (1, 2)
    ]
    for name, lines in ((f"{prefix}.csv", rows), (f"{prefix}_edges.csv", edges)):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    return [f"{prefix}_edges.csv", "--nodes", f"{prefix}.csv", "--label", "team"]


def rows_of(path):
    with path.open() as file:
        return [row["id"] for row in csv.DictReader(file)]


def test_check_lists_everything_at_once(cli):
    inputs = [*people(cli.cwd, gap=True), "--impute", "none"]
    (cli.cwd / "p_edges.csv").write_text("a,b\np1,p2\np3,nobody\n")
    told = cli("check", *inputs)
    assert told.code == 2
    assert "line 2, line 9, line 16, line 23 (4 in all)" in told.out
    assert "'nobody' in line 3" in told.out
    assert "A training would be refused: fix 2 errors." in told.out
    assert "one-hot (3 values)" in told.out  # what would be done, all the same
    assert "Warning: Column 'name' is left out" in told.out
    told = cli("check", *inputs, "--json")
    assert told.code == 2
    answer = json.loads(told.out)
    assert (answer["accepted"], len(answer["errors"]), answer["summary"]["nodes"]) == (False, 2, 24)
    cli("train", *inputs, *TINY).refused("1 more problem is listed by aspect check")


def test_check_accepts_what_training_accepts(cli):
    inputs = people(cli.cwd, gap=True)
    answer = cli("check", *inputs, "--impute", "indicator", "--json").json
    assert answer["accepted"]
    assert answer["errors"] == []
    summary = answer["summary"]
    assert (summary["nodes"], summary["edges"], summary["components"]) == (24, 48, 1)
    assert (summary["classes"], summary["isolated_nodes"]) == (2, 0)
    assert summary["homophily"] == pytest.approx(0.5)
    columns = {column["name"]: column for column in answer["columns"]}
    assert columns["income"] == {
        "name": "income",
        "kind": "number",
        "missing": 4,
        "encoding": "standardised",
        "features": 2,
    }
    assert columns["name"]["encoding"] == "left out"
    shown = cli("check", *inputs, "--impute", "mean")
    assert "A training would be accepted." in shown.out
    assert cli("check", "mixed", "--json").json["summary"]["nodes"] == 900
    cli("check", "mixd").refused("Did you mean 'mixed'?")
    broken = cli("check", "nothing.npz")
    assert broken.code == 2
    assert "no such file" in broken.out


def test_columns_alike_share_a_line(cli):
    (cli.cwd / "e.csv").write_text("source,target\na,b\nb,c\n")
    rows = [
        ["id", *(f"w{k}" for k in range(9))],
        *([n, *range(k, k + 9)] for k, n in enumerate("abc")),
    ]
    (cli.cwd / "n.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    assert "w0 ... w8 (9 columns)" in cli("check", "e.csv", "--nodes", "n.csv").out


def test_new_nodes_and_other_graphs_are_encoded_as_in_training(cli):
    inputs = people(cli.cwd, gap=True)
    told = cli("train", *inputs, *TINY, "--out", "run", "--json")
    assert told.json["settings"]["row_normalise"] is False
    assert "Warning: Gaps are filled with the mean" in told.err
    assert "Warning: Column 'name' is left out" in told.err
    stored = json.loads((cli.cwd / "run" / "features.json").read_text())
    assert [column["name"] for column in stored["columns"]] == ["income", "joined", "vip", "colour"]
    assert "features.json" in (cli.cwd / "run" / "manifest.json").read_text()
    assert cli("embed", "run", "--out", "known.npy").code == 0

    people(cli.cwd, count=3, start=PEOPLE, prefix="new")
    new = ["--add", "new_edges.csv", "--nodes", "new.csv"]
    told = cli("embed", "run", *new, "--out", "new.csv", "--overwrite")
    told.refused("one of the inputs")
    told = cli("embed", "run", *new, "--out", "z.csv")
    assert "Wrote 3 embeddings of new nodes" in told.out
    assert rows_of(cli.cwd / "z.csv") == ["new24", "new25", "new26"]
    assert cli("embed", "run", *new, "--out", "z.json.npy", "--json").json["known_nodes"] == 24
    cli("embed", "run", "p_edges.csv", *new, "--out", "y.csv").refused("--add extends the graph")
    cli("embed", "run/model.safetensors", *new, "--out", "y.csv").refused("no graph of its own")
    cli("embed", "run", *new, "--drop", "income", "--out", "y.csv").refused("settled by the train")

    other = ["p_edges.csv", "--nodes", "p.csv"]  # the same, named
    assert cli("embed", "run", *other, "--out", "again.npy").code == 0
    again, known = (np.load(cli.cwd / f"{name}.npy") for name in ("again", "known"))
    np.testing.assert_array_equal(again, known)


def test_archives_of_tables_are_embedded_by_runs_on_tables(cli, monkeypatch):
    monkeypatch.setenv("ASPECT_DATA", str(cli.cwd / "data"))
    inputs = [*people(cli.cwd), "--id", "person", "--source", "a", "--target", "b"]
    assert cli("train", *inputs, *TINY, "--out", "run").code == 0
    assert cli("datasets", "add", *inputs, "--name", "people").code == 0
    for graph in ("people", "data/people.npz"):
        told = cli("embed", "run", graph, "--out", f"{Path(graph).stem}.npy", "--overwrite")
        assert told.code == 0, told.err
        np.testing.assert_array_equal(
            np.load(cli.cwd / "people.npy"), np.load(cli.cwd / "run" / "embeddings.npy")
        )
    assert (
        cli("train", "people", *TINY, "--out", "n", "--json").json["settings"]["row_normalise"]
        is False
    )


def test_the_old_way_of_row_normalisation_can_be_asked_for(cli):
    inputs = people(cli.cwd)
    told = cli("train", *inputs, *TINY, "--set", "row_normalise=true", "--out", "run", "--json")
    assert told.json["settings"]["row_normalise"] is True


def test_runs_of_version_2_took_numbers_as_they_are(cli, tables, tmp_path):
    inputs = [str(tables / "edges.csv"), "--nodes", str(tables / "nodes.csv")]
    assert cli("train", *inputs, *TINY, "--feature-scaling", "none", "--out", "run").code == 0
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("  feature_scaling: none\n", ""))
    assert "feature_scaling" not in config.read_text()
    (tmp_path / "run" / "manifest.json").unlink()  # which they had not
    assert cli("embed", "run", "--out", "z.npy").code == 0


def test_a_graph_without_features_gets_structural_ones(own):
    (own.cwd / "nodes.csv").write_text("id,label\n007,x\n7,y\nNA,x\n=cmd(),y\n")
    told = own("train", "edges.csv", "--nodes", "nodes.csv", *TINY)
    assert told.code == 0
    assert "no features, so laplacian ones are made" in told.err
    assert own("train", "edges.csv", *TINY, "--out", "alone").code == 0


WEIGHTED = "source,target,weight\n007,7,0.5\n7,NA,3\nNA,=cmd(),0.1\n007,NA,0\n"


def test_weights_are_used_from_the_table_to_the_embedding(own):
    inputs = ["edges.csv", "--nodes", "nodes.csv", *TINY]
    assert own("train", *inputs, "--out", "plain").code == 0
    (own.cwd / "edges.csv").write_text(WEIGHTED)
    told = own("train", *inputs, "--out", "run")
    assert "Note: 1 edges of weight zero left out." in told.err
    assert "Note: Edge weights are used. Pass --unweighted to leave them aside." in told.err
    assert own("embed", "run", "--out", "z.npy").code == 0
    weighted = np.load(own.cwd / "run" / "embeddings.npy")
    np.testing.assert_array_equal(np.load(own.cwd / "z.npy"), weighted)
    assert not np.allclose(weighted, np.load(own.cwd / "plain" / "embeddings.npy"))
    # The same run is read again with its weights, and refused where they changed.
    assert own("evaluate", "run", "--task", "cluster", "--json").json["graph"] == "edges"
    (own.cwd / "edges.csv").write_text(WEIGHTED.replace("0.5", "0.6"))
    own("embed", "run", "--out", "y.npy").refused("changed since the training")


def test_weights_may_be_left_aside(own):
    inputs = ["edges.csv", "--nodes", "nodes.csv", *TINY]
    assert own("train", *inputs, "--out", "plain").code == 0
    (own.cwd / "edges.csv").write_text(WEIGHTED.replace("007,NA,0\n", "").replace("0.5", "-2"))
    own("train", *inputs, "--out", "run").refused("Got -2 at line 2", "--unweighted")
    told = own("train", *inputs, "--unweighted", "--out", "run")
    assert "The weights in column 'weight' are left aside." in told.err
    assert own("embed", "run", "--out", "z.npy").code == 0
    plain = own.cwd / "plain" / "embeddings.npy"
    assert (own.cwd / "run" / "embeddings.npy").read_bytes() == plain.read_bytes()
    np.testing.assert_array_equal(np.load(own.cwd / "z.npy"), np.load(plain))
