"""Tables of the user's own: what is kept, what is cleaned, and every refusal with its sentence."""

import datetime
import decimal
import subprocess
import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aspect.data import files
from aspect.data.features import dense, with_structural_features
from aspect.data.graph import LabelledGraph
from aspect.data.graph_tables import read_tables
from aspect.data.source import Reading, read_graph
from aspect.errors import AspectError, FileError, GraphError, SettingsError

EDGES = "source,target\na,b\nb,c\n"
STRUCTURAL = Reading(features="degree")
NODES = "id,x,z,label\na,1,2,red\nb,3,4,blue\nc,5,6.5,red\n"


def read(tmp_path, edges=EDGES, nodes=NODES, **options) -> LabelledGraph:
    """Write both tables (text or bytes) and read them back as a graph."""
    paths = []
    for name, content in (("edges.csv", edges), ("nodes.csv", nodes)):
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        paths.append(tmp_path / name)
    before = sorted(tmp_path.iterdir())
    try:
        return read_graph(paths[0], nodes=paths[1], **options)
    finally:
        assert sorted(tmp_path.iterdir()) == before  # reading writes nothing


def read_parquet(tmp_path, nodes: dict, edges: dict | None = None, **options) -> LabelledGraph:
    edges = edges or {"source": ["a", "b"], "target": ["b", "c"]}
    pa.parquet.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pa.parquet.write_table(pa.table(edges), tmp_path / "edges.parquet")
    return read_graph(tmp_path / "edges.parquet", nodes=tmp_path / "nodes.parquet", **options)


def refused(sentence: str, kind: type[AspectError] = GraphError):
    return pytest.raises(kind, match=sentence)


def nodes_with(*cells: str) -> str:
    """Nodes a, b and c with these cells in one column `x`."""
    return "id,x\n" + "".join(f"{n},{cell}\n" for n, cell in zip("abc", cells, strict=True))


def test_small_graph(tmp_path):
    labelled = read(tmp_path)
    assert labelled.graph.ids == ("a", "b", "c")
    assert dense(labelled.graph.features).tolist() == [[1, 2], [3, 4], [5, 6.5]]
    assert labelled.graph.feature_names == ("x", "z")
    assert labelled.graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert labelled.class_names == ("blue", "red")
    assert labelled.labels.tolist() == [1, 0, 1]


