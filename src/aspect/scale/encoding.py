"""The columns of a node table that is read in pieces, fitted in one pass and encoded in another.

Numbers, truth values and dates become what `FeatureEncoder` makes of them in memory. Texts would
need all of their values at once, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from aspect.data.columns import parse_column, refused_gaps
from aspect.data.encoder import (
    BAG_COLUMNS,
    BAG_ZEROS,
    Column,
    FeatureEncoder,
    FeatureScaling,
    Impute,
    Kind,
    ParsedColumn,
    encoding_of,
)
from aspect.data.table_files import TableFile
from aspect.errors import GraphError


class _Moments:
    """What a column's encoding depends on, gathered piece by piece."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.count, self.mean, self.squares = 0, 0.0, 0.0  # of deviations from the mean
        self.missing, self.zeros, self.ones, self.lowest = 0, 0, 0, np.inf

    def add(self, column: ParsedColumn) -> None:
        """Take in the values of another piece (Chan's update of mean and variance)."""
        known = column.values[~column.missing]
        self.missing += len(column.values) - len(known)
        if not len(known):
            return
        mean, count = float(known.mean()), self.count + len(known)
        step = mean - self.mean
        self.squares += float(np.square(known - mean).sum())
        self.squares += step**2 * self.count * len(known) / count
        self.mean += step * len(known) / count
        self.count = count
        self.zeros += int((known == 0).sum())
        self.ones += int((known == 1).sum())
        self.lowest = min(self.lowest, float(known.min()))

    @property
    def is_word(self) -> bool:
        """Whether it may be one of a bag of words."""
        return self.kind == "number" and self.lowest >= 0 and self.zeros >= BAG_ZEROS * self.count

    def column(
        self, name: str, scaling: FeatureScaling | None, *, is_word: bool, indicator: bool
    ) -> Column:
        """As `FeatureEncoder.fit` makes it."""
        is_binary = self.zeros + self.ones == self.count
        encoding = encoding_of(self.kind, scaling, is_word=is_word, is_binary=is_binary)
        column = Column(
            name=name, kind=self.kind, encoding=encoding, fill=self.mean, indicator=indicator
        )
        if encoding != "standard":
            return column
        std = float(np.sqrt(self.squares / max(1, self.count)))
        return column.model_copy(update={"mean": self.mean, "scale": std or 1.0})


def fit_pieces(
    pieces: Iterable[TableFile],
    names: Sequence[str],
    *,
    scaling: FeatureScaling | None,
    impute: Impute | None,
) -> FeatureEncoder:
    """Decide what becomes of every column, by one pass through the table."""
    moments: dict[str, _Moments] = {}
    for piece in pieces:
        for name in names:
            kind = moments[name].kind if name in moments else None
            column = parse_column(piece, name, kind)
            if column.kind == "text":
                raise GraphError(
                    f"Column {name!r} of {str(piece.path)!r} holds texts, and a store takes "
                    f"numbers, truth values and dates. Encode it, or pass --drop {name}."
                )
            if column.missing.any() and impute is None:
                raise refused_gaps(piece, name, column.missing)
            moments.setdefault(name, _Moments(column.kind)).add(column)
    words = {name for name, each in moments.items() if each.is_word}
    if scaling is not None or len(words) < BAG_COLUMNS:
        words = set()
    if words and len(words) < len(names):
        raise GraphError(
            f"{len(words)} columns look like a bag of words and {len(names) - len(words)} do not. "
            "Say how they are scaled with --feature-scaling standard, rows or none."
        )
    columns = [
        each.column(
            name,
            scaling,
            is_word=name in words,
            indicator=impute == "indicator" and each.missing > 0,
        )
        for name, each in moments.items()
    ]
    return FeatureEncoder(columns=tuple(columns), scaling=scaling, impute=impute)


def encode_piece(piece: TableFile, encoder: FeatureEncoder) -> NDArray[np.float32]:
    """The features of some rows."""
    parsed = {
        column.name: parse_column(piece, column.name, column.kind) for column in encoder.columns
    }
    return encoder.encode(parsed).features
