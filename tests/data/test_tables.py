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
from aspect.data.graph_tables import TableOptions, read_tables
from aspect.data.tables import TextFormat
from aspect.errors import AspectError, FileError, GraphError, SettingsError

EDGES = "source,target\na,b\nb,c\n"
NODES = "id,x,z,label\na,1,2,red\nb,3,4,blue\nc,5,6.5,red\n"


def read(tmp_path, edges=EDGES, nodes=NODES, **options) -> LabelledGraph:
    """Write both tables (text or bytes) and read them back as a graph."""
    paths = []
    for name, content in (("edges.csv", edges), ("nodes.csv", nodes)):
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(data)
        paths.append(tmp_path / name)
    text = TextFormat(options.pop("encoding", "utf-8"), options.pop("delimiter", None))
    before = sorted(tmp_path.iterdir())
    try:
        return read_tables(*paths, TableOptions(text=text, **options))
    finally:
        assert sorted(tmp_path.iterdir()) == before  # reading writes nothing


def read_parquet(tmp_path, nodes: dict, edges: dict | None = None, **options) -> LabelledGraph:
    edges = edges or {"source": ["a", "b"], "target": ["b", "c"]}
    pa.parquet.write_table(pa.table(nodes), tmp_path / "nodes.parquet")
    pa.parquet.write_table(pa.table(edges), tmp_path / "edges.parquet")
    return read_tables(
        tmp_path / "edges.parquet", tmp_path / "nodes.parquet", TableOptions(**options)
    )


def refused(sentence: str, kind: type[AspectError] = GraphError):
    return pytest.raises(kind, match=sentence)


def test_small_graph(tmp_path):
    labelled = read(tmp_path)
    assert labelled.graph.ids == ("a", "b", "c")
    assert dense(labelled.graph.features).tolist() == [[1, 2], [3, 4], [5, 6.5]]
    assert labelled.graph.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    assert labelled.class_names == ("blue", "red")
    assert labelled.labels.tolist() == [1, 0, 1]


# Refuses a table of a header alone; what Arrow left running must not abort the exit.
REFUSE = """
import sys
from pathlib import Path
from aspect.errors import FileError
from aspect.data.tables import read_table
from aspect.data.tables import TextFormat
try:
    read_table(Path(sys.argv[1]), TextFormat())
except FileError:
    raise SystemExit(2)
"""
# Prints how many threads reading started.
THREADS = """
import os, sys
from pathlib import Path
from aspect.data.tables import read_table
from aspect.data.tables import TextFormat
before = len(os.listdir("/proc/self/task"))
read_table(Path(sys.argv[1]), TextFormat())
print(len(os.listdir("/proc/self/task")) - before)
"""


def in_a_process(script, path):
    return subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["nodes.csv", "nodes.parquet"])
def test_a_refused_table_leaves_the_exit_in_peace(tmp_path, name):
    (tmp_path / "nodes.csv").write_text("id,x\n")
    empty = pa.table({"id": pa.array([], pa.string())})
    pa.parquet.write_table(empty, tmp_path / "nodes.parquet")
    done = [in_a_process(REFUSE, tmp_path / name) for _ in range(3)]
    assert [(one.returncode, one.stderr) for one in done] == [(2, "")] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
@pytest.mark.parametrize("name", ["nodes.csv", "nodes.parquet"])
def test_reading_starts_no_pool_of_threads(tmp_path, name):
    (tmp_path / "nodes.csv").write_text(NODES)
    table = pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "z": [3.0, 4.0]})
    pa.parquet.write_table(table, tmp_path / "nodes.parquet")
    done = in_a_process(THREADS, tmp_path / name)
    assert int(done.stdout) <= 1  # the one by which Arrow reads a text


