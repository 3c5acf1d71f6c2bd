"""Tables of the user's own: what is kept, what is cleaned, and every refusal with its sentence."""

import datetime
import decimal
import gzip
import subprocess
import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aspect.data import files
from aspect.data.features import dense
from aspect.data.graph import LabelledGraph
from aspect.data.source import Reading, read_graph
from aspect.data.tables import read_tables
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
    return read_graph(paths[0], nodes=paths[1], **options)


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


def noticed(labelled: LabelledGraph, text: str) -> bool:
    return any(text in notice for notice in labelled.graph.notices)


def test_small_graph(tmp_path):
    labelled = read(tmp_path, feature_scaling="none")
    assert labelled.graph.ids == ("a", "b", "c")
    assert dense(labelled.graph.features).tolist() == [[1, 2], [3, 4], [5, 6.5]]
    assert labelled.graph.feature_names == ("x", "z")
    assert labelled.graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert labelled.class_names == ("blue", "red")
    assert labelled.labels.tolist() == [1, 0, 1]
    assert len(list(tmp_path.iterdir())) == 2  # reading writes nothing


@pytest.mark.parametrize(
    ("nodes", "sentence"),
    [
        (
            nodes_with("1", "-inf", "1e999"),
            r"column 'x' of .*: line 3, line 4 \(2 in all\)\. .*--im",
        ),
        (nodes_with("1", "red", "3"), r"'x' of .* numbers but for 'red' in line 3 \(1 in all\)"),
        (nodes_with("2024-01-31", "soon", "2024-03-01"), "dates but for 'soon' in line 3"),
        (nodes_with("31.1.24", "1.2.24", "3.3.24"), "which part is the day. Write them as 2024-"),
        (nodes_with("2024-01-31", "2024-02-31", "2024-03-01"), "dates .* Got '2024-02-31' in line"),
        (
            nodes_with("1", "9007199254740993", "3"),
            r"below 2\*\*53.*'x' has '9007199254740993' in line 3 \(1 in all\)",
        ),
        (
            nodes_with("16777216", "16777217", "3"),
            r"different as float32.*'16777216' in line 2, '16777217' in line 3 \(2 in all\)",
        ),
        (nodes_with("1", "1e39", "3"), r"fit float32, up to 3.4e38. Column 'x' has '1e39' in"),
        ("id,x\na,1\nb,2\nb,3\nc,4\n", r"unique. Repeated: 'b' in line 3 and line 4 \(1 in all"),
        ("id,label,Label\na,1,1\nb,1,1\nc,1,1\n", "'label' and 'Label'. Pass --label"),
        ("id,Node,x\na,1,1\nb,2,1\nc,3,1\n", "'id' and 'Node'. Pass --id with the one"),
    ],
)
def test_node_tables_that_are_refused(tmp_path, nodes, sentence):
    with refused(sentence):
        read(tmp_path, nodes=nodes)


@pytest.mark.parametrize(
    ("edges", "sentence"),
    [
        (
            "source,target\n" + "".join(f"a,u{k}\n" for k in range(9)),
            r"'u4' in line 6, \.\.\. \(9 in all\)",
        ),
        ("source,target\na, b\nb,c\n", "case, spaces, Unicode form or leading zeros: ' b' and 'b'"),
        ("source,Source,target\na,b,c\n", "'source' and 'Source'. Rename or remove all but one"),
        (
            "source,target,weight\na,b,heavy\nb,c,NA\n",
            r"must be positive numbers.*has 'heavy' in line 2, 'NA' in line 3 \(2 in all\)",
        ),
        ("source,target,weight\na,b,\nb,c,-1\n", r"no edge. Got -1 at line 3 \(1 in all"),
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
        (
            {"nodes": "id,x\na,1\nb,2\ncafé,3\n".encode("latin-1")},
            r"not utf-8 text \(byte 0xe9 in line 4\).*--encoding",
        ),
        ({"edges": EDGES.replace(",", ";")}, "read as 'source;target'. .*--delimiter ';'"),
        ({"edges": "u\na\n"}, r"two columns of node ids, or name .* Got 1 in .* read as 'u'\."),
        ({"edges": "u,v,since\na,b,1\nb,c,2\n"}, "name them source and target.*'u' | 'v' | 'since"),
        ({"nodes": "id,x,x\na,1,2\nb,1,2\nc,1,2\n"}, "must have different names. .*repeated 'x'"),
        (
            {"nodes": "id,x,z\na,1,2\nb,3\n\nc,5,6,7\n"},
            r"must have 3 cells .* line 3 has 2, line 5 has 4 \(2 in all\).*'b' | '3'",
        ),
        ({"edges": 'source,target\na,b\nb,"c\n'}, "must enclose whole cells. The one in line 3"),
        ({"edges": 'source,target\n"a,b\n"b,c\n'}, "must enclose whole cells. The one in line 2"),
        ({"nodes": b"\xef\xbb\xbf"}, "is empty. A table needs a header line and rows"),
        ({"edges": "source,target\n"}, "holds no rows. Its columns are 'source' | 'target'"),
        ({"nodes": "id," + ",".join(map(str, range(50_001)))}, "at most 50000 columns. Got 50002"),
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
        ("impute", "median", "'impute' of .* 'indicator', 'mean', 'zero' or 'none'. Got 'median'"),
        ("encoding", "klingon", "one that Python knows, such as utf-8 or latin-1. Got 'klingon'"),
        ("encoding", "base64", "one that Python knows"),
        ("delimiter", ";;", "must be one ASCII character"),
        ("label", "klass", "must be one of the columns 'id' | 'x' | 'z' | 'label' of .* 'klass'"),
        ("label", "ID", "'ID' holds the ids of"),
    ],
)
def test_options_that_are_refused(tmp_path, option, value, sentence):
    with pytest.raises((SettingsError, GraphError), match=sentence):
        read(tmp_path, **{option: value})


