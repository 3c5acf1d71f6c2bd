from __future__ import annotations

import hashlib
import json
import struct

import pytest
import torch
from safetensors.torch import save, save_file

from aspect.data.tensors import ENTRY, FORMAT_VERSION, read_tensors, write_tensors
from aspect.errors import CheckpointError, FileError

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


def test_numbers_that_are_none_come_back_bit_for_bit(tmp_path):
    odd = torch.tensor([float("nan"), float("inf"), -0.0, 1e-45])
    write_tensors(tmp_path / "odd", {"odd": odd}, {})
    found = read_tensors(tmp_path / "odd")[0]["odd"]
    assert torch.equal(found.view(torch.int32), odd.view(torch.int32))


def test_views_shared_and_trained_tensors_come_back(tmp_path):
    base = torch.arange(12.0).view(3, 4)
    own = {"column": base[:, 1], "turned": base.t(), "same": base, "again": base}
    own["trained"] = torch.ones(2, requires_grad=True)
    write_tensors(tmp_path / "views", own, {})
    found = read_tensors(tmp_path / "views")[0]
    torch.testing.assert_close(found, {name: t.detach().contiguous() for name, t in own.items()})


def test_equal_content_gives_equal_bytes(tmp_path):
    contents = set()
    for number in range(6):
        path = tmp_path / str(number)
        write_tensors(
            path, dict(reversed(tensors().items())) if number % 2 else tensors(), MANIFEST
        )
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_what_was_read_does_not_hang_on_the_file(saved):
    found, _ = read_tensors(saved)
    before = saved.read_bytes()
    found["of/torch.float32"].fill_(9)
    assert saved.read_bytes() == before
    saved.write_bytes(b"")
    assert float(found["of/torch.float64"].sum()) == 256


# Damage


def test_a_file_cut_short_or_with_more_at_its_end_is_refused(saved):
    content = saved.read_bytes()
    for wrong in (*(content[: len(content) * k // 16] for k in range(16)), content + b"\0"):
        saved.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"a\.safetensors is damaged|Cannot read"):
            read_tensors(saved)


def test_every_changed_byte_is_noticed(tmp_path):
    """Header and payload alike: each byte of a small file is changed in turn, each bit at times."""
    path = tmp_path / "a.safetensors"
    own = {"w": torch.tensor([1.5, -2.0]), "b": torch.tensor([True]), "n": torch.tensor(3)}
    write_tensors(path, own, {"kind": "test", "epoch": 40})
    content = path.read_bytes()
    start = 8 + int(struct.unpack("<Q", content[:8])[0])
    assert start < len(content) - 16
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        sentence = r"SHA-256 should be [0-9a-f]{16}\.\.\. Got " if place >= start else None
        with pytest.raises(CheckpointError, match=sentence):
            read_tensors(path)
    path.write_bytes(content)
    torch.testing.assert_close(read_tensors(path)[0], own)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"epoch", b"epocz"),
        (b"40", b"41"),
        (b'"F32"', b'"I32"'),
        (b'"w"', b'"v"'),
        (b"[2]", b"[1]"),
    ],
)
def test_a_tampered_header_is_noticed(tmp_path, old, new):
    path = tmp_path / "a.safetensors"
    write_tensors(path, {"w": torch.tensor([1.5, -2.0])}, {"epoch": 40})
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    with pytest.raises(CheckpointError, match="damaged"):
        read_tensors(path)


# Other kinds


def entry(manifest: str) -> dict[str, str]:
    digest = hashlib.sha256(manifest.encode()).hexdigest()
    return {ENTRY: json.dumps({"manifest": manifest, "sha256": digest})}


def test_a_newer_format_asks_for_an_upgrade(saved, monkeypatch):
    monkeypatch.setattr("aspect.data.tensors.FORMAT_VERSION", 0)
    with pytest.raises(CheckpointError, match=r"has format 1, newer .* \(0\)\. Upgrade aspect-gcl"):
        read_tensors(saved)


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"format": "new"}', '{"format": null}'])
def test_a_manifest_that_says_nothing_is_refused(tmp_path, manifest):
    path = tmp_path / "odd.safetensors"
    path.write_bytes(save({}, entry(manifest)))
    with pytest.raises(CheckpointError, match="its manifest cannot be read"):
        read_tensors(path)


def test_the_digest_of_these_tests_is_the_real_one(tmp_path):
    path = tmp_path / "fine.safetensors"
    path.write_bytes(save({}, entry('{"format": 1}')))
    assert read_tensors(path) == ({}, {"format": 1})


def test_safetensors_of_others_are_refused(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"was not written by aspect: it has no manifest"):
        read_tensors(tmp_path / "other.safetensors")


@pytest.mark.parametrize("content", [b"", b"id,x\n1,2\n", b"\x80\x04.", b"\xff" * 64])
def test_files_of_another_kind_are_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(CheckpointError, match="file"):
        read_tensors(tmp_path / "file")


@pytest.mark.parametrize("name", ["nothing here", "folder", "long" * 100, "nul\0"])
def test_no_file_is_said_so(tmp_path, name):
    (tmp_path / "folder").mkdir()
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
