"""Embeddings that were made elsewhere: read, brought into order, probed as our own are."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch

from aspect import Embedder, Graph, mixed_graph
from aspect.data.archives import write_npz
from aspect.data.source import GraphSource, add_dataset, read_graph
from aspect.data.tensors import write_embeddings
from aspect.errors import FileError, GraphError, SettingsError
from aspect.evaluation.baselines import knn_probe
from aspect.experiment.embeddings import PRECOMPUTED, EmbeddingFile, precomputed_model
from aspect.experiment.evaluate import evaluate_embeddings
from aspect.experiment.plan import Entry, Plan, lay_out, read_facts
from aspect.experiment.run import Task, forget_graphs, run_cell

NAMES = ("b", "a", "=c")
ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]])


@pytest.fixture
def graph():
    return Graph.build(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]), NAMES)


def written(folder, name, frame):
    path = folder / name
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",", index=False)
    return path


def frame(ids=("a", "=c", "b"), columns=("z0", "z1")):
    order = [NAMES.index(name) for name in ids]
    return pd.DataFrame(ROWS[order], columns=list(columns)).assign(id=list(ids))


@pytest.mark.parametrize("name", ["z.csv", "z.tsv", "z.parquet"])
@pytest.mark.parametrize("columns", [("z0", "z1"), ("0", "1"), ("width", "height")])
def test_tables_are_brought_into_the_graphs_order(tmp_path, graph, name, columns):
    path = written(tmp_path, name, frame(columns=columns))
    rows = EmbeddingFile.read(path).of(graph)
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS)


def test_an_index_of_pandas_names_the_nodes(tmp_path, graph):
    indexed = frame().set_index("id")
    indexed.to_parquet(tmp_path / "z.parquet")
    indexed.rename_axis(None).to_csv(tmp_path / "z.csv")
    for name in ("z.parquet", "z.csv"):
        np.testing.assert_array_equal(EmbeddingFile.read(tmp_path / name).of(graph), ROWS)


def test_an_index_of_any_name_or_order_names_the_nodes(tmp_path):
    """Rows of such tables were taken by position, or the index as a dimension."""
    numbers = Graph.build(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
    turned = pd.DataFrame(ROWS[::-1], columns=["z0", "z1"])
    for index in (pd.Index([2, 1, 0], name="paper"), pd.RangeIndex(2, -1, -1)):
        for names in (["z0", "z1"], ["width", "height"]):
            turned.set_axis(index).set_axis(names, axis=1).to_parquet(tmp_path / "z.parquet")
            rows = EmbeddingFile.read(tmp_path / "z.parquet").of(numbers)
            np.testing.assert_array_equal(rows, ROWS)


def test_rows_that_are_named_as_r_does_it_are_brought_into_order(tmp_path, graph):
    """`write.table` of R has no name above the names of the rows."""
    lines = ['"V1"\t"V2"', *(f'"{NAMES[k]}"\t{ROWS[k, 0]}\t{ROWS[k, 1]}' for k in (2, 0, 1))]
    (tmp_path / "z.tsv").write_text("\n".join(lines))
    np.testing.assert_array_equal(EmbeddingFile.read(tmp_path / "z.tsv").of(graph), ROWS)
    (tmp_path / "z.tsv").write_text("V1\tV2\n1\t2\t3\t4\n")
    with pytest.raises(FileError, match="a name above every column but the first"):
        EmbeddingFile.read(tmp_path / "z.tsv")


@pytest.mark.parametrize("columns", [("z0", "z1"), ("width", "height")])
def test_a_column_of_ids_goes_before_the_index_of_a_frame(tmp_path, columns):
    """`to_csv` writes the numbers of the rows as well, which name no node."""
    numbers = Graph.build(torch.ones(3, 1), torch.tensor([[0, 1], [1, 2]]))
    turned = pd.DataFrame(ROWS[::-1], columns=list(columns)).assign(id=[2, 1, 0])
    turned.to_csv(tmp_path / "z.csv")
    np.testing.assert_array_equal(EmbeddingFile.read(tmp_path / "z.csv").of(numbers), ROWS)


def test_a_column_that_may_name_the_nodes_is_not_left_aside(tmp_path):
    table = pd.DataFrame(ROWS, columns=["z0", "z1"]).assign(paper=[2, 1, 0])
    with pytest.raises(FileError, match=r"the columns .paper. .* beside the embedding"):
        EmbeddingFile.read(written(tmp_path, "z.csv", table))


def test_an_exported_id_with_an_apostrophe_is_the_nodes(tmp_path, graph):
    path = written(tmp_path, "z.csv", frame().replace({"id": {"=c": "'=c"}}))
    np.testing.assert_array_equal(EmbeddingFile.read(path).of(graph), ROWS)


def test_ids_keep_their_zeros(tmp_path):
    numbered = Graph.build(torch.ones(2, 1), torch.tensor([[0], [1]]), ("007", "7"))
    path = written(tmp_path, "z.csv", pd.DataFrame({"id": ["7", "007"], "z0": [1.0, 2.0]}))
    np.testing.assert_array_equal(EmbeddingFile.read(path).of(numbered), [[2.0], [1.0]])


def test_a_gate_or_other_columns_beside_numbered_ones_are_left_aside(tmp_path, graph):
    path = written(tmp_path, "z.csv", frame().assign(policy=0.5, label="x"))
    assert EmbeddingFile.read(path).of(graph).shape == (3, 2)


def test_matrices_are_in_the_graphs_order_or_have_ids_beside_them(tmp_path, graph):
    np.save(tmp_path / "z.npy", ROWS)
    torch.save(torch.from_numpy(ROWS), tmp_path / "z.pt")
    for name in ("z.npy", "z.pt"):
        np.testing.assert_array_equal(EmbeddingFile.read(tmp_path / name).of(graph), ROWS)
    before = EmbeddingFile.read(tmp_path / "z.npy").sha256
    (tmp_path / "z.ids.txt").write_text("".join(f"{json.dumps(name)}\n" for name in NAMES[::-1]))
    file = EmbeddingFile.read(tmp_path / "z.npy")
    np.testing.assert_array_equal(file.of(graph), ROWS[::-1])
    assert file.sha256 != before


def test_ids_with_line_breaks_of_unicode_are_read_as_they_are_written(tmp_path):
    names = ("a\u2028b", "c\x85", "d\ne")
    write_embeddings(tmp_path / "z.npy", torch.from_numpy(ROWS), ids=names)
    assert EmbeddingFile.read(tmp_path / "z.npy").ids == names


def test_rows_of_other_nodes_are_left_aside_with_a_word(tmp_path, caplog):
    small = Graph.build(torch.ones(2, 1), torch.tensor([[0], [1]]), ("a", "b"))
    file = EmbeddingFile.read(written(tmp_path, "z.csv", frame()))
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(file.of(small), ROWS[[1, 0]])
    assert "1 rows of nodes that are not in the graph" in caplog.text


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (ROWS[0], "must hold a matrix of numbers"),
        (np.array([["a", "b"]]), "must hold a matrix of numbers"),
        (ROWS * [1, np.nan], "missing or infinite in rows 0, 1, 2"),
        (ROWS * 1e300, "missing or infinite"),
        (np.empty((3, 0)), "must hold a matrix of numbers"),
        (np.array([{}], dtype=object), "Object arrays cannot be loaded"),
    ],
)
def test_wrong_matrices_are_refused(tmp_path, rows, sentence):
    np.save(tmp_path / "z.npy", rows)
    with pytest.raises(FileError, match=sentence):
        EmbeddingFile.read(tmp_path / "z.npy")


def test_wrong_files_are_refused(tmp_path, graph):
    with pytest.raises(FileError, match=r"read from \.npy, .* Got the name 'z\.xlsx'"):
        EmbeddingFile.read(tmp_path / "z.xlsx")
    with pytest.raises(FileError, match="there is no such file"):
        EmbeddingFile.read(tmp_path / "none.npy")
    torch.save({"a": 1}, tmp_path / "z.pt")
    with pytest.raises(FileError, match=r"must hold one tensor\. Got dict"):
        EmbeddingFile.read(tmp_path / "z.pt")
    for table, sentence in [
        (frame(columns=("x", "label")), "has a column 'label': embeddings must not hold labels"),
        (frame().assign(z1="word"), r"must hold numbers\. Others do: 'z1'"),
        (frame(ids=("a", "a")), "more than one row of 'a'"),
        # Ids that are not called so: their rows would be taken in the order of the graph's nodes.
        (frame().rename(columns={"id": "vertex"}), r"columns 'vertex' \(1 in all\) beside the"),
        (frame(columns=("a", "b")).assign(id=[5, 3, 4]).rename(columns={"id": "no"}), "'no'"),
    ]:
        with pytest.raises(FileError, match=sentence):
            EmbeddingFile.read(written(tmp_path, "z.csv", table))
    with pytest.raises(GraphError, match=r"There is none for 'b' \(1 in all\)"):
        EmbeddingFile.read(written(tmp_path, "z.csv", frame(ids=("a", "=c")))).of(graph)
    np.save(tmp_path / "z.npy", ROWS[:2])
    with pytest.raises(GraphError, match=r"each of the 3 nodes, or name them .* Got 2 rows"):
        EmbeddingFile.read(tmp_path / "z.npy").of(graph)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A labelled graph in a file, and our own embeddings of it."""
    monkeypatch.chdir(tmp_path)
    forget_graphs()  # of other tests, which have that name as well
    labelled = mixed_graph(num_nodes=60, num_features=8, seed=0)
    write_npz("small.npz", labelled)
    model = Embedder("propagated", device="cpu").fit(labelled)
    np.save("z-0.npy", model.embed(labelled, normalise="none").numpy())
    np.save("z-1.npy", np.random.default_rng(0).normal(size=(60, 4)))
    return tmp_path


