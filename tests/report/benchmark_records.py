"""Records of a benchmark made by hand: plausible scores from a seed, or given one by one."""

import zlib

import numpy as np

from aspect.attacks.perturbation import Perturbation
from aspect.experiment.plan import Entry
from aspect.experiment.record import GraphSummary, Record, SplitScores
from aspect.experiment.spec import Cell, Spec

# Names of entries, graphs and notes are untrusted; each of these breaks out of something.
NASTY = (
    "</script><img src=x onerror=alert(1)>",
    "=cmd()",
    r"50% & _x_ \alpha",
    "\"quote', {brace} $x^2$ ~ #1 | `code` ± β",
)

# A group for ablation tables: the entry names itself as its head.
ABLATION = (
    Entry(name="aspect", title="ASPECT", group="aspect"),
    Entry(
        name="aspect-global",
        method="aspect",
        title="Global fusion",
        group="aspect",
        set={"fusion": "global"},
    ),
    Entry(
        name="aspect-no-policy",
        method="aspect",
        title="Without policy loss",
        group="aspect",
        set={"policy_weight": 0.0},
    ),
)

CLASSES = 5


def poison(budget=0.1, solver="", features=True):
    """Edges flipped at random before training."""
    return Perturbation(
        kind="random", solver=solver, mode="poison", budget=budget, features=features
    )


def evade(budget=0.1):
    """Edges flipped at random under a trained model."""
    return Perturbation(kind="random", mode="evade", budget=budget)


def metattack(budget=0.1, solver="unrolled", mode="poison", features=True):
    """Edges flipped by the attack of the paper."""
    return Perturbation(
        kind="metattack", solver=solver, mode=mode, budget=budget, features=features
    )


def drawn_score(entry, graph, perturbation, seed, split, **_):
    """A plausible accuracy: the entry's and the graph's level, less the attack, and some luck."""
    level = 55 + _level(graph) + 0.4 * _level(entry)
    loss = 0 if perturbation is None else 40 * perturbation.budget * (0.5 + _level(entry) / 20)
    easy = 3 * _level(f"{graph}, split {split}") / 20  # splits are easy or hard for all entries
    luck = np.random.default_rng(abs(hash_of(entry, graph, perturbation, seed, split))).normal()
    return float(np.clip(level - loss + easy + luck, 1, 99))


def hash_of(*parts):
    return zlib.crc32(repr(parts).encode())


def _level(name):
    return hash_of(name) % 2000 / 100  # 0 to 20


def make_records(  # noqa: PLR0913 - every option has a default, tests name one or two
    entries=("aspect", "low", "raw"),
    graphs=("cora", "texas"),
    perturbations=(None,),
    seeds=2,
    splits=4,
    *,
    split_kind="class-balanced",
    failed=(),
    missing=(),
    missing_in_test=(),
    score=drawn_score,
    plan="plan",
    settings=None,
    **work,
):
    """Records of a whole grid, as the benchmark would leave them.

    Args:
        entries: names, or `Entry` with title, note and group.
        graphs: names or paths.
        perturbations: None for the clean graph, else a `Perturbation`.
        seeds: how many.
        splits: how many; a poisoned graph leaves one record per split and seed.
        split_kind: of the splits.
        failed: functions of a record; where one is true, the record failed.
        missing: functions of a record; where one is true, there is none.
        missing_in_test: classes that no test set holds.
        score: of entry, graph, perturbation, seed and split: strict accuracy in percent.
        plan: name of the plan.
        settings: of all methods.
        work: other fields of `Work`: device, version.
    """
    shared = {"splits": split_kind, "version": "0.1.0", **work}
    records = []
    for graph in graphs:
        for given in entries:
            entry = Entry(name=given) if isinstance(given, str) else given
            for perturbation in perturbations:
                for numbers in _groups(perturbation, splits):
                    for seed in range(min(seeds, entry.seeds or seeds)):
                        key = Spec(
                            method=entry.registered,
                            settings={**(settings or {"epochs": 30}), **entry.set},
                            graph_sha256=f"{hash_of(graph):064x}",
                            split_numbers=numbers,
                            perturbation=perturbation,
                            seed=seed,
                            **shared,
                        )
                        cell = Cell(
                            plan=plan,
                            entry=entry.name,
                            title=entry.title or entry.name,
                            note=entry.note,
                            group=entry.group,
                            graph=graph,
                            work=key,
                        )
                        records.append(done(cell, score, missing_in_test))
    kept = [record for record in records if not any(lacks(record) for lacks in missing)]
    return [fail(record) if any(fails(record) for fails in failed) else record for record in kept]


def _groups(perturbation, splits):
    every = tuple(range(splits))
    is_poisoned = perturbation is not None and perturbation.mode == "poison"
    return [(split,) for split in every] if is_poisoned else [every]


def done(cell, score=drawn_score, missing_in_test=()):
    """A record of a cell that went well."""
    work = cell.spec
    scores = [
        split_scores(
            split,
            score(
                entry=cell.entry,
                graph=cell.graph,
                perturbation=work.perturbation,
                seed=work.seed,
                split=split,
            ),
            missing_in_test,
        )
        for split in work.split_numbers
    ]
    return Record(
        status="done",
        cell=cell,
        graph=graph_facts(cell.graph),
        scores=tuple(scores),
        epochs=30,
        loss={"loss": 1.5, "gate_mean": 0.5},
        dim=64,
        parameters=12_345,
        gate={"mean": 0.5, "std": 0.1} if work.method == "aspect" else None,
        seconds={"train": 2.0 + work.seed, "embed": 0.1, "probe": 0.5},
        peak_memory_bytes=300 * 2**20,
        device="a processor",
        versions={"aspect": work.version, "torch": "2.11"},
    )


def split_scores(split, strict, missing_in_test=()):
    return SplitScores(
        split=split,
        validation=min(strict + 1.0, 100.0),
        strict=strict,
        optimistic=min(strict + 0.5, 100.0),
        macro_f1=max(strict - 5.0, 0.0),
        choice=5e-4,
        step=100,
        missing_in_test=tuple(missing_in_test),
    )


def graph_facts(graph):
    return GraphSummary(
        name=graph, nodes=1000, edges=3000, features=50, classes=CLASSES, homophily=0.5
    )


def fail(record, error="The loss is no longer a number after epoch 3."):
    """The same cell, had it failed."""
    return Record(status="failed", cell=record.cell, error=error)
