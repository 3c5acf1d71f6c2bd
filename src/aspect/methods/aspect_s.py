"""ASPECT-S: ASPECT, trained to hold still under small changes of edges and features."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect.attacks.projected_ascent import Ascent, AscentResult, InnerProblem, ascend, stability
from aspect.data.graph import Graph
from aspect.losses.policy_target import channel_costs
from aspect.methods.aspect import PAPER, AspectMethod
from aspect.methods.aspect_s_config import AspectSConfig
from aspect.methods.aspect_s_cost import Outlay, outlay_of
from aspect.methods.aspect_search import SearchScope, inner_problem, known_by
from aspect.methods.base import Step
from aspect.methods.registry import register
from aspect.nn.spectral_encoder import Signal

__all__ = ["AspectSConfig", "AspectSMethod"]


@dataclass(frozen=True, eq=False)
class Probe:
    """What a search found, ready for the outer step."""

    found: AscentResult
    signal: Signal  # the changed graph
    sensitivity: Float[Tensor, "bands nodes"]  # how far each band of each node moved

    def without_views(self) -> Probe:
        """The same without the embeddings of the search: an outer step has no room to spare."""
        before, seen = self.found.before.without_views(), self.found.seen.without_views()
        return replace(self, found=replace(self.found, before=before, seen=seen))


@register("aspect-s", config=AspectSConfig, paper=PAPER, family="spectral contrast")
class AspectSMethod(AspectMethod):
    """ASPECT with a search for harmful changes every few epochs (`eq:aspect_s_loss`).

    Where no search is due, an epoch is ASPECT's, draw for draw. The search sees the model as it
    would embed now, nothing dropped and statistics recomputed on the clean graph; so does the
    sensitivity, which dropout would drown.
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
        # An epoch without a search is not judged by what the last one found.
        self._probe = None
        if not self.is_due(step.epoch):
            return super().loss_terms(graph, step)
        # Draws of its own, so that those of the plain epoch stay as they are.
        generator = step.apart("perturbation")
        self.calibrate(graph)
        self._probe = probe = self.search(graph, generator).without_views()
        terms = super().loss_terms(graph, step)
        if self.config.stability_weight > 0:
            lost = self._stability(graph, probe, generator)
            terms["stability"] = self.config.stability_weight * lost
        return terms

    @torch.no_grad()
    def search(self, graph: Graph, generator: torch.Generator) -> Probe:
        """Search for a change of the graph that moves the model, as it is now, far."""
        ready = self.ready(graph)
        problem = self.inner_problem(graph, generator)
        found = ascend(problem, self._ascent(graph), generator)
        features = problem.entries.applied(ready.features, found.change.moves)
        signal = Signal(features, problem.edges.operator(found.change.flips))
        sensitivity = (found.seen.views - found.before.views).norm(dim=2)
        return Probe(found, signal, sensitivity)

    def inner_problem(self, graph: Graph, generator: torch.Generator) -> InnerProblem:
        """The search's problem on the model as it is now, with candidates drawn anew."""
        return inner_problem(self, graph, self._scope(), generator)

    def _scope(self) -> SearchScope:
        config = self.config
        return SearchScope(
            candidates=config.candidates,
            feature_budget=config.feature_budget,
            target=config.stability_target,
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

    def _stability(
        self, graph: Graph, probe: Probe, generator: torch.Generator
    ) -> Float[Tensor, ""]:
        """The stability loss of the change that was found, with gradients for encoder and gate."""
        clean = self(self.ready(graph).bounded, generator)
        changed = self.encoder(probe.signal, generator)
        keys = known_by(clean, self.config.stability_target)
        pairs = zip(changed, keys, strict=True)
        losses = torch.stack([self.node_losses(*pair, generator).rows for pair in pairs])
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

    def outlay(self, graph: Graph) -> Outlay:
        """What the searches of a whole training take, counted beforehand."""
        negatives = self.num_negatives(graph.num_nodes)
        return outlay_of(self.config, graph, len(self.bands), negatives)

    @override
    def outlook(self, graph: Graph) -> Iterable[str]:
        config, outlay = self.config, self.outlay(graph)
        if outlay.searches == 0:
            yield (
                f"ASPECT-S will never search, which makes this plain ASPECT: warm_up is "
                f"{config.warm_up} and interval {config.interval}, but epochs only "
                f"{config.epochs}. Lower the first two or train longer."
            )
            return
        at_most = "" if config.patience is None else "at most "
        yield (
            f"ASPECT-S searches for harmful changes in {at_most}{outlay.searches} of "
            f"{config.epochs} epochs, {config.perturbation_steps} steps over up to "
            f"{outlay.pairs:,} pairs and {outlay.entries:,} feature entries: an average epoch "
            f"takes about {outlay.epoch_factor(config.epochs):.1f} times as long as one of ASPECT, "
            f"and about {outlay.bytes / 1e6:,.0f} MB more memory."
        )

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
