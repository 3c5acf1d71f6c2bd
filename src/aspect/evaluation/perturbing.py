"""Small changes of a graph to try a trained model with: drawn, masked, searched for, or read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from aspect.adversarial.ascent import Ascent
from aspect.adversarial.nested import nested_searches
from aspect.adversarial.problem import SearchScope
from aspect.attacks.budget import flips_within
from aspect.attacks.feature_mask import mask_features
from aspect.attacks.flips import apply_flips
from aspect.attacks.random_flips import random_flips
from aspect.attacks.trace import Trace
from aspect.data.features import num_entries
from aspect.data.graph import Graph
from aspect.estimator import Embedder
from aspect.randomness import generator_for

__all__ = [
    "Perturbed",
    "draw_flips",
    "draw_masks",
    "follow_traces",
    "is_searchable",
    "search_flips",
]

# Where a model cannot be searched: ASPECT at its defaults, narrow and soon stopped.
STAND_IN = {"width": 128, "epochs": 30}

# Bands are held to themselves, features are left alone: what moves is the edges' doing.
SCOPE = SearchScope(candidates=2.0, feature_budget=0.0, target="band", rayleigh_weight=0.0)
# A first step of one flips about as many pairs as are allowed; the largest shares are taken, so
# that the seed decides the candidates and no more.
SEARCH = Ascent(
    steps=5,
    budget=0,
    edge_step=1.0,
    step_rule="normalised",
    feature_step=0.0,
    feature_box=0.0,
    discretisation="largest",
    draws=1,
)


@dataclass(frozen=True, eq=False)
class Perturbed:
    """A graph with the same nodes as the one before."""

    graph: Graph
    budget: float
    changed: int  # pairs flipped, or entries masked
    split: int | None  # the split that it is for; None: for all of them


def draw_flips(
    graph: Graph, budgets: Sequence[float], numbers: Sequence[int], seed: int
) -> Iterator[Perturbed]:
    """Random flips, nested over the budgets, one draw a number.

    They are those that `aspect attack --kind random` finds for a split of this number.
    """
    counts = [flips_within(budget, graph) for budget in budgets]
    for number in numbers:
        generator = generator_for(seed + number, "perturbation", "random", "edges")
        flips = random_flips(graph, max(counts), generator)
        for budget, count in zip(budgets, counts, strict=True):
            yield Perturbed(apply_flips(graph, flips[:count]), budget, count, number)


def draw_masks(
    graph: Graph, budgets: Sequence[float], numbers: Sequence[int], seed: int
) -> Iterator[Perturbed]:
    """Feature entries set to zero, one draw a number; what is masked at a rate stays so above."""
    before = num_entries(graph.features)
    for number in numbers:
        for budget in budgets:
            generator = generator_for(seed + number, "perturbation", "feature")
            features = mask_features(graph.features, budget, generator)
            masked = before - num_entries(features)
            yield Perturbed(replace(graph, features=features), budget, masked, number)


def is_searchable(model: Embedder) -> bool:
    """Whether flips can be searched for on the model itself: it sees a graph through filters."""
    return model.method.searchable


def search_flips(
    model: Embedder, graph: Graph, budgets: Sequence[float], seed: int
) -> Iterator[Perturbed]:
    """Flips by ascent on the contrast of changed bands with the clean ones; no label is read.

    They are searched on the model itself, as it embeds and with its gate frozen, or where that
    cannot be done on a stand-in, an ASPECT trained on the same graph, and then transferred. Each
    budget goes on from the one before; `budgets` rise.
    """
    searched = model if is_searchable(model) else _stand_in(model, graph, seed)
    own, method = searched.as_seen(graph), searched.method.eval()
    generator = generator_for(seed, "stability", "gradient", device=own.device)
    problem = method.search_problem(own, SCOPE, generator)
    counts = [flips_within(budget, graph) for budget in budgets]
    found = nested_searches(problem, counts, SEARCH, generator)
    for budget, flips in zip(budgets, found, strict=True):
        yield Perturbed(apply_flips(graph, flips.to(graph.device)), budget, len(flips), None)


def _stand_in(model: Embedder, graph: Graph, seed: int) -> Embedder:
    return Embedder("aspect", seed=seed, device=str(model.device), **STAND_IN).fit(graph)


def follow_traces(
    graph: Graph, budgets: Sequence[float], traces: Mapping[int, Trace]
) -> Iterator[Perturbed]:
    """The first flips of perturbation files, each for its own split; features are left alone."""
    for number, trace in traces.items():
        for budget in budgets:
            flips = trace.flips(budget)
            yield Perturbed(apply_flips(graph, flips), budget, len(flips), number)
