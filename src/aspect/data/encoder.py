"""From the columns of a node table to features: fitted on the training graph, stored as JSON.

| column | features |
|---|---|
| number | standardised; 0 and 1 stay; a bag of words is divided by the sum of its row |
| date | days, standardised |
| boolean | 0 or 1 |
| text with few values | one-hot |
| text with many values that repeat | hashed |
| sentences | their words hashed |
| text that hardly repeats | left out: an identifier |
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aspect.config import Config
from aspect.data.source import FeatureScaling, Impute, Structural
from aspect.errors import MOST_SHOWN, GraphError, shown

Kind = Literal["number", "boolean", "date", "text"]
Encoding = Literal["plain", "standard", "bag", "one-hot", "hashed", "words"]

MOST_VALUES = 32  # of a column that becomes one-hot
HASHED_COLUMNS = 32  # for the values of one that has more
WORD_COLUMNS = 128  # for the words of sentences
WORDS_OF_A_SENTENCE = 3  # on average
BAG_COLUMNS = 16  # the least of a bag of words
BAG_ZEROS = 0.5  # the least share of zeros in each of them
DOMINANT = 0.9  # of the mean row size: a column that carries more drowns all others
FLOAT32 = np.float32
NO_VALUE = "it has no value"
WHOLE = re.compile(r"^([+-]?[0-9]+)([.]0*)?$")


class Caution(str):
    """A notice that should not be overlooked."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class ParsedColumn:
    """One column of a node table; see `aspect.data.columns`."""

    name: str
    kind: Kind
    values: NDArray[Any]  # float64, NaN where missing; of text, strings and None
    is_category: bool = False  # whatever its values look like

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Rows without a value; an infinite number is none."""
        if self.kind == "text":
            return np.array([cell is None for cell in self.values], dtype=np.bool_)
        missing: NDArray[np.bool_] = ~np.isfinite(self.values)
        return missing

    @property
    def infinite(self) -> NDArray[np.bool_]:
        """Rows with an infinite number, which is no gap but a fault of whatever computed it."""
        if self.kind == "text":
            return np.zeros(len(self.values), dtype=np.bool_)
        infinite: NDArray[np.bool_] = np.isinf(self.values)
        return infinite


class Column(Config):
    """One column of a node table as it was in training."""

    name: str
    kind: Kind
    encoding: Encoding = "plain"
    mean: float = 0.0
    scale: float = 1.0
    fill: float | str | None = None
    """What a missing cell becomes: the mean, or the most frequent value."""
    indicator: bool = False
    """Whether a further feature says where the value was missing."""
    values: tuple[str, ...] = ()
    """Those of a one-hot column."""
    width: int = 1
    """Features, without the indicator."""

    @property
    def feature_names(self) -> list[str]:
        """One for each feature."""
        if self.encoding == "one-hot":
            names = [f"{self.name}={value}" for value in self.values]
        elif self.encoding in ("hashed", "words"):
            names = [f"{self.name}#{k}" for k in range(self.width)]
        else:
            names = [self.name]
        return [*names, f"{self.name} missing"] if self.indicator else names

    def encode(self, column: ParsedColumn, impute: Impute | None) -> NDArray[np.float32]:
        """The features [nodes, width]; gaps must have been refused where nothing fills them."""
        missing = column.missing
        if self.kind == "text":
            fill = "" if impute == "zero" else self.fill
            block = self._encode_text(np.where(missing, fill or "", column.values))
        else:
            number = 0.0 if impute == "zero" else float(self.fill or 0.0)
            numbers = np.where(missing, number, column.values).astype(np.float64)
            block = ((numbers - self.mean) / self.scale).astype(FLOAT32)[:, None]
        return np.hstack([block, missing[:, None].astype(FLOAT32)]) if self.indicator else block

    def _encode_text(self, texts: NDArray[Any]) -> NDArray[np.float32]:
        if self.encoding == "one-hot":
            values = np.array(self.values, dtype=object)
            one_hot: NDArray[np.float32] = (texts[:, None] == values).astype(FLOAT32)
            return one_hot
        if self.encoding == "words":
            from sklearn.feature_extraction.text import HashingVectorizer

            hashed = HashingVectorizer(n_features=self.width, dtype=FLOAT32).transform(texts)
        else:
            from sklearn.feature_extraction import FeatureHasher

            hasher = FeatureHasher(n_features=self.width, input_type="string", dtype=FLOAT32)
            hashed = hasher.transform([text] if text else [] for text in texts)
        dense: NDArray[np.float32] = hashed.toarray()
        return dense

    def respelled(self, column: ParsedColumn) -> ParsedColumn:
        """Whole numbers among categories as training had them: `1.0`, made by gaps, for `1`."""
        if self.encoding not in ("one-hot", "hashed") or not _is_number(str(self.fill)):
            return column
        whole = r"\1.0" if "." in str(self.fill) else r"\1"
        cells = [
            cell if cell is None or cell in self.values else WHOLE.sub(whole, cell)
            for cell in column.values
        ]
        return replace(column, values=np.array(cells, dtype=object))

    @property
    def title(self) -> str:
        """What is done with it, in words."""
        return {
            "plain": "as it is",
            "standard": "standardised",
            "bag": "row-normalised as a bag of words",
            "one-hot": f"one-hot ({len(self.values)} values)",
            "hashed": f"hashed into {self.width} features",
            "words": f"words hashed into {self.width} features",
        }[self.encoding]


class FeatureEncoder(Config):
    """How the features of a graph came about: from columns of its node table, or from its edges."""

    columns: tuple[Column, ...] = ()
    left_out: dict[str, str] = Field(default_factory=dict)
    """Columns that became no feature, and why."""
    scaling: FeatureScaling | None = None
    """As it was asked for; none: bags of words by row, other numbers standardised."""
    impute: Impute | None = None
    """As it was asked for; none: as `indicator`, with a warning."""
    bag_scale: float = 1.0
    """What the rows of the bag of words are multiplied by, once each is divided by its sum."""
    structural: Structural | None = None
    """Made from the edges."""
    width: int | None = None
    """Features, if they are structural."""

    @classmethod
    def fit(
        cls,
        columns: Sequence[ParsedColumn],
        *,
        scaling: FeatureScaling | None = None,
        impute: Impute | None = None,
    ) -> FeatureEncoder:
        """Decide what becomes of every column, and measure it."""
        fitted, left_out = [], {}
        bag = _bag_of_words(columns) if scaling is None else set()
        for column in columns:
            indicator = impute in (None, "indicator") and bool(column.missing.any())
            if column.kind == "text":
                made = _fit_text(column)
            else:
                made = _fit_number(column, scaling, is_word=column.name in bag)
            if isinstance(made, str):
                left_out[column.name] = made
            else:
                fitted.append(made.model_copy(update={"indicator": indicator}))
        fitted = _measured(fitted, columns)
        encoder = cls(columns=tuple(fitted), left_out=left_out, scaling=scaling, impute=impute)
        others = len(fitted) - len(bag)
        if bag and others:
            encoder = encoder.model_copy(update={"bag_scale": _bag_scale(encoder, columns)})
        return encoder

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One for each feature."""
        return tuple(name for column in self.columns for name in column.feature_names)

    def encode(
        self, columns: Mapping[str, ParsedColumn], impute: Impute | None = None
    ) -> tuple[NDArray[np.float32], list[str]]:
        """The features [nodes, features] of these columns, and notices."""
        blocks, notices = [], []
        for column in self.columns:
            given = column.respelled(columns[column.name])
            values = [] if column.encoding != "one-hot" else dict.fromkeys(given.values.tolist())
            unseen = [value for value in values if value not in (*column.values, None)]
            are_numbers = bool(unseen) and all(
                value is None or _is_number(value) for value in values
            )
            if are_numbers and not any(map(_is_number, column.values)):
                raise GraphError(
                    f"Column {column.name!r} must hold values as in the training, such as "
                    f"{column.values[0]!r}. Got the numbers {shown(unseen, repr)}."
                )
            if unseen:
                notices.append(
                    f"Values of {column.name!r} that the training had not are no feature: "
                    f"{shown(unseen, repr)}."
                )
            blocks.append(column.encode(given, impute or self.impute))
        features = np.hstack(blocks)
        bag = np.concatenate([_is_bag(column) for column in self.columns])
        if self.scaling == "rows":
            features = _row_normalised(features)
        elif bag.any():
            features[:, bag] = _row_normalised(features[:, bag]) * FLOAT32(self.bag_scale)
        return features, notices

    def to_json(self) -> dict[str, Any]:
        """Plain values, from which `model_validate` makes an equal one."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def described(self) -> list[str]:
        """What was done, for people; nothing if all columns are as they were."""
        groups: dict[str, list[str]] = {}
        for column in self.columns:
            if column.encoding != "plain":
                groups.setdefault(column.title, []).append(column.name)
        told = [f"{_listed(names)} {title}" for title, names in groups.items()]
        days = [column.name for column in self.columns if column.kind == "date"]
        told += [f"{_listed(days)} counted in days"] if days else []
        told += ["every row divided by its sum"] if self.scaling == "rows" else []
        left_out = [
            Caution(f"Column {name!r} is left out: {why}.") for name, why in self.left_out.items()
        ]
        return [*([f"Features: {'; '.join(told)}."] if told else []), *left_out]

    def dominant(self, features: NDArray[np.float32]) -> list[str]:
        """A warning if one column carries nearly all of the rows' size."""
        sizes = np.abs(features).mean(axis=0, dtype=np.float64)
        owners = np.repeat(
            np.arange(len(self.columns)), [len(column.feature_names) for column in self.columns]
        )
        shares = np.bincount(owners, sizes) / max(float(sizes.sum()), np.finfo(float).tiny)
        largest = int(shares.argmax())
        if len(self.columns) == 1 or shares[largest] <= DOMINANT:
            return []
        name = self.columns[largest].name
        is_raw = self.scaling in ("rows", "none")
        advice = "try --feature-scaling standard" if is_raw else "look whether these vary"
        return [
            Caution(
                f"Column {name!r} carries {100 * shares[largest]:.0f}% of the mean row size, so "
                f"the other columns hardly count: {advice}, or --drop {name}."
            )
        ]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(names: Sequence[str]) -> str:
    """Names; of many the first and their count."""
    few = len(names) <= MOST_SHOWN
    return ", ".join(map(repr, names)) if few else shown(names, repr)