# Refusals: what is wrong, what was given, what would be right


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        # what is no finite number
        *(
            (
                nodes_with("1", cell, "2"),
                r"infinite at row 'b' column 'x' \(1 in all\)\. .*--impute",
            )
            for cell in ("", "NA", "nan", "-inf", "1e999")
        ),
        ("id,x,z\na,,\nb,,\nc,,\n", r"row 'c' column 'x', \.\.\. \(6 in all\)"),
        # what is no number at all
        *(
            (nodes_with("1", "2", f'"{cell}"'), "Feature columns must be numbers")
            for cell in ("0x1F", "1_000", "1,5", "--1", "one")
        ),
        (
            "id,x,colour,flag\na,1,red,true\nb,2,blue,false\nc,3,3,true\n",
            r"'colour' with 'red' at node 'a', 'flag' with 'true' at node 'a' \(2 in all\)",
        ),
        (nodes_with("1", "2", "3O"), "'x' with '3O' at node 'c'"),
        # what loses digits
        (
            nodes_with("1", "9007199254740993", "3"),
            r"below 2\*\*53.*'x' has 9007199254740993 at node 'b' \(1 in all\)",
        ),
        (
            nodes_with("16777216", "16777217", "3"),
            r"different as float32.*16777216 at node 'a', 16777217 at node 'b' \(2 in all\)",
        ),
        (nodes_with("1", "1e39", "3"), r"fit float32, up to 3.4e38. Column 'x' has 1e\+39 at"),
        ("id,label\na,1\nb,2\nc,1\n", "no features.*--features degree, identity, random or lap"),
        # ids and columns
        ("id,x\na,1\nb,2\nb,3\nc,4\n", r"unique. Repeated in '.*nodes.csv': 'b' \(2 rows\)"),
        ("id,x,label,y\na,1,u,1\nb,1,v,1\nc,1,v,1\n", "'label' and 'y'. Pass --label"),
        ("id,label,Label\na,1,1\nb,1,1\nc,1,1\n", "'label' and 'Label'. Pass --label"),
        ("id,Node,x\na,1,1\nb,2,1\nc,3,1\n", "'id' and 'Node'. Rename or remove all but the one"),
    ],
)
def test_node_tables_that_are_refused(tmp_path, nodes, sentence):
    with refused(sentence):
        read(tmp_path, nodes=nodes)


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [
        ("source,target\n" + "".join(f"a,u{k}\n" for k in range(9)), r"'u4', \.\.\. \(9 in all\)"),
        ("source,target\na, b\nb,c\n", "case, spaces, Unicode form or leading zeros: ' b' and 'b'"),
        ("source,Source,target\na,b,c\n", "'source' and 'Source'. Rename or remove all but one"),
        ("source,target,weight\na,b,heavy\nb,c,1\n", "Edge weights must be positive numbers"),
        *(
            (f"source,target,weight\na,b,1\nb,c,{weight}\n", r"numbers. Got .* in row 2 \(1 in all")
            for weight in ("-1", "nan", "inf", "0")
        ),
    ],
)
def test_edge_tables_that_are_refused(tmp_path, edges, sentence):
    with refused(sentence):
        read(tmp_path, edges)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"nodes": NODES.encode("utf-16")}, "is utf-16 text, not utf-8. Pass --encoding utf-16"),
        ({"nodes": NODES.encode("utf-16-le")}, "NUL byte in line 1.*--encoding utf-16"),
        ({"edges": "source,target\na,b\nb,\0c\n"}, "NUL byte in line 3"),
        (
            {"nodes": "id,x\na,1\nb,2\ncafé,3\n".encode("latin-1")},
            r"not utf-8 text \(byte 0xe9 in line 4\).*--encoding",
        ),
        ({"edges": EDGES.replace(",", ";")}, "read as 'source;target'. .*--delimiter ';'"),
        ({"nodes": NODES.replace(",", ";")}, "--delimiter ';'"),
        (
            {"edges": "u,v,since\na,b,1\nb,c,2\n"},
            "name them source and target.*'u' | 'v' | 'since'",
        ),
        ({"nodes": "id,x,x\na,1,2\nb,1,2\nc,1,2\n"}, "must have different names. .*repeated 'x'"),
        (
            {"nodes": "id,x,z\na,1,2\nb,3\n\nc,5,6,7\n"},
            r"must have 3 cells .* line 3 has 2, line 5 has 4 \(2 in all\).*'b' | '3'",
        ),
        ({"edges": "source,target\na,b\nc\n"}, "must have 2 cells as its header has: line 3 has 1"),
        ({"edges": 'source,target\na,b\nb,"c\n'}, "must enclose whole cells. The one in line 3"),
        ({"edges": 'source,target\n"a,b\n"b,c\n'}, "must enclose whole cells. The one in line 2"),
        ({"edges": ""}, "is empty. A table needs a header line and rows"),
        ({"nodes": b"\xef\xbb\xbf"}, "is empty"),
        ({"edges": "source,target\n"}, "holds no rows. Its columns are 'source' | 'target'"),
        ({"nodes": "id," + ",".join(map(str, range(50_001)))}, "at most 50000 columns. Got 50002"),
        # a first line that is a row
        ({"edges": "0,1\n1,2\n2,0\n"}, "must name the columns. Got '0' | '1', which looks like"),
        ({"edges": "a,b\nb,c\n"}, "must name the columns. Got 'a' | 'b', which looks like a row"),
        ({"nodes": "a,0.5,1\nb,1.5,2\nc,3,4\n"}, "Got 'a' | '0.5'.*looks like a row"),
    ],
)
def test_texts_that_are_refused(tmp_path, changed, sentence):
    with refused(sentence, FileError):
        read(tmp_path, **changed)


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("impute", "median", "'impute' of the graph must be 'zero' or 'mean'. Got 'median'"),
        ("encoding", "klingon", "one that Python knows, such as utf-8 or latin-1. Got 'klingon'"),
        ("encoding", "base64", "one that Python knows"),
        ("encoding", "nul\0", "one that Python knows"),
        *(("delimiter", mark, "must be one ASCII character") for mark in ("", ";;", "é", '"')),
        ("label", "klass", "must be one of 'x' | 'z' | 'label'. Got 'klass'"),
    ],
)
def test_options_that_are_refused(tmp_path, option, value, sentence):
    with pytest.raises((SettingsError, GraphError), match=sentence):
        read(tmp_path, **{option: value})