def test_the_case_of_a_label_column_does_not_matter(tmp_path):
    assert read(tmp_path, label="LABEL").class_names == ("blue", "red")


def test_hostile_names_are_shown_escaped(tmp_path):
    with pytest.raises(GraphError) as info:
        read(tmp_path, "source,target\na,\x1b[31mred\nb,c\n")
    assert "\x1b" not in str(info.value)


def test_table_beyond_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "available_bytes", lambda: 64)
    with refused("at most 16 fit the memory", FileError):
        read(tmp_path)


# Features and labels


@pytest.mark.parametrize(("impute", "value"), [("zero", 0.0), ("mean", 3.0)])
def test_imputed_when_asked(tmp_path, impute, value):
    nodes = "id,x,z,e\na,1,2,\nb,NA,4,\nc,5,inf,\n"
    labelled = read(tmp_path, nodes=nodes, impute=impute, feature_scaling="none")
    features = dense(labelled.graph.features)
    assert features[:, 0].tolist() == [1, value, 5]
    assert features[2, 1].item() == (0 if impute == "zero" else 3)
    assert features[:, 2].tolist() == [0, 0, 0]  # nothing to average
    assert noticed(labelled, f"5 missing or infinite features in 3 columns set to {impute}")


def test_ways_to_write_a_number(tmp_path):
    graph = read(tmp_path, nodes=nodes_with("+1", " 1. ", "1.0E+0")).graph
    assert dense(graph.features).tolist() == [[1], [1], [1]]


def test_structural_features_take_the_place_of_all_others(tmp_path):
    structural = read(tmp_path, nodes="id,x\na,red\nb,\nc,1\n", features="degree").graph
    assert structural.feature_names is None


def test_labels_are_ordered_and_may_be_missing(tmp_path):
    labelled = read(tmp_path, nodes="id,x,Y\na,1,10\nb,1,9\nc,1,-1\n")
    assert labelled.class_names == ("9", "10")
    assert labelled.labels.tolist() == [1, 0, -1]
    assert noticed(labelled, "1 of 3 nodes have the label -1, which means no label")
    labelled = read(tmp_path, nodes="id,x,y\na,1,u\nb,1,-1\nc,1,\n")
    assert labelled.class_names == ("-1", "u")  # among names it is a name
    assert not noticed(labelled, "label -1")
    labelled = read(tmp_path, nodes="id,x,label\na,1,u\nb,1,\nc,1,NaN\n")
    assert labelled.labels.tolist() == [0, -1, -1]
    assert noticed(labelled, "2 of 3 nodes have no label")
    labelled = read(tmp_path, nodes="id,x,kind\na,1,u\nb,1,v\nc,1,w\n", label="kind")
    assert labelled.class_names == ("u", "v", "w")
    assert noticed(labelled, "class of its own: is 'kind'")


def test_labels_are_trimmed_as_features_are(tmp_path):
    labelled = read(tmp_path, nodes="id, x, label\na, 1, u\nb, 2,u\nc, 3, NA\n")
    assert labelled.class_names == ("u",)
    assert labelled.labels.tolist() == [0, 0, -1]