def test_they_are_probed_as_our_own_beside_the_controls(made):
    table = evaluate_embeddings(GraphSource(graph="small.npz"), ["z-0.npy"], device="cpu")
    rows = {row["name"]: row for row in table.rows}
    assert table.method == "z-0"
    assert rows["z-0"]["strict"] == rows["propagated"]["strict"], "the same numbers"
    assert table.health[0].nodes == 60
    both = evaluate_embeddings(
        GraphSource(graph="small.npz"),
        ["z-0.npy", "z-1.npy"],
        device="cpu",
        splits="class-balanced",
    )
    assert both.rows[0]["strict"]["seeds"] == 2
    (made / "raw.npy").write_bytes((made / "z-1.npy").read_bytes())
    named = evaluate_embeddings(GraphSource(graph="small.npz"), ["raw.npy"], device="cpu")
    assert [row["name"] for row in named.rows[:3]] == ["raw.npy", "random", "raw"]


@pytest.mark.usefixtures("made")
def test_a_large_offset_of_float64_changes_no_score():
    scores = []
    for offset in (0, 1e7):
        np.save("moved.npy", np.load("z-0.npy").astype(np.float64) + offset)
        table = evaluate_embeddings(GraphSource(graph="small.npz"), ["moved.npy"], device="cpu")
        scores.append(table.rows[0]["strict"])
    assert scores[0] == scores[1]