class TestFeatures:
    """Rows 1, 14, 15, 24, 25 and 26 of the list of bad inputs."""

    @pytest.mark.parametrize("cell", ["", "NA", "nan", "NaN", "null", "inf", "-inf", "1e999"])
    def test_what_is_no_finite_number_is_refused_with_its_place(self, tmp_path, cell):
        nodes = f"id,x,z\na,1,2\nb,{cell},4\nc,5,6\n"
        with refused(
            r"infinite at row 'b' column 'x' \(1 in all\)\. .*--impute zero or --impute mean"
        ):
            read(tmp_path, nodes=nodes)

    def test_many_are_listed_five_at_a_time(self, tmp_path):
        with refused(
            r"row 'c' column 'z', \.\.\. \(6 in all\)|row 'c' column 'x', \.\.\. \(6 in all\)"
        ):
            read(tmp_path, nodes="id,x,z\na,,\nb,,\nc,,\n")

    @pytest.mark.parametrize(("impute", "value"), [("zero", 0.0), ("mean", 3.0)])
    def test_imputed_when_asked(self, tmp_path, impute, value):
        graph = read(tmp_path, nodes="id,x,z\na,1,2\nb,,4\nc,5,inf\n", impute=impute).graph
        assert dense(graph.features)[:, 0].tolist() == [1, value, 5]
        assert dense(graph.features)[2, 1].item() == (0 if impute == "zero" else 3)
        assert any(
            f"2 missing or infinite features in 2 columns set to {impute}" in n
            for n in graph.notices
        )

    def test_a_column_without_any_number_is_imputed_by_zero(self, tmp_path):
        graph = read(tmp_path, nodes="id,x,z\na,,2\nb,,4\nc,,6\n", impute="mean").graph
        assert dense(graph.features)[:, 0].tolist() == [0, 0, 0]

    def test_unknown_imputation(self, tmp_path):
        with refused("--impute must be zero or mean. Got 'median'", SettingsError):
            read(tmp_path, impute="median")

    def test_constant_and_zero_columns_are_served(self, tmp_path):
        graph = read(tmp_path, nodes="id,x,z\na,0,1\nb,0,1\nc,0,1\n").graph
        assert torch.isfinite(dense(graph.features)).all()

    def test_no_features_offers_structural_ones(self, tmp_path):
        with refused("no features.*--features degree, identity, random or laplacian"):
            read(tmp_path, nodes="id,label\na,1\nb,2\nc,1\n")

    def test_text_columns_are_listed_never_coerced(self, tmp_path):
        nodes = "id,x,colour,flag\na,1,red,true\nb,2,blue,false\nc,3,3,true\n"
        with refused(
            r"'colour' with 'red' at node 'a', 'flag' with 'true' at node 'a' \(2 in all\)"
        ):
            read(tmp_path, nodes=nodes)

    def test_one_stray_word_in_a_numeric_column(self, tmp_path):
        with refused("'x' with '3O' at node 'c'"):
            read(tmp_path, nodes="id,x\na,1\nb,2\nc,3O\n")

    @pytest.mark.parametrize("cell", ["0x1F", "1_000", "1,5", "--1", "e5", "one"])
    def test_almost_numbers_are_text(self, tmp_path, cell):
        with refused("Feature columns must be numbers"):
            read(tmp_path, nodes=f'id,x\na,1\nb,2\nc,"{cell}"\n')

    @pytest.mark.parametrize("cell", ["+1", " 1 ", "1.", "1e0", "1.0E+0"])
    def test_ways_to_write_a_number(self, tmp_path, cell):
        graph = read(tmp_path, nodes=f"id,x\na,{cell}\nb,2\nc,3\n").graph
        assert dense(graph.features)[0].item() == 1

    def test_integers_beyond_exactness_are_refused(self, tmp_path):
        with refused(r"below 2\*\*53.*Column 'x' has 9007199254740993 at node 'b'"):
            read(tmp_path, nodes="id,x\na,1\nb,9007199254740993\nc,3\n")

    def test_values_beyond_float32_are_refused(self, tmp_path):
        with refused(r"fit float32, up to 3.4e38. Column 'x' has 1e\+39 at node 'b'"):
            read(tmp_path, nodes="id,x\na,1\nb,1e39\nc,3\n")

    def test_types_of_parquet_that_are_no_numbers(self, tmp_path):
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
        with refused(
            "'born' of type timestamp.*'price' of type decimal.*'tags' of type list"
        ) as info:
            read_parquet(tmp_path, nodes)
        assert "'digits' of type string" in str(info.value)
        assert "'kind' of type dictionary" in str(info.value)
        assert "'fine'" not in str(info.value)

    def test_parquet_numbers_of_every_width(self, tmp_path):
        nodes = {
            "id": ["a", "b", "c"],
            "flag": [True, False, True],
            "small": pa.array([1, 2, 3], pa.int8()),
            "wide": pa.array([1, 2, 3], pa.uint64()),
            "half": pa.array(np.array([0.5, 1, 2], dtype=np.float16)),
        }
        graph = read_parquet(tmp_path, nodes).graph
        assert dense(graph.features)[0].tolist() == [1, 1, 1, 0.5]

    def test_parquet_long_integers_and_gaps(self, tmp_path):
        with refused(r"below 2\*\*53.*9007199254740993 at node 'c'"):
            read_parquet(tmp_path, {"id": ["a", "b", "c"], "x": [1, 2, 2**53 + 1]})
        with refused("infinite at row 'b' column 'x'"):
            read_parquet(tmp_path, {"id": ["a", "b", "c"], "x": [1, None, 2]})


