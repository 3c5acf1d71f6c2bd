"""Nettack: a few flips at single nodes, chosen to turn a surrogate's answer there.

Zügner, Akbarnejad & Günnemann, "Adversarial Attacks on Neural Networks for Graph Data", KDD 2018.
This is its direct attack on the structure: every flip has the target as one end. The surrogate is
Metattack's, `Z = Â² P` with `P = X W`, trained once on the clean graph. Where we differ: it is
trained with a ridge, features are never changed, and the test of degrees is optional.

With closed degrees d and `T_u = Σ_{w in N[u]} P_w / sqrt(d_w)`, the target's row is
`Z_v = d_v^(-1/2) Σ_{u in N[v]} T_u / d_u`. A flip of (v, j) changes two degrees and one neighbour,
so that the row after each of all flips follows from sums that all of them share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from typing_extensions import override

from aspect.attacks.adaptive import AdaptiveConfig
from aspect.attacks.base import Attack, Target, pairs_of
from aspect.attacks.flip_ranking import AttackedEdges, Candidates, DegreeTest, choose
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.attacks.registry import register_attack
from aspect.config import Count
from aspect.data.graph import Graph, pair_keys
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, SettingsError, shown

BEYOND_DEGREE = 2  # flips at a target beyond its degree, as in the paper

SURROGATE = MetattackConfig(train_weight=1.0)  # its guesses of other classes are not used


class NettackConfig(AdaptiveConfig):
    """Settings of Nettack."""

    targets: tuple[int, ...] = ()
    """Nodes to attack, by their rows; each in turn is given its next flip."""
    flips: Count | None = None
    """Flips at each target; none: its degree plus two."""
    keep_last_edges: bool = True
    """No node loses its last edge."""
    unnoticeable: bool = False
    """Take only flips that leave the degrees' power law as it was, by a likelihood-ratio test."""


@register_attack("nettack", config=NettackConfig, targeted=True)
class Nettack(Attack):
    """Greedy flips: each is the one after which the target's margin is smallest, exactly.

    The margin is that of the target's training label, or of the surrogate's answer on the clean
    graph where it has none. Everything is computed on the CPU in float64.
    """

    surrogate = Metattack.surrogate
    config: NettackConfig

    @override
    def start(self, state: Mapping[str, Tensor] | None) -> None:
        graph = self.target.graph.to("cpu").to(torch.float64)
        self._limits = flips_by_target(self.config, graph)
        target = replace(self.target, graph=graph)
        weights = Metattack(target, SURROGATE, seed=0).state()["weights"]
        self._projected: Tensor = graph.features @ weights
        self._edges, self._clean_degrees = AttackedEdges(graph), graph.degrees()
        self._floor = self.config.floor(graph)
        adjacency = self._edges.normalised()
        self._classes = (adjacency @ (adjacency @ self._projected)).argmax(dim=1)
        self._classes[target.known.nodes] = target.known.classes
        self._keys = graph.edge_index.new_empty(0)
        # Round by round, so that the flips of a smaller number at each target come first.
        self._turns = [
            node
            for turn in range(max(self._limits.values()))
            for node, limit in self._limits.items()
            if turn < limit
        ]
        if state is not None:
            one, other = state["flips"].unbind(dim=1)
            self._take(pair_keys(one, other, graph.num_nodes))

    @classmethod
    @override
    def count(cls, config: NettackConfig, graph: Graph) -> int:
        return sum(flips_by_target(config, graph).values())

    @classmethod
    @override
    def working_bytes(cls, target: Target, config: NettackConfig) -> int:
        in_float32 = Metattack.working_bytes(target, SURROGATE) + config.floor_bytes(target.graph)
        return 2 * in_float32

    @override
    def state(self) -> dict[str, Tensor]:
        return {"flips": pairs_of(self._keys, self._edges.num_nodes)}

    @override
    def advance(self, most: int) -> Int[Tensor, "flips 2"]:
        if most < 1:
            raise SettingsError(f"Number of further flips must be 1 or more. Got {most}.")
        made = len(self._keys)
        if made == len(self._turns):
            raise SettingsError(f"Number of flips must be at most {made}, those of all targets.")
        node = self._turns[made]
        test = None
        if self.config.unnoticeable:
            test = DegreeTest(self._clean_degrees, self._edges.degrees)
        best = self._candidates(node)
        key = choose(best, self._edges, 1, self.config.keep_last_edges, test)
        if len(key) == 0:
            raise SettingsError(
                f"Number of flips at node {node} must be smaller: every further one would take the "
                "last edge of a node, flip a pair twice, be noticed or score too low."
            )
        self._take(key)
        return pairs_of(key, self._edges.num_nodes)

    def _take(self, keys: Int[Tensor, " flips"]) -> None:
        self._edges.flip(keys)
        self._keys = torch.cat([self._keys, keys])

    def _candidates(self, node: int) -> Candidates:
        """All pairs of the target that were not flipped, that with the smallest margin first."""
        logits = logits_after_flips(self._edges.normalised(), self._projected, node)
        own, ends = int(self._classes[node]), torch.arange(len(logits))
        rivals = logits.index_fill(1, torch.tensor([own]), -torch.inf)
        margins = logits[:, own] - rivals.amax(dim=1)
        keys = pair_keys(ends, torch.full_like(ends, node), len(logits))
        allowed = (ends != node) & ~torch.isin(keys, self._keys)
        if self._floor is not None:
            allowed &= self._floor.allows(keys)
        return Candidates(keys, -margins).where(allowed).first(len(keys))


