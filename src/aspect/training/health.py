"""Embedding health: how close an embedding is to representation collapse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from aspect.errors import TrainingError
from aspect.losses.similarity import directions

MOST_COSINE = 0.98  # a higher mean cosine of two nodes is a collapse
LEAST_RANK = 0.05  # of the highest rank possible; a lower effective rank is a collapse

ROWS_OF_RANK = 2_048  # as many nodes decide the effective rank; an eigenproblem of that side: 1 s
ROWS_AT_ONCE = 65_536  # so that the copy in float64 stays small on large graphs


@dataclass(frozen=True)
class Health:
    """Of an embedding before any centring, which would hide a common direction."""

    mean_cosine: float  # over all pairs of distinct nodes; a zero row has cosine 0 with all others
    variance_share: float  # sum |z - mean|^2 / sum |z|^2: 0 if every node has the same embedding
    effective_rank: float  # exp of the entropy of the singular values (RankMe, Garrido et al. 2023)
    min_norm: float
    max_norm: float
    nodes: int
    dim: int

    @classmethod
    @torch.no_grad()
    def of(cls, embeddings: Float[Tensor, "nodes dim"]) -> Self:
        """Measured in float64 on the embedding's device; the rank on at most 2,048 of its rows."""
        check_finite(embeddings)
        nodes, dim = embeddings.shape
        scale = embeddings.abs().amax().double()
        if scale == 0:
            return cls(0.0, 0.0, 0.0, 0.0, 0.0, nodes, dim)
        sums = torch.zeros(2, dim, dtype=torch.float64, device=embeddings.device)
        norms = []
        for part in torch.split(embeddings, ROWS_AT_ONCE):
            rows = part.double() / scale  # so that no square of it overflows
            norms.append(rows.norm(dim=1))
            sums += torch.stack([rows.sum(dim=0), directions(rows).sum(dim=0)])
        norm = torch.cat(norms)
        energy = norm.square().sum()
        of_sum, of_units = sums.square().sum(dim=1)
        pairs = max(nodes * (nodes - 1), 1)
        return cls(
            mean_cosine=float(((of_units - (norm > 0).sum()) / pairs).clamp(-1, 1)),
            variance_share=float((1 - of_sum / nodes / energy).clamp_min(0)),
            effective_rank=_effective_rank(embeddings, scale),
            min_norm=float(norm.min() * scale),
            max_norm=float(norm.max() * scale),
            nodes=nodes,
            dim=dim,
        )

    @property
    def has_common_direction(self) -> bool:
        """Whether all nodes point the same way, so that little tells them apart."""
        # In one dimension a cosine is only a sign: there the variance outside the mean decides.
        return (self.mean_cosine if self.dim > 1 else 1 - self.variance_share) > MOST_COSINE

    @property
    def has_low_rank(self) -> bool:
        """Whether the embedding uses few of its dimensions; a graph bounds them by its nodes."""
        return self.effective_rank < LEAST_RANK * min(self.dim, self.nodes)

    @property
    def is_collapsed(self) -> bool:
        """Whether the embedding is close to representation collapse."""
        return self.has_common_direction or self.has_low_rank

    def warnings(self) -> list[str]:
        """One sentence on the signs of representation collapse and what to try; none if healthy."""
        signs = []
        if self.has_common_direction:
            signs.append(
                f"the mean cosine of two nodes is {self.mean_cosine:.4f} "
                f"(healthy: at most {MOST_COSINE})"
            )
        if self.has_low_rank:
            highest = min(self.dim, self.nodes)
            signs.append(
                f"the effective rank is {self.effective_rank:.1f} of {highest} possible "
                f"(healthy: at least {LEAST_RANK:.0%})"
            )
        if self.max_norm == 0:
            signs = ["every embedding is zero"]
        advice = "Try stronger augmentation, a lower temperature or a lower learning_rate."
        return [f"Representation collapse: {' and '.join(signs)}. {advice}"] if signs else []

    def to_dict(self) -> dict[str, float]:
        """For records and `--json`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, float]) -> Self:
        """From a record, where counts may have become floats."""
        whole: dict[str, Any] = {name: int(values[name]) for name in ("nodes", "dim")}
        return cls(**{**values, **whole})


def check_finite(embeddings: Float[Tensor, "nodes dim"]) -> None:
    """Refuse embeddings that are no numbers."""
    wrong = int((~torch.isfinite(embeddings)).any(dim=1).sum())
    if wrong:
        raise TrainingError(
            f"The embeddings of {wrong} nodes are not finite numbers. "
            "A learning_rate that is too high is the usual cause."
        )


def _effective_rank(embeddings: Float[Tensor, "nodes dim"], scale: Tensor) -> float:
    nodes, dim = embeddings.shape
    taken = torch.linspace(0, nodes - 1, min(nodes, ROWS_OF_RANK), dtype=torch.float64)
    rows = embeddings[taken.round().long().to(embeddings.device)].double() / scale
    gram = rows @ rows.t() if len(rows) < dim else rows.t() @ rows  # the smaller side
    singular = torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()
    return float(torch.special.entr(singular / singular.sum()).sum().exp())