class TestIds:
    """Rows 2, 17, 18, 19 and 26: ids are strings, exactly as written."""

    def test_leading_zeros_make_another_node(self, tmp_path):
        labelled = read(tmp_path, "s,t\n007,7\n7,8\n", "id,x\n007,1\n7,2\n8,3\n")
        assert labelled.graph.ids == ("007", "7", "8")
        assert labelled.graph.num_edges == 2
        assert any(
            "leading zeros, and are kept apart: '007' and '7'" in n for n in labelled.graph.notices
        )

    @pytest.mark.parametrize("twin", ["A", "a ", " a"])
    def test_ids_that_a_looser_reader_would_merge_are_noticed(self, tmp_path, twin):
        graph = read(tmp_path, "s,t\na,b\n", f"id,x\na,1\n{twin},2\nb,3\n").graph
        assert graph.num_nodes == 3
        assert any("kept apart" in notice for notice in graph.notices)

    def test_unicode_forms_are_two_nodes_and_noticed(self, tmp_path):
        composed, split = "é", unicodedata.normalize("NFD", "é")
        graph = read(
            tmp_path, f"s,t\n{composed},{split}\n", f"id,x\n{composed},1\n{split},2\n"
        ).graph
        assert graph.ids == (composed, split)
        assert any("Unicode form" in notice for notice in graph.notices)

    def test_names_that_other_readers_take_for_missing(self, tmp_path):
        names = ["NA", "null", "nan", "None", "", "N/A"]
        nodes = "id,x\n" + "".join(f"{name},{k}\n" for k, name in enumerate(names))
        edges = "s,t\n" + "".join(f"{a},{b}\n" for a, b in pairwise(names))
        graph = read(tmp_path, edges, nodes).graph
        assert graph.ids == tuple(names)
        assert graph.num_edges == 5

    def test_long_integers_stay_whole(self, tmp_path):
        big = ("9007199254740992", "9007199254740993", "99999999999999999999999")
        nodes = "id,x\n" + "".join(f"{name},1\n" for name in big)
        graph = read(tmp_path, f"s,t\n{big[0]},{big[1]}\n{big[1]},{big[2]}\n", nodes).graph
        assert (graph.ids, graph.num_edges) == (big, 2)

    def test_repeated_ids_are_listed(self, tmp_path):
        with refused(r"Node ids must be unique. Repeated in '.*nodes.csv': 'b' \(2 rows\)"):
            read(tmp_path, nodes="id,x\na,1\nb,2\nb,3\nc,4\n")

    def test_edges_to_unknown_nodes_are_listed(self, tmp_path):
        edges = "source,target\n" + "".join(f"a,u{k}\n" for k in range(9))
        with refused(r"Not there: 'u0', 'u1', 'u2', 'u3', 'u4', \.\.\. \(9 in all\)"):
            read(tmp_path, edges)

    def test_near_misses_are_pointed_out(self, tmp_path):
        with refused("differ only in case, spaces, Unicode form or leading zeros: ' b' and 'b'"):
            read(tmp_path, "source,target\na, b\nb,c\n")

    def test_hostile_names_are_shown_escaped(self, tmp_path):
        with pytest.raises(GraphError) as info:
            read(tmp_path, "source,target\na,\x1b[31mred\nb,c\n")
        assert "\x1b" not in str(info.value)

    def test_parquet_ids(self, tmp_path):
        nodes = {"id": pa.array([1, 2, 2**53 + 1]), "x": [1.0, 2.0, 3.0]}
        edges = {
            "source": ["1", "2"],
            "target": pa.array(["2", str(2**53 + 1)]).dictionary_encode(),
        }
        graph = read_parquet(tmp_path, nodes, edges).graph
        assert graph.ids == ("1", "2", "9007199254740993")
        assert graph.num_edges == 2

    def test_parquet_ids_that_lost_digits_or_are_missing(self, tmp_path):
        with refused("must be strings or integers. Column 'id' of .* is of type double"):
            read_parquet(tmp_path, {"id": [1.0, 2.0, 3.0], "x": [1.0, 2.0, 3.0]})
        with refused(
            r"Every row must have its node ids. Column 'id' of .* has none in rows 1 \(1 in"
        ):
            read_parquet(tmp_path, {"id": ["a", None, "c"], "x": [1.0, 2.0, 3.0]})

    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        names=st.lists(
            st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8
            ),
            min_size=2,
            max_size=6,
            unique=True,
        )
    )
    def test_any_name_survives(self, tmp_path, names):
        quoted = ['"' + name.replace('"', '""') + '"' for name in names]
        nodes = "id,x\n" + "".join(f"{name},1\n" for name in quoted)
        edges = "source,target\n" + "".join(f"{quoted[0]},{name}\n" for name in quoted[1:])
        graph = read(tmp_path, edges, nodes).graph
        assert graph.ids == tuple(names)
        assert graph.num_edges == len(names) - 1


