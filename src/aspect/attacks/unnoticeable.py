"""Whether the degrees still look like those of the clean graph: a likelihood-ratio test.

Degrees of 2 and more are modelled as a power law; the ratio compares one law for both graphs with
one for each (Zügner & Günnemann; Bessi, 2015, for the estimate of its exponent).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, log

from jaxtyping import Int
from torch import Tensor

__all__ = ["THRESHOLD", "DegreeLaw", "DegreeTest"]

SMALLEST_DEGREE = 2  # of those modelled

THRESHOLD = 0.004  # of the ratio, the original's: a chance of 0.95 to see no difference


@dataclass(frozen=True)
class DegreeLaw:
    """A power law of a graph's degrees, and what it needs to know of them."""

    count: int  # of those modelled
    logarithms: float  # their sum

    @classmethod
    def of(cls, degrees: Sequence[int]) -> DegreeLaw:
        """The law that fits these degrees best."""
        modelled = [degree for degree in degrees if degree >= SMALLEST_DEGREE]
        return cls(len(modelled), fsum(log(degree) for degree in modelled))

    def __add__(self, other: DegreeLaw) -> DegreeLaw:
        return DegreeLaw(self.count + other.count, self.logarithms + other.logarithms)

    def __sub__(self, other: DegreeLaw) -> DegreeLaw:
        return DegreeLaw(self.count - other.count, self.logarithms - other.logarithms)

    @property
    def exponent(self) -> float:
        """The likeliest, by the usual approximation for whole numbers."""
        return 1 + self.count / (self.logarithms - self.count * log(SMALLEST_DEGREE - 0.5))

    def likelihood(self) -> float:
        """The logarithm of the degrees' likelihood."""
        if self.count == 0:
            return 0.0
        scale = self.count * self.exponent * log(SMALLEST_DEGREE)
        return self.count * log(self.exponent) + scale - (self.exponent + 1) * self.logarithms


class DegreeTest:
    """The ratio after every flip that was taken, in constant time each."""

    def __init__(self, clean: Int[Tensor, " nodes"], now: Int[Tensor, " nodes"]) -> None:
        self._clean, self._now = DegreeLaw.of(clean.tolist()), DegreeLaw.of(now.tolist())

    def take(self, degrees: Sequence[int], change: int) -> bool:
        """Change these degrees by one edge, and say so, unless that would be noticed."""
        after = self._now - DegreeLaw.of(degrees) + DegreeLaw.of([d + change for d in degrees])
        if self._ratio(after) >= THRESHOLD:
            return False
        self._now = after
        return True

    @property
    def ratio(self) -> float:
        """Of the graph as it is now to the clean one; zero where they are alike."""
        return self._ratio(self._now)

    def _ratio(self, after: DegreeLaw) -> float:
        separate = self._clean.likelihood() + after.likelihood()
        return 2 * (separate - (self._clean + after).likelihood())
