"""Does ASPECT-S's search raise the loss of the model as trained, and by more than random flips?

Trains ASPECT-S with the settings shipped for a graph and with the defaults, which have batch norm;
then one search on the trained model. The stability loss is measured twice: with the statistics that
the model embeds by, and as a training step computes it, by batch statistics; nothing is dropped.
Run by `make search-strength`; the graphs' files lie in the folder that ASPECT_DATA names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import torch  # noqa: E402 - the path comes first

from aspect.attacks.projected_ascent import ascend, stability  # noqa: E402
from aspect.config import parse_overrides  # noqa: E402
from aspect.data.graph import Graph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.methods.aspect_s import AspectSMethod  # noqa: E402
from aspect.nn.spectral_encoder import Signal  # noqa: E402
from aspect.randomness import generator_for  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402
from commands import positive, told_in_a_line  # noqa: E402

GRAPHS = ("cora", "citeseer")
DRAWS = 5  # of random flips


def stability_loss(
    method: AspectSMethod, graph: Graph, changed: Signal, *, by_batch: bool
) -> float:
    """The loss of a changed graph, nothing dropped; by batch statistics or by stored ones."""
    method.train(by_batch)
    with torch.no_grad():
        clean = method(method.ready(graph).bounded)
        keys = clean.keys(method.config.stability_target)
        pairs = zip(method.encoder(changed), keys, strict=True)
        draw = generator_for(0, "negatives", device=graph.device)
        losses = torch.stack([method.node_losses(*pair, draw).rows for pair in pairs])
        return float(stability(losses, clean.weights))


def random_flips(count: int, pairs: int, generator: torch.Generator) -> torch.Tensor:
    """As many ones among the candidate pairs."""
    flips = torch.zeros(pairs, device=generator.device)
    flips[torch.randperm(pairs, generator=generator, device=generator.device)[:count]] = 1
    return flips


def measure(name: str, choice: str, changes: list[str], seed: int, device: str | None) -> list[str]:
    """The lines of one graph and one choice of settings, `shipped` or `defaults`."""
    found_settings = find_experiment("aspect-s", name, None if choice == "shipped" else choice)
    settings = {**found_settings[0].settings, **parse_overrides(changes)}
    model = Embedder("aspect-s", seed=seed, device=device, **settings)
    model.fit(load_named(name).graph)
    graph = model.as_seen(load_named(name).graph)
    method: AspectSMethod = model.method  # type: ignore[assignment]  # it is aspect-s
    generator = generator_for(seed, "search", device=graph.device)
    method.eval()
    problem = method.search_problem(graph, method.scope, generator)
    found = ascend(problem, method.ascent(graph), generator)
    features, clean = method.ready(graph).features, method.ready(graph).bounded
    count = int(found.change.flips.sum())
    signals = {
        "clean": [clean],
        f"search, {count} flips": [Signal(features, problem.edges.operator(found.change.flips))],
        f"random, {count} flips": [
            Signal(
                features,
                problem.edges.operator(random_flips(count, len(found.change.flips), generator)),
            )
            for _ in range(DRAWS)
        ],
    }
    lines = []
    for title, several in signals.items():
        by_stored, by_batch = (
            sum(stability_loss(method, graph, each, by_batch=way) for each in several)
            / len(several)
            for way in (False, True)
        )
        lines.append(f"| {name} | {choice} | {title} | {by_stored:.4f} | {by_batch:.4f} |")
    return lines


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--graph", action="append", help="a data set's name")
    parser.add_argument("--set", action="append", default=[], help="as of aspect train")
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--device", help="as of aspect train")
    given = parser.parse_args(arguments)
    print("| graph | settings | perturbation | loss, stored statistics | loss, batch statistics |")
    print("| --- | --- | --- | --- | --- |")
    for name in given.graph or GRAPHS:
        for choice in ("shipped", "defaults"):
            for seed in range(given.seeds):
                lines = measure(name, choice, given.set, seed, given.device)
                print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
