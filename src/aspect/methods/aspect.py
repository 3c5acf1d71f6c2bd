"""ASPECT: low-pass and high-pass bands of a graph, weighed by a gate node by node.

`AspectConfig` has the settings, `AspectMethod` the model and its loss. Equations are cited by the
paper's numbers; docs/paper_in_code.md lists all of them with their functions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from aspect.attacks.projected_ascent import (
    DrawnCandidates,
    InnerProblem,
    SearchScope,
    StabilityTarget,
    edge_candidates,
    feature_candidates,
)
from aspect.config import Choice, Count, Positive, Range, Share, Weight
from aspect.data.features import dense, mask_columns, seen_features
from aspect.data.graph import Features, Graph
from aspect.data.operators import Operator, Propagation, largest_eigenvalue
from aspect.data.rows import RowPlan, Rows
from aspect.errors import SettingsError
from aspect.losses.info_nce import LOWEST_TEMPERATURE, NodeLosses, info_nce, sampled_info_nce
from aspect.losses.policy_target import channel_costs, policy_loss, policy_target
from aspect.losses.queued import PastRows, queued_info_nce
from aspect.methods.base import BatchNormConfig, FilterBank, Group, Method, Output, PerGraph, Step
from aspect.methods.registry import Citation, Cost, register
from aspect.nn.augmentations import keep_mask
from aspect.nn.filters import Band, chebyshev_basis
from aspect.nn.gate import (
    Fusion,
    GateInput,
    Readout,
    fuse,
    make_policy,
    neighbourhood_mean,
    read_out,
)
from aspect.nn.normalisation import Centre
from aspect.nn.skip import HOPS, Skip
from aspect.nn.spectral_encoder import BandActivation, LayerOrder, Signal, SpectralEncoder, fold
from aspect.randomness import generator_for

PAPER = Citation(
    "Z. Li, B. Yang, H. Chen",
    "ASPECT: Node-Level Adaptive Spectral Fusion for Graph Contrastive Learning",
    "",
    2026,
)

COLLAPSED_STD = 1e-3  # a gate whose weights differ by less over the nodes is global fusion
BOUND = 2.0  # of the Laplacian's eigenvalues, on every graph

# The time of InfoNCE grows with the square of the nodes. By kind of device: up to how many nodes
# all of them serve as negatives, and how many are drawn beyond.
EXACT_UP_TO = {"cpu": 2_048, "cuda": 50_000}
DRAWN_BEYOND = {"cpu": 256, "cuda": 8_192}


class AspectConfig(BatchNormConfig):
    """Settings of ASPECT; symbols and names of the paper in parentheses.

    The defaults are for new graphs, chosen by validation accuracy over homophilic and heterophilic
    ones; `settings/` ships better ones for known graphs.
    """

    # The graph and its features
    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes; off: raw, as in the paper."""
    self_loops: Annotated[bool, Choice((True, False))] = False
    """Add a self-loop to every node before propagation."""
    lambda_max: Literal["two", "power-iteration"] = "two"
    """Largest eigenvalue used to rescale the Laplacian: its bound, or its true value."""

    # The encoder
    order: Annotated[Count, Range(2, 10)] = 5
    """Order of the Chebyshev filters (K)."""
    width: Annotated[Count, Choice((256, 512, 1024, 2048))] = 512
    """Dimensions of each band's embedding (Hidden Dim)."""
    learned_start: bool = True
    """Learn the filters' first value as well; off: PolyGCL's constants 2 and 0."""
    input_dropout: Annotated[Share, Range(0.0, 0.8)] = 0.3
    """Dropout of feature entries before the filter (DP Rate)."""
    dropout: Annotated[Share, Range(0.0, 0.7)] = 0.2
    """Dropout after the filter (Dropout)."""
    batch_norm: Annotated[bool, Choice((True, False))] = True
    """Batch norm before the linear layer, after it with `project-first` (Batch Norm)."""
    activation: Annotated[BandActivation, Choice(("relu", "prelu"))] = "prelu"
    """Activation after the linear layer (Activation)."""
    layer_order: Annotated[LayerOrder, Choice(("filter-first", "project-first"))] = "project-first"
    """Dropout and batch norm before the linear layer, as in PolyGCL's code, or after it."""

    # The policy
    fusion: Fusion = "node-wise"
    """Gate weights for each node, one learned weight for all (`global`), or equal ones (`half`)."""
    gate_width: Count = 64
    """Hidden units of the gate."""
    gate_input: GateInput = "layer-norm"
    """Input of the gate: the bands' embeddings at one scale, or raw as in the paper."""
    gate_hops: Annotated[int, Field(ge=0, le=100), Range(0, 4)] = 3
    """Hops over which gate logits and channel losses are averaged (ours; the paper has none)."""
    gate_gradient: bool = True
    """Let the gate's gradient reach the encoder through the gate's input."""
    readout: Annotated[Readout, Choice(("fused", "weighted"))] = "weighted"
    """The embedding: the blend, the bands side by side with their gate weights, or without them
    (`concatenated`, an ablation: the gate does not reach it)."""
    centred: bool = True
    """Subtract each band's mean over the training graph before the readout; off as in the paper."""
    unit_rows: Annotated[bool, Choice((True, False))] = True
    """Bring each band's rows to length one before the readout, since InfoNCE compares directions
    alone; off as in the paper."""

    skip_weight: Annotated[Weight, Choice((0.0, 0.3, 1.0))] = 0.3
    """Weight of a skip connection beside the bands: the leading principal components of the
    features as given and of their averages over two hops (ours); 0: none, as in the paper."""
    skip_dim: Annotated[Count, Choice((16, 32, 64, 256, 512))] = 32
    """Components of the skip connection."""

    # The two views
    views: Annotated[Literal["one", "both"], Choice(("one", "both"))] = "both"
    """Augment one view and leave the other clean, as in the paper, or augment both."""
    edge_drop: Annotated[Share, Range(0.0, 0.7)] = 0.5
    """Rate of edges dropped in an augmented view."""
    column_mask: Annotated[Share, Range(0.0, 0.7)] = 0.5
    """Rate of feature columns masked in an augmented view."""

    # The objective
    temperature: Annotated[float, Field(ge=LOWEST_TEMPERATURE), Range(0.1, 1.0, log=True)] = 0.75
    """Temperature of InfoNCE (tau)."""
    symmetric: bool = True
    """Both directions of InfoNCE; off: the first view has the queries, the second the keys."""
    negatives: Count | None = None
    """Negatives drawn per step, as many as nodes: all; none: all up to 50,000 nodes and 8,192 drawn
    beyond, on a CPU all up to 2,048 and 256 drawn beyond."""
    channel_weight: Annotated[Weight, Range(0.0, 4.0)] = 2.0
    """Weight of InfoNCE within each band, averaged over the bands (ours; the paper has none)."""
    policy_weight: Annotated[Weight, Range(0.01, 2.0, log=True)] = 1.0
    """Weight of the policy regulariser (lambda_pol)."""
    gate_temperature: Annotated[Positive, Range(0.1, 3.0, log=True)] = 0.3
    """Softness of the policy's target (tau_g)."""

    # The optimiser
    learning_rate: Annotated[Positive, Range(1e-4, 1e-2, log=True)] = 3e-3
    """Learning rate of encoder and gate (LR1)."""
    weight_decay: Annotated[Weight, Range(1e-6, 1e-3, log=True)] = 1e-4
    """Weight decay of encoder and gate (WD1)."""
    filter_learning_rate: Annotated[Positive, Range(1e-4, 3e-2, log=True)] = 1e-2
    """Learning rate of the filters (LR)."""
    filter_weight_decay: Weight = 0.0
    """Weight decay of the filters (WD)."""