class TestEdges:
    """Rows 3, 7, 9, 10, 11, 12 and 13: loops, copies, directions and weights."""

    def test_loops_and_copies_are_removed_and_counted(self, tmp_path):
        graph = read(tmp_path, "source,target\na,b\na,b\nb,a\nc,c\nb,c\n").graph
        assert graph.num_edges == 2
        text = " ".join(graph.notices)
        assert "1 self-loops removed" in text
        assert "1 duplicate edges removed" in text

    def test_directed_is_symmetrised_and_said_or_refused(self, tmp_path):
        assert any("made undirected" in notice for notice in read(tmp_path).graph.notices)
        with refused("2 edges lack their reverse"):
            read(tmp_path, directed_is_error=True)

    def test_isolated_nodes_and_parts_are_served_and_said(self, tmp_path):
        nodes = "id,x\n" + "".join(f"{k},1\n" for k in "abcdefg")
        graph = read(tmp_path, "s,t\na,b\nc,d\nd,e\n", nodes).graph
        text = " ".join(graph.notices)
        assert "2 of 7 nodes have no edge" in text
        assert "falls into 4 parts" in text
        assert "largest has 3 of 7 nodes" in text

    @pytest.mark.parametrize("weight", ["-1", "nan", "inf", "-inf", "0"])
    def test_impossible_weights_are_refused(self, tmp_path, weight):
        with refused(r"Edge weights must be positive numbers. Got .* in row 2 \(1 in all\)"):
            read(tmp_path, f"source,target,weight\na,b,1\nb,c,{weight}\n")

    def test_weights_that_are_no_numbers(self, tmp_path):
        with refused("Edge weights must be positive numbers"):
            read(tmp_path, "source,target,weight\na,b,heavy\nb,c,1\n")

    def test_weights_are_left_aside_and_said(self, tmp_path):
        graph = read(tmp_path, "source,target,weight\na,b,0.5\nb,c,\n").graph
        assert any("Edge weights are left aside" in notice for notice in graph.notices)
        graph = read(tmp_path, "source,target,weight\na,b,1\nb,c,1.0\n").graph
        assert not any("weights" in notice for notice in graph.notices)

    def test_conflicting_weights_of_one_edge_make_no_difference(self, tmp_path):
        graph = read(tmp_path, "source,target,weight\na,b,1\na,b,5\nb,c,1\n").graph
        assert graph.num_edges == 2

    def test_named_columns_may_stand_anywhere(self, tmp_path):
        graph = read(tmp_path, "kind,Target,Source\nx,b,a\ny,c,b\n").graph
        assert graph.num_edges == 2
        assert any("left aside: 'kind'" in notice for notice in graph.notices)

    def test_extra_columns_without_names_are_refused_as_parsed(self, tmp_path):
        with refused("must name them source and target.*'u' | 'v' | 'since'", FileError):
            read(tmp_path, "u,v,since\na,b,1\nb,c,2\n")

    def test_nodes_may_be_called_as_the_columns(self, tmp_path):
        graph = read(tmp_path, "from,to\nfrom,to\nto,x\n", "id,f\nfrom,1\nto,2\nx,3\n").graph
        assert graph.num_edges == 2

    def test_one_node_is_refused(self, tmp_path):
        with refused("at least 2 nodes. Got 1"):
            read(tmp_path, "s,t\na,a\n", "id,x\na,1\n")

    def test_without_a_node_table_the_nodes_are_those_with_edges(self, tmp_path):
        (tmp_path / "e.csv").write_text(EDGES)
        with refused("no features"):
            read_tables(tmp_path / "e.csv")
        graph = read_tables(tmp_path / "e.csv", options=TableOptions(allow_no_features=True)).graph
        assert graph.ids == ("a", "b", "c")


