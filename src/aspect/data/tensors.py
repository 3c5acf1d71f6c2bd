"""Tensors on disk: one safetensors file with a manifest and a digest inside, whole or not at all.

safetensors notices truncation but not a flipped bit, so the digest covers names, types, shapes,
values and the manifest itself. Nothing is ever unpickled. Equal content gives equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from aspect.data.files import is_file, reason, replacing
from aspect.errors import CheckpointError

__all__ = ["FORMAT_VERSION", "read_tensors", "write_tensors"]

FORMAT_VERSION = 1  # raised when an older library could misread what this one writes

# safetensors writes several entries in an order that changes from call to call; one has no order.
ENTRY = "aspect"
LENGTH = 8  # bytes at the beginning of a safetensors file that say how long its header is


def write_tensors(path: Path, tensors: Mapping[str, Tensor], manifest: Mapping[str, Any]) -> None:
    """Save tensors with a manifest of plain values."""
    stored = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    text = json.dumps({**manifest, "format": FORMAT_VERSION}, sort_keys=True)
    entry = json.dumps({"manifest": text, "sha256": _digest(stored, text)})
    with replacing(path, overwrite=True) as file:
        file.write(save(stored, {ENTRY: entry}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `write_tensors` wrote; anything else is refused with a sentence."""
    if not is_file(path):
        raise CheckpointError(f"There is no checkpoint at {path}.")
    tensors, metadata = _read(path)
    text, expected, manifest = _manifest(path, metadata)
    # A newer format may digest otherwise, so it is named before anything is called damaged.
    if manifest["format"] > FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format {manifest['format']}, newer than this version reads "
            f"({FORMAT_VERSION}). Upgrade aspect-gcl."
        )
    actual = _digest(tensors, text)
    if actual != expected:
        raise CheckpointError(
            f"{path} is damaged: its SHA-256 should be {expected[:16]}... Got {actual[:16]}..."
        )
    # Copies: what safetensors hands out are views of the file's bytes, aligned as they are.
    return {name: tensor.clone() for name, tensor in tensors.items()}, manifest


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        # At once: safetensors opens a file's name twice, between which it may have been replaced.
        content = path.read_bytes()
        tensors = load(content)
        header = json.loads(content[LENGTH : LENGTH + int.from_bytes(content[:LENGTH], "little")])
        return tensors, header.get("__metadata__", {})
    except OSError as error:
        raise CheckpointError(f"Cannot read {path}: {reason(error)}.") from error
    except (SafetensorError, ValueError, OverflowError, RuntimeError) as error:
        raise CheckpointError(f"{path} is damaged or not a safetensors file: {error}.") from error


def _manifest(path: Path, metadata: Mapping[str, str]) -> tuple[str, str, dict[str, Any]]:
    """The manifest as it was written, the digest it should have, and what it says."""
    if ENTRY not in metadata:
        raise CheckpointError(f"{path} was not written by aspect: it has no manifest.")
    try:
        entry = json.loads(metadata[ENTRY])
        text, expected = str(entry["manifest"]), str(entry["sha256"])
        manifest: dict[str, Any] = json.loads(text)
        manifest["format"] = int(manifest["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged: its manifest cannot be read.") from error
    return text, expected, manifest


def _digest(tensors: Mapping[str, Tensor], manifest: str) -> str:
    digest = hashlib.sha256(manifest.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        # As bytes, for NumPy knows no bfloat16; flat first, for torch views no single number.
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
