"""What might protect ASPECT's propagation from poisoned edges, variant by variant.

Each variant trains on the graph that a perturbation file poisons and is probed on the file's split:
- `all edges`, and `pruned`: by the rule without labels.
- `mcp`: edges weigh by a robust penalty of their ends' distance (RUNG, Hou et al., NeurIPS 2024).
  RUNG finds new weights at every propagation step; here they are found once for a graph, so that
  the operator stays linear and a Chebyshev filter of it a polynomial. `l1` has no distance beyond
  which the penalty is flat.
- `median`: edges weigh by their ends' distance to the median of the other end's neighbourhood (soft
  median, Geisler et al., NeurIPS 2021), at the temperature behind the name; once for a graph, too.
- `identity`: a third band, which no edge reaches.
- `even`: filters of even orders alone, which see two hops and never one.

Test labels choose nothing. Rows are written as they are done, and a run that was stopped goes on. A
file at budget 0 is the clean graph.

python benchmarks/robust_propagation.py FILE... --budget 0.1 --set epochs=100 --set width=128

Without a file it prints the table of what is in `results/robust_propagation.csv`.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402 - the path comes first
import torch  # noqa: E402
import yaml  # noqa: E402
from jaxtyping import Float, Int  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import cosine_similarity, normalize  # noqa: E402
from typing_extensions import override  # noqa: E402

from aspect.attacks.cosines import mean_cosine  # noqa: E402
from aspect.data.features import dense, seen_features  # noqa: E402
from aspect.data.graph import Features, Graph  # noqa: E402
from aspect.data.sparse import Pattern, SparseMatrix  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import linear_probe  # noqa: E402
from aspect.methods.aspect import AspectConfig, AspectMethod, PreparedGraph  # noqa: E402
from aspect.methods.registry import register  # noqa: E402
from aspect.nn.filters import Band  # noqa: E402
from aspect.nn.propagation import SymmetricPropagation  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import positive, told_in_a_line  # noqa: E402
from poisoned import read_case  # noqa: E402

RESTART = 0.3  # what a row keeps of its own features
STEPS = 5
NEAREST = 0.05  # relative distance below which weights grow no further
LEAST_WEIGHT = 0.01  # relative to the mean: no edge goes
EDGES_AT_ONCE = 2**14
VALUES_AT_ONCE = 2**22
HALF = 0.5 - 1e-5  # where exactly half of the weights lie below, rounding decides nothing
TINY = 1e-12  # below every mean that is not rounding

Penalty = Literal["mcp", "l1"]


def propagated(smooth: SparseMatrix, features: Features) -> Float[Tensor, "nodes dim"]:
    """Features, each row at unit length, after propagation with a restart."""
    unit = normalize(dense(features), dim=1)
    rows = unit
    for _ in range(STEPS):
        rows = RESTART * unit + (1 - RESTART) * smooth(rows)
    return rows


def robust_weights(
    pattern: SymmetricPropagation, features: Features, penalty: Penalty
) -> Float[Tensor, " edges"]:
    """The slope of the penalty, `max(0, 1 / d - 1)` or `1 / d`, for every edge; mean about one.

    d is the distance of the ends' rows at unit length, after propagation with a restart and without
    what the edge itself brought there. It is one for two random nodes.
    """
    smooth = pattern.smoothing()
    rows = propagated(smooth, features)
    is_upper = pattern.pattern.rows < pattern.pattern.columns  # in the order of the edges' keys
    low, high = pattern.pattern.rows[is_upper], pattern.pattern.columns[is_upper].long()
    couplings = (1 - RESTART) * smooth.values[is_upper].unsqueeze(1)
    cosines = []
    for part in torch.split(torch.arange(len(low), device=low.device), EDGES_AT_ONCE):
        one, other, coupling = rows[low[part]], rows[high[part]], couplings[part]
        cosines.append(cosine_similarity(one - coupling * other, other - coupling * one))
    mean = mean_cosine(rows)
    squared = (1 - torch.cat(cosines)).clamp(min=0) / max(1 - mean, TINY)
    slopes = 1 / squared.sqrt().clamp(min=NEAREST)
    if penalty == "mcp":
        slopes = (slopes - 1).clamp(min=0)
    return (slopes / slopes.mean().clamp(min=TINY)).clamp(min=LEAST_WEIGHT)


def soft_median_weights(
    pattern: SymmetricPropagation, features: Features, temperature: float
) -> Float[Tensor, " edges"]:
    """How much a soft median would make of each edge; one where all neighbours are alike.

    A node weighs its neighbours and itself by `exp(-d / temperature)`, and the sum of its weights
    stays. d is the distance to the median of their propagated rows at unit length, dimension by
    dimension and weighted as in the low-pass operator; two random nodes are at distance one.

    Other than in the paper, weights are found once, from features, and not in each layer from what
    it has learned; d is relative to random pairs, not to the number of dimensions; an edge has the
    geometric mean of both ends' weights, so that the operator is symmetric, and degrees follow, so
    that sums stay only until then. Loops, where there are any, keep weight one, and no edge goes.
    """
    smooth = pattern.smoothing()
    rows = normalize(propagated(smooth, features), dim=1)
    apart = (2 * max(1 - mean_cosine(rows), TINY)) ** 0.5
    factors = torch.empty_like(smooth.values)
    for entries in neighbourhoods(pattern.pattern, rows.shape[1]):
        weights = smooth.values[entries]
        values = rows[pattern.pattern.columns[entries]].transpose(1, 2)  # [nodes, dim, neighbours]
        distances = (values - weighted_median(values, weights)).norm(dim=1) / apart
        near = torch.exp((distances.amin(1, keepdim=True) - distances) / temperature)
        factors[entries] = near * (weights.sum(1) / (weights * near).sum(1)).unsqueeze(1)
    is_upper = pattern.pattern.rows < pattern.pattern.columns  # in the order of the edges' keys
    mirrored = factors[pattern.pattern.transposed[1]]
    return (factors * mirrored).sqrt()[is_upper].clamp(min=LEAST_WEIGHT)


def neighbourhoods(pattern: Pattern, dim: int) -> Iterator[Int[Tensor, "nodes neighbours"]]:
    """The entries of rows that have equally many, a block of rows at a time."""
    counts = pattern.row_pointers.diff()
    for count in sorted(set(counts.tolist())):
        starts = pattern.row_pointers[:-1][counts == count].long()
        within = torch.arange(count, device=starts.device)
        for part in torch.split(starts, max(1, VALUES_AT_ONCE // (count * dim))):
            yield part.unsqueeze(1) + within


def weighted_median(
    values: Float[Tensor, "nodes dim neighbours"], weights: Float[Tensor, "nodes neighbours"]
) -> Float[Tensor, "nodes dim 1"]:
    """The smallest value up to which half of the weights lie."""
    ordered, order = values.sort(dim=2)
    reached = weights.unsqueeze(1).expand_as(values).gather(2, order).cumsum(2)
    below = (reached < HALF * reached[:, :, -1:]).sum(2, keepdim=True)
    return ordered.gather(2, below)


class RobustWeights(AspectMethod):
    """ASPECT whose edges weigh by a robust penalty, on every graph that it sees."""

    penalty: ClassVar[Penalty] = "mcp"

    def _weigh(self, pattern: SymmetricPropagation, features: Features) -> Float[Tensor, " edges"]:
        return robust_weights(pattern, features, self.penalty)

    @override
    def _prepare(self, graph: Graph) -> PreparedGraph:
        features = seen_features(graph.features, normalise_rows=self.config.row_normalise)
        pattern = SymmetricPropagation(graph)
        weights = pattern.both_ways(self._weigh(pattern, features))
        return super()._prepare(replace(graph, weights=weights))


class L1Weights(RobustWeights):
    """The same with the penalty that never turns flat."""

    penalty: ClassVar[Penalty] = "l1"


class SoftMedian(RobustWeights):
    """ASPECT whose edges weigh as a soft median would weigh them."""

    temperature: ClassVar[float] = 0.1

    @override
    def _weigh(self, pattern: SymmetricPropagation, features: Features) -> Float[Tensor, " edges"]:
        return soft_median_weights(pattern, features, self.temperature)


class SharpMedian(SoftMedian):
    """The same, closer to the median."""

    temperature: ClassVar[float] = 0.03


class Identity(nn.Module):
    """The coefficients of a filter that leaves every node its own features."""

    def __init__(self, order: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(1))
        self.order = order

    @override
    def forward(self) -> Float[Tensor, " order_plus_one"]:
        return torch.cat([self.gain, self.gain.new_zeros(self.order)])


class IdentityBand(AspectMethod):
    """ASPECT with a third band, the features as they are."""

    bands: ClassVar[tuple[Band, ...]] = ("low", "high", "low")

    def __init__(self, config: AspectConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        self.encoder.filters[2] = Identity(config.order)


class RobustIdentity(IdentityBand, RobustWeights):
    """Both."""


class Even(nn.Module):
    """A filter without its odd terms."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    @override
    def forward(self) -> Float[Tensor, " order_plus_one"]:
        coefficients: Tensor = self.whole()
        return coefficients * (torch.arange(len(coefficients), device=coefficients.device) % 2 == 0)


