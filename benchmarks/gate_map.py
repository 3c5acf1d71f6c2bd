"""Draw the README's picture, `docs/gate_map.png`: the demo's graph, each node in its gate weight.

    python benchmarks/gate_map.py [--out FILE]

Positions are a t-SNE of the embedding. The gate never saw which half a node belongs to.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.manifold import TSNE

from aspect import Aspect
from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC, embedded_graph, mixed_regions

PICTURE = Path(__file__).parents[1] / "docs" / "gate_map.png"
HALVES = {"homophilic half": (HOMOPHILIC, "o"), "heterophilic half": (HETEROPHILIC, "^")}


def draw(out: Path) -> dict[str, float]:
    """Train, draw, and return the mean gate weight of each half."""
    graph = embedded_graph().graph
    model = Aspect.preset("mixed", seed=0, device="cpu").fit(graph, progress=False)
    gate = model.policy(graph)
    assert gate is not None
    weights, regions = gate.numpy(), mixed_regions(graph.num_nodes).numpy()
    places = TSNE(random_state=0, init="pca").fit_transform(model.embed(graph).numpy())
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    axes, histogram = figure.subplots(1, 2, width_ratios=[1.4, 1])
    means = {}
    for title, (region, marker) in HALVES.items():
        inside = regions == region
        means[title] = float(weights[inside].mean())
        points = axes.scatter(
            *places[inside].T, c=weights[inside], cmap="coolwarm_r", vmin=0, vmax=1, s=14,
            marker=marker, linewidths=0, label=title,
        )  # fmt: skip
        label = f"{title}, mean {means[title]:.2f}"
        colour = "#0072b2" if region == HOMOPHILIC else "#d55e00"
        histogram.hist(
            weights[inside], np.linspace(0, 1, 41).tolist(), alpha=0.6, color=colour, label=label
        )
    axes.set(xticks=[], yticks=[], title="Every node chooses its band")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, fontsize=7, frameon=False)
    figure.colorbar(points, ax=axes, label="gate weight of the low band")
    histogram.set(xlabel="gate weight of the low band", ylabel="nodes")
    histogram.legend(fontsize=7, frameon=False)
    figure.savefig(out, dpi=110, metadata={"Software": None})
    return means


def main() -> None:
    """Draw, and say what the picture shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURE)
    out = parser.parse_args().out
    for title, mean in draw(out).items():
        print(f"{title}: mean gate weight of the low band {mean:.2f}")
    print(f"Wrote {out}.")


if __name__ == "__main__":
    main()