def test_hostile_names_are_shown_escaped(tmp_path):
    with pytest.raises(GraphError) as info:
        read(tmp_path, "source,target\na,\x1b[31mred\nb,c\n")
    assert "\x1b" not in str(info.value)


def test_table_beyond_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "available_bytes", lambda: 64)
    with refused("at most 16 fit the memory", FileError):
        read(tmp_path)


# Features


@pytest.mark.parametrize(("impute", "value"), [("zero", 0.0), ("mean", 3.0)])
def test_imputed_when_asked(tmp_path, impute, value):
    graph = read(tmp_path, nodes="id,x,z,e\na,1,2,\nb,,4,\nc,5,inf,\n", impute=impute).graph
    assert dense(graph.features)[:, 0].tolist() == [1, value, 5]
    assert dense(graph.features)[2, 1].item() == (0 if impute == "zero" else 3)
    assert dense(graph.features)[:, 2].tolist() == [0, 0, 0]  # nothing to average
    notice = f"5 missing or infinite features in 3 columns set to {impute}"
    assert any(notice in n for n in graph.notices)


@pytest.mark.parametrize("cell", ["+1", " 1 ", "1.", "1e0", "1.0E+0"])
def test_ways_to_write_a_number(tmp_path, cell):
    graph = read(tmp_path, nodes=nodes_with(cell, "2", "3")).graph
    assert dense(graph.features)[0].item() == 1


def test_structural_features_take_the_place_of_all_others(tmp_path):
    structural = read(tmp_path, nodes="id,x\na,red\nb,\nc,1\n", features="degree").graph
    assert structural.feature_names is None
    assert with_structural_features(read(tmp_path).graph, "degree").feature_names is None


# Ids are strings, exactly as written


def test_leading_zeros_make_another_node(tmp_path):
    labelled = read(tmp_path, "s,t\n007,7\n7,8\n", "id,x\n007,1\n7,2\n8,3\n")
    assert labelled.graph.ids == ("007", "7", "8")
    assert labelled.graph.num_edges == 2
    notice = "leading zeros, and are kept apart: '007' and '7'"
    assert any(notice in n for n in labelled.graph.notices)


@pytest.mark.parametrize(
    ("one", "twin"), [("a", "A"), ("a", " a"), ("é", unicodedata.normalize("NFD", "é"))]
)
def test_ids_that_a_looser_reader_would_merge_are_noticed(tmp_path, one, twin):
    graph = read(tmp_path, f"s,t\n{one},b\n", f"id,x\n{one},1\n{twin},2\nb,3\n").graph
    assert graph.ids == (one, twin, "b")
    assert any("kept apart" in notice for notice in graph.notices)


def test_names_that_other_readers_take_for_missing_or_round(tmp_path):
    names = ["NA", "null", "nan", "", "9007199254740992", "9007199254740993", "9" * 23]
    nodes = "id,x\n" + "".join(f"{name},{k}\n" for k, name in enumerate(names))
    edges = "s,t\n" + "".join(f"{a},{b}\n" for a, b in pairwise(names))
    graph = read(tmp_path, edges, nodes).graph
    assert graph.ids == tuple(names)
    assert graph.num_edges == len(names) - 1
    assert not graph.integer_ids


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    names=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8),
        min_size=2,
        max_size=6,
        unique=True,
    )
)
def test_any_name_survives(tmp_path, names):
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    nodes = "id,x\n" + "".join(f"{name},1\n" for name in quoted)
    edges = "source,target\n" + "".join(f"{quoted[0]},{name}\n" for name in quoted[1:])
    graph = read(tmp_path, edges, nodes).graph
    assert graph.ids == tuple(names)
    assert graph.num_edges == len(names) - 1


# Edges