class TestText:
    """Rows 20 to 23: encodings, delimiters, headers and broken lines."""

    def test_byte_order_mark_is_no_part_of_the_first_name(self, tmp_path):
        labelled = read(
            tmp_path, b"\xef\xbb\xbf" + EDGES.encode(), b"\xef\xbb\xbf" + NODES.encode()
        )
        assert labelled.graph.num_edges == 2

    def test_utf16_is_named(self, tmp_path):
        with refused("is utf-16 text, not utf-8. Pass --encoding utf-16", FileError):
            read(tmp_path, nodes=NODES.encode("utf-16"))
        both = {"edges": EDGES.encode("utf-16"), "nodes": NODES.encode("utf-16")}
        assert read(tmp_path, **both, encoding="utf-16").graph.num_edges == 2

    def test_utf16_without_its_mark_has_nul_bytes(self, tmp_path):
        with refused("NUL byte in line 1.*--encoding utf-16", FileError):
            read(tmp_path, nodes=NODES.encode("utf-16-le"))

    def test_latin1_is_refused_with_its_line_and_read_when_named(self, tmp_path):
        nodes = "id,x\na,1\nb,2\ncafé,3\n".encode("latin-1")
        edges = "s,t\na,b\nb,café\n".encode("latin-1")
        with refused(r"not utf-8 text \(byte 0xe9 in line 4\).*--encoding", FileError):
            read(tmp_path, edges, nodes)
        assert read(tmp_path, edges, nodes, encoding="latin-1").graph.ids == ("a", "b", "café")

    @pytest.mark.parametrize("name", ["klingon", "base64", "rot13", "nul\0"])
    def test_unknown_encoding(self, tmp_path, name):
        with refused("one that Python knows, such as utf-8 or latin-1. Got ", SettingsError):
            read(tmp_path, encoding=name)

    def test_wrong_delimiter_shows_the_line_as_parsed(self, tmp_path):
        edges, nodes = EDGES.replace(",", ";"), NODES.replace(",", ";")
        with refused("read as 'source;target'. .*--delimiter ';'", FileError):
            read(tmp_path, edges)
        assert read(tmp_path, edges, nodes, delimiter=";").graph.num_edges == 2

    def test_wrong_delimiter_of_the_node_table(self, tmp_path):
        with refused("--delimiter ';'", AspectError):
            read(tmp_path, EDGES, NODES.replace(",", ";"))

    @pytest.mark.parametrize("word", ["tab", "\\t", "\t"])
    def test_tab_can_be_spelt(self, tmp_path, word):
        edges, nodes = EDGES.replace(",", "\t"), NODES.replace(",", "\t")
        assert read(tmp_path, edges, nodes, delimiter=word).graph.num_edges == 2

    @pytest.mark.parametrize("word", ["", ";;", "é", '"', "\n"])
    def test_impossible_delimiter(self, tmp_path, word):
        with refused("must be one ASCII character", SettingsError):
            read(tmp_path, delimiter=word)

    def test_tsv_needs_no_option(self, tmp_path):
        (tmp_path / "e.tsv").write_text(EDGES.replace(",", "\t"))
        (tmp_path / "n.tsv").write_text(NODES.replace(",", "\t"))
        assert read_tables(tmp_path / "e.tsv", tmp_path / "n.tsv").graph.num_edges == 2

    @pytest.mark.parametrize("edges", ["0,1\n1,2\n2,0\n", "a,b\nb,c\n"])
    def test_missing_header_of_the_edge_table(self, tmp_path, edges):
        nodes = "id,x\na,1\nb,2\nc,3\n0,1\n1,1\n2,1\n"
        with refused("must name the columns. Got .*looks like a row", FileError):
            read(tmp_path, edges, nodes)

    def test_missing_header_of_the_node_table(self, tmp_path):
        with refused("Got 'a' | '0.5'.*looks like a row", FileError):
            read(tmp_path, nodes="a,0.5,1\nb,1.5,2\nc,3,4\n")

    def test_numbered_feature_columns_are_a_header(self, tmp_path):
        assert read(tmp_path, nodes="id,0,1\na,1,2\nb,3,4\nc,5,6\n").graph.num_features == 2

    def test_repeated_column_names(self, tmp_path):
        with refused("must have different names. .*repeated 'x'", FileError):
            read(tmp_path, nodes="id,x,x\na,1,2\nb,1,2\nc,1,2\n")

    def test_ragged_rows_with_their_lines(self, tmp_path):
        nodes = "id,x,z\na,1,2\nb,3\n\nc,5,6,7\n"
        with refused(
            r"must have 3 cells .* line 3 has 2, line 5 has 4 \(2 in all\).*'b' | '3'", FileError
        ):
            read(tmp_path, nodes=nodes)

    def test_short_row_in_an_edge_table(self, tmp_path):
        with refused(r"must have 2 cells as its header has: line 3 has 1", FileError):
            read(tmp_path, "source,target\na,b\nc\n")

    @pytest.mark.parametrize(
        "edges",
        [
            'source,target\na,b\nb,"c\n',  # open to the end of the file
            'source,target\na,"b\nb,c\n',
            'source,target\n"a,b\n"b,c\n',  # two stray ones, that swallow a line between them
        ],
    )
    def test_open_quotes(self, tmp_path, edges):
        with refused(r"must enclose whole cells. The one in line [23] is not closed", FileError):
            read(tmp_path, edges)

    def test_quotes_and_line_breaks_that_are_meant(self, tmp_path):
        edges = 'source,target\n"a,1","b\nb"\n"b\nb","say ""c"""\n'
        nodes = 'id,x\n"a,1",1\n"b\nb",2\n"say ""c""",3\n'
        assert read(tmp_path, edges, nodes).graph.ids == ("a,1", "b\nb", 'say "c"')

    def test_inner_quotes_are_characters(self, tmp_path):
        assert read(tmp_path, 's,t\n5" pipe,b\n', 'id,x\n5" pipe,1\nb,2\n').graph.num_edges == 1

    def test_nul_bytes_with_their_line(self, tmp_path):
        with refused("NUL byte in line 3", FileError):
            read(tmp_path, "source,target\na,b\nb,\0c\n")

    @pytest.mark.parametrize("content", ["", "\n\n", "   ", b"\xef\xbb\xbf"])
    def test_empty_files(self, tmp_path, content):
        with refused("is empty. A table needs a header line and rows", FileError):
            read(tmp_path, content)
        with refused("is empty", FileError):
            read(tmp_path, nodes=content)

    def test_header_alone(self, tmp_path):
        with refused("a header and no rows: 'source' | 'target'", FileError):
            read(tmp_path, "source,target\n")

    def test_windows_and_old_line_ends(self, tmp_path):
        for end in ("\r\n", "\r"):
            labelled = read(tmp_path, EDGES.replace("\n", end), NODES.replace("\n", end))
            assert labelled.class_names == ("blue", "red")

    def test_table_beyond_the_memory(self, tmp_path, monkeypatch):
        monkeypatch.setattr(files, "available_bytes", lambda: 64)
        with refused("at most 16 fit the memory", FileError):
            read(tmp_path)


