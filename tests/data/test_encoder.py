"""Columns of node tables as features: every kind, every option, and the same again later."""

import json

import numpy as np
import pytest
import torch

from aspect.data.encoder import Caution, FeatureEncoder, ParsedColumn
from aspect.data.features import dense, row_normalise
from aspect.data.source import read_graph
from aspect.data.tables import extend_graph, read_all
from aspect.errors import GraphError, SettingsError

COUNT = 40
EDGES = "source,target\n" + "".join(f"n{k},n{(k + 1) % COUNT}\n" for k in range(COUNT))


def write(tmp_path, columns, edges=EDGES, name="nodes.csv"):
    """A node table of these columns, for forty nodes unless they have another length."""
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(map(str, (f"n{k}", *row))) for k, row in enumerate(rows)]
    (tmp_path / name).write_text("\n".join([",".join(("id", *columns)), *lines]) + "\n")
    (tmp_path / "edges.csv").write_text(edges)
    return tmp_path / "edges.csv", tmp_path / name


def read(tmp_path, table, /, **options):
    edges, nodes = write(tmp_path, table)
    return read_graph(edges, nodes=nodes, **options).graph


def features_of(tmp_path, columns, **options):
    return dense(read(tmp_path, columns, **options).features)


def numbers(seed=0, size=COUNT):
    return np.random.default_rng(seed).normal(50_000, 9_000, size).round(3).tolist()


def cycle(*values):
    return [values[k % len(values)] for k in range(COUNT)]


def noticed(graph, text, kind=str):
    return any(text in notice and isinstance(notice, kind) for notice in graph.notices)


# Kinds


def test_numbers_are_standardised_and_flags_stay(tmp_path):
    columns = {"income": numbers(), "flag": cycle(0, 1, 1), "constant": cycle(7)}
    graph = read(tmp_path, columns)
    income, flag, constant = dense(graph.features).t()
    assert income.mean().item() == pytest.approx(0, abs=1e-6)
    assert income.square().mean().item() == pytest.approx(1, abs=1e-6)
    assert flag.tolist() == cycle(0, 1, 1)
    assert constant.tolist() == [0] * COUNT
    assert graph.feature_names == ("income", "flag", "constant")
    assert noticed(graph, "'income', 'constant' standardised")


@pytest.mark.parametrize("words", [("yes", "no"), ("TRUE", "False"), ("t", "f"), ("Y", "n")])
def test_truth_values_are_0_or_1(tmp_path, words):
    assert features_of(tmp_path, {"flag": cycle(*words)})[:2, 0].tolist() == [1, 0]


def test_dates_are_days(tmp_path):
    dates = cycle("1970-01-02", "1970-01-03 12:00", "1970-01-01T00:00:00Z", "1970-01-02T00:00+12")
    graph = read(tmp_path, {"born": dates}, feature_scaling="none")
    assert dense(graph.features)[:4, 0].tolist() == [1, 2.5, 0, 0.5]
    assert noticed(graph, "'born' counted in days")
    assert features_of(tmp_path, {"born": dates}).mean().item() == pytest.approx(0, abs=1e-6)


def test_few_values_become_one_hot(tmp_path):
    graph = read(tmp_path, {"colour": cycle("red", "blue", "red")})
    assert graph.feature_names == ("colour=blue", "colour=red")
    assert dense(graph.features)[:3].tolist() == [[0, 1], [1, 0], [0, 1]]
    assert noticed(graph, "'colour' one-hot (2 values)")


