"""ASPECT-S: ASPECT trained for stability under searched perturbations of edges and features."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from aspect.attacks.projected_ascent import (
    Ascent,
    AscentResult,
    Discretisation,
    DrawnCandidates,
    SearchScope,
    StabilityTarget,
    StepRule,
    ascend,
    draw_numbers,
    stability,
)
from aspect.config import Choice, Count, Positive, Range, Weight
from aspect.data.features import num_entries
from aspect.data.graph import Graph
from aspect.data.rows import Rows
from aspect.data.sparse import SparseMatrix
from aspect.losses.blocked import kept_bytes_on
from aspect.methods.aspect import PAPER, AspectConfig, AspectMethod, weighted
from aspect.methods.base import Step
from aspect.methods.registry import register
from aspect.nn.normalisation import recording
from aspect.nn.spectral_encoder import Signal

SEARCHED_NODES = 4_096  # of a sampled neighbourhood, where the graph is trained on as rows


class AspectSConfig(AspectConfig):
    """Settings of ASPECT-S: those of ASPECT, and of its search and stability loss."""

    # When
    warm_up: Annotated[int, Field(ge=0), Choice((0, 5, 20))] = 0
    """Epochs of plain ASPECT (T_warm); the first search comes `interval` epochs later."""
    interval: Annotated[Count, Choice((1, 2, 5, 10))] = 5
    """Epochs from one search to the next (r)."""

    # What is minimised
    stability_weight: Annotated[Weight, Range(0.1, 5.0, log=True)] = 1.0
    """Weight of the stability loss (lambda_stab; epsilon in the paper's table)."""
    stability_target: Annotated[StabilityTarget, Choice(("fused", "band"))] = "band"
    """What a perturbed band is contrasted with: the clean fused embedding, as in the paper, or the
    clean band."""
    sensitivity_weight: Annotated[Weight, Range(0.0, 2.0)] = 0.0
    """Weight of a band's sensitivity in the policy's target (lambda_s); the paper has some."""
    unit_sensitivity: Annotated[bool, Choice((True, False))] = False
    """Measure a band's sensitivity on rows of length one, as InfoNCE and readout compare them; off
    as in the paper."""

    # What may be changed
    perturbation_budget: Annotated[float, Field(gt=0, le=1), Range(0.05, 0.5)] = 0.2
    """Pairs flipped at most, as a ratio of the edges (Perturbation Budget)."""
    candidates: Annotated[float, Field(ge=0)] = 1.0
    """Pairs without an edge that the search may join, for each edge; half are two hops apart."""
    feature_budget: Annotated[float, Field(ge=0, le=1), Range(0.0, 0.3)] = 0.0
    """Feature entries that may be moved, as a ratio of those that are not zero."""
    feature_box: Weight = 1.0
    """The largest move of an entry, as a multiple of their mean size."""

    # How it is searched
    perturbation_steps: Annotated[int, Field(ge=0), Range(1, 10)] = 3
    """Steps of ascent in a search (Perturbation Steps); 0: flips at random, a control."""
    edge_step: Annotated[Positive, Range(0.1, 2.0, log=True)] = 0.5
    """Size of the first step over pairs (LR_alpha)."""
    step_rule: StepRule = "normalised"
    """`normalised`: a step of one flips about as many pairs as are allowed; `raw`: the paper's."""
    feature_step: Positive = 0.25
    """Size of a step over feature entries, as a multiple of their mean size (LR_beta)."""
    rayleigh_weight: Annotated[Weight, Range(0.0, 2.0)] = 0.5
    """Weight of the Rayleigh term that guides the search (lambda_ray)."""
    discretisation: Discretisation = "largest"
    """From fractional flips to whole ones: the best of several draws, or the largest."""
    draws: Count = 3
    """Draws to choose from."""


@dataclass(frozen=True, eq=False)
class SearchedGraph:
    """The perturbed graph that a search ends with."""

    found: AscentResult  # the perturbation, without the embeddings of the search
    signal: Signal
    sensitivity: Float[Tensor, "bands nodes"]  # Eq. (13), empirical sensitivity


@dataclass(frozen=True, eq=False)
class _Drawn:
    """What the search of a step draws."""

    graph: Graph
    seed: int  # of the step
    generator: torch.Generator
    candidates: DrawnCandidates
    numbers: Float[Tensor, "draws pairs"]  # from 0 to 1; they decide which flips are drawn
    moves: int = 0  # how often the draws of a training came to lie elsewhere

    def written_to(self, place: _Drawn | None) -> _Drawn:
        """The same in the memory of earlier draws, where a CUDA graph reads it, if they fit."""
        if place is None or self._shapes != place._shapes:
            return self if place is None else replace(self, moves=place.moves + 1)
        for old, new in zip(place._tensors, self._tensors, strict=True):
            old.copy_(new)
        return replace(place, graph=self.graph, seed=self.seed, generator=self.generator)

    @property
    def _tensors(self) -> tuple[Tensor, ...]:
        candidates = self.candidates
        return candidates.pairs, candidates.present, candidates.entries, self.numbers

    @property
    def _shapes(self) -> tuple[object, ...]:
        shapes = [(tensor.shape, tensor.device) for tensor in self._tensors]
        return self.candidates.absent, *shapes


@register("aspect-s", config=AspectSConfig, paper=PAPER, family="spectral contrast")
class AspectSMethod(AspectMethod):
    """ASPECT with a search for harmful perturbations every few epochs, and a loss on its result.

    An epoch without a search is ASPECT's, draw for draw. The search uses the model as it embeds
    now, nothing dropped and statistics recomputed on the clean graph; so does the sensitivity,
    which dropout would drown.
    """

    def __init__(self, config: AspectSConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.config: AspectSConfig = config
        self._drawn: _Drawn | None = None

    def is_due(self, epoch: int) -> bool:
        """Whether an epoch begins with a search."""
        after = epoch - self.config.warm_up
        return after > 0 and after % self.config.interval == 0

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        """Eq. (20), ASPECT-S objective, in epochs with a search; Eq. (17) in all others."""
        if not self.is_due(step.epoch) or isinstance(graph, Rows):
            return super().loss_terms(graph, step)
        config = self.config
        self._calibrate_encoder(graph)
        drawn = self._drawn
        is_captured = graph.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if not is_captured and (
            drawn is None or drawn.graph is not graph or drawn.seed != step.generator.initial_seed()
        ):
            drawn = self._draw(graph, step)
        assert drawn is not None  # a captured step was drawn for
        perturbed = self.search(graph, drawn.generator, drawn.candidates, drawn.numbers)
        contrast, channels, policy = self.losses(
            graph, step, perturbed.sensitivity, config.sensitivity_weight
        )
        self._monitors |= self._search_monitors(perturbed)
        stable = None
        if config.stability_weight > 0:
            # After the draws of the plain epoch, which so stay as they are.
            stable = self._stability_loss(graph, perturbed.signal, step.generator)
        return weighted(
            contrast=(1.0, contrast),  # L_std
            channels=(config.channel_weight, channels),  # ours; the paper has none
            policy=(config.policy_weight, policy),  # lambda_pol L_pol
            stability=(config.stability_weight, stable),  # lambda_stab L_stab
        )

    @override
    def row_neighbourhood(self, epoch: int) -> int:
        """An epoch with a search has a step on a sampled neighbourhood besides its rows.

        That one is a graph of its own, with its edges: the search and the loss on it are the usual
        ones.
        """
        return SEARCHED_NODES if self.is_due(epoch) else 0

    @override
    def before_step(self, graph: Graph, step: Step) -> None:
        if self.is_due(step.epoch) and not isinstance(graph, Rows):
            self._draw(graph, step)

    def _draw(self, graph: Graph, step: Step) -> _Drawn:
        """Draw for a step, by a generator apart: the draws of the plain epoch stay as they are."""
        generator = step.apart("perturbation")
        features = self.ready(graph).features
        candidates = DrawnCandidates.of(graph, features, self.scope, generator)
        numbers = draw_numbers(self.config.draws, candidates.present, generator)
        drawn = _Drawn(graph, step.generator.initial_seed(), generator, candidates, numbers)
        self._drawn = drawn.written_to(self._drawn)
        return self._drawn

    @override
    def capture_key(self, step: Step) -> Hashable | None:
        if not self.is_due(step.epoch) or self._drawn is None:
            return super().capture_key(step)
        graph = self._drawn.graph
        # Drawn negatives have a generator of their own, and weights of pairs are looked up.
        has_draws = self.num_negatives(graph.num_nodes, graph.device) is not None
        return None if has_draws or graph.weights is not None else ("search", self._drawn.moves)

    @torch.no_grad()
    def _calibrate_encoder(self, graph: Graph) -> None:
        """Recompute what the encoder embeds by; the search reads nothing else that is recorded."""
        norm, encoder = self.encoder.norm, self.encoder
        if norm is not None:
            encoder.eval()
            with recording([norm]):
                encoder(self.ready(graph).signal)
            encoder.train(self.training)

    @torch.no_grad()
    def search(
        self,
        graph: Graph,
        generator: torch.Generator,
        drawn: DrawnCandidates | None = None,
        numbers: Float[Tensor, "draws pairs"] | None = None,
    ) -> SearchedGraph:
        """Search for a perturbation that moves the model, as it is now, far.

        Args:
            graph: The clean graph.
            generator: For what is not given.
            drawn: What the search may perturb.
            numbers: From 0 to 1, that decide which flips are drawn.
        """
        problem = self.search_problem(graph, self.scope, generator, drawn)
        draws = generator if numbers is None else numbers
        found = ascend(problem, self.ascent(graph), draws)
        features = problem.entries.applied(self.ready(graph).features, found.change.moves)
        signal = Signal(features, problem.edges.operator(found.change.flips))
        views = found.before.views, found.seen.views
        if self.config.unit_sensitivity:
            views = normalize(views[0], dim=2), normalize(views[1], dim=2)
        sensitivity = (views[1] - views[0]).norm(dim=2)
        # The embeddings go: an outer step has no memory to spare.
        before, seen = found.before.without_views(), found.seen.without_views()
        return SearchedGraph(replace(found, before=before, seen=seen), signal, sensitivity)

    @property
    def scope(self) -> SearchScope:
        """What the search may perturb, and what it maximises."""
        config = self.config
        return SearchScope(
            candidates=config.candidates,
            feature_budget=config.feature_budget,
            target=config.stability_target,
            rayleigh_weight=config.rayleigh_weight,
        )

    def ascent(self, graph: Graph) -> Ascent:
        """How the search is done."""
        config = self.config
        return Ascent(
            steps=config.perturbation_steps,
            budget=round(config.perturbation_budget * graph.num_edges),
            edge_step=config.edge_step,
            step_rule=config.step_rule,
            feature_step=config.feature_step,
            feature_box=config.feature_box,
            discretisation=config.discretisation,
            draws=config.draws,
        )

    def _stability_loss(
        self, graph: Graph, perturbed: Signal, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """Eq. (19), stability loss, with gradients for encoder and gate."""
        clean = self(self.ready(graph).bounded, generator)
        bands = self.encoder(perturbed, generator)
        pairs = zip(bands, clean.keys(self.config.stability_target), strict=True)
        losses = torch.stack([self.node_losses(*pair, generator).rows for pair in pairs])
        return stability(losses, clean.weights)

    def _search_monitors(self, perturbed: SearchedGraph) -> dict[str, Tensor]:
        found, sensitivity = perturbed.found, perturbed.sensitivity
        values = {
            "search_before": found.before.objective,
            "search_after": found.seen.objective,
            "search_flips": found.change.flips.sum(),
            "search_moves": found.change.moves.count_nonzero().to(sensitivity.dtype),
        }
        for number, band in enumerate(self.bands):
            values[f"sensitivity_{band}"] = sensitivity[number].mean()
            values[f"rayleigh_{band}"] = found.before.energies[number]
            values[f"rayleigh_{band}_changed"] = found.seen.energies[number]
        return values

    def search_cost(self, graph: Graph) -> SearchCost:
        """Runtime and memory of the searches of a whole training."""
        negatives = self.num_negatives(graph.num_nodes, graph.device)
        return SearchCost.of(self.config, graph, len(self.bands), negatives)

    @override
    def epoch_factor(self, graph: Graph) -> float:
        return self.search_cost(graph).epoch_factor

    @override
    def outlook(self, graph: Graph) -> Iterable[str]:
        yield from super().outlook(graph)
        config, cost = self.config, self.search_cost(graph)
        if cost.searches == 0:
            yield (
                f"ASPECT-S will never search, which makes this plain ASPECT: warm_up is "
                f"{config.warm_up} and interval {config.interval}, but epochs only "
                f"{config.epochs}. Lower the first two or train longer."
            )
            return
        at_most = "" if config.patience is None else "at most "
        yield (
            f"ASPECT-S searches for harmful perturbations in {at_most}{cost.searches} of "
            f"{config.epochs} epochs, {config.perturbation_steps} steps over up to "
            f"{cost.pairs:,} pairs and {cost.entries:,} feature entries: an average epoch "
            f"takes about {cost.epoch_factor:.1f} times as long as one of ASPECT, "
            f"and about {cost.bytes / 1e6:,.0f} MB more memory."
        )


# A multiplication of a sparse product waits for memory: it takes as long as so many of a dense one.
SPARSE = 5
# An entry of the similarity matrix is exponentiated, summed and weighed beside its product.
ENTRY = 32
FLOAT_BYTES = 4
PAIR_BYTES = 240  # of a pair: its entries in both directions, their weights and gradients


@dataclass(frozen=True)
class SearchCost:
    """Runtime and memory of ASPECT-S, counted from sizes and settings before training.

    Multiplications stand for time, those of sparse products weighed. The ratio of two counts does
    not depend on the machine's speed; on a CPU it is within a factor of 1.5 of the measured one.
    """

    searches: int  # in all epochs, if none is saved by stopping early
    pairs: int  # that a search may flip
    entries: int  # of the features, that a search may move
    search_factor: float  # time of an epoch with a search, as a multiple of one without
    epoch_factor: float  # time of an average epoch, as a multiple of one of ASPECT
    bytes: int  # memory of the outer step beyond ASPECT's

    @classmethod
    def of(
        cls, config: AspectSConfig, graph: Graph, num_bands: int, negatives: int | None
    ) -> SearchCost:
        """Count; `negatives` are drawn in a contrast, None: all nodes."""
        nodes, width, terms = graph.num_nodes, config.width, config.order + 1
        searches = max(0, config.epochs - config.warm_up) // config.interval
        drawn = graph.num_edges + round(config.candidates * graph.num_edges)
        # A contrast has the similarities of all pairs of nodes, or of each node with those that
        # are drawn, a direction at a time. Back: a product for each side with a gradient;
        # similarities that were not kept come anew.
        matrix = FLOAT_BYTES * nodes**2
        similarities = nodes * nodes if negatives is None else 2 * nodes * negatives
        contrast = similarities * (width + ENTRY)
        again = int(negatives is None and matrix > kept_bytes_on(graph.device))
        trained = contrast + (2 + again) * contrast
        # Plain: two views, and the contrasts of the fused embeddings and within the bands.
        encoding = _encoding(config, graph, num_bands)
        plain = 2 * encoding + trained
        if config.channel_weight > 0:
            plain += num_bands * trained
        elif config.fusion == "node-wise" and config.policy_weight > 0:
            plain += num_bands * contrast
        # Search: the steps of ascent, each forth and back, and the evaluations of the results. A
        # step has the products of the filters and the energies'. Back they lead to the signal and,
        # at the entries alone, to the weights; keys have no gradient.
        products = (config.order + num_bands) * SPARSE * (2 * drawn + nodes) * width
        combined = num_bands * terms * nodes * width
        forth = products + combined + num_bands * contrast
        back = 2 * products + combined + num_bands * (1 + again) * contrast
        draws = config.draws if config.discretisation == "draws" else 1
        search = config.perturbation_steps * (forth + back) + (1 + draws) * forth
        # Outer step: the clean and the perturbed graph once more, and the loss between them.
        outer = 2 * encoding + num_bands * trained if config.stability_weight > 0 else 0
        factor = 1 + (search + outer) / plain
        # Memory: two embedded graphs and their contrasts. Each graph has a basis, which is copied
        # once on the way, and its bands after each layer.
        kept = 0 if again else matrix
        if negatives is not None:
            kept = 4 * FLOAT_BYTES * nodes * negatives
        filtered = width if config.layer_order == "project-first" else graph.num_features
        layers = num_bands * ((3 + config.batch_norm) * filtered + 3 * width)
        embedded = FLOAT_BYTES * nodes * (3 * terms * filtered + 2 * layers)
        return cls(
            searches,
            pairs=min(drawn, nodes * (nodes - 1) // 2),
            entries=round(config.feature_budget * num_entries(graph.features)),
            search_factor=factor,
            epoch_factor=1 + (factor - 1) * searches / max(1, config.epochs),
            bytes=num_bands * kept + embedded + PAIR_BYTES * drawn,
        )


def _encoding(config: AspectSConfig, graph: Graph, num_bands: int) -> int:
    """Multiplications of one view, forth and back."""
    nodes, features, terms = graph.num_nodes, graph.features, config.order + 1
    propagations = SPARSE * config.order * (2 * graph.num_edges + nodes)
    if config.layer_order == "project-first":
        taken = nodes * graph.num_features
        if isinstance(features, SparseMatrix):
            taken = SPARSE * len(features.values)
        return config.width * (2 * (taken + propagations) + 3 * num_bands * terms * nodes)
    return graph.num_features * (propagations + nodes * num_bands * (2 * terms + 3 * config.width))