class TestParquetFiles:
    @pytest.mark.parametrize(
        "content", [b"", b"id,x\n1,2\n", b"PAR1", b"PAR1" + bytes(90) + b"PAR1"]
    )
    def test_what_is_no_parquet(self, tmp_path, content):
        (tmp_path / "e.parquet").write_bytes(content)
        with refused("Parquet file", FileError):
            read_tables(tmp_path / "e.parquet")

    def test_truncated_anywhere(self, tmp_path):
        path = tmp_path / "e.parquet"
        pa.parquet.write_table(pa.table({"source": ["a"], "target": ["b"]}), path)
        whole = path.read_bytes()
        for cut in range(0, len(whole), 37):
            path.write_bytes(whole[:cut])
            with refused("Parquet file", FileError):
                read_tables(path)

    def test_without_rows(self, tmp_path):
        empty = pa.table({"source": pa.array([], pa.string()), "target": pa.array([], pa.string())})
        pa.parquet.write_table(empty, tmp_path / "e.parquet")
        with refused("holds no rows", FileError):
            read_tables(tmp_path / "e.parquet")

    def test_run_lengths_that_would_fill_the_memory(self, tmp_path, monkeypatch):
        path = tmp_path / "e.parquet"
        pa.parquet.write_table(pa.table({"source": ["a"] * 10**5, "target": ["b"] * 10**5}), path)
        monkeypatch.setattr(files, "available_bytes", lambda: 10**6)
        with refused("holds 1600000 bytes; at most 250000", FileError):
            read_tables(path)


