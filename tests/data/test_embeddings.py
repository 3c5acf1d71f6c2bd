"""Embeddings written in three formats, with odd ids, and on a full disk."""

import json

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch

from aspect.data.embeddings import write_embeddings
from aspect.errors import FileError, GraphError

IDS = ["007", "=cmd()", "+1", "-x", "@sum", "a,b", 'say "hi"', "line\nbreak", "", "NA"]


@pytest.fixture
def z():
    return torch.randn(len(IDS), 3, generator=torch.Generator().manual_seed(0))


def test_npy_with_its_companions(tmp_path, z):
    policy = torch.linspace(0, 1, len(IDS))
    write_embeddings(tmp_path / "z.npy", z, IDS, policy)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy", allow_pickle=False), z.numpy())
    np.testing.assert_array_equal(np.load(tmp_path / "z.policy.npy"), policy.numpy())
    lines = (tmp_path / "z.ids.txt").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == IDS


def test_npy_alone(tmp_path, z):
    write_embeddings(tmp_path / "z.npy", z)
    assert [path.name for path in tmp_path.iterdir()] == ["z.npy"]


def test_parquet_keeps_ids_and_values_exactly(tmp_path, z):
    write_embeddings(tmp_path / "z.parquet", z, IDS, torch.ones(len(IDS)))
    table = pyarrow.parquet.read_table(tmp_path / "z.parquet")
    assert table.column_names == ["id", "policy", "0", "1", "2"]
    assert table.column("id").to_pylist() == IDS
    np.testing.assert_array_equal(table.column("1").to_numpy(), z[:, 1].numpy())


def test_csv_makes_formulas_inert_in_ids_alone(tmp_path, z):
    write_embeddings(tmp_path / "z.csv", -z.abs(), IDS)
    options = pyarrow.csv.ConvertOptions(column_types={"id": "string"}, strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(tmp_path / "z.csv", convert_options=options, parse_options=parse)
    expected = ["007", "'=cmd()", "'+1", "'-x", "'@sum", *IDS[5:]]
    assert table.column("id").to_pylist() == expected
    values = table.column("0").to_numpy()
    np.testing.assert_array_equal(values.astype(np.float32), -z[:, 0].abs().numpy())


def test_csv_keeps_ids_apart_that_differ_in_an_apostrophe(tmp_path, z):
    ids = ["=1", "'=1", "''=1", "'x", "x"]
    write_embeddings(tmp_path / "z.csv", z[:5], ids)
    lines = (tmp_path / "z.csv").read_text(encoding="utf-8").splitlines()[1:]
    written = [line.split(",")[0].strip('"') for line in lines]
    assert written == ["'=1", "''=1", "'''=1", "''x", "x"]


def test_without_ids_the_rows_are_numbered(tmp_path, z):
    write_embeddings(tmp_path / "z.parquet", z)
    table = pyarrow.parquet.read_table(tmp_path / "z.parquet")
    assert table.column("id").to_pylist() == [str(k) for k in range(len(IDS))]


@pytest.mark.parametrize(
    ("ids", "kind"), [(["7", "-5", "0"], "int64"), (["7", str(2**64 - 1), "0"], "uint64")]
)
def test_ids_that_were_integers_are_integers_again(tmp_path, z, ids, kind):
    write_embeddings(tmp_path / "z.parquet", z[:3], ids, integer_ids=True)
    column = pyarrow.parquet.read_table(tmp_path / "z.parquet").column("id")
    assert str(column.type) == kind
    assert [str(node) for node in column.to_pylist()] == ids
    write_embeddings(tmp_path / "z.csv", z[:3], ids, integer_ids=True)
    lines = (tmp_path / "z.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines] == ['"id"', *ids]  # no formula: no apostrophe


@pytest.mark.parametrize("wrong", ["a", "", str(2**64), str(-(2**63) - 1)])
def test_ids_that_are_no_integers_are_not_written_as_such(tmp_path, z, wrong):
    with pytest.raises(GraphError, match="must be integers of 64 bits"):
        write_embeddings(tmp_path / "z.parquet", z[:2], ["1", wrong], integer_ids=True)
    assert list(tmp_path.iterdir()) == []


def test_unknown_format(tmp_path, z):
    with pytest.raises(
        FileError, match=r"written as \.npy, \.parquet, \.csv\. Got the name 'z.txt'"
    ):
        write_embeddings(tmp_path / "z.txt", z)


def test_counts_that_do_not_agree(tmp_path, z):
    with pytest.raises(GraphError, match=r"ids per row\. Got 2 for 10 rows"):
        write_embeddings(tmp_path / "z.npy", z, ["a", "b"])
    with pytest.raises(GraphError, match=r"policy weights per row\. Got 2 for 10"):
        write_embeddings(tmp_path / "z.npy", z, policy=torch.ones(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["z.npy", "z.csv", "z.parquet"])
def test_existing_output_is_kept_without_overwrite(tmp_path, z, name):
    write_embeddings(tmp_path / name, z, IDS)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(FileError, match=r"exists\. Pass --overwrite"):
        write_embeddings(tmp_path / name, z + 1, IDS)
    assert (tmp_path / name).read_bytes() == before
    write_embeddings(tmp_path / name, z + 1, IDS, overwrite=True)
    assert (tmp_path / name).read_bytes() != before


def test_a_taken_companion_refuses_all(tmp_path, z):
    (tmp_path / "z.ids.txt").write_text("mine")
    with pytest.raises(FileError, match=r"z\.ids\.txt' exists"):
        write_embeddings(tmp_path / "z.npy", z, IDS)
    assert [path.name for path in tmp_path.iterdir()] == ["z.ids.txt"]


@pytest.mark.parametrize("name", ["z.npy", "z.csv", "z.parquet"])
def test_full_disk_leaves_nothing(tmp_path, limited_file_size, name):
    many = torch.randn(5000, 8)
    ids = [f"node {k}" for k in range(5000)]
    with limited_file_size(20_000), pytest.raises(FileError, match="larger than allowed here"):
        write_embeddings(tmp_path / name, many, ids, torch.ones(5000))
    assert list(tmp_path.iterdir()) == []


def test_half_precision_is_widened(tmp_path, z):
    write_embeddings(tmp_path / "z.npy", z.bfloat16())
    written = np.load(tmp_path / "z.npy")
    np.testing.assert_array_equal(written, z.bfloat16().float().numpy())


@pytest.mark.parametrize("name", ["z.npy", "z.csv", "z.parquet"])
def test_ids_that_are_no_text(tmp_path, z, name):
    with pytest.raises(GraphError, match=r"valid Unicode text\. Got '\\ud800'"):
        write_embeddings(tmp_path / name, z, ["\ud800", *IDS[1:]])
    assert list(tmp_path.iterdir()) == []
