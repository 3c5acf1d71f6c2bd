"""A record made by hand, so that every number of the report is known."""

import numpy as np

from aspect.evaluation.entrants import LINES
from aspect.evaluation.mixture_record import Curve, GraphFacts, MixtureRecord, Row, Spectrum

MEANS = {
    "aspect": 96.0,
    "paper-gate": 93.0,
    "global": 90.0,
    "half": 90.0,
    "low": 80.0,
    "high": 79.0,
    "concatenated": 91.0,
    "random": 70.0,
    "propagated": 85.0,
    "spectral": 88.0,
    "raw": 75.0,
    "twins": 60.0,
    "majority": 50.0,
    "oracle": 98.0,
}
UNSEEDED = ("propagated", "spectral", "raw", "twins", "majority")
SPLITS = 10
NODES = 20


def table(mean, seeds=2):
    """Seeds one point below and above the mean, splits moved a little as well."""
    moves = 0.1 * (np.arange(SPLITS) - (SPLITS - 1) / 2)
    seeds_moves = [0.0] if seeds == 1 else [-1.0, 1.0]
    return tuple(tuple((mean + move + moves).tolist()) for move in seeds_moves)


def row(entrant, mean):
    seeds = 1 if entrant.name in UNSEEDED else 2
    scores = {
        "whole": table(mean, seeds),
        "homophilic": table(mean + 1, seeds),
        "heterophilic": table(mean - 1, seeds),
    }
    return Row(
        name=entrant.name, title=entrant.title, note=entrant.note, role=entrant.role, scores=scores
    )


def gates(homophilic, heterophilic):
    """Two seeds; in each, nodes a little below and above the mean of their region."""
    half = NODES // 2
    moves = np.tile([-0.02, 0.02], half // 2)
    one = np.concatenate([homophilic + moves, heterophilic + moves])
    return tuple(tuple((one + move).tolist()) for move in (-0.01, 0.01))


def make_record(means=MEANS, **changes):
    half = NODES // 2
    content = {
        "command": "aspect demo --seeds 2",
        "graph": GraphFacts(
            name="mixed",
            edges=40,
            crossing=3,
            features=3,
            classes=2,
            regions=("homophilic", "heterophilic"),
            region=(0,) * half + (1,) * half,
            agreement=(0.9,) * half + (0.1,) * (half - 1) + (None,),
        ),
        "settings": {"order": 5, "readout": "fused", "patience": None},
        "settings_from": "made by hand",
        "seeds": (0, 1),
        "splits": SPLITS,
        "rows": tuple(row(each, means[each.name]) for each in LINES),
        "gates": {"aspect": gates(0.9, 0.1), "paper-gate": gates(0.6, 0.4)},
        "curves": tuple(
            Curve(
                seed=seed,
                values={
                    "loss": (3.0, 2.0, 1.0 + seed),
                    "contrast": (3.0, 2.0, 1.0 + seed),
                    "gate_mean": (0.5, 0.5, 0.5),
                },
                gate_epochs=(1, 3),
                gate={"homophilic": (0.5, 0.9), "heterophilic": (0.5, 0.1)},
            )
            for seed in (0, 1)
        ),
        "spectrum": Spectrum(
            edges=(0.0, 1.0, 2.0),
            nodes=(0.5, 0.5),
            classes={"homophilic": (1.0, 0.0), "heterophilic": (0.0, 1.0)},
            frequencies=(0.0, 1.0, 2.0),
            responses={"low": ((2.0, 1.0, 0.0),) * 2, "high": ((0.0, 1.0, 2.0),) * 2},
        ),
        "versions": {"aspect": "0.1.0", "python": "3.11"},
        "device": "cpu",
        "seconds": {"all": 1.0},
    }
    return MixtureRecord(**{**content, **changes})