def test_loops_and_copies_are_removed_and_counted(tmp_path):
    graph = read(tmp_path, "source,target\na,b\na,b\nb,a\nc,c\nb,c\n").graph
    assert graph.num_edges == 2
    text = " ".join(graph.notices)
    assert "1 self-loops removed" in text
    assert "1 duplicate edges removed" in text
    with refused("2 edges lack their reverse"):
        read(tmp_path, directed="error")


def test_weights_are_left_aside_and_said(tmp_path):
    graph = read(tmp_path, "source,target,weight\na,b,0.5\na,b,5\nb,c,\n").graph
    assert graph.num_edges == 2
    assert any("Edge weights are left aside" in notice for notice in graph.notices)
    graph = read(tmp_path, "source,target,weight\na,b,1\nb,c,1.0\n").graph
    assert not any("weights" in notice for notice in graph.notices)


def test_named_columns_may_stand_anywhere(tmp_path):
    graph = read(tmp_path, "kind,Target,Source\nx,b,a\ny,c,b\n").graph
    assert graph.num_edges == 2
    assert any("left aside: 'kind'" in notice for notice in graph.notices)


def test_nodes_may_be_called_as_the_columns(tmp_path):
    graph = read(tmp_path, "from,to\nfrom,to\nto,x\n", "id,f\nfrom,1\nto,2\nx,3\n").graph
    assert graph.num_edges == 2
    assert read(tmp_path, nodes="id,0,1\na,1,2\nb,3,4\nc,5,6\n").graph.num_features == 2


