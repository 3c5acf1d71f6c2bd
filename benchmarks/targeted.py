"""How many of some nodes are still classified right when each is attacked by itself (Nettack)?

Every method is trained on the clean graph at its shipped settings, and a probe on its embedding.
Then each target is attacked on the otherwise clean graph, which is embedded by the trained model
and read by the trained probe (evasion). Targets are test nodes drawn by the seed; neither they nor
the flips depend on a test label. The graphs' files lie in the folder that ASPECT_DATA names.

python benchmarks/targeted.py aspect cca-ssg propagated raw --set epochs=50
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402 - the path comes first
import torch  # noqa: E402
from jaxtyping import Int  # noqa: E402
from scipy.stats import binomtest  # noqa: E402
from torch import Tensor  # noqa: E402

from aspect.attacks.base import Target, apply_flips  # noqa: E402
from aspect.attacks.nettack import Nettack  # noqa: E402
from aspect.data.graph import Graph, LabelledGraph  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import Split, make_splits  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import TrainedProbe  # noqa: E402
from aspect.methods.registry import find_method  # noqa: E402
from aspect.randomness import generator_for  # noqa: E402
from commands import positive, told_in_a_line  # noqa: E402
from evasion import Training  # noqa: E402

METHODS = ("aspect", "cca-ssg", "grace", "propagated", "raw")


def drawn_targets(graph: Graph, split: Split, count: int, seed: int) -> Int[Tensor, " targets"]:
    """So many test nodes with an edge, whatever their classes."""
    nodes = split.test[graph.degrees()[split.test] > 0]
    order = torch.randperm(len(nodes), generator=generator_for(seed, "targeted", "nodes"))
    return nodes[order[:count]].sort().values


def attacked_graphs(
    labelled: LabelledGraph, split: Split, nodes: Int[Tensor, " targets"], flips: int | None
) -> list[Graph]:
    """For every target the graph after the attack on it alone."""
    target, graphs = Target.of(labelled, split), []
    for node in nodes.tolist():
        attack = Nettack.begin(target, {"targets": (node,), "flips": flips})
        found = attack.find(Nettack.count(attack.config, labelled.graph))
        graphs.append(apply_flips(labelled.graph, found))
    return graphs


def right_answers(
    model: Embedder,
    labelled: LabelledGraph,
    split: Split,
    nodes: Int[Tensor, " targets"],
    graphs: Sequence[Graph],
) -> tuple[int, int]:
    """Targets that the trained model and its probe classify right, clean and attacked."""
    clean = model.embed(labelled.graph, normalise="none")
    fitted = TrainedProbe.fit(
        clean.to(model.device), labelled.labels, {0: split}, num_classes=labelled.num_classes
    )
    # Probes are trained: which nodes are scored comes after. A single node scores 0 or 100.
    single = {
        place: Split(split.train, split.validation, node.reshape(1))
        for place, node in enumerate(nodes)
    }
    probe = replace(fitted, splits=single, weights=dict.fromkeys(single, fitted.weights[0]))
    before = sum(probe.strict(place, clean) > 0 for place in single)
    after = sum(
        probe.strict(place, model.embed(graph, normalise="none")) > 0
        for place, graph in enumerate(graphs)
    )
    return before, after


def shown(right: int, of: int) -> str:
    """The rate in percent with its 95% interval (Wilson)."""
    interval = binomtest(right, of).proportion_ci(method="wilson")
    return f"{100 * right / of:.1f} ({100 * interval.low:.0f} to {100 * interval.high:.0f})"


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Attack, train, and print a line for each method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--graph", default="cora")
    parser.add_argument("--split", type=int, choices=range(10), default=0, metavar="K")
    parser.add_argument("--targets", type=positive, default=40, help="how many are drawn")
    parser.add_argument("--target", type=int, action="append", help="a node, in place of a draw")
    parser.add_argument("--flips", type=positive, help="at each; default: its degree plus two")
    parser.add_argument("--set", default="", help="changes of trained methods: 'epochs=50'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    given = parser.parse_args(arguments)
    logging.getLogger("aspect").setLevel(logging.ERROR)
    labelled = load_named(given.graph)
    splits = make_splits("class-balanced", labelled.labels, labelled.num_classes)
    split = splits[given.split]
    nodes = drawn_targets(labelled.graph, split, given.targets, given.seed)
    if given.target:
        nodes = torch.tensor(given.target)
    graphs = attacked_graphs(labelled, split, nodes, given.flips)
    lines: list[dict[str, Any]] = []
    for method in given.methods:
        changes = given.set if find_method(method).method.trainable else ""
        training = Training(given.graph, method, given.seed, 1, False, changes, given.device)
        model = training.model().fit(labelled.graph, progress=False)
        before, after = right_answers(model, labelled, split, nodes, graphs)
        of = len(nodes)
        lines.append({"method": method, "clean": shown(before, of), "attacked": shown(after, of)})
    print(
        f"{given.graph}, class-balanced split {given.split}: % of {len(nodes)} targets classified "
        "right, with 95% intervals"
    )
    print(pd.DataFrame(lines).to_string(index=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
