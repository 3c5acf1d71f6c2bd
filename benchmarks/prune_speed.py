"""How long the scores of many edges take, and pruning by them: one line for each score.

python benchmarks/prune_speed.py --edges 1000000 --nodes 100000 --features 128
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src")]

from aspect.attacks.pruning import SCORES, Pruning  # noqa: E402 - the path comes first
from aspect.attacks.purification import purify  # noqa: E402
from aspect.data.graph import Graph  # noqa: E402

GROUP = 100  # nodes with features around one centre
WITHIN = 0.8  # of the edges join two nodes of a group, so that features tell which edges are odd


def drawn_graph(nodes: int, edges: int, features: int) -> Graph:
    """Groups of nodes with about so many edges, a fifth of them at random."""
    generator = torch.Generator().manual_seed(0)
    one, other = torch.randint(nodes, (2, edges), generator=generator)
    near = (one // GROUP * GROUP + other % GROUP).clamp(max=nodes - 1)
    is_within = torch.rand(edges, generator=generator) < WITHIN
    centres = torch.randn(nodes // GROUP + 1, features, generator=generator)
    noise = torch.randn(nodes, features, generator=generator)
    pairs = torch.stack([one, torch.where(is_within, near, other)])
    return Graph.build(centres[torch.arange(nodes) // GROUP] + noise, pairs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Time every score, alone and with the rule for the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--score", action="append", help="one score only (default: all)")
    given = parser.parse_args(arguments)
    graph = drawn_graph(given.nodes, given.edges, given.features)
    print(f"{graph}, {torch.get_num_threads()} threads")
    for score in given.score or (*SCORES, "support+embedding"):
        for ratio in (0.1, "auto"):
            started = time.perf_counter()
            left = purify(graph, Pruning.model_validate({"ratio": ratio, "score": score}))
            seconds = time.perf_counter() - started
            print(f"{score:18} ratio {ratio!s:5} {seconds:7.2f} s, {left.num_edges:,} edges left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