def test_many_values_are_hashed_and_identifiers_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("aspect.data.encoder.MOST_VALUES", 4)
    columns = {
        "city": [f"c{k % 10}" for k in range(COUNT)],
        "name": [f"p{k}" for k in range(COUNT)],
    }
    graph = read(tmp_path, columns)
    assert graph.num_features == 32
    features = dense(graph.features)
    assert features.abs().sum(1).tolist() == [1] * COUNT
    torch.testing.assert_close(features[0], features[10])
    assert noticed(graph, "'city' hashed into 32 features")
    assert noticed(graph, "'name' is left out: its 40 values hardly repeat", Caution)
    assert noticed(graph, "--categorical name keeps it", Caution)
    kept = read(tmp_path, columns, categorical="name")
    assert kept.num_features == 64
    assert not noticed(kept, "left out")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (('"1,5"', '"2,75"', '"-.5,0"', "x"), "numbers with commas. Write 1.5 for 1,5"),
        (('"1,500"', '"12,345,678.5"'), "numbers with commas. Write 1.5 for 1,5 and 1500"),
        (("31.12.2024", "1.2.2025"), "dates, but not which part is the day"),
    ],
)
def test_what_only_looks_like_text_is_refused(tmp_path, values, sentence):
    with pytest.raises(GraphError, match=f"Column 'x' of .* looks like {sentence}.*--drop x"):
        read(tmp_path, {"x": cycle(*values)})
    assert read(tmp_path, {"x": cycle(*values)}, categorical="x").num_features == len(set(values))
    assert read(tmp_path, {"x": cycle('"a,b"', '"1,2,3"', '"1,"')}).num_features == 3


def test_sentences_become_hashed_words(tmp_path):
    texts = [f"a tale of {k} cities" for k in range(COUNT)]
    graph = read(tmp_path, {"bio": texts})
    assert graph.num_features == 128
    torch.testing.assert_close(dense(graph.features).norm(dim=1), torch.ones(COUNT))
    assert noticed(graph, "words hashed into 128 features")


def test_numbers_can_be_categories(tmp_path):
    graph = read(tmp_path, {"Zip": cycle("0123", "456")}, categorical=["zip"])
    assert graph.feature_names == ("Zip=0123", "Zip=456")


def test_without_a_usable_column_features_come_from_the_edges(tmp_path):
    graph = read(tmp_path, {"name": [f"p{k}" for k in range(COUNT)]})
    assert noticed(graph, "'name' is left out")
    assert noticed(graph, "no features, so laplacian ones are made: --features chooses others")
    assert graph.encoder.structural == "laplacian"
    assert not graph.is_encoded
    edges, nodes = write(tmp_path, {"label": cycle(1, 2)}, edges="source,target\nn1,n1\n")
    assert read_graph(edges, nodes=nodes).graph.encoder.structural == "degree"  # without an edge


@pytest.mark.parametrize("options", [{}, {"categorical": "e"}, {"impute": "mean"}])
def test_a_column_without_any_value_is_left_out(tmp_path, options):
    graph = read(tmp_path, {"x": numbers(), "e": cycle("", "NA")}, **options)
    assert graph.feature_names == ("x",)
    assert noticed(graph, "Column 'e' is left out: it has no value.", Caution)


# Scaling


def words(seed=0):
    counts = np.random.default_rng(seed).poisson(0.3, (COUNT, 20))
    return {f"w{k}": counts[:, k].tolist() for k in range(20)}


def test_a_bag_of_words_is_row_normalised(tmp_path):
    raw = features_of(tmp_path, words(), feature_scaling="none")
    assert set(raw.unique().tolist()) >= {0, 1, 2}
    graph = read(tmp_path, words())
    torch.testing.assert_close(dense(graph.features), row_normalise(raw), rtol=0, atol=0)
    assert noticed(graph, "(20 in all) row-normalised as a bag of words")


def test_fewer_columns_or_negative_ones_are_no_bag(tmp_path):
    few = dict(list(words().items())[:15])
    assert {column.encoding for column in read(tmp_path, few).encoder.columns} <= {
        "standard",
        "plain",
    }
    signed = {name: [-value for value in values] for name, values in words().items()}
    assert "bag" not in {column.encoding for column in read(tmp_path, signed).encoder.columns}


