"""Edge pruning as a setting: which edges a graph loses before a method sees it.

What it does is in `aspect.attacks.purification`; here nothing imports torch, since settings files
and the command line name it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from aspect.config import Config, Count, make_config
from aspect.errors import SettingsError, UnknownNameError

if TYPE_CHECKING:
    from aspect.data.graph import Graph

AUTO = "auto"
DEFAULT = AUTO  # the edge score
PERCENT = 100.0

SCORES = {
    AUTO: "refined-support; where features hardly explain edges, tfidf-support and paths",
    "features": "cosine of the ends' features",
    "tfidf": "the same, rare features weighing more",
    "support": "cosine of the ends' neighbourhoods, the edge left out",
    "tfidf-support": "the same, rare features weighing more",
    "refined-support": "the same again, neighbours weighing as they scored",
    "embedding": "cosine of the ends' features after two propagation steps",
    "paths": "paths of three edges between the ends, the edge left out; reads no features",
}


def check_score(names: str) -> str:
    """Refuse unknown edge scores; several are joined by `+`."""
    for name in names.split("+"):
        if name not in SCORES:
            raise UnknownNameError("edge score", name, SCORES)
    return names


def reached_text(pruned: int, edges: int, asked: float | str) -> str:
    """What a pruning reached beside what was asked: `26 of 279 edges, 9.3%; 30% asked`."""
    ratio = asked if isinstance(asked, str) else f"{PERCENT * asked:g}%"
    return f"{pruned} of {edges} edges, {PERCENT * pruned / max(1, edges):.1f}%; {ratio} asked"


def edge_score_text(asked: str, used: str) -> str:
    """By which score edges were pruned, as a sentence."""
    if used == asked:
        return f"Score: {used}."
    return f"Score: {used}, which is what {asked} means on this graph."


class Pruning(Config):
    """Edges that a graph loses before it is trained on or embedded; no label is read."""

    ratio: Annotated[float, Field(gt=0, lt=1)] | Literal["auto"]
    """Ratio of the edges to prune at most; auto: by the scores of all pairs of nodes."""
    score: str = DEFAULT
    """What an edge is judged by, lowest first; ranks of several, joined by +, are added."""
    rounds: Count = 1
    """Rounds of pruning; after each the scores are computed anew."""
    soft: bool = False
    """Give low edges a smaller weight in place of pruning them."""

    @field_validator("ratio", mode="before")
    @classmethod
    def _ratio(cls, ratio: object) -> object:
        if ratio == AUTO or (isinstance(ratio, int | float) and 0 < ratio < 1):
            return ratio
        raise SettingsError(
            f"The ratio of pruned edges must be above 0 and below 1, or auto. Got {ratio!r}."
        )

    @field_validator("score")
    @classmethod
    def _score(cls, score: str) -> str:
        return check_score(score)

    @model_validator(mode="after")
    def _soft_in_one_round(self) -> Pruning:
        if self.soft and self.rounds > 1:
            raise SettingsError(
                f"Soft weights are found in one round, since no edge goes. Got {self.rounds}."
            )
        return self

    @classmethod
    def of(cls, given: object) -> Pruning | None:
        """A ratio, auto, the fields by name, or a pruning; None and zero prune nothing."""
        if given is None or isinstance(given, Pruning):
            return given
        if isinstance(given, Mapping):
            return make_config(cls, dict(given), owner="edge pruning")
        if given == 0 and not isinstance(given, bool):
            return None
        return make_config(cls, {"ratio": given}, owner="edge pruning")

    def apply(self, graph: Graph) -> Graph:
        """The pruned graph."""
        from aspect.attacks.purification import purify

        return purify(graph, self)

    def to_json(self) -> dict[str, Any]:
        """For files: everything, since defaults change."""
        return self.model_dump(mode="json")