class EvenOrders(AspectMethod):
    """ASPECT with filters of even orders alone."""

    def __init__(self, config: AspectConfig, num_features: int) -> None:
        super().__init__(config, num_features)
        for number, whole in enumerate(self.encoder.filters):
            self.encoder.filters[number] = Even(whole)


VARIANTS: Mapping[str, tuple[type[AspectMethod], str | None]] = {  # and the ratio to prune
    "all edges": (AspectMethod, None),
    "pruned": (AspectMethod, "auto"),
    "mcp": (RobustWeights, None),
    "l1": (L1Weights, None),
    "median 0.1": (SoftMedian, None),
    "median 0.03": (SharpMedian, None),
    "identity": (IdentityBand, None),
    "even": (EvenOrders, None),
    "mcp, identity": (RobustIdentity, None),
    "mcp, pruned": (RobustWeights, "auto"),
}
KEYS = ["source", "rate", "settings", "variant", "seed"]


def result_of(
    source: Path, rate: float, variant: str, seed: int, settings: Mapping[str, Any]
) -> dict[str, float]:
    """Train, embed and probe; a test label chooses nothing."""
    labelled, graph, split = read_case(source, rate)
    kind, prune = VARIANTS[variant]
    method = "aspect" if kind is AspectMethod else kind.__name__
    started = time.perf_counter()
    model = Embedder(method, seed=seed, prune=prune, **settings).fit(graph)
    rows = model.embed(graph, normalise="none").to(model.device)
    probed = linear_probe(rows, labelled.labels, [split], num_classes=labelled.num_classes)
    return {
        "validation": round(probed.splits[0].validation, 1),
        "test": round(probed.splits[0].strict, 1),
        "seconds": round(time.perf_counter() - started, 1),
    }


