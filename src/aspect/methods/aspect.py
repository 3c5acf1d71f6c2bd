"""ASPECT: every node decides how much to trust its low-pass and its high-pass view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from aspect.data.features import dense, mask_columns, seen_features
from aspect.data.graph import Features, Graph
from aspect.data.operators import Propagation, largest_eigenvalue
from aspect.losses.info_nce import NodeLosses, info_nce, sampled_info_nce
from aspect.losses.policy_target import channel_costs, policy_loss, policy_target
from aspect.methods.aspect_config import AspectConfig
from aspect.methods.base import FilterBank, Group, Method, PerGraph, Step
from aspect.methods.citation import Citation
from aspect.methods.registry import Cost, register
from aspect.nn.augmentations import column_mask, edge_weights
from aspect.nn.filters import Band, chebyshev_basis
from aspect.nn.gate import fuse, make_policy, neighbourhood_mean, read_out
from aspect.nn.normalisation import Centre
from aspect.nn.spectral_encoder import Signal, SpectralEncoder

__all__ = ["PAPER", "AspectConfig", "AspectMethod", "SpectralEmbedding"]

# A gate whose answers differ by less than this over the nodes is global fusion in disguise.
COLLAPSED_SPREAD = 1e-3

PAPER = Citation(
    "Z. Li, B. Yang, H. Chen",
    "ASPECT: Node-Level Adaptive Spectral Fusion for Graph Contrastive Learning",
    "",
    2026,
)

BOUND = 2.0  # of the Laplacian's eigenvalues, on every graph

# Time grows with the square of the nodes: beyond so many, negatives are drawn.
EXACT_UP_TO = 50_000
DRAWN_BEYOND = 8_192


@dataclass(frozen=True, eq=False)
class SpectralEmbedding:
    """A graph as ASPECT sees it."""

    views: Float[Tensor, "bands nodes dim"]  # lowest frequency first
    log_weights: Float[Tensor, "nodes bands"]  # of the gate

    @property
    def weights(self) -> Float[Tensor, "nodes bands"]:
        """The policy; rows sum to one."""
        return self.log_weights.exp()

    @property
    def fused(self) -> Float[Tensor, "nodes dim"]:
        """The bands, blended by the policy."""
        return fuse(self.views, self.weights)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What every epoch on one graph needs, computed once."""

    graph: Graph
    features: Features  # normalised as the settings say
    propagation: Propagation
    signal: Signal  # the clean view

    @cached_property
    def bounded(self) -> Signal:
        """The clean view rescaled by the bound 2, as views with other edges are; for comparisons.

        Dropped and flipped edges can raise the largest eigenvalue beyond that of the clean graph.
        """
        if self.propagation.lambda_max == BOUND:
            return self.signal
        every = torch.ones(self.graph.num_edges, dtype=self.graph.dtype, device=self.graph.device)
        return Signal(self.features, self.propagation.operator(every))


