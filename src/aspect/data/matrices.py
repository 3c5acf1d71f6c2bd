"""Arrays of any library into tensors, and feature matrices into the two layouts that we keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Features
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, SettingsError

__all__ = ["IMPUTATIONS", "as_features", "as_tensor", "check_impute", "imputed"]

IMPUTATIONS = ("zero", "mean")


def as_features(x: object) -> Features:
    """A feature matrix in float32 on the CPU: in compressed rows if it came sparse, else dense."""
    if isinstance(x, SparseMatrix):
        return x
    if scipy.sparse.issparse(x):
        return _from_scipy(x)
    matrix = as_tensor(x, "Features")
    if matrix.ndim != 2:  # noqa: PLR2004 - nodes and features
        raise GraphError(f"Features must have shape [nodes, features]. Got {list(matrix.shape)}.")
    if matrix.layout == torch.strided:
        return _as_float32(matrix)
    entries: Tensor = matrix.to_sparse().coalesce()
    rows, columns = entries.indices()
    shape = (matrix.shape[0], matrix.shape[1])
    return SparseMatrix.from_entries(rows, columns, _as_float32(entries.values()), shape)


def as_tensor(values: object, what: str) -> Tensor:
    """A tensor on the CPU without gradient, or one sentence that says what cannot become one."""
    if isinstance(values, Tensor):
        return values.detach().cpu()
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(values, "dtype", type(values).__name__)
        raise GraphError(f"{what} must be an array of numbers. Got {kind}.") from error


def check_impute(how: str | None) -> None:
    """Refuse a way of imputing that does not exist; None is no imputation."""
    if how is not None and how not in IMPUTATIONS:
        raise SettingsError(f"--impute must be {' or '.join(IMPUTATIONS)}. Got {how!r}.")


def imputed(features: Features, how: str) -> tuple[Features, list[str]]:
    """Zero, or the mean of the column's finite entries, for what is NaN or infinite; and a notice.

    A column without a finite entry becomes zero either way.
    """
    check_impute(how)
    values = features.values if isinstance(features, SparseMatrix) else features
    bad = ~torch.isfinite(values)
    if not bool(bad.any()):
        return features, []
    if isinstance(features, SparseMatrix):
        columns = features.pattern.columns.long()
    else:
        columns = torch.arange(features.shape[1]).expand_as(features)
    kept = torch.where(bad, 0, values)
    fill = torch.zeros(features.shape[1], dtype=torch.float64)
    if how == "mean":
        lost = torch.bincount(columns[bad], minlength=features.shape[1])
        fill.index_add_(0, columns.flatten(), kept.double().flatten())
        fill /= (features.shape[0] - lost).clamp(min=1)
    kept[bad] = fill.to(values.dtype)[columns[bad]]
    num_columns = int((torch.bincount(columns[bad]) > 0).sum())
    notice = f"{int(bad.sum())} missing or infinite features in {num_columns} columns set to {how}."
    filled = features.with_values(kept) if isinstance(features, SparseMatrix) else kept
    return filled, [notice]


def _from_scipy(x: Any) -> SparseMatrix:  # noqa: ANN401 - any of scipy's sparse classes
    matrix = scipy.sparse.coo_array(x, copy=True)
    matrix.sum_duplicates()
    rows, columns = (torch.from_numpy(part.astype(np.int64)) for part in matrix.coords)
    values = _as_float32(as_tensor(matrix.data, "Features"))
    return SparseMatrix.from_entries(rows, columns, values, (matrix.shape[0], matrix.shape[1]))


def _as_float32(values: Tensor) -> Float[Tensor, ...]:
    if values.dtype.is_complex:
        raise GraphError(f"Features must be real numbers. Got {values.dtype}.")
    return values.to(torch.float32)