def test_labels_that_gaps_have_made_floats_are_integers(tmp_path):
    labelled = read(tmp_path, nodes="id,x,label\na,1,10.0\nb,2,-1.0\nc,3,2.0\n")
    assert labelled.class_names == ("2", "10")
    assert labelled.labels.tolist() == [1, -1, 0]
    labelled = read(tmp_path, nodes="id,x,label\na,1,1.5\nb,2,v1.0\nc,3,1.5\n")
    assert labelled.class_names == ("1.5", "v1.0")


# What pandas leaves in tables


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_index_of_pandas_is_no_feature(tmp_path, name):
    nodes = f"{name},id,x\n0,a,1\n1,b,2\n2,c,4\n"
    labelled = read(tmp_path, f"{name},p,q\n0,a,b\n1,b,c\n", nodes)
    assert labelled.graph.feature_names == ("x",)
    assert labelled.graph.num_edges == 2
    assert noticed(labelled, f"Column {name!r}, the index of pandas, is left aside")
    assert read(tmp_path, nodes=f"{name},x\na,1\nb,2\nc,4\n").graph.ids == ("a", "b", "c")


def test_the_index_of_pandas_in_parquet_holds_the_ids_where_no_other_column_does(tmp_path):
    nodes = {"x": [1.0, 2.0, 4.0], "__index_level_0__": ["a", "b", "c"]}
    assert read_parquet(tmp_path, nodes).graph.ids == ("a", "b", "c")
    graph = read_parquet(tmp_path, {"id": ["c", "b", "a"], **nodes}).graph
    assert graph.ids == ("c", "b", "a")
    assert graph.feature_names == ("x",)
    asked = read_parquet(
        tmp_path, {"id": ["c", "b", "a"], **nodes}, categorical="__index_level_0__"
    )
    assert asked.graph.num_features == 4


# Ids are strings, exactly as written


@pytest.mark.parametrize(
    ("one", "twin"),
    [("007", "7"), ("7.0", "7"), ("a", "A"), ("a", " a"), ("é", unicodedata.normalize("NFD", "é"))],
)
def test_ids_that_a_looser_reader_would_merge_are_kept_apart(tmp_path, one, twin):
    labelled = read(tmp_path, f"s,t\n{one},b\n{twin},b\n", f"id,x\n{one},1\n{twin},2\nb,3\n")
    assert labelled.graph.ids == (one, twin, "b")
    assert labelled.graph.num_edges == 2
    assert noticed(labelled, "leading zeros, and are kept apart")


def test_names_that_other_readers_take_for_missing_or_round(tmp_path):
    names = ["NA", "null", "nan", "", "9007199254740992", "9007199254740993", "9" * 23]
    nodes = "id,x\n" + "".join(f"{name},{k}\n" for k, name in enumerate(names))
    edges = "s,t\n" + "".join(f"{a},{b}\n" for a, b in pairwise(names))
    graph = read(tmp_path, edges, nodes).graph
    assert graph.ids == tuple(names)
    assert graph.num_edges == len(names) - 1
    assert not graph.integer_ids


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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


# Edges and headers


def test_what_an_edge_table_may_hold_besides(tmp_path):
    labelled = read(tmp_path, "source,target\na,b\na,b\nb,a\nc,c\nb,c\n")
    assert labelled.graph.num_edges == 2
    assert noticed(labelled, "1 self-loops removed")
    assert noticed(labelled, "1 duplicate edges removed")
    labelled = read(tmp_path, "kind,Target,Source,weight\nx,b,a,0.5\ny,c,b,\n")
    assert labelled.graph.num_edges == 2
    assert noticed(labelled, "left aside: 'kind'")
    assert noticed(labelled, "Edge weights are used")
    assert labelled.graph.weights.tolist() == [0.5, 0.5, 1, 1]
    assert not noticed(read(tmp_path, "source,target,weight\na,b,1\nb,c,1.0\n"), "weights")


def test_nodes_may_be_called_as_the_columns(tmp_path):
    graph = read(tmp_path, "from,to\nfrom,to\nto,x\n", "id,f\nfrom,1\nto,2\nx,3\n").graph
    assert graph.num_edges == 2
    assert read(tmp_path, nodes="id,0,1\na,1,2\nb,3,4\nc,5,6\n").graph.num_features == 2