def test_a_bag_counts_as_much_as_all_other_columns(tmp_path):
    features = features_of(tmp_path, {**words(), "income": numbers(), "age": numbers(1)})
    squares = features.square().sum(0)
    assert squares[:20].sum().item() == pytest.approx(squares[20:].sum().item(), rel=1e-5)
    sums = features[:, :20].sum(1)
    torch.testing.assert_close(sums[sums > 0], sums.max().expand(int((sums > 0).sum())))


def test_scaling_can_be_chosen(tmp_path):
    columns = {"income": numbers(), "flag": cycle(0, 1), "colour": cycle("red", "blue")}
    rows = features_of(tmp_path, columns, feature_scaling="rows")
    torch.testing.assert_close(rows.abs().sum(1), torch.ones(COUNT))
    raw = features_of(tmp_path, columns, feature_scaling="none")
    assert raw[:, 0].tolist() == pytest.approx(columns["income"])
    standard = features_of(tmp_path, columns, feature_scaling="standard")
    assert standard[:2, 1].tolist() == [-1, 1]  # flags as well, if it is asked for
    assert standard[:2, 2].tolist() == [0, 1]
    assert features_of(tmp_path, words(), feature_scaling="standard").mean().abs().item() < 1e-6


@pytest.mark.parametrize("scaling", ["rows", "none"])
def test_a_column_that_drowns_the_others_is_warned_of(tmp_path, scaling):
    columns = {"age": cycle(*range(20, 60)), "income": numbers()}
    graph = read(tmp_path, columns, feature_scaling=scaling)
    assert noticed(graph, "Column 'income' carries 100% of the mean row size", Caution)
    assert noticed(graph, "--feature-scaling standard, or --drop income", Caution)
    assert not noticed(read(tmp_path, columns), "row size")
    lone = read(tmp_path, {"income": numbers(), "constant": cycle(7)})
    assert noticed(lone, "'income' carries 100% of the mean row size", Caution)


# Gaps


GAPS = {"x": cycle(1, "", 3, 4), "colour": cycle("red", "blue", "red", ""), "ok": cycle(0, 1)}


@pytest.mark.parametrize(
    ("impute", "x", "colour"),
    [("mean", 8 / 3, [0, 1]), ("zero", 0, [0, 0]), ("indicator", 8 / 3, [0, 1])],
)
def test_gaps_are_filled_when_asked(tmp_path, impute, x, colour):
    graph = read(tmp_path, GAPS, impute=impute, feature_scaling="none")
    table = dict(zip(graph.feature_names, dense(graph.features).t().tolist(), strict=True))
    assert table["x"][1] == pytest.approx(x)
    assert [table["colour=blue"][3], table["colour=red"][3]] == colour
    assert noticed(graph, "20 missing or infinite features in 2 columns set to")
    if impute == "indicator":
        assert table["x missing"] == cycle(0, 1, 0, 0)
        assert table["colour missing"] == cycle(0, 0, 0, 1)
    else:
        assert len(table) == 4


def test_gaps_are_filled_by_themselves_with_a_warning_that_names_them(tmp_path):
    graph = read(tmp_path, GAPS)
    asked = read(tmp_path, GAPS, impute="indicator")
    assert graph.feature_names == asked.feature_names
    torch.testing.assert_close(dense(graph.features), dense(asked.features), rtol=0, atol=0)
    (told,) = [notice for notice in graph.notices if isinstance(notice, Caution)]
    assert told.startswith("Gaps are filled with the mean, or the most frequent value, of")
    assert "and a feature says where ('x': line 3, line 7, " in told
    assert "'colour': line 5, " in told
    assert told.endswith("--impute chooses, --impute none refuses them.")


def test_all_gaps_are_refused_with_their_lines_if_asked(tmp_path):
    errors = [str(error) for error in read_all(*_paths(tmp_path, GAPS, impute="none")).errors]
    assert [("'x'" in text, "'colour'" in text) for text in errors] == [
        (True, False),
        (False, True),
    ]
    assert "line 3, line 7, line 11, line 15, line 19, ... (10 in all)" in errors[0]
    with pytest.raises(GraphError, match="1 more problem is listed by aspect check"):
        read(tmp_path, GAPS, impute="none")
    names = ["", *(f"p{k}" for k in range(1, COUNT))]
    assert read(
        tmp_path, {"name": names, "ok": cycle(0, 1)}, impute="none"
    )  # a gap in what is left out