def test_without_a_node_table_the_nodes_are_those_with_edges(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    with refused("no features"):
        read_tables(tmp_path / "e.csv")
    graph = read_tables(tmp_path / "e.csv", STRUCTURAL).graph
    assert graph.ids == ("a", "b", "c")


def test_a_first_line_that_nothing_vouches_for_is_said_or_refused(tmp_path):
    (tmp_path / "e.csv").write_text("p,q\na,b\nb,c\n")
    graph = read_tables(tmp_path / "e.csv", STRUCTURAL).graph
    assert any("is taken for the names of its columns: 'p' | 'q'." in n for n in graph.notices)
    (tmp_path / "e.csv").write_text("a,q\na,b\nb,c\n")  # a is a node: the header is missing
    with refused("which looks like a row. Add a header line", FileError):
        read_tables(tmp_path / "e.csv", STRUCTURAL)
    graph = read(tmp_path, nodes="name,x\na,1\nb,2\nc,3\n").graph
    assert any(
        "first column of" in n and "'name', is taken for the ids" in n for n in graph.notices
    )


# Texts


def test_encodings_and_marks(tmp_path):
    mark = b"\xef\xbb\xbf"  # no part of the first name
    assert read(tmp_path, mark + EDGES.encode(), mark + NODES.encode()).graph.num_edges == 2
    both = {"edges": EDGES.encode("utf-16"), "nodes": NODES.encode("utf-16")}
    assert read(tmp_path, **both, encoding="utf-16").graph.num_edges == 2
    both = {"edges": "s,t\na,é\n".encode("latin-1"), "nodes": "id,x\na,1\né,3\n".encode("latin-1")}
    assert read(tmp_path, **both, encoding="latin-1").graph.ids == ("a", "é")


@pytest.mark.parametrize("word", ["tab", "\\t", "\t", ";", "semicolon"])
def test_delimiters_can_be_spelt(tmp_path, word):
    mark = ";" if word in (";", "semicolon") else "\t"
    edges, nodes = EDGES.replace(",", mark), NODES.replace(",", mark)
    assert read(tmp_path, edges, nodes, delimiter=word).graph.num_edges == 2


def test_tsv_and_other_line_ends_need_no_option(tmp_path):
    (tmp_path / "e.tsv").write_text(EDGES.replace(",", "\t"))
    (tmp_path / "n.tsv").write_text(NODES.replace(",", "\t"))
    assert read_graph(tmp_path / "e.tsv", nodes=tmp_path / "n.tsv").graph.num_edges == 2
    for end in ("\r\n", "\r"):
        labelled = read(tmp_path, EDGES.replace("\n", end), NODES.replace("\n", end))
        assert labelled.class_names == ("blue", "red")


def test_quotes_and_line_breaks_that_are_meant(tmp_path):
    edges = 'source,target\n"a,1","b\nb"\n"b\nb","say ""c"""\n'
    nodes = 'id,x\n"a,1",1\n"b\nb",2\n"say ""c""",3\n'
    assert read(tmp_path, edges, nodes).graph.ids == ("a,1", "b\nb", 'say "c"')
    assert read(tmp_path, 's,t\n5" pipe,b\n', 'id,x\n5" pipe,1\nb,2\n').graph.num_edges == 1


# Parquet


def test_types_of_parquet_that_are_no_numbers(tmp_path):
    day = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    nodes = {
        "id": ["a", "b", "c"],
        "born": [day, day, day],
        "price": [decimal.Decimal("1.5")] * 3,
        "tags": [[1], [2], [3]],
        "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
        "digits": ["1", "2", "3"],
        "fine": [1.0, 2.0, 3.0],
    }
    with refused("'born' of type timestamp.*'price' of type decimal.*'tags' of type list") as info:
        read_parquet(tmp_path, nodes)
    assert "'digits' of type string" in str(info.value)
    assert "'kind' of type dictionary" in str(info.value)
    assert "'fine'" not in str(info.value)


def test_parquet_numbers_of_every_width(tmp_path):
    nodes = {
        "id": ["a", "b", "c"],
        "flag": [True, False, True],
        "small": pa.array([1, 2, 3], pa.int8()),
        "wide": pa.array([1, 2, 3], pa.uint64()),
        "half": pa.array(np.array([0.5, 1, 2], dtype=np.float16)),
    }
    graph = read_parquet(tmp_path, nodes).graph
    assert dense(graph.features)[0].tolist() == [1, 1, 1, 0.5]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"x": [1, 2, 2**53 + 1]}, r"below 2\*\*53.*9007199254740993 at node 'c'"),
        ({"x": [1, 2**24 + 1, 2**24]}, "different as float32"),
        ({"x": [1, None, 2]}, "infinite at row 'b' column 'x'"),
        ({"id": [1.0, 2.0, 3.0]}, "strings or integers. Column 'id' of .* is of type double"),
        ({"id": ["a", None, "c"]}, r"must have its node ids. Column 'id' of .* in rows 1 \(1 in"),
        ({"y": [0.5, 1.5, 2.0]}, "classes, not measurements. Column 'y' has fractions"),
        ({"y": [0.0, float("inf"), 2.0]}, "has fractions or infinities"),
        ({"y": [[1], [2], [3]]}, "Labels must be strings or integers. Column 'y' is of type list"),
    ],
)
def test_parquet_tables_that_are_refused(tmp_path, columns, sentence):
    with refused(sentence):
        read_parquet(tmp_path, {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]} | columns)


@pytest.mark.parametrize("content", [b"", b"id,x\n1,2\n", b"PAR1", b"PAR1" + bytes(90) + b"PAR1"])
def test_what_is_no_parquet(tmp_path, content):
    (tmp_path / "e.parquet").write_bytes(content)
    with refused("Parquet file", FileError):
        read_tables(tmp_path / "e.parquet")


def test_truncated_anywhere(tmp_path):
    path = tmp_path / "e.parquet"
    pa.parquet.write_table(pa.table({"source": ["a"], "target": ["b"]}), path)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 37):
        path.write_bytes(whole[:cut])
        with refused("Parquet file", FileError):
            read_tables(path)


def test_changed_bits_of_pages_with_checksums_are_noticed(tmp_path):
    path = tmp_path / "e.parquet"
    table = pa.table({"source": [f"node {k}" for k in range(99)], "target": ["hub"] * 99})
    pa.parquet.write_table(table, path, write_page_checksum=True, compression="none")
    whole = bytearray(path.read_bytes())
    place = whole.index(b"node 7")
    whole[place + 5] ^= 1
    path.write_bytes(whole)
    with refused("cut off or damaged", FileError):
        read_tables(path)


