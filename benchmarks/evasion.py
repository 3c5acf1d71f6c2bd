"""Does training against searched perturbations pay when a trained model meets a perturbed graph?

ASPECT and variants of ASPECT-S are trained on the clean graph with the same seed and settings, a
probe is fitted on the clean embedding, and tested on the embedding of perturbed graphs:

- metattack: the files of record, 10% of the edges flipped and as many feature entries masked;
- random: as many flips at random, and the mask;
- gradient: flips that move the trained model most, found by its gradients without a label;
- white-box: flips against the trained model and its probe, by both one's gradients. It knows the
  clean graph's predictions and no label of a validation or test node.

With `--choose` splits are those of searches, the nodes that are scored are validation nodes, and
Metattack is left out: that is for choosing settings. Without it test nodes of class-balanced splits
are scored, which the files of record are made for. Pairs of a test are splits, averaged over seeds.

Results go to a table as they come, and a second call goes on with what is missing. Several
trainings at a time share a GPU much faster under NVIDIA's MPS. The graphs' files lie in the folder
that ASPECT_DATA names. Run by `make evasion`; results/evasion.csv has what came out.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "benchmarks")]

import pandas as pd  # noqa: E402 - the path comes first
import torch  # noqa: E402
from jaxtyping import Float, Int  # noqa: E402
from torch import Tensor  # noqa: E402
from typing_extensions import override  # noqa: E402

from aspect.attacks.base import Target, apply_flips, flips_within  # noqa: E402
from aspect.attacks.file import PerturbationFile  # noqa: E402
from aspect.attacks.perturbation import Perturbation  # noqa: E402
from aspect.attacks.projected_ascent import (  # noqa: E402
    Ascent,
    Change,
    InnerProblem,
    SearchScope,
    Seen,
    ascend,
)
from aspect.attacks.registry import find_attack  # noqa: E402
from aspect.config import parse_overrides  # noqa: E402
from aspect.data.graph import Graph, LabelledGraph  # noqa: E402
from aspect.data.operators import Operator  # noqa: E402
from aspect.data.source import load_named  # noqa: E402
from aspect.data.splits import Split, make_splits  # noqa: E402
from aspect.errors import FileError  # noqa: E402
from aspect.estimator import Embedder  # noqa: E402
from aspect.evaluation.linear_probe import TrainedProbe  # noqa: E402
from aspect.evaluation.significance import holm, paired_test  # noqa: E402
from aspect.evaluation.stability import mean_distance, relative_shifts, searched  # noqa: E402
from aspect.methods.aspect import AspectMethod, SpectralEmbedding  # noqa: E402
from aspect.randomness import generator_for  # noqa: E402
from aspect.settings import find_experiment  # noqa: E402
from aspect.workspace import write_text  # noqa: E402
from commands import positive, run_all, told_in_a_line  # noqa: E402
from perturbations import FOLDER, Attack  # noqa: E402

GRAPHS = ("cora", "citeseer", "pubmed", "actor", "chameleon", "squirrel")
RESULTS = ROOT / "results" / "evasion.csv"
BASE = "aspect"
VARIANTS = ("aspect-s", "aspect-s perturbation_steps=0")  # searched flips, and random ones
BUDGET = 0.1  # flips as a ratio of the edges, and the rate of the feature mask
STEPS = 10  # of the attack on model and probe
LEVEL = 0.05  # of a decided difference
WHITE_BOX_SPLITS = 6  # the slowest attack; six pairs can decide one claim, not one among 16
CANDIDATES = 1.0  # pairs without an edge that it may join, for each edge
ATTACKED_BY_FILE = GRAPHS  # graphs that Metattack's files are there for
SCORED = ["graph", "variant", "seed", "attack", "split"]


@dataclass(frozen=True)
class Training:
    """A model to train, and the splits to read it on."""

    graph: str
    variant: str  # a method, and changes of its shipped settings
    seed: int
    splits: int  # so many
    choose: bool  # score validation nodes of the splits of searches
    common: str = ""  # changes for all variants
    device: str | None = None

    def model(self) -> Embedder:
        """As shipped for the graph but for the changes."""
        method, *changes = self.variant.split()
        shipped = find_experiment(method, self.graph, None)[0].settings
        settings = {**shipped, **parse_overrides([*self.common.split(), *changes])}
        return Embedder(method, seed=self.seed, device=self.device, scale="full", **settings)


# The attack that knows model and probe


@dataclass(frozen=True, eq=False)
class ProbedProblem(InnerProblem):
    """Turn a probe's answers at some nodes away from those on the clean graph.

    The objective is the mean of tanh(best other logit - logit of the clean answer), which gains
    nothing from nodes that are turned already (Geisler et al., NeurIPS 2021).
    """

    method: AspectMethod
    graph: Graph
    probe: Float[Tensor, "classes inputs"]
    nodes: Int[Tensor, " attacked"]
    answers: Int[Tensor, " attacked"]

    def logits(self, operator: Operator, views: Tensor) -> Float[Tensor, "attacked classes"]:
        """Of the attacked nodes, the gate following the graph."""
        method = self.method
        bands = method.centred(SpectralEmbedding(views, method.gate(views, operator)))
        rows = method._read_out(bands)  # as it embeds
        if method.skip is not None:
            skipped = method.skip(self.graph.features, operator)
            rows = torch.cat([rows, method.config.skip_weight * skipped], dim=1)
        slopes, intercepts = self.probe[:, :-1], self.probe[:, -1]
        return rows[self.nodes] @ slopes.t() + intercepts

    @override
    def see(self, change: Change) -> Seen:
        operator, views = self.embed(change)
        logits = self.logits(operator, views)
        own = logits.gather(1, self.answers.unsqueeze(1)).squeeze(1)
        others = logits.scatter(1, self.answers.unsqueeze(1), -torch.inf).amax(1)
        return Seen(views, views.new_zeros(len(views)), (others - own).tanh().mean())


def probed_problem(
    model: Embedder, seen: Graph, probe: Tensor, nodes: Tensor, seed: int
) -> ProbedProblem:
    """The attack's problem on a trained model, whose clean answers are to be turned."""
    method = model.method.eval()
    assert isinstance(method, AspectMethod)
    generator = generator_for(seed, "white-box", device=seen.device)
    scope = SearchScope(
        candidates=CANDIDATES, feature_budget=0.0, target="band", rayleigh_weight=0.0
    )
    start = method.search_problem(seen, scope, generator)
    nodes = nodes.to(seen.device)
    problem = ProbedProblem(
        **{field.name: getattr(start, field.name) for field in fields(InnerProblem)},
        method=method,
        graph=seen,
        probe=probe.to(seen.device, seen.dtype),
        nodes=nodes,
        answers=torch.zeros_like(nodes),
    )
    with torch.no_grad():
        clean = problem.logits(*problem.embed(problem.nothing()))
    return replace(problem, answers=clean.argmax(1))