def _paths(tmp_path, columns, **options):
    from aspect.data.source import Reading

    edges, nodes = write(tmp_path, columns)
    return edges, Reading(nodes=str(nodes), **options)


def test_lines_are_those_of_an_editor(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n\nn0,n1\n")
    text = 'id,x,note\n\nn0,1,"two\nlines"\n\r\nn1,oops,\nn2,2,\nn3,3,\n'
    (tmp_path / "nodes.csv").write_text(text)
    with pytest.raises(GraphError, match="but for 'oops' in line 6"):
        read_graph(tmp_path / "edges.csv", nodes=tmp_path / "nodes.csv", drop="note")


# Which columns


def test_columns_are_chosen_by_name(tmp_path):
    columns = {"A": numbers(), "b": numbers(1), "c": numbers(2)}
    assert read(tmp_path, columns, columns=["c", "A"]).feature_names == ("A", "c")
    assert read(tmp_path, columns, columns="a, b").feature_names == ("A", "b")
    assert read(tmp_path, columns, drop=["b"]).feature_names == ("A", "c")


def test_ids_and_ends_can_have_any_name(tmp_path):
    (tmp_path / "e.csv").write_text("kind,buyer,seller,since\nx,u,v,1\ny,v,w,2\n")
    (tmp_path / "n.csv").write_text("id,customer,x\n1,u,1\n2,v,2\n3,w,4\n")
    labelled = read_graph(
        tmp_path / "e.csv",
        nodes=tmp_path / "n.csv",
        id="Customer",
        source="buyer",
        target="seller",
        label="id",
    )
    assert labelled.graph.ids == ("u", "v", "w")
    assert labelled.graph.num_edges == 2
    assert labelled.class_names == ("1", "2", "3")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"columns": "z"}, "--columns must be one of the columns 'id' | 'x'"),
        ({"drop": "z"}, "--drop must be one of the columns"),
        ({"categorical": "z"}, "--categorical must be one of the columns"),
        ({"id": "z"}, "--id must be one of the columns"),
        ({"source": "z"}, "--source must be one of the columns 'source' | 'target'"),
        ({"columns": "x", "drop": "x"}, "either used or dropped. Got both for 'x'"),
        ({"columns": "id"}, "'id' holds ids or labels"),
        ({"columns": 3}, "'columns' of the graph"),
    ],
)
def test_names_that_are_refused(tmp_path, options, sentence):
    with pytest.raises((GraphError, SettingsError), match=sentence):
        read(tmp_path, {"x": numbers(), "y": cycle("a", "b")}, **options)


def test_one_end_alone_is_refused(tmp_path):
    (tmp_path / "e.csv").write_text("u,v,w\na,b,c\n")
    with pytest.raises(GraphError, match=r"--source and --target\. Got --source alone"):
        read_graph(tmp_path / "e.csv", source="u")