def test_run_lengths_that_would_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "e.parquet"
    pa.parquet.write_table(pa.table({"source": ["a"] * 10**5, "target": ["b"] * 10**5}), path)
    monkeypatch.setattr(files, "available_bytes", lambda: 10**6)
    with refused("holds 1600000 bytes; at most 250000", FileError):
        read_tables(path)


def test_a_long_text_repeated_beyond_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "e.parquet"
    pa.parquet.write_table(pa.table({"source": ["a" * 10**6] * 50, "target": ["b"] * 50}), path)
    assert path.stat().st_size < 10**6  # the text is stored once
    monkeypatch.setattr(files, "available_bytes", lambda: 10**8)
    with refused(r"holds 500000\d\d bytes; at most 25000000", FileError):
        read_tables(path)


def test_integer_ids_are_remembered_where_they_have_that_type(tmp_path):
    edges = {"source": [1, 7], "target": [7, -2]}
    nodes = {"id": pa.array([1, 7, -2], pa.int32()), "x": [1.0, 2.0, 3.0]}
    graph = read_parquet(tmp_path, nodes, edges).graph
    assert (graph.ids, graph.integer_ids) == (("1", "7", "-2"), True)
    assert graph.to(torch.float64).integer_ids
    assert read_tables(tmp_path / "edges.parquet", STRUCTURAL).graph.integer_ids
    mixed = {"source": pa.array([7]), "target": pa.array(["007"]).dictionary_encode()}
    pa.parquet.write_table(pa.table(mixed), tmp_path / "edges.parquet")
    alone = read_tables(tmp_path / "edges.parquet", STRUCTURAL).graph
    assert (alone.ids, alone.integer_ids) == (("007", "7"), False)


# Labels


def test_integers_are_ordered_as_numbers_and_minus_one_is_unknown(tmp_path):
    labelled = read(tmp_path, nodes="id,x,Y\na,1,10\nb,1,9\nc,1,-1\n")
    assert labelled.class_names == ("9", "10")
    assert labelled.labels.tolist() == [1, 0, -1]


def test_missing_labels_are_unknown_and_counted(tmp_path):
    labelled = read(tmp_path, nodes="id,x,label\na,1,u\nb,1,\nc,1,NaN\n")
    assert labelled.labels.tolist() == [0, -1, -1]
    assert any("2 of 3 nodes have no label" in notice for notice in labelled.graph.notices)


def test_column_by_name_and_a_class_per_node(tmp_path):
    labelled = read(tmp_path, nodes="id,x,kind\na,1,u\nb,1,v\nc,1,w\n", label="kind")
    assert labelled.class_names == ("u", "v", "w")
    assert any("class of its own: is 'kind'" in notice for notice in labelled.graph.notices)


def test_parquet_labels(tmp_path):
    nodes = {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}
    assert read_parquet(tmp_path, nodes | {"y": [2.0, None, 11.0]}).class_names == ("2", "11")
    assert read_parquet(tmp_path, nodes | {"y": [True, False, True]}).num_classes == 2
    kinds = pa.array(["u", "v", "u"]).dictionary_encode()
    assert read_parquet(tmp_path, nodes | {"y": kinds}).class_names == ("u", "v")


# Threads of Arrow

# Refuses a table of a header alone, or says how many threads reading it started.
SCRIPT = """
import os, sys
from pathlib import Path
from aspect.errors import FileError
from aspect.data.tables import read_table
before = len(os.listdir("/proc/self/task"))
try:
    read_table(Path(sys.argv[1]))
except FileError:
    raise SystemExit(2)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("name", ["nodes.csv", "nodes.parquet"])
def test_reading_starts_no_pool_of_threads_that_outlives_a_refusal(tmp_path, name):
    def run():
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / name)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    (tmp_path / "nodes.csv").write_text(NODES)
    pa.parquet.write_table(pa.table({"id": ["a"], "x": [1.0]}), tmp_path / "nodes.parquet")
    assert int(run().stdout) <= 1  # the one by which Arrow reads a text
    (tmp_path / "nodes.csv").write_text("id,x\n")
    empty = pa.table({"id": pa.array([], pa.string())})
    pa.parquet.write_table(empty, tmp_path / "nodes.parquet")
    done = run()
    assert (done.returncode, done.stderr) == (2, "")