@dataclass(frozen=True, eq=False)
class SpectralEmbedding:
    """The bands of a graph and the gate's weights on them."""

    bands: Float[Tensor, "bands nodes dim"]  # lowest frequency first
    log_weights: Float[Tensor, "nodes bands"]  # of the gate

    @property
    def weights(self) -> Float[Tensor, "nodes bands"]:
        """Gate weights; rows sum to one."""
        return self.log_weights.exp()

    @property
    def fused(self) -> Float[Tensor, "nodes dim"]:
        """Eq. (10), fusion."""
        return fuse(self.bands, self.weights)

    def gathered(self, step: Step) -> SpectralEmbedding:
        """That of all processes' rows, where several share a batch."""
        return SpectralEmbedding(step.gather(self.bands, 1), step.gather(self.log_weights, 0))

    def keys(self, target: StabilityTarget) -> Float[Tensor, "bands nodes dim"]:
        """What each perturbed band is contrasted with: the fused embedding, or the same band."""
        return self.bands if target == "band" else self.fused.expand_as(self.bands)


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """What every epoch on one graph needs, computed once."""

    graph: Graph
    features: Features  # normalised as the settings say
    propagation: Propagation
    signal: Signal  # the clean graph

    @cached_property
    def bounded(self) -> Signal:
        """The clean graph rescaled by the bound 2, as perturbed graphs are; for comparisons.

        Dropped and flipped edges can raise the largest eigenvalue beyond that of the clean graph.
        """
        if self.propagation.lambda_max == BOUND:
            return self.signal
        ones = torch.ones(self.graph.num_edges, dtype=self.graph.dtype, device=self.graph.device)
        return Signal(self.features, self.propagation.operator(ones))