def test_that_empty_cells_are_a_node_is_said(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,\n,c\n")
    labelled = read_graph(tmp_path / "edges.csv")
    assert labelled.graph.ids == ("", "a", "b", "c")
    assert noticed(labelled, "are a node, whose id is ''.")


def test_without_a_node_table_the_nodes_are_those_with_edges(tmp_path):
    (tmp_path / "e.csv").write_text(EDGES)
    assert read_tables(tmp_path / "e.csv", STRUCTURAL).graph.ids == ("a", "b", "c")


def test_a_first_line_that_nothing_vouches_for_is_said_or_refused(tmp_path):
    (tmp_path / "e.csv").write_text("p,q\na,b\nb,c\n")
    labelled = read_tables(tmp_path / "e.csv", STRUCTURAL)
    assert noticed(labelled, "is taken for the names of its columns: 'p' | 'q'.")
    (tmp_path / "e.csv").write_text("a,q\na,b\nb,c\n")  # a is a node: the header is missing
    with refused("which looks like a row. Add a header line", FileError):
        read_tables(tmp_path / "e.csv", STRUCTURAL)
    labelled = read(tmp_path, nodes="name,x\na,1\nb,2\nc,3\n")
    assert noticed(labelled, "'name', is taken for the ids")


# Texts


def test_encodings_and_marks(tmp_path):
    mark = b"\xef\xbb\xbf"  # no part of the first name
    assert read(tmp_path, mark + EDGES.encode(), mark + NODES.encode()).graph.num_edges == 2
    both = {"edges": EDGES.encode("utf-16"), "nodes": NODES.encode("utf-16")}
    assert read(tmp_path, **both, encoding="utf-16").graph.num_edges == 2


def test_delimiters_can_be_spelt(tmp_path):
    for word, mark in (("tab", "\t"), ("\\t", "\t"), ("semicolon", ";"), (";", ";")):
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


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_are_counted_whichever_way_they_end(tmp_path, end):
    for cell, sentence in (
        (b"\xe9", r"byte 0xe9 in line 3"),
        (b"\0", "NUL byte in line 3"),
        (b"z", "but for 'z' in line 3"),
    ):
        nodes = nodes_with("1", "@", "3").replace("\n", end).encode().replace(b"@", cell)
        with refused(sentence, (GraphError, FileError)):
            read(tmp_path, nodes=nodes)


def test_what_is_no_text_is_told_apart_from_other_encodings(tmp_path):
    for content in (gzip.compress(NODES.encode()), b"PK\x03\x04\xff"):
        with refused("Unpack a compressed file, and save a spreadsheet as CSV", FileError):
            read(tmp_path, nodes=content)


@pytest.mark.parametrize("comment", ["# Directed graph", "# p\tq", "%\tasym"])
def test_comments_are_no_header(tmp_path, comment):
    (tmp_path / "e.tsv").write_text(f"{comment}\n1\t2\n2\t3\n")
    if comment == "# p\tq":  # a header of NumPy, or of a tool for genes
        assert read_tables(tmp_path / "e.tsv", STRUCTURAL).graph.num_edges == 2
        return
    with refused(r"must name the columns\. Got .*, a comment\. Remove such lines", FileError):
        read_tables(tmp_path / "e.tsv", STRUCTURAL)


# Parquet


def test_types_of_parquet(tmp_path):
    nodes = {
        "id": ["a", "b", "c"],
        "flag": [True, False, True],
        "wide": pa.array([1, 2, 3], pa.uint64()),
        "half": pa.array(np.array([0.5, 1, 2], dtype=np.float16)),
    }
    graph = read_parquet(tmp_path, nodes, feature_scaling="none").graph
    assert dense(graph.features)[0].tolist() == [1, 1, 0.5]
    day = datetime.datetime(1970, 1, 3, 12, tzinfo=datetime.UTC)
    nodes |= {
        "born": [day, day, day],
        "day": [day.date()] * 3,
        "price": [decimal.Decimal("1.5")] * 3,
        "kind": pa.array(["u", "v", "u"]).dictionary_encode(),
        "digits": ["1", "2", "1"],  # strings are text, even if they spell numbers
    }
    graph = read_parquet(tmp_path, nodes, feature_scaling="none").graph
    names = ("flag", "wide", "half", "born", "day", "price", "kind=u", "kind=v")
    assert graph.feature_names == (*names, "digits=1", "digits=2")
    assert dense(graph.features)[0].tolist() == [1, 1, 0.5, 2.5, 2, 1.5, 1, 0, 1, 0]
    with refused("Got 'tags' of type list.* Train without it: --drop tags"):
        read_parquet(tmp_path, nodes | {"tags": [[1], [2], [3]]})
    assert read_parquet(tmp_path, nodes | {"tags": [[1], [2], [3]]}, drop="tags").graph


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"x": [1, 2, 2**53 + 1]}, r"below 2\*\*53.*9007199254740993 in row 3"),
        ({"id": [1.0, 2.0, 3.0]}, "strings or integers. Column 'id' of .* is of type double"),
        ({"id": ["a", None, "c"]}, r"must have its node ids. Column 'id' of .* in row 2 \(1 in"),
        ({"y": [0.5, 1.5, 2.0]}, "Column 'y' is of type double, or has fractions or infinities"),
        ({"y": [[1], [2], [3]]}, "classes: strings or integers. Column 'y' is of type list"),
    ],
)
def test_parquet_tables_that_are_refused(tmp_path, columns, sentence):
    with refused(sentence):
        read_parquet(tmp_path, {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]} | columns)