@register("aspect", config=AspectConfig, paper=PAPER, family="spectral contrast")
class AspectMethod(Method):
    """Bands, policy and fusion, trained by InfoNCE between two views (`eq:aspect_loss`)."""

    bands: ClassVar[tuple[Band, ...]] = ("low", "high")
    cost: ClassVar[Cost] = "quadratic"

    def __init__(self, config: AspectConfig, num_features: int) -> None:
        super().__init__()
        self.config: AspectConfig = config
        self.encoder = SpectralEncoder(
            num_features,
            config.width,
            bands=self.bands,
            order=config.order,
            learned_start=config.learned_start,
            input_dropout=config.input_dropout,
            dropout=config.dropout,
            batch_norm=config.batch_norm,
            norm_statistics=config.norm_statistics,
            activation=config.activation,
            layer_order=config.layer_order,
        )
        bands = len(self.bands)
        self.gate = make_policy(
            config.fusion,
            config.width,
            bands,
            config.gate_width,
            config.gate_input,
            config.gate_hops,
        )
        self.centre = Centre(config.width, bands) if config.centred else None
        self.ready = PerGraph(self._prepare)
        self._last_weights: Tensor | None = None

    def forward(
        self, signal: Signal, generator: torch.Generator | None = None
    ) -> SpectralEmbedding:
        """See the signal through the bands and weigh them."""
        views = self.encoder(signal, generator)
        seen = views if self.config.gate_gradient else views.detach()
        return SpectralEmbedding(views, self.gate(seen, signal.operator))

    @override
    def prepare(self, graph: Graph) -> None:
        self.ready(graph)

    def _prepare(self, graph: Graph) -> Prepared:
        config = self.config
        features = seen_features(graph.features, normalise_rows=config.row_normalise)
        propagation = Propagation(
            graph, self_loops=config.self_loops, lambda_max=self._lambda_max(graph)
        )
        operator = propagation.operator()
        signal = Signal(features, operator)
        if config.layer_order == "filter-first" and config.input_dropout == 0:
            basis = torch.stack(list(chebyshev_basis(operator, dense(features), config.order)))
            signal = Signal(features, operator, basis)
        return Prepared(graph, features, propagation, signal)

    def _lambda_max(self, graph: Graph) -> float:
        if self.config.lambda_max == "two":
            return BOUND
        return largest_eigenvalue(graph, self_loops=self.config.self_loops)

    def augmented(self, graph: Graph, generator: torch.Generator) -> Signal:
        """A random view of the graph: edges dropped, feature columns masked."""
        ready, config = self.ready(graph), self.config
        keep = column_mask(graph.num_features, config.column_mask, generator, graph.dtype)
        weights = edge_weights(graph, config.edge_drop, generator)
        basis = ready.signal.basis
        if weights is not None or basis is None:
            return Signal(mask_columns(ready.features, keep), ready.propagation.operator(weights))
        # A column mask commutes with the filter, so the clean graph's basis serves this view too.
        return Signal(
            ready.features, ready.signal.operator, basis if keep is None else basis * keep
        )

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        config, generator = self.config, step.generator
        signal, first, second = self._two_views(graph, generator)
        terms = {"contrast": self._contrast(first.fused, second.fused, generator).mean()}
        if len(self.bands) == 1:
            return terms
        self._last_weights = first.weights.detach()
        wants_policy = config.fusion == "node-wise" and config.policy_weight > 0
        if config.channel_weight == 0 and not wants_policy:
            return terms
        with torch.set_grad_enabled(config.channel_weight > 0):
            channels = self._channel_losses(first, second, generator)
        if config.channel_weight > 0:
            terms["channels"] = config.channel_weight * channels.mean()
        if wants_policy:
            costs = self._costs(channels.detach(), signal)
            target = policy_target(costs, config.gate_temperature)
            terms["policy"] = config.policy_weight * policy_loss(first.log_weights, target)
        return terms

    def _two_views(
        self, graph: Graph, generator: torch.Generator
    ) -> tuple[Signal, SpectralEmbedding, SpectralEmbedding]:
        """The first view's signal, clean or augmented as the settings say, and both views."""
        both = self.config.views == "both"
        signal = self.augmented(graph, generator) if both else self.ready(graph).signal
        first = self(signal, generator)
        return signal, first, self(self.augmented(graph, generator), generator)

    def _channel_losses(
        self, first: SpectralEmbedding, second: SpectralEmbedding, generator: torch.Generator
    ) -> Float[Tensor, "bands nodes"]:
        pairs = zip(first.views, second.views, strict=True)
        return torch.stack([self._contrast(*pair, generator) for pair in pairs])

    def _costs(
        self, channels: Float[Tensor, "bands nodes"], signal: Signal
    ) -> Float[Tensor, "bands nodes"]:
        """What speaks against each band at each node (`eq:channel_cost`)."""
        return channel_costs(self._evidence(channels, signal))

    def _evidence(
        self, channels: Float[Tensor, "bands nodes"], signal: Signal
    ) -> Float[Tensor, "bands nodes"]:
        """What the policy is judged by: neighbours pool their losses as they pool answers."""
        return neighbourhood_mean(channels.t(), signal.operator, self.config.gate_hops).t()

    def _contrast(
        self,
        queries: Float[Tensor, "nodes dim"],
        keys: Float[Tensor, "nodes dim"],
        generator: torch.Generator,
    ) -> Float[Tensor, " nodes"]:
        losses = self.node_losses(queries, keys, generator)
        return losses.symmetric if self.config.symmetric else losses.rows

    def node_losses(
        self,
        queries: Float[Tensor, "nodes dim"],
        keys: Float[Tensor, "nodes dim"],
        generator: torch.Generator,
    ) -> NodeLosses:
        """InfoNCE of every node, in both directions, with all negatives or drawn ones."""
        negatives, temperature = self.num_negatives(len(queries)), self.config.temperature
        if negatives is None:
            return info_nce(queries, keys, temperature)
        return sampled_info_nce(queries, keys, temperature, negatives, generator)

    def num_negatives(self, num_nodes: int) -> int | None:
        """How many are drawn for a contrast of so many nodes; None: all nodes serve."""
        negatives = self.config.negatives
        if negatives is None and num_nodes > EXACT_UP_TO:
            negatives = DRAWN_BEYOND
        return None if negatives is None or negatives >= num_nodes else negatives

    @override
    def watched(self, terms: Mapping[str, Tensor]) -> Tensor:
        # The paper's loss: the contrast within bands is ours, the stability loss comes and goes.
        return terms["contrast"] + terms.get("policy", 0)

    @override
    def monitors(self) -> dict[str, Tensor]:
        if self._last_weights is None:
            return {}
        low = self._last_weights[:, 0]
        return {"gate_mean": low.mean(), "gate_std": low.std()}

    @override
    def parameter_groups(self) -> list[Group]:
        config = self.config
        filters = list(self.encoder.filters.parameters())
        in_filters = {id(parameter) for parameter in filters}
        rest = [parameter for parameter in self.parameters() if id(parameter) not in in_filters]
        return [
            Group(filters, config.filter_learning_rate, config.filter_weight_decay),
            Group(rest, config.learning_rate, config.weight_decay),
        ]

    def see(self, graph: Graph) -> SpectralEmbedding:
        """Bands and gate on the graph as it is: nothing augmented, nothing dropped or centred."""
        embedding: SpectralEmbedding = self(self.ready(graph).signal)
        return embedding

    def see_centred(self, graph: Graph) -> SpectralEmbedding:
        """The same with the bands as they are read out: centred, their rows of length one."""
        embedding = self.see(graph)
        views = embedding.views if self.centre is None else self.centre(embedding.views)
        if self.config.unit_rows:
            views = normalize(views, dim=2)
        return replace(embedding, views=views)

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        embedding = self.see_centred(graph)
        return read_out(embedding.views, embedding.weights, self.config.readout)

    @override
    def embed_uncentred(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        embedding = self.see(graph)
        return read_out(embedding.views, embedding.weights, self.config.readout)

    @override
    def policy(self, graph: Graph) -> Float[Tensor, "nodes bands"] | None:
        return None if len(self.bands) == 1 else self.see(graph).weights

    @override
    def band_losses(
        self, graph: Graph, generator: torch.Generator
    ) -> dict[str, Float[Tensor, " nodes"]]:
        signal, first, second = self._two_views(graph, generator)
        evidence = self._evidence(self._channel_losses(first, second, generator), signal)
        return dict(zip(self.bands, evidence, strict=True))

    @override
    def filter_bank(
        self, graph: Graph, frequencies: Float[Tensor, " frequencies"]
    ) -> FilterBank | None:
        responses = self.encoder.responses(frequencies, self._lambda_max(graph))
        return FilterBank(dict(zip(self.bands, responses, strict=True)), self.config.self_loops)

    @override
    def complaints(self, graph: Graph) -> Iterable[str]:
        weights = self.policy(graph)
        if weights is None or self.config.fusion != "node-wise":
            return
        low = weights[:, 0].detach()
        mean, spread = float(low.mean()), float(low.std())
        if spread < COLLAPSED_SPREAD:
            yield (
                f"The gate collapsed: every node trusts the low band with {mean:.3f} (spread "
                f"{spread:.1e}), which is global fusion. Try stronger augmentation, a lower "
                "gate_temperature or a higher policy_weight."
            )