@pytest.mark.usefixtures("made")
def test_nearest_neighbours_are_those_of_the_rows_as_they_are_in_the_file():
    rows = np.load("z-1.npy") + 3  # which centring would take off
    np.save("far.npy", rows)
    labelled = read_graph("small.npz")
    expected = [
        knn_probe(found, labelled.labels, num_classes=labelled.num_classes).strict.mean
        for found in (rows, rows - rows.mean(axis=0))
    ]
    assert expected[0] != expected[1]
    table = evaluate_embeddings(GraphSource(graph="small.npz"), ["far.npy"], device="cpu")
    assert table.rows[0]["knn"]["mean"] == pytest.approx(expected[0])


def test_a_data_set_of_the_user_may_name_its_metric(made, monkeypatch):
    monkeypatch.setenv("ASPECT_DATA", str(made))
    add_dataset("own", read_graph("small.npz"), made, metric="roc-auc")
    source = GraphSource.named("own")
    table = evaluate_embeddings(source, ["z-1.npy"], device="cpu")
    assert table.metric == table.to_dict()["metric"] == "roc-auc"
    asked = evaluate_embeddings(source, ["z-1.npy"], device="cpu", metric="accuracy")
    assert asked.metric == GraphSource(graph="small.npz").metric == "accuracy"
    assert asked.rows[0]["validation"] != table.rows[0]["validation"]


