"""What ASPECT-S will take, counted from sizes and settings before anything is computed.

Multiplications stand for time. What is told is the ratio of two counts, in which the speed of the
machine falls out; on a CPU it is within a factor of 1.5 of what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from aspect.data.features import num_entries
from aspect.data.graph import Graph
from aspect.data.sparse import SparseMatrix
from aspect.losses.blocked import KEPT_BYTES
from aspect.methods.aspect_s_config import AspectSConfig

__all__ = ["Outlay", "outlay_of"]

# A multiplication of a sparse product waits for memory: it takes as long as so many of a dense one.
SPARSE = 5
# An entry of the similarity matrix is exponentiated, summed and weighed beside its product.
ENTRY = 32
FLOAT_BYTES = 4
PAIR_BYTES = 240  # of a pair: where it stands in both directions, its weights and their gradients


@dataclass(frozen=True)
class Outlay:
    """The branch for stability, in numbers."""

    searches: int  # in all epochs, if none is saved by stopping early
    pairs: int  # that a search may flip
    entries: int  # of the features that it may move
    search_factor: float  # an epoch with a search, as a multiple of one without
    bytes: int  # of memory beyond what ASPECT takes

    def epoch_factor(self, epochs: int) -> float:
        """An average epoch, as a multiple of one of ASPECT."""
        return 1 + (self.search_factor - 1) * self.searches / epochs


def outlay_of(config: AspectSConfig, graph: Graph, num_bands: int, negatives: int | None) -> Outlay:
    """Count what the settings ask for on a graph.

    Args:
        config: The settings.
        graph: The graph to train on.
        num_bands: Bands of the encoder.
        negatives: Drawn in a contrast; None: all nodes.
    """
    count = _Count(config, graph, num_bands, negatives)
    plain = count.plain_epoch()
    stored = num_entries(graph.features)
    return Outlay(
        searches=max(0, config.epochs - config.warm_up) // config.interval,
        pairs=min(count.pairs, graph.num_nodes * (graph.num_nodes - 1) // 2),
        entries=round(config.feature_budget * stored),
        search_factor=1 + (count.search() + count.outer_step()) / plain,
        bytes=count.bytes(),
    )


@dataclass(frozen=True, eq=False)
class _Count:
    """Multiplications, those of sparse products weighed."""

    config: AspectSConfig
    graph: Graph
    bands: int
    negatives: int | None

    @property
    def pairs(self) -> int:
        return self.graph.num_edges + round(self.config.candidates * self.graph.num_edges)

    def plain_epoch(self) -> int:
        """Two views, and the contrasts of the blends and within the bands."""
        config = self.config
        wants_policy = config.fusion == "node-wise" and config.policy_weight > 0
        channels = 0
        if config.channel_weight > 0:
            channels = self.bands * (self._contrast() + self._contrast_back(2))
        elif wants_policy:
            channels = self.bands * self._contrast()
        return 2 * self._encoding() + self._contrast() + self._contrast_back(2) + channels

    def search(self) -> int:
        """The steps up, each forth and back, and the looks at what was found."""
        width, nodes = self.config.width, self.graph.num_nodes
        product = SPARSE * (2 * self.pairs + nodes) * width
        products = self.config.order + self.bands  # those of the filters, and the energies'
        combined = self.bands * (self.config.order + 1) * nodes * width
        look = products * product + combined + self.bands * self._contrast()
        # Back: to the signal and, at the entries alone, to the weights; keys have no gradient.
        back = 2 * products * product + combined + self.bands * self._contrast_back(1)
        draws = self.config.draws if self.config.discretisation == "draws" else 1
        return self.config.perturbation_steps * (look + back) + (1 + draws) * look

    def outer_step(self) -> int:
        """The clean and the changed graph once more, and the stability loss between them."""
        if self.config.stability_weight == 0:
            return 0
        contrasts = self.bands * (self._contrast() + self._contrast_back(2))
        return 2 * self._encoding() + contrasts

    def _encoding(self) -> int:
        """One view, forth and back."""
        config, nodes, features = self.config, self.graph.num_nodes, self.graph.features
        entries = 2 * self.graph.num_edges + nodes
        if config.layer_order == "project-first":
            dense = nodes * self.graph.num_features
            taken = SPARSE * len(features.values) if isinstance(features, SparseMatrix) else dense
            products = taken + SPARSE * config.order * entries
            return config.width * (2 * products + 3 * self.bands * (config.order + 1) * nodes)
        per_feature = SPARSE * config.order * entries
        per_feature += nodes * self.bands * (2 * (config.order + 1) + 3 * config.width)
        return self.graph.num_features * per_feature

    def _contrast(self) -> int:
        """The similarities of all pairs of nodes, or of each node with those that are drawn."""
        nodes = self.graph.num_nodes
        if self.negatives is None:
            return nodes * nodes * (self.config.width + ENTRY)
        return 2 * nodes * self.negatives * (self.config.width + ENTRY)  # a direction at a time

    def _contrast_back(self, sides: int) -> int:
        """As many products as sides want a gradient; similarities that were not kept come anew."""
        again = self.negatives is None and self._kept_bytes() == 0
        return (sides + again) * self._contrast()

    def _kept_bytes(self) -> int:
        """Of one similarity matrix, where it is kept for the way back."""
        own = FLOAT_BYTES * self.graph.num_nodes**2
        return own if own <= KEPT_BYTES else 0

    def bytes(self) -> int:
        """What the outer step holds beside the plain terms: two views and their contrasts.

        A view has a basis, and its bands after each layer; a basis is copied once on the way.
        """
        config, nodes = self.config, self.graph.num_nodes
        kept = self._kept_bytes()
        if self.negatives is not None:
            kept = 4 * FLOAT_BYTES * nodes * self.negatives
        narrow = config.layer_order == "project-first"
        filtered = config.width if narrow else self.graph.num_features
        basis = (config.order + 1) * filtered
        layers = self.bands * ((3 + config.batch_norm) * filtered + 3 * config.width)
        views = FLOAT_BYTES * nodes * (3 * basis + 2 * layers)
        return self.bands * kept + views + PAIR_BYTES * self.pairs
