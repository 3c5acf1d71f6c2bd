"""Embeddings out, with the ids of the nodes: `.npy`, Parquet or CSV, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.files import replacing
from aspect.errors import FileError, GraphError, shown

__all__ = ["EMBEDDING_FORMATS", "write_embeddings"]

LARGEST_INT64 = 2**63 - 1
EMBEDDING_FORMATS = (".npy", ".parquet", ".csv")

# A spreadsheet takes a cell that starts so for a formula and would run it.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_embeddings(
    path: Path | str,
    embeddings: Float[Tensor, "nodes dim"],
    ids: Sequence[str] | None = None,
    policy: Float[Tensor, " weights"] | None = None,
    overwrite: bool = False,
    *,
    integer_ids: bool = False,
) -> None:
    """Write one row per node; the format follows from the name.

    Parquet and CSV get the columns `id`, `policy` (if given) and `0`, `1`, ...; without ids the row
    numbers are the ids. `.npy` holds the bare matrix, and what else is given goes beside it: for
    `cora.npy` the policy into `cora.policy.npy` and the ids, one JSON string per line, into
    `cora.ids.txt`. In CSV, ids that a spreadsheet would run as a formula get a leading apostrophe.
    With `integer_ids`, as a graph's own flag says, the tables' ids are integers again.
    """
    path = Path(path)
    if path.suffix.lower() not in EMBEDDING_FORMATS:
        raise FileError(
            f"Embeddings are written as {', '.join(EMBEDDING_FORMATS)}. Got the name {path.name!r}."
        )
    matrix = _as_array(embeddings)
    column = None if policy is None else _as_array(policy)
    _check_lengths(matrix, ids, column)
    _check_text(ids or ())
    if path.suffix.lower() == ".npy":
        _write_npy(path, matrix, ids, column, overwrite)
    else:
        names = [str(k) for k in range(len(matrix))] if ids is None else list(ids)
        cells = _as_integers(names) if integer_ids and ids is not None else names
        _write_table(path, matrix, cells, column, overwrite)


def _as_array(values: Tensor) -> NDArray[Any]:
    """Numbers on the CPU; numpy has no bfloat16, which every float32 holds exactly."""
    values = values.detach().cpu()
    return (values.float() if values.dtype == torch.bfloat16 else values).numpy()


def _check_text(ids: Sequence[str]) -> None:
    """Half a surrogate pair is a Python string, but no text that a file can hold."""
    wrong = [node for node in ids if any("\ud800" <= letter <= "\udfff" for letter in node)]
    if wrong:
        raise GraphError(f"Node ids must be valid Unicode text. Got {shown(map(ascii, wrong))}.")


def _check_lengths(
    matrix: NDArray[Any], ids: Sequence[str] | None, policy: NDArray[Any] | None
) -> None:
    for what, values in (("ids", ids), ("policy weights", policy)):
        if values is not None and len(values) != len(matrix):
            raise GraphError(
                f"There must be one of the {what} per row. "
                f"Got {len(values)} for {len(matrix)} rows of embeddings."
            )


def _write_npy(
    path: Path,
    matrix: NDArray[Any],
    ids: Sequence[str] | None,
    policy: NDArray[Any] | None,
    overwrite: bool,
) -> None:
    contents: dict[Path, NDArray[Any] | bytes] = {path: matrix}
    if policy is not None:
        contents[path.with_suffix(".policy.npy")] = policy
    if ids is not None:
        contents[path.with_suffix(".ids.txt")] = "".join(map(_json_line, ids)).encode()
    with ExitStack() as stack:
        # All are written before the first takes its name: a full disk leaves none of them.
        for name, content in contents.items():
            file = stack.enter_context(replacing(name, overwrite=overwrite))
            if isinstance(content, bytes):
                file.write(content)
            else:
                np.save(file, content, allow_pickle=False)
            file.flush()


def _json_line(node: str) -> str:
    return json.dumps(node, ensure_ascii=False) + "\n"  # an id may itself hold a line break


def _write_table(
    path: Path,
    matrix: NDArray[Any],
    ids: list[str] | NDArray[Any],
    policy: NDArray[Any] | None,
    overwrite: bool,
) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    is_csv = path.suffix.lower() == ".csv"
    if isinstance(ids, list):
        cells = pa.array([_inert(node) for node in ids] if is_csv else ids, pa.string())
    else:
        cells = pa.array(ids)
    columns: dict[str, Any] = {"id": cells}
    if policy is not None:
        columns["policy"] = pa.array(policy)
    columns |= {
        str(k): pa.array(np.ascontiguousarray(matrix[:, k])) for k in range(matrix.shape[1])
    }
    table = pa.table(columns)
    with replacing(path, overwrite=overwrite) as file:
        if is_csv:
            pyarrow.csv.write_csv(table, file)
        else:
            pyarrow.parquet.write_table(table, file)


def _as_integers(ids: list[str]) -> NDArray[Any]:
    """The integers that the ids spell, of 64 bits; unsigned only where there is no other way."""
    try:
        numbers = [int(node) for node in ids]
        return np.array(numbers, np.uint64 if max(numbers) > LARGEST_INT64 else np.int64)
    except (ValueError, OverflowError) as error:
        raise GraphError(f"Integer ids must be integers of 64 bits. Got {error}.") from error


def _inert(node: str) -> str:
    """An id that a spreadsheet shows as text."""
    return f"'{node}" if node.startswith(FORMULA_STARTS) else node