class TestLabels:
    """Row 27: classes of every kind."""

    def test_integers_are_ordered_as_numbers_and_minus_one_is_unknown(self, tmp_path):
        labelled = read(tmp_path, nodes="id,x,y\na,1,10\nb,1,9\nc,1,-1\n")
        assert labelled.class_names == ("9", "10")
        assert labelled.labels.tolist() == [1, 0, -1]

    def test_missing_labels_are_unknown_and_counted(self, tmp_path):
        labelled = read(tmp_path, nodes="id,x,label\na,1,u\nb,1,\nc,1,NaN\n")
        assert labelled.labels.tolist() == [0, -1, -1]
        assert any("2 of 3 nodes have no label" in notice for notice in labelled.graph.notices)

    def test_column_by_name(self, tmp_path):
        labelled = read(tmp_path, nodes="id,x,kind\na,1,u\nb,1,v\nc,1,u\n", label="kind")
        assert labelled.class_names == ("u", "v")
        with refused("must be one of 'x' | 'z' | 'label'. Got 'klass'"):
            read(tmp_path, label="klass")

    def test_two_candidates_are_refused(self, tmp_path):
        with refused("'label' and 'y'. Pass --label"):
            read(tmp_path, nodes="id,x,label,y\na,1,u,1\nb,1,v,1\nc,1,v,1\n")

    def test_a_class_per_node_is_suspicious(self, tmp_path):
        graph = read(tmp_path, nodes="id,x,label\na,1,u\nb,1,v\nc,1,w\n").graph
        assert any("class of its own: is 'label'" in notice for notice in graph.notices)

    def test_parquet_labels(self, tmp_path):
        nodes = {"id": ["a", "b", "c"], "x": [1.0, 2.0, 3.0]}
        assert read_parquet(tmp_path, nodes | {"y": [2.0, None, 11.0]}).class_names == ("2", "11")
        assert read_parquet(tmp_path, nodes | {"y": [True, False, True]}).num_classes == 2
        kinds = pa.array(["u", "v", "u"]).dictionary_encode()
        assert read_parquet(tmp_path, nodes | {"y": kinds}).class_names == ("u", "v")
        with refused("classes, not measurements. Column 'y' has fractions"):
            read_parquet(tmp_path, nodes | {"y": [0.5, 1.5, 2.0]})
        with refused("Labels must be strings or integers. Column 'y' is of type list"):
            read_parquet(tmp_path, nodes | {"y": [[1], [2], [3]]})


def test_features_have_the_names_of_their_columns(tmp_path):
    assert read(tmp_path).graph.feature_names == ("x", "z")
    structural = read(tmp_path, allow_no_features=True).graph
    assert structural.feature_names is None
    assert with_structural_features(read(tmp_path).graph, "degree").feature_names is None


def test_integer_ids_are_remembered_where_they_have_that_type(tmp_path):
    edges = {"source": [1, 7], "target": [7, -2]}
    nodes = {"id": pa.array([1, 7, -2], pa.int32()), "x": [1.0, 2.0, 3.0]}
    graph = read_parquet(tmp_path, nodes, edges).graph
    assert (graph.ids, graph.integer_ids) == (("1", "7", "-2"), True)
    assert graph.to(torch.float64).integer_ids
    alone = read_tables(tmp_path / "edges.parquet", None, TableOptions(allow_no_features=True))
    assert alone.graph.integer_ids


def test_digits_in_text_or_strings_are_no_integer_ids(tmp_path):
    edges, nodes = "source,target\n7,007\n", "id,x\n7,1\n007,2\n"
    assert not read(tmp_path, edges=edges, nodes=nodes).graph.integer_ids
    nodes = {"id": ["7", "007"], "x": [1.0, 2.0]}
    assert not read_parquet(tmp_path, nodes, {"a": ["7"], "b": ["007"]}).graph.integer_ids
    mixed = {"source": pa.array([7]), "target": ["007"]}
    pa.parquet.write_table(pa.table(mixed), tmp_path / "edges.parquet")
    alone = read_tables(tmp_path / "edges.parquet", None, TableOptions(allow_no_features=True))
    assert not alone.graph.integer_ids
