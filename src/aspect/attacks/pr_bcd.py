"""PR-BCD (Geisler et al., NeurIPS 2021) by PyTorch Geometric: an independent check.

It shares Metattack's surrogate, guesses and knowledge, and nothing of its search: flips are weights
of random blocks of pairs, moved by projected gradient ascent.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from aspect.attacks.adaptive import AdaptiveConfig
from aspect.attacks.base import MIB, Attack, Target, check_flips
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.attacks.registry import register_attack
from aspect.config import Count
from aspect.errors import SettingsError
from aspect.randomness import isolated_seed, seed_for

# Measured; PyTorch Geometric is imported when the attack begins.
LIBRARY_BYTES, PAIR_BYTES, PAIR_CLASS_BYTES = 150 * MIB, 310, 57


class PRBCDConfig(AdaptiveConfig):
    """Settings of PR-BCD."""

    block_size: Count = 100_000
    """Pairs that are looked at together; at least four times the flips are."""
    epochs: Count = 125
    """Steps of the ascent."""
    resampled_epochs: Count = 100
    """The first of them, after each of which idle pairs are drawn anew."""
    rate: Annotated[float, Field(gt=0)] = 1000.0
    """Learning rate, before the corrections for the sizes of graph and budget."""


@register_attack(
    "pr-bcd",
    config=PRBCDConfig,
    nested=False,
)
class PRBCD(Attack):
    """At most so many flips, those with the largest weight first.

    The surrogate is trained once, on the clean graph, and its errors on nodes outside of the
    training nodes are driven up, measured by the classes guessed there. Unlike in the other
    attacks, a smaller budget is not a prefix of a larger one, flips may be fewer than requested,
    and a node may lose its last edge. Everything is computed on the CPU.
    """

    surrogate = Metattack.surrogate
    config: PRBCDConfig

    @classmethod
    @override
    def working_bytes(cls, target: Target, config: PRBCDConfig) -> int:
        graph, classes = target.graph, target.num_classes or 0
        every = graph.num_nodes * (graph.num_nodes - 1) // 2
        # Four times the flips is no more than the edges up to a budget of a quarter.
        pairs = graph.num_edges + min(every, max(config.block_size, graph.num_edges))
        block = pairs * (PAIR_BYTES + PAIR_CLASS_BYTES * classes)
        search = LIBRARY_BYTES + max(block, config.floor_bytes(graph))
        return search + Metattack.working_bytes(target, MetattackConfig())

    @override
    def start(self, state: Mapping[str, Tensor] | None) -> None:
        self.graph = graph = self.target.graph.to("cpu").to(torch.float32)
        known = replace(self.target, graph=graph)
        self._start = Metattack(known, MetattackConfig(), seed=0).state()
        self._others = torch.ones(graph.num_nodes, dtype=torch.bool)
        self._others[known.known.nodes] = False

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        check_flips(most, self.graph)
        projected = self.graph.features @ self._start["weights"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*contains experimental code")
            from torch_geometric.contrib.nn import PRBCDAttack
        floor = self.config.floor(self.graph)
        search = PRBCDAttack if floor is None else _among(PRBCDAttack, floor.allowed())
        attack = search(
            _Propagation(),
            block_size=max(self.config.block_size, 4 * most),
            epochs=self.config.epochs,
            epochs_resampling=self.config.resampled_epochs,
            lr=self.config.rate,
            log=False,
        )
        with isolated_seed(seed_for(self.seed, "pr-bcd")):
            try:
                attack.attack(
                    projected,
                    self.graph.edge_index,
                    self._start["classes"],
                    most,
                    idx_attack=self._others,
                )
            except RuntimeError as error:
                if "Sampling random block" not in str(error):
                    raise
                raise SettingsError(
                    f"PR-BCD finds no block of pairs for so many flips: {most} of "
                    f"{self.graph.num_nodes} nodes. Ask for fewer flips, or lower avoid_below."
                ) from error
        # By the weights that the flips had before they were made whole.
        taken = attack.block_edge_weight > 0
        pairs: Tensor = attack.block_edge_index[:, taken].t().sort(dim=1).values
        by_key = torch.argsort(pairs[:, 0] * self.graph.num_nodes + pairs[:, 1])
        weights = attack.best_pert_edge_weight[taken][by_key]
        return pairs[by_key[torch.argsort(weights, descending=True, stable=True)]]


def _among(search: type[Any], allowed: Int[Tensor, " pairs"]) -> type[Any]:
    """The search over these pairs alone: it draws numbers of pairs, which count these."""

    class Among(search):  # type: ignore[misc]  # the library has no types
        @staticmethod
        def _num_possible_edges(_nodes: int, _is_undirected: bool) -> int:
            return len(allowed)

        @staticmethod
        def _linear_to_triu_idx(nodes: int, numbers: Tensor) -> Tensor:
            keys = allowed[numbers].long()
            return torch.stack([keys // nodes, keys % nodes])

    return Among


class _Propagation(torch.nn.Module):
    """`Â² x` with a weight per edge, through which the gradient flows; x is already projected."""

    @override
    def forward(
        self,
        x: Float[Tensor, "nodes classes"],
        edge_index: Int[Tensor, "2 entries"],
        edge_weight: Float[Tensor, " entries"],
    ) -> Float[Tensor, "nodes classes"]:
        source, target = edge_index
        degrees = torch.ones(len(x)).index_add(0, target, edge_weight)  # with the self-loop
        scale = degrees.rsqrt()
        weights = (scale[source] * edge_weight * scale[target]).unsqueeze(1)
        for _ in range(2):
            x = (x / degrees.unsqueeze(1)).index_add(0, target, weights * x[source])
        return x