def plan_of(**changes):
    entries = [{"name": "theirs", "embeddings": "z-{seed}.npy"}, "propagated"]
    values = {"entries": entries, "graphs": ["small.npz"], "seeds": 2, "num_splits": 2}
    return Plan.model_validate({**values, **changes}).resolved()


def test_an_entry_of_a_plan_has_a_digest_and_a_record(made):
    plan = plan_of()
    cells = lay_out(plan, dict(read_facts(plan, None)), "cpu")
    theirs = [cell for cell in cells if cell.entry == "theirs"]
    assert [cell.spec.seed for cell in theirs] == [0, 1]
    assert [cell.spec.method for cell in theirs] == [PRECOMPUTED] * 2
    digests = [EmbeddingFile.read(f"z-{seed}.npy").sha256 for seed in (0, 1)]
    assert [cell.spec.source for cell in theirs] == digests
    ours = next(cell for cell in cells if cell.entry == "propagated")
    records = [run_cell(Task(cell)).record for cell in (theirs[0], ours)]
    assert [record.status for record in records] == ["done", "done"], records[0].error
    first, second = ([one.strict for one in record.scores] for record in records)
    assert first == second
    assert records[0].health["dim"] == records[0].dim == 24
    np.save(made / "z-0.npy", np.ones((60, 2)))
    changed = run_cell(Task(theirs[0])).record
    assert changed.status == "failed"
    assert "changed since the command began" in changed.error


def test_a_file_without_a_seed_is_one_run_and_the_graph_is_its_short_name(made):
    (made / "small.npy").write_bytes((made / "z-0.npy").read_bytes())
    plan = plan_of(entries=[{"name": "theirs", "embeddings": "{graph}.npy"}])
    (cell,) = lay_out(plan, dict(read_facts(plan, None)), "cpu")
    assert cell.embeddings == str(made / "small.npy")


@pytest.mark.parametrize("files", ["{graph}.npy", "z-0.npy"])
def test_graphs_do_not_share_a_file(made, files):
    """Graphs of one size were scored by the embeddings of each other."""
    (made / "other").mkdir()
    write_npz(made / "other" / "small.npz", mixed_graph(num_nodes=60, num_features=8, seed=9))
    graphs = ["small.npz", "other/small.npz"]
    with pytest.raises(SettingsError, match=r"'theirs' .* one file of embeddings for several"):
        plan_of(entries=[{"name": "theirs", "embeddings": files}], graphs=graphs)


@pytest.mark.usefixtures("made")
def test_what_an_entry_cannot_have_beside_embeddings():
    with pytest.raises(ValueError, match="in place of a method: leave 'method' out"):
        Entry(name="theirs", embeddings="z.npy", method="raw")
    plan = plan_of(perturbations=[{"kind": "random"}])
    with pytest.raises(SettingsError, match=r"'theirs' .* cannot be perturbed"):
        lay_out(plan, dict(read_facts(plan, None)), "cpu")
    plan = plan_of(entries=[{"name": "theirs", "embeddings": "gone.npy"}])
    with pytest.raises(FileError, match="there is no such file"):
        lay_out(plan, dict(read_facts(plan, None)), "cpu")


@pytest.mark.usefixtures("made")
def test_a_file_embeds_the_graph_that_it_is_of():
    labelled = mixed_graph(num_nodes=60, num_features=8, seed=0)
    model = precomputed_model("z-1.npy", None, "cpu").fit(labelled)
    assert model.embed(labelled).shape == (60, 4)
    with pytest.raises(GraphError, match="cannot embed a graph that it was not trained on"):
        model.embed(mixed_graph(num_nodes=60, num_features=8, seed=1))