def test_what_is_no_whole_parquet(tmp_path):
    path = tmp_path / "e.parquet"
    pa.parquet.write_table(pa.table({"source": ["a"], "target": ["b"]}), path)
    whole = path.read_bytes()
    cuts = [whole[:cut] for cut in range(0, len(whole), 97)]
    for content in (b"id,x\n1,2\n", b"PAR1" + bytes(90) + b"PAR1", *cuts):
        path.write_bytes(content)
        with refused("Parquet file", FileError):
            read_tables(path)


def test_changed_bits_of_pages_with_checksums_are_noticed(tmp_path):
    path = tmp_path / "e.parquet"
    table = pa.table({"source": [f"node {k}" for k in range(99)], "target": ["hub"] * 99})
    pa.parquet.write_table(table, path, write_page_checksum=True, compression="none")
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"node 7") + 5] ^= 1
    path.write_bytes(whole)
    with refused("cut off or damaged", FileError):
        read_tables(path)


def test_few_bytes_that_would_fill_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "e.parquet"
    pa.parquet.write_table(pa.table({"source": ["a"] * 10**5, "target": ["b"] * 10**5}), path)
    monkeypatch.setattr(files, "available_bytes", lambda: 10**6)
    with refused("holds 1600000 bytes; at most 250000", FileError):
        read_tables(path)
    pa.parquet.write_table(pa.table({"source": ["a" * 10**5] * 50, "target": ["b"] * 50}), path)
    assert path.stat().st_size < 10**5  # the text is stored once
    monkeypatch.setattr(files, "available_bytes", lambda: 10**7)
    with refused(r"holds 50000\d\d bytes; at most 2500000", FileError):
        read_tables(path)


def test_integer_ids_are_remembered_where_they_have_that_type(tmp_path):
    edges = {"source": [1, 7], "target": [7, -2]}
    nodes = {"id": pa.array([1, 7, -2], pa.int32()), "x": [1.0, 2.0, 3.0]}
    graph = read_parquet(tmp_path, nodes, edges).graph
    assert (graph.ids, graph.integer_ids) == (("1", "7", "-2"), True)
    assert read_tables(tmp_path / "edges.parquet", STRUCTURAL).graph.integer_ids
    mixed = {"source": pa.array([7]), "target": pa.array(["007"]).dictionary_encode()}
    pa.parquet.write_table(pa.table(mixed), tmp_path / "edges.parquet")
    alone = read_tables(tmp_path / "edges.parquet", STRUCTURAL).graph
    assert (alone.ids, alone.integer_ids) == (("007", "7"), False)


def test_parquet_labels(tmp_path):
    nodes = {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}
    assert read_parquet(tmp_path, nodes | {"y": [2.0, None, 11.0]}).class_names == ("2", "11")
    gaps = {"y": [2.0, float("nan"), 11.0]}
    assert read_parquet(tmp_path, nodes | gaps).labels.tolist() == [0, -1, 1]
    assert read_parquet(tmp_path, nodes | {"y": [True, False, True]}).num_classes == 2
    kinds = pa.array(["u", "v", "u"]).dictionary_encode()
    assert read_parquet(tmp_path, nodes | {"y": kinds}).class_names == ("u", "v")


# Says how many threads reading a table started; the last table is refused.
SCRIPT = """
import os, sys
from pathlib import Path
from aspect.errors import FileError
from aspect.data.tables import read_table
before = len(os.listdir("/proc/self/task"))
for path in map(Path, sys.argv[1:]):
    try:
        read_table(path)
    except FileError:
        raise SystemExit(2)
    print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_reading_starts_no_pool_of_threads_that_outlives_a_refusal(tmp_path):
    paths = [tmp_path / name for name in ("nodes.parquet", "nodes.csv", "empty.csv")]
    pa.parquet.write_table(pa.table({"id": ["a"], "x": [1.0]}), paths[0])
    paths[1].write_text(NODES)
    paths[2].write_text("id,x\n")
    command = [sys.executable, "-c", SCRIPT, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert all(int(count) <= 1 for count in done.stdout.split())  # the one that reads a text
    assert (done.returncode, done.stderr) == (2, "")