def white_box_flips(
    model: Embedder, seen: Graph, probe: Tensor, nodes: Tensor, seed: int
) -> Int[Tensor, "flips 2"]:
    """Flips that turn a probe's answers, as many as allowed at most."""
    problem = probed_problem(model, seen, probe, nodes, seed)
    ascent = Ascent(STEPS, flips_within(BUDGET, seen))
    found = ascend(problem, ascent, generator_for(seed, "draws", device=seen.device))
    keys = problem.edges.flipped(found.change.flips)
    return torch.stack([keys // seen.num_nodes, keys % seen.num_nodes], dim=1).cpu()


# One model, trained and scored


def perturbed_graphs(
    training: Training,
    labelled: LabelledGraph,
    model: Embedder,
    probe: TrainedProbe,
    scored: dict[int, Tensor],
) -> Iterator[tuple[str, int | None, Graph]]:
    """Attack, split (None: it serves all of them) and graph."""
    graph = labelled.graph
    has_files = training.graph in ATTACKED_BY_FILE and not training.choose
    for split in scored if has_files else ():
        path = FOLDER / Attack("unrolled", training.graph, split).file_name
        yield "metattack", split, PerturbationFile.read(path).apply(labelled, BUDGET)
    for split in scored:
        # Other draws choose than those that are reported.
        draw = split + (100 if training.choose else 0)
        yield "random", split, Perturbation(kind="random", budget=BUDGET).apply(labelled, draw)
    seen = model.as_seen(graph)  # where the model is: searches draw there
    target = Target(seen, search_problem=searched(model))
    flips = find_attack("gradient").begin(target, seed=0).find(flips_within(BUDGET, graph))
    yield "gradient", None, apply_flips(graph, flips.cpu())
    for split, nodes in islice(scored.items(), WHITE_BOX_SPLITS):
        flips = white_box_flips(model, seen, probe.weights[split], nodes, split)
        yield "white-box", split, apply_flips(graph, flips)


def scores_of(training: Training) -> list[dict[str, Any]]:
    """A line for every attack and split."""
    labelled = load_named(training.graph)
    labels, classes = labelled.labels, labelled.num_classes
    kind = "search" if training.choose else "class-balanced"
    splits = dict(enumerate(make_splits(kind, labels, classes, training.splits)))
    part = "validation" if training.choose else "test"
    scored = {number: getattr(split, part) for number, split in splits.items()}
    begin = time.perf_counter()
    model = training.model().fit(labelled.graph, progress=False)
    seconds = time.perf_counter() - begin
    embedded = model.embed(labelled.graph, normalise="none")
    unit = mean_distance(embedded)
    # The probe never sees a label of the test nodes; which nodes it is scored on comes after.
    fitted = TrainedProbe.fit(embedded.to(model.device), labels, splits, num_classes=classes)
    probe = replace(fitted, splits={k: _scored_as_test(split, part) for k, split in splits.items()})
    clean = {number: probe.strict(number, embedded) for number in splits}
    told: list[dict[str, Any]] = []
    for attack, one, graph in perturbed_graphs(training, labelled, model, probe, scored):
        moved = model.embed(graph, normalise="none")
        shift = float(relative_shifts(embedded, moved, unit).mean())
        told += [
            {
                **{name: getattr(training, name) for name in SCORED[:3]},
                "attack": attack,
                "split": split,
                "part": part,
                "clean": round(clean[split], 3),
                "perturbed": round(probe.strict(split, moved), 3),
                "shift": round(shift, 4),
                "seconds": round(seconds, 2),
                "settings": settings_digest(model),
            }
            for split in (splits if one is None else (one,))
        ]
    return told


def _scored_as_test(split: Split, part: str) -> Split:
    if part == "test":
        return split
    return Split(split.train, split.test, split.validation)


def settings_digest(model: Embedder) -> str:
    """Shipped settings change: a table must tell which it was made with."""
    return sha256(model.config.model_dump_json().encode()).hexdigest()[:12]


def append(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows at once, whole or not at all, as a run may be cut off."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    write_text(path, before + pd.DataFrame(rows).to_csv(header=not before, index=False))


# Tables


def compared(scores: pd.DataFrame, base: str = BASE) -> pd.DataFrame:
    """Every variant beside one: a line for each graph and attack, and one for clean graphs.

    Perturbed graphs are as many claims as there are lines of a variant: their p-values are
    corrected by Holm's rule.
    """
    clean = scores.drop_duplicates(["graph", "variant", "seed", "split"])
    clean = clean.assign(attack="clean", perturbed=clean["clean"], shift=math.nan)
    lines = [
        {"graph": graph, "attack": attack, **line}
        for (graph, attack), some in pd.concat([clean, scores]).groupby(
            ["graph", "attack"], sort=False
        )
        for line in _lines(some, base)
    ]
    if not lines:
        return pd.DataFrame()
    table = pd.DataFrame(lines)
    perturbed = table[table.attack != "clean"]
    for _, claims in perturbed.groupby("variant"):
        table.loc[claims.index, "holm"] = holm(claims["p"].tolist())
    table["decided"] = table["holm"] < LEVEL
    return table


def _lines(some: pd.DataFrame, base: str) -> Iterator[dict[str, Any]]:
    """Of one graph and attack, those of the variants that share seeds and splits with the base."""
    tables = {
        variant: own.pivot_table(index="seed", columns="split", values="perturbed")
        for variant, own in some.groupby("variant", sort=False)
    }
    plain = tables.pop(base, None)
    shifts = some.groupby("variant")["shift"].mean()
    for variant, table in tables.items():
        if plain is None:
            continue
        seeds = plain.index.intersection(table.index)
        splits = plain.columns.intersection(table.columns)
        if len(seeds) == 0 or len(splits) < 2:  # noqa: PLR2004 - one pair has no spread
            continue
        own, other = (one.loc[seeds, splits].to_numpy() for one in (table, plain))
        test = paired_test(own, other)
        yield {
            "variant": variant,
            "seeds": len(seeds),
            "base": other.mean(),
            "own": own.mean(),
            "difference": test.difference,
            "low": test.low,
            "high": test.high,
            "p": max(test.p_value, test.corrected_p_value),
            "shift": shifts[variant] / shifts[base],
        }


def shown(scores: pd.DataFrame, base: str = BASE, *, brief: bool = False) -> str:
    """The comparison for readers; `brief`: mean differences over graphs alone."""
    table = compared(scores, base) if len(scores) else scores
    if table.empty:
        return f"No variant shares seeds and splits with {base!r} yet."
    means = table.pivot_table(index="variant", columns="attack", values="difference", sort=False)
    by_graph = table[table.attack != "clean"].pivot_table(
        index="variant", columns="graph", values="difference", sort=False
    )
    blocks = [
        f"Difference to {base} in points, mean over graphs:\n{means.round(2).to_string()}",
        f"Mean over attacks, by graph:\n{by_graph.round(2).to_string()}",
    ]
    if not brief:
        blocks.insert(0, table.round(3).to_string(index=False))
    return "\n\n".join(blocks)


@told_in_a_line
def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing, write results as they come, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "variants", nargs="*", default=VARIANTS, help="such as 'aspect-s interval=1'"
    )
    parser.add_argument("--graph", choices=GRAPHS, action="append", default=[])
    parser.add_argument("--seeds", type=positive, default=3)
    parser.add_argument("--splits", type=positive, default=10)
    parser.add_argument("--choose", action="store_true", help="validation nodes, for settings")
    parser.add_argument("--set", default="", help="changes for all variants: 'width=128 epochs=60'")
    parser.add_argument("--workers", type=positive, default=2)
    parser.add_argument("--seconds", type=positive, help="begin no training after so many")
    parser.add_argument("--device", help="as of aspect train")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--against", default=BASE, help="the variant that others are compared with")
    parser.add_argument("--brief", action="store_true", help="print mean differences alone")
    parser.add_argument("--tables", action="store_true", help="train nothing, print the tables")
    given = parser.parse_args(arguments)
    known = pd.read_csv(given.out) if given.out.exists() else pd.DataFrame(columns=SCORED)
    lost, part = 0, "validation" if given.choose else "test"
    if not given.tables and not known.empty and set(known["part"]) != {part}:
        raise FileError(f"{given.out} must hold scores of {part} nodes. Choose another --out.")
    if not given.tables:
        done = set(map(tuple, known[SCORED[:3]].to_numpy().tolist()))
        trainings = [
            Training(graph, variant, seed, given.splits, given.choose, given.set, given.device)
            for seed in range(given.seeds)
            for graph in given.graph or GRAPHS
            for variant in (BASE, *given.variants)
            if (graph, variant, seed) not in done
        ]
        lost = train_all(trainings, given.workers, given.seconds, given.out)
        known = pd.read_csv(given.out) if given.out.exists() else known
    print(shown(known, given.against, brief=given.brief))
    return 2 if lost else 0


def train_all(trainings: Sequence[Training], workers: int, seconds: int | None, out: Path) -> int:
    """Every training's lines are appended to the table when it is done; how many were lost."""
    end = time.monotonic() + seconds if seconds else float("inf")
    left = (training for training in trainings if time.monotonic() < end)

    def keep(training: Training, rows: list[dict[str, Any]]) -> None:
        append(out, rows)
        lines = pd.DataFrame(rows)
        means = lines.groupby("attack", sort=False).perturbed.mean().round(1).to_dict()
        known = (training.graph, training.seed, training.variant, round(lines.clean.mean(), 1))
        print(*known, means, lines.seconds[0], flush=True)

    return run_all(scores_of, left, workers, keep)


if __name__ == "__main__":
    sys.exit(main(None))