def flips_by_target(config: NettackConfig, graph: Graph) -> dict[int, int]:
    """The flips at each target, in the order of the targets."""
    targets, last, degrees = config.targets, graph.num_nodes - 1, graph.degrees().tolist()
    if not targets:
        raise SettingsError(
            "nettack attacks single nodes, and none is named. Name some: --target-node NODE on the "
            "command line, the setting targets in Python."
        )
    if unknown := [node for node in targets if not 0 <= node <= last]:
        raise GraphError(f"Targets must be nodes from 0 to {last}. Got {shown(unknown)}.")
    if twice := sorted(node for node, times in Counter(targets).items() if times > 1):
        raise SettingsError(f"Targets must be different nodes. Got twice: {shown(twice)}.")
    if isolated := [node for node in targets if not degrees[node]]:
        raise GraphError(f"Targets must have an edge. Got nodes without one: {shown(isolated)}.")
    if config.flips is not None and config.flips > last:
        raise SettingsError(
            f"Flips at a target must be from 1 to {last}, its pairs. Got {config.flips}."
        )
    return {node: min(last, config.flips or degrees[node] + BEYOND_DEGREE) for node in targets}


def logits_after_flips(
    adjacency: SparseMatrix, projected: Float[Tensor, "nodes classes"], node: int
) -> Float[Tensor, "nodes classes"]:
    """Row j: the node's logits `(Â² P)_v` with the pair (v, j) flipped; row v means nothing.

    Args:
        adjacency: Â, with self-loops.
        projected: P.
        node: v.
    """
    pointers, columns = adjacency.pattern.row_pointers, adjacency.pattern.columns
    neighbours = columns[pointers[node] : pointers[node + 1]].long()
    neighbours = neighbours[neighbours != node]
    d = pointers.diff().to(projected).unsqueeze(1)
    root, joined = d.sqrt(), torch.zeros_like(d)
    joined[neighbours] = 1
    change = 1 - 2 * joined  # of both degrees
    after, own_after = d + change, d[node] + change
    sums = root * (adjacency @ projected)  # T
    # Of the neighbours that v and j share, 1 / d; propagation counts j itself as well.
    shared = root * (adjacency @ (joined / root)) - joined / d
    # How the terms P / sqrt(d) of both ends move with their degrees.
    moved = projected * (after.rsqrt() - d.rsqrt())
    own_moved = projected[node] * (own_after.rsqrt() - d[node].rsqrt())
    kept = (sums[neighbours] / d[neighbours]).sum(dim=0) - joined * sums / d
    kept = kept + ((1 / d[neighbours]).sum() - joined / d) * own_moved + shared * moved
    itself = sums[node] + own_moved + change * projected * torch.maximum(d, after).rsqrt()
    added = (1 - joined) * (sums + moved + projected[node] * own_after.rsqrt()) / after
    logits: Tensor = own_after.rsqrt() * (kept + itself / own_after + added)
    return logits
