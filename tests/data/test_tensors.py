from __future__ import annotations

import hashlib
import json
import struct

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save, save_file

from aspect.data.tensors import (
    ENTRY,
    FORMAT_VERSION,
    read_tensors,
    write_embeddings,
    write_tensors,
)
from aspect.errors import CheckpointError, FileError, GraphError

KINDS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
MANIFEST = {"kind": "test", "name": 'é "quoted" \\ \n', "best": float("inf"), "loss": 0.1 + 0.2}


def tensors() -> dict[str, torch.Tensor]:
    plain = torch.tensor([[0, 1, 2], [3, 0, 250]])
    return {
        **{f"of/{kind}": plain.to(kind) for kind in KINDS},
        "number": torch.tensor(0.5),
        "count": torch.tensor(7),
        "nothing": torch.zeros(0),
        "odd": torch.tensor([float("inf"), -0.0, 1e-45]),
        "nothing/wide": torch.zeros(0, 3, dtype=torch.int32),
    }


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.safetensors"
    write_tensors(path, tensors(), MANIFEST)
    return path


def test_everything_comes_back_as_it_was(saved):
    found, manifest = read_tensors(saved)
    expected = tensors()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert found[name].shape == tensor.shape, name
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)
    assert manifest == {**MANIFEST, "format": FORMAT_VERSION}


def test_views_shared_and_trained_tensors_come_back(tmp_path):
    base = torch.arange(12.0).view(3, 4)
    own = {"column": base[:, 1], "turned": base.t(), "same": base, "again": base}
    own["trained"] = torch.ones(2, requires_grad=True)
    write_tensors(tmp_path / "views", own, {})
    found = read_tensors(tmp_path / "views")[0]
    torch.testing.assert_close(found, {name: t.detach().contiguous() for name, t in own.items()})


def test_equal_content_gives_equal_bytes(tmp_path):
    contents = set()
    for number in range(4):
        path = tmp_path / str(number)
        write_tensors(
            path, dict(reversed(tensors().items())) if number % 2 else tensors(), MANIFEST
        )
        contents.add(path.read_bytes())
    assert len(contents) == 1


# Damage


