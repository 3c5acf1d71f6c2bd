"""Epochs of ASPECT and of ASPECT-S under the paper's settings, to be timed by `speed_stable`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from aspect.data.graph import Graph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.methods.aspect import AspectConfig, AspectMethod  # noqa: E402
from aspect.methods.aspect_s import AspectSConfig, AspectSMethod  # noqa: E402
from aspect.methods.base import Step  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402 - the path comes first

__all__ = ["SEARCHES", "epochs", "load", "seconds", "settings"]

# Of the paper (`tab:hyperparameters`), beside what `experiments/aspect` has of it: steps of a
# search, share of the edges that it may flip, weight of the Rayleigh term.
SEARCHES: dict[str, tuple[int, float, float]] = {
    "cora": (9, 0.22765, 0.46024),
    "chameleon": (7, 0.35284, 0.90943),
    "squirrel": (3, 0.21216, 0.61738),
    "pubmed": (5, 0.29437, 0.96707),
}


def load(name: str) -> Graph:
    """A graph as the estimator trains on it."""
    return load_named(name).graph.to(torch.float32)


def settings(name: str, **changes: Any) -> AspectSConfig:  # noqa: ANN401 - any setting
    """The paper's row of a graph with our channel term, and a search in every epoch."""
    published = find_experiment("aspect", name, "published")[0].settings
    steps, budget, rayleigh = SEARCHES[name]
    branch = {
        "warm_up": 0,
        "interval": 1,
        "perturbation_steps": steps,
        "perturbation_budget": budget,
        "rayleigh_weight": rayleigh,
        "negatives": 10**9,  # no fewer than there are nodes: all of them
    }
    return AspectSConfig(**{**published, "channel_weight": 1.0, **branch, **changes})


def epochs(config: AspectSConfig, graph: Graph) -> tuple[Callable[[], None], Callable[[], None]]:
    """One of ASPECT, and one of ASPECT-S with a search; settings are the same otherwise."""
    told = config.model_dump()
    own = AspectConfig(**{name: told[name] for name in AspectConfig.model_fields})
    plain = AspectMethod(own, graph.num_features)
    return _epoch(plain, graph), _epoch(AspectSMethod(config, graph.num_features), graph)


def _epoch(method: AspectMethod, graph: Graph) -> Callable[[], None]:
    """Forward, backward and a step of Adam; what a training prepares once is prepared before."""
    method.train().prepare(graph)
    optimiser = torch.optim.Adam(method.parameters(), lr=1e-4)

    def run() -> None:
        step = Step(1, torch.Generator().manual_seed(0))
        loss = torch.stack(list(method.loss_terms(graph, step).values())).sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch
        optimiser.step()

    return run


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes: processor time of one thread, wall time of several."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    work()
    return clock() - start
