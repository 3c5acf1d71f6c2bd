"""ASPECT-S: ASPECT, trained to hold still under small changes of edges and features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.adversarial.ascent import Ascent, Found, ascend
from aspect.adversarial.candidates import draw_edges, draw_entries
from aspect.adversarial.problem import InnerProblem, stability
from aspect.graph.data import Graph
from aspect.methods.aspect import AspectMethod, SpectralEmbedding
from aspect.methods.aspect_s_config import AspectSConfig
from aspect.methods.base import Step
from aspect.methods.registry import register
from aspect.objectives.policy_target import channel_costs
from aspect.randomness import generator_for
from aspect.spectral.folded import fold
from aspect.spectral.views import Signal

__all__ = ["AspectSConfig", "AspectSMethod"]


@dataclass(frozen=True, eq=False)
class Probe:
    """What a search found, ready for the outer step."""

    found: Found
    signal: Signal  # the changed graph
    sensitivity: Float[Tensor, "bands nodes"]  # how far each band of each node moved


@register(
    "aspect-s", config=AspectSConfig, paper="Li, Yang and Chen, 2026", family="spectral contrast"
)
class AspectSMethod(AspectMethod):
    """ASPECT with a search for harmful changes every few epochs (`eq:aspect_s_loss`).

    Where no search is due, an epoch is ASPECT's, draw for draw. The search sees the model as it
    embeds, nothing dropped; so does the sensitivity, which dropout would drown.
    """

    def __init__(self, config: AspectSConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.config: AspectSConfig = config
        self._probe: Probe | None = None

    def is_due(self, epoch: int) -> bool:
        """Whether an epoch begins with a search."""
        after = epoch - self.config.warm_up
        return after > 0 and after % self.config.interval == 0

    @override
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        if not self.is_due(step.epoch):
            self._probe = None
            return super().loss_terms(graph, step)
        # Draws of its own, so that those of the plain epoch stay as they are.
        generator = generator_for(
            step.generator.initial_seed(), "perturbation", device=graph.device
        )
        self._probe = probe = self.search(graph, generator)
        terms = super().loss_terms(graph, step)
        if self.config.stability_weight > 0:
            lost = self._stability(graph, probe, generator)
            terms["stability"] = self.config.stability_weight * lost
        return terms

    @torch.no_grad()
    def search(self, graph: Graph, generator: torch.Generator) -> Probe:
        """Find a change of the graph that the model, as it is now, answers to most."""
        ready = self._ready(graph)
        problem = self.inner_problem(graph, generator)
        found = ascend(problem, self._ascent(graph), generator)
        features = problem.entries.applied(ready.features, found.change.moves)
        signal = Signal(features, problem.edges.operator(found.change.flips))
        sensitivity = (found.seen.views - found.before.views).norm(dim=2)
        return Probe(found, signal, sensitivity)

    def inner_problem(self, graph: Graph, generator: torch.Generator) -> InnerProblem:
        """The search's problem on the model as it is now, with candidates drawn anew."""
        config, ready = self.config, self._ready(graph)
        encoder = fold(self.encoder)
        projected = encoder.project(ready.features)
        views = encoder.embed(projected, ready.signal.operator)
        clean = SpectralEmbedding(views, self.gate(views, ready.signal.operator))
        others = round(config.candidates * graph.num_edges)
        seed = generator.initial_seed()

        def contrast(queries: Tensor, keys: Tensor) -> Float[Tensor, " nodes"]:
            # Negatives that are drawn are the same throughout a search: changes are compared.
            fixed = generator_for(seed, "negatives", device=graph.device)
            return self._node_losses(queries, keys, fixed).rows

        return InnerProblem(
            edges=draw_edges(graph, others, generator, self_loops=config.self_loops),
            entries=draw_entries(ready.features, config.feature_budget, generator),
            encoder=encoder,
            projected=projected,
            keys=self._known_by(clean),
            weights=clean.weights,
            contrast=contrast,
            rayleigh_weight=config.rayleigh_weight,
        )

    def _ascent(self, graph: Graph) -> Ascent:
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

    def _known_by(self, clean: SpectralEmbedding) -> Float[Tensor, "bands nodes dim"]:
        """What every changed band of a node is to be recognised by."""
        if self.config.stability_target == "band":
            return clean.views
        return clean.fused.expand_as(clean.views)

    def _stability(
        self, graph: Graph, probe: Probe, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The stability loss of the change that was found, with gradients for encoder and gate."""
        clean = self(self._ready(graph).signal, generator)
        changed = self.encoder(probe.signal, generator)
        pairs = zip(changed, self._known_by(clean), strict=True)
        losses = torch.stack([self._node_losses(*pair, generator).rows for pair in pairs])
        return stability(losses, clean.weights)

    @override
    def _costs(
        self, channels: Float[Tensor, "bands nodes"], signal: Signal
    ) -> Float[Tensor, "bands nodes"]:
        costs = super()._costs(channels, signal)
        if self._probe is None or self.config.sensitivity_weight == 0:
            return costs
        moved = channel_costs(self._evidence(self._probe.sensitivity, signal))
        return costs + self.config.sensitivity_weight * moved

    @override
    def monitors(self) -> dict[str, Tensor]:
        values = super().monitors()
        if self._probe is None:
            return values
        found, sensitivity = self._probe.found, self._probe.sensitivity
        values |= {
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