def test_a_file_cut_short_or_with_more_at_its_end_is_refused(saved):
    content = saved.read_bytes()
    for wrong in (*(content[: len(content) * k // 16] for k in range(16)), content + b"\0"):
        saved.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"a\.safetensors is damaged|Cannot read"):
            read_tensors(saved)


def test_a_changed_byte_is_noticed(tmp_path):
    """Header and payload alike: every third byte of a small file is changed."""
    path = tmp_path / "a.safetensors"
    own = {"w": torch.tensor([1.5, -2.0]), "b": torch.tensor([True]), "n": torch.tensor(3)}
    write_tensors(path, own, {"kind": "test", "epoch": 40})
    content = path.read_bytes()
    start = 8 + int(struct.unpack("<Q", content[:8])[0])
    assert start < len(content) - 16
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        sentence = r"SHA-256 should be [0-9a-f]{16}\.\.\. Got " if place >= start else None
        with pytest.raises(CheckpointError, match=sentence):
            read_tensors(path)
    path.write_bytes(content)
    torch.testing.assert_close(read_tensors(path)[0], own)


# Other kinds


def entry(manifest: str) -> dict[str, str]:
    digest = hashlib.sha256(manifest.encode()).hexdigest()
    return {ENTRY: json.dumps({"manifest": manifest, "sha256": digest})}


def test_a_newer_format_asks_for_an_upgrade(saved, monkeypatch):
    monkeypatch.setattr("aspect.data.tensors.FORMAT_VERSION", 0)
    with pytest.raises(CheckpointError, match=r"has format 1, newer .* \(0\)\. Upgrade aspect-gcl"):
        read_tensors(saved)


def test_a_manifest_that_says_nothing_is_refused(tmp_path):
    path = tmp_path / "odd.safetensors"
    for manifest in ("", "[]", '{"format": null}'):
        path.write_bytes(save({}, entry(manifest)))
        with pytest.raises(CheckpointError, match="its manifest cannot be read"):
            read_tensors(path)
    path.write_bytes(save({}, entry('{"format": 1}')))
    assert read_tensors(path) == ({}, {"format": 1})


def test_files_of_another_kind_are_refused(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"was not written by aspect: it has no manifest"):
        read_tensors(tmp_path / "file")
    for content in (b"", b"id,x\n1,2\n", b"\xff" * 64):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(CheckpointError, match="damaged or not a safetensors file"):
            read_tensors(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    for name in ("nothing here", "folder", "long" * 100, "nul\0"):
        with pytest.raises(CheckpointError, match="There is no checkpoint at"):
            read_tensors(tmp_path / name)


# Writing


def test_a_crash_between_write_and_rename_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def crash(*_):
        raise SystemExit

    monkeypatch.setattr(type(saved), "replace", crash)
    with pytest.raises(SystemExit):
        write_tensors(saved, {"w": torch.ones(3)}, {})
    assert saved.read_bytes() == before
    assert read_tensors(saved)[1]["kind"] == "test"


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(saved, limited_file_size):
    before = saved.read_bytes()
    with limited_file_size(4096), pytest.raises(FileError, match="Cannot write "):
        write_tensors(saved, {"weights": torch.ones(4096)}, {"number": 2})
    assert saved.read_bytes() == before
    assert [item.name for item in saved.parent.iterdir()] == [saved.name]


# Embeddings

IDS = ["007", "=cmd()", "+1", "-x", "@sum", "a,b", 'say "hi"', "line\nbreak", "", "NA"]


@pytest.fixture
def z():
    return torch.randn(len(IDS), 3, generator=torch.Generator().manual_seed(0))


def test_npy_with_its_companions(tmp_path, z):
    gate = torch.linspace(0, 1, len(IDS))
    write_embeddings(tmp_path / "z.npy", z, IDS, gate)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy", allow_pickle=False), z.numpy())
    np.testing.assert_array_equal(np.load(tmp_path / "z.gate.npy"), gate.numpy())
    lines = (tmp_path / "z.ids.txt").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == IDS
    write_embeddings(tmp_path / "alone.npy", z.bfloat16())  # numpy has no such type: widened
    np.testing.assert_array_equal(np.load(tmp_path / "alone.npy"), z.bfloat16().float().numpy())
    assert len(list(tmp_path.iterdir())) == 4


def test_parquet_keeps_ids_and_values_exactly(tmp_path, z):
    write_embeddings(tmp_path / "z.parquet", z, IDS)
    table = pyarrow.parquet.read_table(tmp_path / "z.parquet")
    assert table.column_names == ["id", "z0", "z1", "z2"]
    assert table.column("id").to_pylist() == IDS
    np.testing.assert_array_equal(table.column("z1").to_numpy(), z[:, 1].numpy())
    write_embeddings(tmp_path / "z.parquet", z, overwrite=True)
    numbered = pyarrow.parquet.read_table(tmp_path / "z.parquet").column("id").to_pylist()
    assert numbered == [str(k) for k in range(len(IDS))]


def test_gate_weights_go_beside_a_table_or_into_it(tmp_path, z):
    gate = torch.linspace(0, 1, len(IDS))
    for name, read in (
        ("z.parquet", pyarrow.parquet.read_table),
        ("z.csv", lambda path: pyarrow.Table.from_pandas(pd.read_csv(path))),
    ):
        path = tmp_path / name
        write_embeddings(path, z, IDS, gate)
        beside = read(path.with_suffix(f".gate{path.suffix}"))
        assert beside.column_names == ["id", "gate"]
        np.testing.assert_allclose(beside.column("gate").to_numpy(), gate.numpy(), rtol=1e-7)
        assert read(path).column_names == ["id", "z0", "z1", "z2"]
        path.with_suffix(f".gate{path.suffix}").unlink()
        write_embeddings(path, z, IDS, gate, overwrite=True, gate_column=True)
        assert read(path).column_names == ["id", "gate", "z0", "z1", "z2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["z.csv", "z.parquet"]


def test_word2vec_text_is_read_back_exactly(tmp_path, z):
    ids = [node.replace(" ", "_") for node in IDS if node and "\n" not in node]
    write_embeddings(tmp_path / "z.vec", z[: len(ids)], ids, torch.ones(len(ids)))
    first, *lines = (tmp_path / "z.vec").read_text(encoding="utf-8").splitlines()
    assert first == f"{len(ids)} 3"
    names, rows = zip(*((line.split(" ")[0], line.split(" ")[1:]) for line in lines), strict=True)
    assert list(names) == ids
    np.testing.assert_array_equal(np.array(rows, dtype=np.float32), z[: len(ids)].numpy())
    assert pd.read_csv(tmp_path / "z.gate.csv")["gate"].eq(1).all()
    write_embeddings(tmp_path / "numbered.txt", z)
    assert (tmp_path / "numbered.txt").read_text().splitlines()[3].startswith("2 ")


def test_word2vec_text_has_no_place_for_spaces_in_ids(tmp_path, z):
    with pytest.raises(
        GraphError, match=r"'say \"hi\"', 'line\\nbreak', '' \(3 in all\)\. Write \.parquet"
    ):
        write_embeddings(tmp_path / "z.vec", z, IDS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["z.npy", "z.vec"])
def test_what_is_no_table_has_no_column_for_the_gate(tmp_path, z, name):
    with pytest.raises(FileError, match=r"leave --gate out, .* 'z\.gate\.(npy|csv)'"):
        write_embeddings(tmp_path / name, z, gate=torch.ones(len(z)), gate_column=True)


def test_csv_makes_formulas_inert_in_ids_alone(tmp_path, z):
    write_embeddings(tmp_path / "z.csv", -z.abs(), IDS)
    options = pyarrow.csv.ConvertOptions(column_types={"id": "string"}, strings_can_be_null=False)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(tmp_path / "z.csv", convert_options=options, parse_options=parse)
    expected = ["007", "'=cmd()", "'+1", "'-x", "'@sum", *IDS[5:]]
    assert table.column("id").to_pylist() == expected
    values = table.column("z0").to_numpy()
    np.testing.assert_array_equal(values.astype(np.float32), -z[:, 0].abs().numpy())


def test_csv_keeps_ids_apart_that_differ_in_an_apostrophe(tmp_path, z):
    ids = ["=1", "'=1", "''=1", "'x", "x"]
    write_embeddings(tmp_path / "z.csv", z[:5], ids)
    lines = (tmp_path / "z.csv").read_text(encoding="utf-8").splitlines()[1:]
    written = [line.split(",")[0].strip('"') for line in lines]
    assert written == ["'=1", "''=1", "'''=1", "''x", "x"]


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


def test_ids_that_are_no_integers_are_not_written_as_such(tmp_path, z):
    for wrong in ("a", str(2**64)):
        with pytest.raises(GraphError, match="must be integers of 64 bits"):
            write_embeddings(tmp_path / "z.parquet", z[:2], ["1", wrong], integer_ids=True)
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats_and_counts_that_do_not_agree(tmp_path, z):
    with pytest.raises(FileError, match=r"as \.parquet, \.csv, \.npy, or .*name 'z\.xlsx'"):
        write_embeddings(tmp_path / "z.xlsx", z)
    with pytest.raises(GraphError, match=r"ids per row\. Got 2 for 10 rows"):
        write_embeddings(tmp_path / "z.npy", z, ["a", "b"])
    with pytest.raises(GraphError, match=r"gate weights per row\. Got 2 for 10"):
        write_embeddings(tmp_path / "z.npy", z, gate=torch.ones(2))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["z.npy", "z.csv"])
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


@pytest.mark.parametrize("name", ["z.npy", "z.csv", "z.vec"])
def test_companions_of_other_embeddings_do_not_stay(tmp_path, z, name):
    write_embeddings(tmp_path / name, z, [f"n{k}" for k in range(len(z))], z[:, 0])
    assert len(list(tmp_path.iterdir())) > 1
    (tmp_path / name).unlink()
    with pytest.raises(FileError, match=r"exists\. Pass --overwrite"):
        write_embeddings(tmp_path / name, z)
    write_embeddings(tmp_path / name, z, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["z.npy", "z.parquet"])
def test_full_disk_leaves_nothing(tmp_path, limited_file_size, name):
    many = torch.randn(5000, 8)
    ids = [f"node {k}" for k in range(5000)]
    with limited_file_size(20_000), pytest.raises(FileError, match="larger than allowed here"):
        write_embeddings(tmp_path / name, many, ids, torch.ones(5000))
    assert list(tmp_path.iterdir()) == []


def test_ids_that_are_no_text(tmp_path, z):
    with pytest.raises(GraphError, match=r"valid Unicode text\. Got '\\ud800'"):
        write_embeddings(tmp_path / "z.csv", z, ["\ud800", *IDS[1:]])
    assert list(tmp_path.iterdir()) == []
