"""Embeddings that were made elsewhere: a file with a row for every node of a graph.

They stand in the place of a trained model: the same probe, splits and statistics read them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from aspect.data.files import IDS, file_bytes, is_file
from aspect.data.graph import Graph
from aspect.data.source import ID_NAMES, LABEL_NAMES
from aspect.errors import FileError, GraphError, sentence_of, shown
from aspect.estimator import Embedder
from aspect.experiment.spec import check_unchanged
from aspect.methods.base import Method, MethodConfig, PerGraph, Step
from aspect.plugins import reference_of

logger = logging.getLogger(__name__)

SEPARATORS = {".csv": ",", ".tsv": "\t"}
FORMATS = (".npy", ".pt", ".parquet", *SEPARATORS)
INDEX_NAMES = ("", "index", "unnamed: 0")  # under which pandas and others save an index
CLASS_NAMES = (*LABEL_NAMES, "labels", "class", "target")  # that no embedding has
BESIDE = (*CLASS_NAMES, "gate")  # columns that may stand beside ours
DIMENSION = re.compile(r"z?\d+")  # a column of ours, and of a frame without names
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class EmbeddingFile:
    """Rows of numbers, and whose they are."""

    path: Path
    rows: NDArray[np.floating[Any]]  # [rows, dim]; float64 only where float32 would round
    ids: tuple[str, ...] | None  # None: row k is node k
    sha256: str  # of the file, and of that of its ids

    @classmethod
    def read(cls, path: str | Path) -> EmbeddingFile:
        """Read `.npy`, `.pt`, `.csv`, `.tsv` or `.parquet`; no code of a file is ever run.

        Tables name the nodes in a column `id`; beside `z.npy` ids may stand in `z.ids.txt`, as
        `aspect embed` writes them. Without ids the rows are in the order of the graph's nodes.
        """
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in FORMATS:
            raise FileError(
                f"Embeddings are read from {', '.join(FORMATS)}. Got the name {path.name!r}."
            )
        content = file_bytes(path)
        digest = hashlib.sha256(content)
        ids: Sequence[str] | None = None
        beside = path.with_suffix(IDS)
        try:
            if suffix in (".npy", ".pt"):
                matrix = _matrix(path)
                if is_file(beside):
                    digest.update(file_bytes(beside))
                    ids = read_ids(beside)
            else:
                matrix, ids = _table(path)
        except FileError:
            raise
        except Exception as error:
            raise FileError(f"Cannot read embeddings from {path}. {sentence_of(error)}") from error
        if ids is not None and len(set(ids)) < len(ids):
            twice = pd.Series(ids)[pd.Series(ids).duplicated()].unique()
            raise FileError(f"{path} has more than one row of {shown(map(repr, twice))}.")
        names = None if ids is None else tuple(ids)
        return cls(path, _checked(matrix, path), names, digest.hexdigest())

    def of(self, graph: Graph) -> NDArray[np.floating[Any]]:
        """One row for each node of a graph, in its order; a node without a row is refused."""
        nodes = graph.num_nodes
        if self.ids is None:
            if len(self.rows) != nodes:
                raise GraphError(
                    f"{self.path} must hold a row for each of the {nodes} nodes, or name them in a "
                    f"column `id`. Got {len(self.rows)} rows."
                )
            return self.rows
        if len(self.ids) != len(self.rows):
            raise GraphError(f"{self.path} has {len(self.rows)} rows and {len(self.ids)} ids.")
        number = {name: row for row, name in enumerate(self.ids)}
        known = graph.ids or tuple(map(str, range(nodes)))
        # In CSV, an apostrophe keeps a spreadsheet from running an id as a formula.
        rows = [number.get(name, number.get(f"'{name}", -1)) for name in known]
        missing = [repr(name) for name, row in zip(known, rows, strict=True) if row < 0]
        if missing:
            raise GraphError(
                f"{self.path} must hold a row for each of the {nodes} nodes. There is none for "
                f"{shown(missing)}."
            )
        if len(self.ids) > nodes:
            logger.warning(
                "%s has %d rows of nodes that are not in the graph; they are left aside.",
                self.path,
                len(self.ids) - nodes,
            )
        return self.rows[rows]


def read_ids(path: Path) -> list[str]:
    r"""Names of nodes, one JSON string a line; `\n` alone ends a line."""
    return [str(json.loads(line)) for line in file_bytes(path).split(b"\n") if line]


def _matrix(path: Path) -> NDArray[np.generic]:
    if path.suffix.lower() == ".npy":
        return np.asarray(np.load(path, allow_pickle=False))
    tensor = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(tensor, Tensor):
        raise FileError(f"{path} must hold one tensor. Got {type(tensor).__name__}.")
    return np.asarray(tensor.detach().double().numpy())


def _table(path: Path) -> tuple[NDArray[np.generic], list[str] | None]:
    """Numbers and ids; columns that are called 0, 1, ... or z0, z1, ... are the embedding."""
    frame = _frame(path)
    names = list(frame.columns)
    id_name = _id_name(names)
    columns = [name for name in names if _id_name([name]) is None]
    numbered = [name for name in columns if DIMENSION.fullmatch(name)]
    labels = [repr(name) for name in columns if name.lower() in CLASS_NAMES]
    if labels and not numbered:
        raise FileError(f"{path} has a column {labels[0]}: embeddings must not hold labels.")
    chosen = numbered or columns
    odd = [repr(name) for name in chosen if not pd.api.types.is_numeric_dtype(frame[name])]
    if odd:
        raise FileError(f"Columns of {path} must hold numbers. Others do: {shown(odd)}.")
    if id_name is None:
        beside = [name for name in columns if name not in numbered and name.lower() not in BESIDE]
        if not numbered:  # whole numbers that all differ, beside fractions
            numbers = [name for name in columns if pd.api.types.is_integer_dtype(frame[name])]
            beside = [name for name in numbers if frame[name].is_unique and len(frame) > 1]
            beside = beside if len(numbers) < len(columns) else []
        if beside:
            raise FileError(
                f"{path} has the columns {shown(beside, repr)} beside the embedding, and none "
                "called id: rename the one that names the nodes, and remove the others."
            )
    ids = None if id_name is None else [str(cell) for cell in frame[id_name]]
    return frame[chosen].to_numpy(dtype=float, na_value=np.nan), ids


def _frame(path: Path) -> pd.DataFrame:
    """The table with words for ids; an index, or a column without a name, comes first."""
    if path.suffix.lower() == ".parquet":
        frame = pd.read_parquet(path)
        frame.columns = frame.columns.map(str)
        is_plain = frame.index.equals(pd.RangeIndex(len(frame)))
        return frame if is_plain else frame.reset_index(names="")
    separator = SEPARATORS[path.suffix.lower()]
    head = pd.read_csv(path, sep=separator, nrows=1)
    if head.index.nlevels > 1:
        raise FileError(f"{path} must have a name above every column but the first.")
    unnamed = [] if isinstance(head.index, pd.RangeIndex) else [""]  # R names no column of ids
    names = [*unnamed, *map(str, head.columns)]
    id_name = _id_name(names)
    converters = {} if id_name is None else {id_name: str}
    return pd.read_csv(path, sep=separator, header=0, names=names, converters=converters)


def _id_name(names: Sequence[str]) -> str | None:
    """The column that names the nodes; that of an index only where there is no other."""
    known = [
        name for kind in (ID_NAMES, INDEX_NAMES) for name in names if name.strip().lower() in kind
    ]
    return known[0] if known else None


def _checked(matrix: NDArray[np.generic], path: Path) -> NDArray[np.floating[Any]]:
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "fiu":  # noqa: PLR2004
        raise FileError(
            f"{path} must hold a matrix of numbers, a row for every node. "
            f"Got {matrix.dtype} of shape {list(matrix.shape)}."
        )
    numbers = matrix.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (np.abs(numbers) <= LARGEST)).all(axis=1))
    if len(wrong):
        raise FileError(
            f"{path} holds numbers that are missing or infinite in rows {shown(wrong)}."
        )
    rounded = numbers.astype(np.float32)
    return rounded if (rounded == numbers).all() else numbers  # which the probe centres first


# As a model


class PrecomputedConfig(MethodConfig):
    """Where the embeddings are."""

    file: str = ""
    """The file."""
    sha256: str = ""
    """What it must hold, if that is known."""


class Precomputed(Method):
    """Embeddings that were made elsewhere; nothing is trained."""

    trainable: ClassVar[bool] = False
    inductive: ClassVar[bool] = False

    config: PrecomputedConfig

    def __init__(self, config: PrecomputedConfig, num_features: int) -> None:  # noqa: ARG002
        super().__init__()
        self.config = config
        self.rows = PerGraph(self._read)

    def _read(self, graph: Graph) -> Tensor:
        file = EmbeddingFile.read(self.config.file)
        if self.config.sha256:
            check_unchanged(str(file.path), self.config.sha256, file.sha256)
        return torch.from_numpy(file.of(graph)).to(graph.device)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        return {}

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self.rows(graph).clone()


PRECOMPUTED = reference_of(Precomputed)


def precomputed_model(file: str | Path, sha256: str | None, device: str | None) -> Embedder:
    """A model, not fitted yet, that embeds its graph by the rows of a file."""
    return Embedder(Precomputed, device=device, file=str(file), sha256=sha256 or "")
