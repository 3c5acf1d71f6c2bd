"""What may be drawn: every setting with a `Range` or a `Choice`; the rest stay as they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic.fields import FieldInfo

from aspect.config import Choice, Range, make_config
from aspect.errors import SettingsError
from aspect.methods.base import MethodConfig
from aspect.methods.registry import find_method

__all__ = ["Distribution", "Space"]

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution

DIGITS = 4  # of a number drawn: more make no difference but to the eye


@dataclass(frozen=True)
class Space:
    """The settings of a method that are searched, around those that a search starts from."""

    method: str
    base: MethodConfig
    distributions: Mapping[str, Distribution]  # by setting, in the order of declaration

    @classmethod
    def around(cls, method: str, base: MethodConfig, fixed: Collection[str] = ()) -> Space:
        """Read the space from the fields of the settings' class; fixed ones are left out."""
        ranged = {
            name: drawn
            for name, field in type(base).model_fields.items()
            if (drawn := _distribution(field)) is not None
        }
        free = {name: drawn for name, drawn in ranged.items() if name not in fixed}
        if not ranged:
            raise SettingsError(
                f"No setting of {method!r} has a search range, so there is nothing to tune."
            )
        if not free:
            raise SettingsError(
                f"All settings of {method!r} with a search range are fixed, so there is nothing to "
                f"tune. Leave one of these open: {', '.join(ranged)}."
            )
        return cls(method, base, free)

    @classmethod
    def of(cls, method: str, settings: Mapping[str, Any], fixed: Collection[str] = ()) -> Space:
        """The same from the settings as plain values."""
        base = make_config(find_method(method).config, settings, owner=method)
        return cls.around(method, base, fixed)

    def start(self) -> dict[str, Any]:
        """The base as a point of the space: a value outside its range becomes the nearest inside.

        The sampler learns from this point; the trial itself takes the base as it is.
        """
        return {
            name: _nearest(drawn, getattr(self.base, name))
            for name, drawn in self.distributions.items()
        }

    def settings(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """The settings at a point of the space, in full and as plain values."""
        drawn = {name: _short(value) for name, value in point.items()}
        values = {**self.base.model_dump(), **drawn}
        return make_config(type(self.base), values, owner=self.method).model_dump(mode="json")


def _distribution(field: FieldInfo) -> Distribution | None:
    """What the tuner draws a field from; None if it does not."""
    for hint in field.metadata:
        if isinstance(hint, Choice):
            return CategoricalDistribution(hint.values)
        if isinstance(hint, Range) and _is_whole(field):
            return IntDistribution(int(hint.low), int(hint.high), log=hint.log)
        if isinstance(hint, Range):
            return FloatDistribution(hint.low, hint.high, log=hint.log)
    return None


def _is_whole(field: FieldInfo) -> bool:
    kinds = get_args(field.annotation) or (field.annotation,)
    return int in kinds and float not in kinds


def _nearest(drawn: Distribution, value: Any) -> Any:  # noqa: ANN401 - a setting of any type
    if isinstance(drawn, CategoricalDistribution):
        return value if value in drawn.choices else drawn.choices[0]
    return drawn.low if value is None else min(max(value, drawn.low), drawn.high)


def _short(value: Any) -> Any:  # noqa: ANN401 - a setting of any type
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
