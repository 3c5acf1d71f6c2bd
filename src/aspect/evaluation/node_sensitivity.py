"""How far a search for harmful changes moves every band of every node of a trained model."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from aspect.data.graph import Graph
from aspect.estimator import Embedder
from aspect.methods.aspect import AspectMethod
from aspect.methods.aspect_s import AspectSConfig, AspectSMethod
from aspect.randomness import generator_for, isolated_seed

__all__ = ["MOST_SEARCHED_NODES", "Moved", "search_model"]

MOST_SEARCHED_NODES = 10_000  # a search takes about a minute of one core up to here


@dataclass(frozen=True, eq=False)
class Moved:
    """The most harmful small change that a search found, and what it does."""

    flips: int  # pairs of nodes
    moves: int  # feature entries
    distances: dict[str, Float[Tensor, " nodes"]]  # by band, lowest first


def search_model(model: Embedder, seen: Graph) -> Moved | None:
    """Search on a graph, the same way at every look, with the model as it embeds.

    ASPECT-S searches as its settings say, ASPECT as those of ASPECT-S do by default. None for a
    method without a policy over bands, and for a graph whose search would take too long.

    Args:
        model: A fitted model.
        seen: The graph as the model sees it.
    """
    method = model.method
    if not isinstance(method, AspectMethod) or len(method.bands) == 1:
        return None
    if seen.num_nodes > MOST_SEARCHED_NODES:
        return None
    generator = generator_for(0, "search to look at", device=seen.device)
    probe = _searching(method).search(seen, generator)
    change = probe.found.change
    return Moved(
        int(change.flips.sum()),
        int(change.moves.count_nonzero()),
        dict(zip(method.bands, probe.sensitivity, strict=True)),
    )


def _searching(method: AspectMethod) -> AspectSMethod:
    """A copy that can search."""
    told = method.config.model_dump()
    settings = {name: told[name] for name in AspectSConfig.model_fields if name in told}
    with isolated_seed(0):
        copy = AspectSMethod(AspectSConfig(**settings), method.encoder.linear.in_features)
    weight: Tensor = method.encoder.linear.weight
    copy.to(weight.device, weight.dtype).load_state_dict(method.state_dict())
    return copy.eval()