def _fit_text(column: ParsedColumn) -> Column | str:
    """One-hot, hashed or words; a sentence if it is left out."""
    counts = Counter(value for value in column.values.tolist() if value is not None)
    present, name = counts.total(), column.name
    fill = min(counts, key=lambda value: (-counts[value], value), default="")
    if not counts:
        return NO_VALUE
    few = len(counts) <= MOST_VALUES
    if few and (column.is_category or len(counts) < max(present, 2)):
        values = tuple(sorted(counts))
        return Column(
            name=name, kind="text", encoding="one-hot", fill=fill, values=values, width=len(values)
        )
    words = sum(len(value.split()) * count for value, count in counts.items())
    if not column.is_category and words >= WORDS_OF_A_SENTENCE * max(present, 1):
        return Column(name=name, kind="text", encoding="words", fill="", width=WORD_COLUMNS)
    if not column.is_category and len(counts) > present / 2:
        return (
            f"its {len(counts)} values hardly repeat, as identifiers do; "
            f"--categorical {name} keeps it"
        )
    return Column(name=name, kind="text", encoding="hashed", fill=fill, width=HASHED_COLUMNS)


def _fit_number(
    column: ParsedColumn, scaling: FeatureScaling | None, *, is_word: bool
) -> Column | str:
    """Standardised, a part of the bag of words, or as it is; a sentence if it is left out."""
    known = column.values[~column.missing]
    if not len(known) and scaling != "none":
        return NO_VALUE
    fill = float(known.mean()) if len(known) else 0.0
    is_binary = bool(np.isin(known, (0, 1)).all())
    encoding = encoding_of(column.kind, scaling, is_word=is_word, is_binary=is_binary)
    return Column(name=column.name, kind=column.kind, encoding=encoding, fill=fill)