def table(results: pd.DataFrame) -> str:
    """Means over seeds of each variant on each graph, and how many trainings they are of."""
    shown = results.assign(
        graph=results.source + " " + results.rate.map("{:g}".format),
        variant=pd.Categorical(results.variant, list(VARIANTS)),
        trainings=1,
    )
    how = {"validation": "mean", "test": "mean", "trainings": "sum"}
    means = shown.groupby(["settings", "graph", "variant"], observed=True).agg(how)
    return str(means.round(1).to_string())


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="*", help="perturbation files")
    parser.add_argument("--budget", type=float, nargs="+", default=[0.1])
    parser.add_argument("--variant", action="append", choices=VARIANTS, default=[])
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=positive, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "robust_propagation.csv")
    given = parser.parse_args(arguments)
    for kind in {kind for kind, _ in VARIANTS.values()} - {AspectMethod}:
        register(kind.__name__, config=AspectConfig, paper="", family="control")(kind)
    logging.getLogger("aspect").setLevel(logging.ERROR)
    settings = {name: yaml.safe_load(text) for name, text in (s.split("=", 1) for s in given.set)}
    rows: list[dict[Any, Any]] = []
    if given.out.exists():
        rows = pd.read_csv(given.out).fillna("").to_dict("records")
    done = {tuple(row[name] for name in KEYS) for row in rows}
    variants = given.variant or list(VARIANTS)
    for seed, file, rate, variant in itertools.product(
        range(given.seeds), given.files, given.budget, variants
    ):
        key = (file.stem, rate, " ".join(given.set), variant, seed)
        if key in done:
            continue
        row = dict(zip(KEYS, key, strict=True))
        rows.append({**row, **result_of(file, rate, variant, seed, settings)})
        write_text(given.out, pd.DataFrame(rows).to_csv(index=False))
    print(table(pd.read_csv(given.out).fillna("")))
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
