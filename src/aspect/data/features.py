"""Feature matrices, dense or in compressed rows: made, imputed and transformed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from aspect.data.encoder import Caution, FeatureEncoder
from aspect.data.graph import Features, Graph, values_of
from aspect.data.operators import leading_eigenvectors, normalised_adjacency
from aspect.data.source import Impute, Structural
from aspect.data.sparse import Pattern, SparseMatrix
from aspect.errors import GraphError, shown
from aspect.randomness import generator_for

DRAWS = 2**16  # different values of an int16, from -DRAWS / 2 on

COLUMNS = 32  # of random and laplacian features
SEED = 0  # one graph, one set of random features
OTHER_AXES = (
    "The {} features of another graph have axes of their own: its embedding cannot be compared "
    "with that of the training graph. Train with --features degree for that."
)

LARGEST_EXACT = 2**24  # from there on neighbouring integers may be one float32


def dense(features: Features) -> Float[Tensor, "nodes features"]:
    """The feature matrix with its zeros."""
    return features.dense() if isinstance(features, SparseMatrix) else features


def num_entries(features: Features) -> int:
    """Entries that are not zero, though they may be stored."""
    return int(torch.count_nonzero(values_of(features)))


def mean_size(features: Features) -> Float[Tensor, ""]:
    """The size of an entry that is not zero, on average; zero where there is none."""
    values = values_of(features).flatten()
    return values.abs().sum() / (values != 0).sum().clamp(min=1)


def row_normalise(features: Features) -> Features:
    """Divide every row by the sum of its absolute values; a row of zeros stays as it is."""
    if isinstance(features, SparseMatrix):
        rows = features.pattern.rows
        pointers = features.pattern.row_pointers.long()
        sums = torch.segment_reduce(features.values.abs(), "sum", offsets=pointers, initial=0)
        return features.with_values(features.values / torch.where(sums > 0, sums, 1)[rows])
    sums = features.abs().sum(1, keepdim=True)
    return features / torch.where(sums > 0, sums, 1)


def seen_features(features: Features, *, normalise_rows: bool) -> Features:
    """Features as a method sees them: with rows normalised, or as they are."""
    return row_normalise(features) if normalise_rows else features


def mask_columns(features: Features, keep: Float[Tensor, " features"] | None) -> Features:
    """Zero the columns where `keep` is zero; None keeps them all."""
    if keep is None:
        return features
    if isinstance(features, SparseMatrix):
        return features.with_values(features.values * keep[features.pattern.columns])
    return features * keep


def permute_rows(features: Features, order: Int[Tensor, " nodes"]) -> Features:
    """The same rows in another order; on a GPU nothing is read back to the host."""
    stored = len(features.values) if isinstance(features, SparseMatrix) else None
    return take_rows(features, order, stored)


def take_rows(
    features: Features, rows: Int[Tensor, " taken"], stored: int | None = None
) -> Float[Tensor, "taken features"] | SparseMatrix:
    """The rows of these numbers in this order, stored as before; one may come twice.

    `stored` is the number of entries in the result, where it is known.
    """
    if not isinstance(features, SparseMatrix):
        return features[rows]
    _, entries = features.pattern.entries_of(rows, stored)
    ends = features.pattern.segments.diff()[rows].cumsum(0)
    kind = features.pattern.columns.dtype
    new_pointers = torch.cat([ends.new_zeros(1), ends]).to(kind)
    shape = (len(rows), features.shape[1])
    pattern = Pattern(new_pointers, features.pattern.columns[entries], shape)
    return SparseMatrix(pattern, features.values[entries])


def permute_columns(features: Features, order: Int[Tensor, " features"]) -> Features:
    """The same columns in another order: first the one numbered `order[0]`."""
    if not isinstance(features, SparseMatrix):
        return features[:, order]
    columns = torch.argsort(order)[features.pattern.columns.long()]  # where each has gone
    return SparseMatrix.from_entries(
        features.pattern.rows, columns, features.values, features.shape
    )


def drop_entries(features: Features, rate: float, generator: torch.Generator | None) -> Features:
    """Dropout of a feature matrix; of compressed rows only the stored entries are drawn.

    Dropping a zero changes nothing.
    """
    if isinstance(features, SparseMatrix):
        return features.with_values(dropout(features.values, rate, generator))
    return dropout(features, rate, generator)


def dropout(
    x: Float[Tensor, "*shape"], rate: float, generator: torch.Generator | None
) -> Float[Tensor, "*shape"]:
    """Zero entries with probability `rate` and scale the rest up; without a generator, none.

    The rate is rounded to a multiple of 2^-16: four draws are cut from each 64 random bits, since
    on a CPU drawing would otherwise cost more than what is done with the draws.
    """
    if generator is None or rate == 0:
        return x
    threshold, factor = kept_draws(rate)
    draws = draw_words(x.numel(), generator)
    keep = torch.empty_like(x, requires_grad=False)
    torch.lt(draws.view(x.shape), threshold, out=keep)
    return x * keep.mul_(factor)


def draw_words(count: int, generator: torch.Generator) -> Int[Tensor, " count"]:
    """So many uniform draws of 16 bits, four of them from each 64 random bits."""
    words = torch.empty(-(-count // 4), dtype=torch.int64, device=generator.device)
    return words.random_(-(2**63), None, generator=generator).view(torch.int16)[:count]


def kept_draws(rate: float) -> tuple[int, float]:
    """Below which draw of 16 bits dropout keeps an entry, and by what factor."""
    kept = max(1, round((1 - rate) * DRAWS))
    return kept - DRAWS // 2, DRAWS / kept


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
    if np.ma.is_masked(values):
        values = np.ma.filled(np.ma.asarray(values, np.float64), np.nan)
    try:
        return torch.as_tensor(np.asarray(values))
    except (TypeError, ValueError, RuntimeError) as error:
        kind = getattr(values, "dtype", type(values).__name__)
        raise GraphError(f"{what} must be an array of numbers. Got {kind}.") from error


def imputed(features: Features, how: Impute | None) -> tuple[Features, list[str]]:
    """Zero, or the mean of the column's finite entries, for what is NaN or infinite; and a notice.

    A column without a finite entry becomes zero either way. Nothing changes by None and `none`:
    in an array these are faults, which the graph refuses.
    """
    values = values_of(features)
    bad = ~torch.isfinite(values)
    if how in (None, "none") or not bool(bad.any()):
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
    if not values.dtype.is_floating_point and values.dtype != torch.bool:
        numbers = values.numpy()
        merged = merged_integers(numbers)
        if merged.any():
            raise GraphError(
                "Integer features must stay different as float32, which holds them exactly below "
                f"2**24. Got {shown(numbers[merged])}. If they are identifiers, leave them out."
            )
    return values.to(torch.float32)


def merged_integers(
    values: NDArray[Any], integers: NDArray[np.bool_] | bool = True
) -> NDArray[np.bool_]:
    """Those among the integers, if they become fewer different numbers as float32."""
    large = integers & (np.abs(values.astype(np.float64)) >= LARGEST_EXACT)
    numbers = values[large]
    merge = len(np.unique(numbers)) > len(np.unique(numbers.astype(np.float32)))
    return large & merge


def with_structural_features(
    graph: Graph, kind: Structural, trained: FeatureEncoder | None = None
) -> Graph:
    """The same edges with features made from them in place of its own, the same at every call.

    With the encoder of a training graph they have as many columns as that one; axes are common to
    both graphs only for `degree`, which is said of the others.

    - `degree`: one-hot of the power of two below the degree; raw degrees of hubs would drown all
      others.
    - `identity`: one column per node.
    - `random`: standard normal numbers, scaled to rows of length one on average.
    - `laplacian`: eigenvectors of the normalised Laplacian's smallest eigenvalues, of mean square
      one; in an eigenspace of several dimensions the solver chooses the basis.
    """
    nodes = torch.arange(graph.num_nodes)
    features: Features
    if kind == "degree":
        bins = torch.log2(graph.degrees().double() + 1).floor().long()
        most = int(bins.max()) + 1 if trained is None or trained.width is None else trained.width
        features = torch.nn.functional.one_hot(bins.clamp(max=most - 1), most).float()
    elif kind == "identity":
        size = (graph.num_nodes, graph.num_nodes)
        features = SparseMatrix.from_entries(nodes, nodes, torch.ones(graph.num_nodes), size)
    elif kind == "random":
        generator = generator_for(SEED, "features")
        features = torch.randn(graph.num_nodes, COLUMNS, generator=generator).mul(COLUMNS**-0.5)
    elif graph.num_edges == 0:
        raise GraphError("Laplacian features need edges. Got none; ask for degree or random ones.")
    else:
        count = min(COLUMNS, graph.num_nodes - 1)
        _, vectors = leading_eigenvectors(normalised_adjacency(graph), count, "LA")
        scaled = vectors * graph.num_nodes**0.5
        features = torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))
    notices = graph.notices
    if trained is not None and kind != "degree":
        notices = (*notices, Caution(OTHER_AXES.format(kind)))
    return replace(
        graph,
        features=features,
        feature_names=None,
        notices=notices,
        encoder=FeatureEncoder(structural=kind, width=features.shape[1]),
    )


def with_made_features(
    graph: Graph, how: str, trained: FeatureEncoder | None = None, kind: Structural | None = None
) -> Graph:
    """A graph without features with structural ones of a kind, as in training, or by themselves.

    The last are said: `The nodes have no features, so laplacian ones are made`, and `how`.
    """
    kind = kind or (None if trained is None else trained.structural)
    if kind is None:
        kind = "laplacian" if graph.num_edges else "degree"
        notice = f"The nodes have no features, so {kind} ones are made{how}."
        graph = replace(graph, notices=(*graph.notices, notice))
    is_known = trained is not None and trained.structural == kind
    return with_structural_features(graph, kind, trained if is_known else None)