def test_options_of_node_tables_need_one(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    with pytest.raises(SettingsError, match="--drop belongs to a node table"):
        read_graph(tmp_path / "e.csv", drop="x")


# The same again


MIXED = {
    "income": numbers(),
    "colour": cycle("red", "blue", "red"),
    "flag": cycle("yes", "no"),
    "born": [f"20{k % 20:02d}-01-01" for k in range(COUNT)],
    "city": [f"c{k % 12}" for k in range(COUNT)],
}


@pytest.fixture
def trained(tmp_path):
    return read(tmp_path, MIXED)


def test_an_encoder_is_json_and_back(tmp_path, trained):
    again = FeatureEncoder.model_validate(json.loads(json.dumps(trained.encoder.to_json())))
    assert again == trained.encoder
    twin = read(tmp_path, MIXED, encoder=again)
    torch.testing.assert_close(dense(twin.features), dense(trained.features), rtol=0, atol=0)
    assert twin.feature_names == trained.feature_names


def part(count=4, **changes):
    columns = {name: values[:count] for name, values in MIXED.items()} | changes
    return {name: values for name, values in columns.items() if values is not None}


def again(tmp_path, columns, trained, **options):
    path = tmp_path / "again"
    path.mkdir(exist_ok=True)
    edges, nodes = write(path, columns, edges="source,target\nn0,n1\nn2,n3\n")
    return read_graph(edges, nodes=nodes, encoder=trained.encoder, **options).graph


def test_a_part_of_the_table_has_the_same_features(tmp_path, trained):
    columns = part(extra=[1, 2, 3, 4])
    graph = again(tmp_path, dict(reversed(columns.items())), trained)
    torch.testing.assert_close(dense(graph.features), dense(trained.features)[:4], rtol=0, atol=0)
    assert noticed(graph, "does not know are left aside: 'extra'")
    assert not noticed(graph, "standardised")


def test_labels_of_another_graph_are_read_when_asked_for(tmp_path, trained):
    edges, nodes = write(tmp_path, part(kind=["u", "v", "u", "v"]), "source,target\nn0,n1\n")
    labelled = read_graph(edges, nodes=nodes, encoder=trained.encoder, label="kind")
    assert labelled.labels.tolist() == [0, 1, 0, 1]
    assert not noticed(labelled.graph, "left aside")
    assert read_graph(edges, nodes=nodes, encoder=trained.encoder).num_classes == 0


def test_unseen_values_are_zeros_with_a_word(tmp_path, trained):
    graph = again(tmp_path, part(colour=["red", "green", "pink", "blue"]), trained)
    table = dict(zip(graph.feature_names, dense(graph.features).t().tolist(), strict=True))
    assert (table["colour=blue"], table["colour=red"]) == ([0, 0, 0, 1], [1, 0, 0, 0])
    assert noticed(graph, "Values of 'colour' that the training had not are no feature: 'green'")
    assert again(tmp_path, part(colour=["pink"] * 4), trained).num_nodes == 4  # all of them new


def test_one_unseen_value_that_is_a_number_is_no_fault_of_the_column(tmp_path, trained):
    graph = again(tmp_path, part(colour=["red", "42", "blue", "red"]), trained)
    assert noticed(graph, "had not are no feature: '42'")


@pytest.mark.parametrize("count", [3, 38])  # one-hot, hashed
@pytest.mark.parametrize("spelled", ["{}", "{}.0"])
def test_categories_that_gaps_have_made_floats_are_the_same_categories(tmp_path, count, spelled):
    codes = [k % count for k in range(COUNT)]
    graph = read(tmp_path, {"code": map(spelled.format, codes)}, categorical="code")
    expected = dense(graph.features)[:4]
    for again_spelled in ("{}", "{}.0", "{}."):
        edges, nodes = write(
            tmp_path, {"code": map(again_spelled.format, codes[:4])}, "source,target\nn0,n1\n"
        )
        other = read_graph(edges, nodes=nodes, encoder=graph.encoder).graph
        assert torch.equal(dense(other.features), expected)
        assert not noticed(other, "no feature")


def test_a_gap_among_large_numbers_is_filled_with_their_mean(tmp_path):
    """Seconds since 1970 have steps of 128 as float32; the mean is that of the numbers."""
    seconds = [1.7e9 + 7.25 * k for k in range(COUNT)]
    seconds[3] = ""
    gap = dense(read(tmp_path, {"seconds": seconds}).features)[3, 0]
    assert gap.item() == pytest.approx(0, abs=1e-6)


def test_columns_without_any_value_fit_every_kind(tmp_path, trained):
    """An empty column has no type in Parquet; in a text it is as good as any."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    empty = dict.fromkeys(MIXED, [""] * 4)
    expected = dense(again(tmp_path, empty, trained).features)
    untyped = {name: pa.nulls(4) for name in MIXED}
    write_table(pa.table({"id": [f"n{k}" for k in range(4)]} | untyped), tmp_path / "n.parquet")
    graph = read_graph(
        tmp_path / "again" / "edges.csv", nodes=tmp_path / "n.parquet", encoder=trained.encoder
    ).graph
    torch.testing.assert_close(dense(graph.features), expected, rtol=0, atol=0)
    floats = {name: pa.nulls(4, pa.float64()) for name in MIXED}  # as pandas has them
    write_table(pa.table({"id": [f"n{k}" for k in range(4)]} | floats), tmp_path / "f.parquet")
    graph = read_graph(
        tmp_path / "again" / "edges.csv", nodes=tmp_path / "f.parquet", encoder=trained.encoder
    ).graph
    torch.testing.assert_close(dense(graph.features), expected, rtol=0, atol=0)
    fitted = read_graph(tmp_path / "again" / "edges.csv", nodes=tmp_path / "n.parquet").graph
    assert noticed(fitted, "Column 'income' is left out: it has no value", Caution)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"income": None}, r"columns of the training. It lacks 'income' \(1 in all\)"),
        ({"income": ["a", "b", "c", "d"]}, "Column 'income' of .* must hold numbers. Got 'a' in l"),
        ({"flag": ["yes", "no", "7", "no"]}, "Column 'flag' .* must hold truth values. Got '7' in"),
        ({"born": ["1", "2", "3", "4"]}, "Column 'born' .* must hold dates as 2024-12-31. Got '1'"),
        (
            {"colour": [1, 2, 3, 4]},
            "'colour' must hold values as in .* 'blue'. Got the numbers '1'",
        ),
        ({"income": ["inf", 1, 2, 3]}, "column 'income' of .*: line 2 .*--impute mean"),
    ],
)
def test_other_columns_are_refused_by_name(tmp_path, trained, changes, sentence):
    with pytest.raises(GraphError, match=sentence):
        again(tmp_path, part(**changes), trained)


def test_gaps_are_filled_as_in_training(tmp_path, trained):
    gap = part(income=["", *MIXED["income"][1:4]])
    for options in ({"impute": "mean"}, {}):
        graph = again(tmp_path, gap, trained, **options)
        assert dense(graph.features)[0, 0].item() == pytest.approx(0, abs=1e-4)
    assert noticed(graph, "Gaps are filled with the mean, or the most frequent value, of")
    # --drop is refused here: what the advice says must hold for the training.
    told = r"column 'income' of .*: line 2 .*--impute mean .*train without it: --drop income"
    with pytest.raises(GraphError, match=told):
        again(tmp_path, gap, trained, impute="none")
    filled = read(tmp_path, {**MIXED, "income": ["", *MIXED["income"][1:]]}, impute="indicator")
    alike = again(tmp_path, gap, filled)
    torch.testing.assert_close(dense(alike.features), dense(filled.features)[:4], rtol=0, atol=0)


def test_the_way_of_encoding_is_settled(tmp_path, trained):
    with pytest.raises(SettingsError, match=r"settled by the training\. Leave out --columns"):
        again(tmp_path, part(), trained, feature_scaling="none")
    with pytest.raises(GraphError, match="trained on columns of a node table: 'income'"):
        read_graph(tmp_path / "edges.csv", encoder=trained.encoder)


def test_degrees_of_another_graph_have_the_same_columns(tmp_path):
    (tmp_path / "hub.csv").write_text("source,target\n" + "".join(f"h,n{k}\n" for k in range(99)))
    (tmp_path / "e.csv").write_text(EDGES)
    ring = read_graph(tmp_path / "e.csv", features="degree").graph
    hub = read_graph(tmp_path / "hub.csv", encoder=ring.encoder).graph
    assert hub.num_features == ring.num_features == 2
    plain = read_graph(tmp_path / "e.csv").graph
    other = read_graph(tmp_path / "hub.csv", encoder=plain.encoder).graph
    assert noticed(other, "laplacian features of another graph have axes of their own", Caution)


# New nodes


def extended(tmp_path, trained, edges, nodes=None, **options):
    from aspect.data.source import Reading

    (tmp_path / "new_edges.csv").write_text(edges)
    columns = part(2) if nodes is None else nodes
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(map(str, (f"new{k}", *row))) for k, row in enumerate(rows)]
    (tmp_path / "new.csv").write_text("\n".join([",".join(("id", *columns)), *lines]))
    reading = Reading(nodes=str(tmp_path / "new.csv"), **options)
    return extend_graph(trained, tmp_path / "new_edges.csv", reading, trained.encoder)


def test_new_nodes_join_the_graph(tmp_path, trained):
    graph = extended(tmp_path, trained, "source,target\nnew0,n7\nnew1,new0\nn0,n1\n")
    assert graph.ids == (*trained.ids, "new0", "new1")
    torch.testing.assert_close(dense(graph.features)[:COUNT], dense(trained.features))
    torch.testing.assert_close(dense(graph.features)[COUNT:], dense(trained.features)[:2])
    assert graph.num_edges == COUNT + 2
    assert graph.encoder == trained.encoder


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [
        ("source,target\nnew0,n99\n", "join nodes of the graph and of .*'n99' in line 2"),
        ("source;target\nnew0;n1\n", "--delimiter"),
    ],
)
def test_new_edges_that_are_refused(tmp_path, trained, edges, sentence):
    with pytest.raises(Exception, match=sentence):
        extended(tmp_path, trained, edges)


def test_new_nodes_that_are_refused(tmp_path, trained):
    from aspect.data.source import Reading

    edges = "source,target\nnew0,n7\n"
    with pytest.raises(GraphError, match="It lacks 'city'"):
        extended(tmp_path, trained, edges, part(2, city=None))
    known = Reading(nodes=str(tmp_path / "nodes.csv"))
    with pytest.raises(GraphError, match=r"must be new. The graph has 'n0', .* \(40 in all\)"):
        extend_graph(trained, tmp_path / "edges.csv", known, trained.encoder)
    with pytest.raises(SettingsError, match="table of the new nodes with --nodes"):
        extend_graph(trained, tmp_path / "edges.csv", Reading(), trained.encoder)
    with pytest.raises(GraphError, match="its features are of no table"):
        extend_graph(trained, tmp_path / "edges.csv", known, None)
    laplacian = FeatureEncoder(structural="laplacian", width=3)
    with pytest.raises(GraphError, match=r"of the kind laplacian\. .*--features degree"):
        extend_graph(trained, tmp_path / "edges.csv", known, laplacian)


def test_new_nodes_of_a_graph_without_columns_get_degrees(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    ring = read_graph(tmp_path / "e.csv", features="degree").graph
    graph = extended(tmp_path, ring, "source,target\nnew0,n1\n", {"x": [1, 2]})
    assert graph.num_features == ring.num_features
    assert dense(graph.features)[COUNT:].tolist() == [[0, 1], [1, 0]]


def test_a_parsed_column_knows_its_gaps():
    values = np.array([1.0, np.nan, np.inf])
    assert ParsedColumn("x", "number", values).missing.tolist() == [False, True, True]
    texts = np.array(["a", None], dtype=object)
    assert ParsedColumn("t", "text", texts).missing.tolist() == [False, True]


def test_weights_of_new_edges_are_kept(tmp_path, trained):
    edges = "source,target,weight\nnew0,n7,3\nnew1,new0,0\nn0,n1,2\n"
    graph = extended(tmp_path, trained, edges)
    weights = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.weights, strict=True))
    assert (weights[40, 7], weights[7, 40]) == (3, 3)
    assert (weights[0, 1], weights[1, 0]) == (3, 3)  # one of the known edge, two of the new one
    assert weights[1, 2] == 1
    assert (40, 41) not in weights  # zero is no edge
    aside = extended(tmp_path, trained, edges, unweighted=True)
    assert aside.weights is None
    assert aside.num_edges == COUNT + 1