@register("aspect", config=AspectConfig, paper=PAPER, family="spectral contrast")
class AspectMethod(Method):
    """Spectral bands, a gate on them, and InfoNCE between two views of the graph."""

    bands: ClassVar[tuple[Band, ...]] = ("low", "high")
    cost: ClassVar[Cost] = "quadratic"
    searchable: ClassVar[bool] = True

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
        self.gate = make_policy(
            config.fusion,
            config.width,
            len(self.bands),
            config.gate_width,
            config.gate_input,
            config.gate_hops,
        )
        self.centre = Centre(config.width, len(self.bands)) if config.centred else None
        self.skip = Skip(num_features, config.skip_dim) if config.skip_weight > 0 else None
        self.ready = PerGraph(self._prepare)
        self._past = PastRows()
        self._monitors: dict[str, Tensor] = {}
        self._plain_policy = torch.zeros(())  # its loss in the last step, without sensitivity

    def forward(
        self,
        signal: Signal,
        generator: torch.Generator | None = None,
        coefficients: Float[Tensor, "bands terms"] | None = None,
    ) -> SpectralEmbedding:
        """Filter the signal into bands and weigh them; without a generator nothing is dropped."""
        bands = self.encoder(signal, generator, coefficients)  # Eq. (8), spectral views
        gate_input = bands if self.config.gate_gradient else bands.detach()
        log_weights = self.gate(gate_input, signal.operator)  # Eq. (9), gate
        return SpectralEmbedding(bands, log_weights)

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        """Eq. (17), ASPECT objective, and our loss within the bands."""
        contrast, channels, policy = self.losses(graph, step)
        return weighted(
            contrast=(1.0, contrast),  # L_std
            channels=(self.config.channel_weight, channels),  # ours; the paper has none
            policy=(self.config.policy_weight, policy),  # lambda_pol L_pol
        )

    def losses(
        self,
        graph: Graph,
        step: Step,
        sensitivity: Float[Tensor, "bands nodes"] | None = None,
        sensitivity_weight: float = 0.0,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The contrast, the loss within the bands and the policy loss; None where one is not used.

        Args:
            graph: The training graph, or rows of it.
            step: Its generator serves the two views, dropout and negatives.
            sensitivity: How far a perturbation moves each band of each node (ASPECT-S).
            sensitivity_weight: Its weight in the channel cost (lambda_s).
        """
        config = self.config
        operator, first, second = self._two_views(graph, step)
        first, second = first.gathered(step), second.gathered(step)
        # Eq. (11), standard loss
        contrast = self._contrast(graph, step, "fused", (first.fused, second.fused)).mean()
        self._monitors = self._gate_monitors(first)
        if not (self._uses_channels or self._uses_policy):
            return contrast, None, None
        with torch.set_grad_enabled(self._uses_channels):
            channel_losses = self._channel_losses(graph, step, first, second)
        channels = channel_losses.mean() if self._uses_channels else None
        if not self._uses_policy:
            return contrast, channels, None
        # Eq. (14), channel cost: detached, so that only the gate weights have a gradient.
        costs = channel_costs(self._pooled(channel_losses.detach(), operator))
        target = policy_target(costs, config.gate_temperature)  # Eq. (15), policy target
        policy = policy_loss(first.log_weights, target)  # Eq. (16), policy loss
        self._plain_policy = config.policy_weight * policy.detach()
        if sensitivity is not None and sensitivity_weight > 0:
            moved = channel_costs(self._pooled(sensitivity, operator))
            target = policy_target(costs + sensitivity_weight * moved, config.gate_temperature)
            policy = policy_loss(first.log_weights, target)
        return contrast, channels, policy

    @property
    def _uses_channels(self) -> bool:
        return len(self.bands) > 1 and self.config.channel_weight > 0

    @property
    def _uses_policy(self) -> bool:
        is_node_wise = len(self.bands) > 1 and self.config.fusion == "node-wise"
        return is_node_wise and self.config.policy_weight > 0

    @override
    def row_plan(self) -> RowPlan | None:
        """Both views of a step from stored bases.

        In a batch of rows no node has a neighbour: the gate averages over none, whatever
        `gate_hops` is. Input dropout meets the entries of the basis. The skip connection has the
        features as they are propagated, normalised where the settings say so.
        """
        config = self.config
        if config.lambda_max != "two":
            raise SettingsError(
                f"On rows lambda_max must be 'two', for all views alike. Got {config.lambda_max!r}."
            )
        first = config.edge_drop if config.views == "both" else 0.0
        views = first, config.edge_drop
        order = config.order if self.skip is None else max(config.order, HOPS)
        return RowPlan(order, config.self_loops, config.row_normalise, views)

    def _two_views(
        self, graph: Graph, step: Step
    ) -> tuple[Operator, SpectralEmbedding, SpectralEmbedding]:
        """Both views, the first clean or augmented as the settings say, and its operator."""
        both = self.config.views == "both"
        if isinstance(graph, Rows):
            first, second = self._row_signals(graph, step.generator)
            return first.operator, self(first, step.own), self(second, step.own)
        generator = step.generator
        signal = self.augmented(graph, generator) if both else self.ready(graph).signal
        coefficients = self.encoder.coefficients()  # of the filters, the same in both views
        embedded = self(signal, generator, coefficients)
        other = self(self.augmented(graph, generator), generator, coefficients)
        return signal.operator, embedded, other

    def _row_signals(self, rows: Rows, generator: torch.Generator) -> tuple[Signal, Signal]:
        """The two views of a batch, whose edges were dropped before; columns are masked now.

        Rows with the clean view alone have it twice.
        """
        views = rows.views if len(rows.views) > 1 else rows.views * 2
        rate = self.config.column_mask
        masks = [
            keep_mask(rows.num_features, masked, generator, rows.dtype)
            for masked in (rate if self.config.views == "both" else 0.0, rate)
        ]
        first, second = (
            self._row_signal(view if keep is None else view * keep)
            for view, keep in zip(views, masks, strict=True)
        )
        return first, second

    def _row_signal(self, view: Float[Tensor, "terms rows features"]) -> Signal:
        basis = view[: self.config.order + 1]
        return Signal(basis[0], _without_neighbours, basis, is_rows=True)

    def augmented(self, graph: Graph, generator: torch.Generator) -> Signal:
        """A random view of the graph: edges dropped, feature columns masked."""
        ready, config = self.ready(graph), self.config
        keep = keep_mask(graph.num_features, config.column_mask, generator, graph.dtype)
        weights = keep_mask(graph.num_edges, config.edge_drop, generator, graph.dtype)
        basis = ready.signal.basis
        if weights is not None or basis is None:
            return Signal(mask_columns(ready.features, keep), ready.propagation.operator(weights))
        # A column mask commutes with the filter, so the clean graph's basis serves this view too.
        return Signal(
            ready.features, ready.signal.operator, basis if keep is None else basis * keep
        )

    def _channel_losses(
        self, graph: Graph, step: Step, first: SpectralEmbedding, second: SpectralEmbedding
    ) -> Float[Tensor, "bands nodes"]:
        """Eq. (12), channel losses."""
        pairs = zip(self.bands, first.bands, second.bands, strict=True)
        return torch.stack([self._contrast(graph, step, band, pair) for band, *pair in pairs])

    def _pooled(
        self, evidence: Float[Tensor, "bands nodes"], operator: Operator
    ) -> Float[Tensor, "bands nodes"]:
        """Averaged over the hops over which the gate averages its logits."""
        return neighbourhood_mean(evidence.t(), operator, self.config.gate_hops).t()

    def _contrast(
        self, graph: Graph, step: Step, name: str, views: Sequence[Float[Tensor, "nodes dim"]]
    ) -> Float[Tensor, " nodes"]:
        """InfoNCE of every node, in one direction or both; rows have past ones as negatives too."""
        queries, keys = views
        if isinstance(graph, Rows):
            past = self._past.of(step.epoch, name)
            losses = queued_info_nce(queries, keys, self.config.temperature, graph.whole, past)
            self._past.keep(name, (queries, keys), graph.queue)
        else:
            losses = self.node_losses(queries, keys, step.generator)
        return losses.symmetric if self.config.symmetric else losses.rows

    def node_losses(
        self,
        queries: Float[Tensor, "nodes dim"],
        keys: Float[Tensor, "nodes dim"],
        generator: torch.Generator,
    ) -> NodeLosses:
        """InfoNCE of every node, in both directions, with all negatives or drawn ones."""
        negatives = self.num_negatives(len(queries), queries.device)
        temperature = self.config.temperature
        if negatives is None:
            return info_nce(queries, keys, temperature)
        return sampled_info_nce(queries, keys, temperature, negatives, generator)

    def num_negatives(self, num_nodes: int, device: torch.device) -> int | None:
        """How many negatives are drawn for so many nodes; None: all nodes serve."""
        negatives, kind = self.config.negatives, "cpu" if device.type == "cpu" else "cuda"
        if negatives is None and num_nodes > EXACT_UP_TO[kind]:
            negatives = DRAWN_BEYOND[kind]
        return None if negatives is None or negatives >= num_nodes else negatives

    @override
    def watched(self, terms: Mapping[str, Tensor]) -> Tensor:
        # Eq. (17): the loss within the bands is ours, and stability loss and sensitivity come and
        # go, so that epochs with a search and those without are compared by the same terms.
        return terms["contrast"] + (self._plain_policy if "policy" in terms else 0)

    def _gate_monitors(self, embedding: SpectralEmbedding) -> dict[str, Tensor]:
        if len(self.bands) == 1:
            return {}
        low = embedding.weights.detach()[:, 0]
        return {"gate_mean": low.mean(), "gate_std": low.std()}

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        # A growing queue is another shape at every step.
        return None if self._past.is_growing(step.epoch) else super().capture_key(step)

    @override
    def monitors(self) -> dict[str, Tensor]:
        return self._monitors

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

    def _prepare(self, graph: Graph) -> PreparedGraph:
        config = self.config
        if isinstance(graph, Rows):
            propagation = Propagation(graph, self_loops=False)
            signal = self._row_signal(graph.views[0])
            return PreparedGraph(graph, graph.features, propagation, signal)
        features = seen_features(graph.features, normalise_rows=config.row_normalise)
        propagation = Propagation(
            graph, self_loops=config.self_loops, lambda_max=self._lambda_max(graph)
        )
        operator = propagation.operator()
        signal = Signal(features, operator)
        if config.layer_order == "filter-first" and config.input_dropout == 0:
            basis = torch.stack(list(chebyshev_basis(operator, dense(features), config.order)))
            signal = Signal(features, operator, basis)
        return PreparedGraph(graph, features, propagation, signal)

    def _lambda_max(self, graph: Graph) -> float:
        if self.config.lambda_max == "two":
            return BOUND
        return largest_eigenvalue(graph, self_loops=self.config.self_loops)

    def encode(self, graph: Graph) -> SpectralEmbedding:
        """Bands and gate of the graph as it is: nothing augmented, dropped or centred."""
        embedding: SpectralEmbedding = self(self.ready(graph).signal)
        return embedding

    def centred(self, embedding: SpectralEmbedding) -> SpectralEmbedding:
        """The same with the bands as they are read out: centred, their rows of length one."""
        bands = embedding.bands if self.centre is None else self.centre(embedding.bands)
        if self.config.unit_rows:
            bands = normalize(bands, dim=2)
        return replace(embedding, bands=bands)

    def _read_out(self, embedding: SpectralEmbedding) -> Float[Tensor, "nodes dim"]:
        return read_out(embedding.bands, embedding.weights, self.config.readout)

    def _beside_skip(
        self, embedding: Float[Tensor, "nodes dim"], graph: Graph
    ) -> Float[Tensor, "nodes out"]:
        """What is read out of the bands, and the skip connection beside it."""
        if self.skip is None:
            return embedding
        operator = self.ready(graph).signal.operator
        propagated: tuple[Tensor, ...] = ()
        if isinstance(graph, Rows):  # L X, and L L X by the second polynomial
            own, once, second = graph.views[0][: HOPS + 1]
            propagated = once, (second + own) / 2
        skipped = self.skip(graph.features, operator, propagated)
        return torch.cat([embedding, self.config.skip_weight * skipped], dim=1)

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self._beside_skip(self._read_out(self.centred(self.encode(graph))), graph)

    @override
    def output(self, graph: Graph) -> Output:
        embedding = self.encode(graph)
        return Output(
            self._beside_skip(self._read_out(self.centred(embedding)), graph),
            uncentred=self._read_out(embedding),
            gate=None if len(self.bands) == 1 else embedding.weights,
        )

    @override
    def band_losses(
        self, graph: Graph, generator: torch.Generator
    ) -> dict[str, Float[Tensor, " nodes"]]:
        step = Step(0, generator)
        operator, first, second = self._two_views(graph, step)
        losses = self._pooled(self._channel_losses(graph, step, first, second), operator)
        return dict(zip(self.bands, losses, strict=True))

    @override
    def filter_bank(
        self, graph: Graph, frequencies: Float[Tensor, " frequencies"]
    ) -> FilterBank | None:
        responses = self.encoder.responses(frequencies, self._lambda_max(graph))
        return FilterBank(dict(zip(self.bands, responses, strict=True)), self.config.self_loops)

    @override
    @torch.no_grad()
    def search_problem(
        self,
        graph: Graph,
        scope: SearchScope,
        generator: torch.Generator,
        drawn: DrawnCandidates | None = None,
    ) -> InnerProblem:
        """Eq. (18), perturbation objective, on the model as it embeds; the gate is frozen.

        Candidates that are not given are drawn. Where the true largest eigenvalue rescales the
        clean graph, its bound does so here: flips can raise it, and both sides of a comparison are
        rescaled alike.
        """
        if isinstance(graph, Rows):
            raise SettingsError(
                "A model that was trained on rows sees no edges, so that none can be searched. "
                "Train it with --scale full."
            )
        ready = self.ready(graph)
        encoder = fold(self.encoder)
        projected = encoder.project(ready.features)
        operator = ready.bounded.operator
        bands = encoder.embed(projected, operator)
        clean = SpectralEmbedding(bands, self.gate(bands, operator))
        drawn = drawn or DrawnCandidates.of(graph, ready.features, scope, generator)
        self_loops = self.config.self_loops
        has_draws = self.num_negatives(graph.num_nodes, graph.device) is not None
        seed = generator.initial_seed() if has_draws else None  # which a CUDA graph cannot ask for

        def contrast(queries: Tensor, keys: Tensor) -> Float[Tensor, " nodes"]:
            # Drawn negatives are the same throughout a search: perturbations are compared.
            fixed = generator
            if seed is not None:
                fixed = generator_for(seed, "negatives", device=graph.device)
            return self.node_losses(queries, keys, fixed).rows

        return InnerProblem(
            edges=edge_candidates(graph, drawn.pairs, drawn.present, self_loops=self_loops),
            entries=feature_candidates(ready.features, drawn.entries, drawn.absent),
            encoder=encoder,
            projected=projected,
            keys=clean.keys(scope.target),
            weights=clean.weights,
            contrast=contrast,
            rayleigh_weight=scope.rayleigh_weight,
        )

    @override
    def outlook(self, graph: Graph) -> Iterable[str]:
        nodes, drawn = graph.num_nodes, self.num_negatives(graph.num_nodes, graph.device)
        if drawn is not None and self.config.negatives is None:
            yield (
                f"Every step contrasts {nodes:,} nodes with {drawn:,} drawn negatives on a "
                f"{graph.device.type.upper()}: negatives={nodes} takes all of them."
            )

    @override
    def warnings(self, output: Output) -> Iterable[str]:
        if output.gate is None or self.config.fusion != "node-wise":
            return
        low = output.gate[:, 0].detach()
        mean, std = float(low.mean()), float(low.std())
        if std < COLLAPSED_STD:
            yield (
                f"The gate collapsed: the gate weight of the low band is {mean:.3f} at every node "
                f"(std {std:.1e}), which is global fusion. Try stronger augmentation, a lower "
                "gate_temperature or a higher policy_weight."
            )


def _without_neighbours(x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
    """The rescaled Laplacian of nodes that have no edge, by the bound 2."""
    return torch.zeros_like(x)


def weighted(**terms: tuple[float, Tensor | None]) -> dict[str, Tensor]:
    """The terms of an objective times their weights; one that is not used is left out."""
    return {name: weight * term for name, (weight, term) in terms.items() if term is not None}