def encoding_of(
    kind: Kind, scaling: FeatureScaling | None, *, is_word: bool, is_binary: bool
) -> Encoding:
    """What becomes of a column of numbers, truth values or dates."""
    if is_word:
        return "bag"
    is_flag = kind == "boolean" or (scaling is None and is_binary)
    return "plain" if is_flag or scaling in ("none", "rows") else "standard"


def _measured(fitted: Sequence[Column], columns: Sequence[ParsedColumn]) -> list[Column]:
    """The same with mean and std of those that are standardised; a constant has std one."""
    standard = dict.fromkeys(column.name for column in fitted if column.encoding == "standard")
    if not standard:
        return list(fitted)
    from sklearn.preprocessing import StandardScaler

    known = [
        np.where(column.missing, np.nan, column.values)
        for column in columns
        if column.name in standard
    ]
    scaler = StandardScaler().fit(np.column_stack(known))
    means = dict(zip(standard, scaler.mean_.tolist(), strict=True))
    scales = dict(zip(standard, scaler.scale_.tolist(), strict=True))
    update = {name: {"mean": means[name], "scale": scales[name]} for name in standard}
    return [column.model_copy(update=update.get(column.name)) for column in fitted]


def _bag_of_words(columns: Sequence[ParsedColumn]) -> set[str]:
    """Counts of many things that are mostly zero: a row says which, not how much."""
    words = set()
    for column in columns:
        known = column.values[~column.missing]
        if column.kind == "number" and (known >= 0).all():
            is_mostly_zero = (known == 0).sum() >= BAG_ZEROS * max(len(known), 1)
            words |= {column.name} if is_mostly_zero else set()
    return words if len(words) >= BAG_COLUMNS else set()


def _is_bag(column: Column) -> NDArray[np.bool_]:
    """Which of a column's features are rows of a bag."""
    is_bag = np.zeros(len(column.feature_names), dtype=np.bool_)
    is_bag[0] = column.encoding == "bag"
    return is_bag


def _bag_scale(encoder: FeatureEncoder, columns: Sequence[ParsedColumn]) -> float:
    """The bag of words counts as much as all other columns together."""
    named = {column.name: column for column in columns}
    features, _ = encoder.encode(named, encoder.impute or "mean")
    is_bag = np.concatenate([_is_bag(column) for column in encoder.columns])
    words, others = (np.square(features[:, part]).sum() for part in (is_bag, ~is_bag))
    return float(np.sqrt(others / words)) if words > 0 and others > 0 else 1.0


def _row_normalised(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every row divided by the sum of its sizes; a row of zeros stays."""
    sums = np.abs(features).sum(axis=1, keepdims=True)
    return (features / np.where(sums > 0, sums, 1)).astype(FLOAT32)
