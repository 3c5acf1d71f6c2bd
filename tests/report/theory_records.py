"""A theory record made by hand, so that every number of its page is known."""

from aspect.evaluation.theory_record import (
    Case,
    Example,
    Scope,
    Sensitivity,
    TheoryRecord,
    TradeOff,
)

SHARES, PURITIES, SEEDS = (0.0, 0.5, 1.0), (0.5, 0.9), (0, 1)
REGIONS = ("homophilic", "heterophilic")


def case(purity, share, seed, keys, **changes):
    """At 0.9 regret is 0.2 with equal regions and 0 with one; seeds lie 0.01 apart."""
    regret = (0.195 + 0.01 * seed) if (purity, share) == (0.9, 0.5) else 0.0
    regret = regret if purity == 0.9 else 0.004
    regret = 0.05 if keys == "own" else regret
    mixes = {REGIONS[0]: 0.9, REGIONS[1]: 0.2} if purity == 0.9 else dict.fromkeys(REGIONS, 0.5)
    kept = {0.0: REGIONS[:1], 0.5: REGIONS, 1.0: REGIONS[1:]}[share]
    content = {
        "share": share,
        "purity": purity,
        "seed": seed,
        "keys": keys,
        "regret": regret,
        "best_mix": 0.5,
        "bound": regret / 4,
        "growth": 1.0,
        "prefers_high": 0.3,
        "prefers_low": 0.4,
        "gap": 1.0,
        "best_mixes": {name: mixes[name] for name in kept},
    }
    return Case(**{**content, **changes})


def example(purity):
    return Example(
        purity=purity,
        mixes=(0.0, 0.5, 1.0),
        curves={
            REGIONS[0]: ((0.4, 0.1, 0.0), (0.6, 0.2, 0.0)),
            REGIONS[1]: ((0.0, 0.1, 0.4), (0.0, 0.2, 0.6)),
        },
        mean=(0.25, 0.15, 0.25),
        best_mixes={REGIONS[0]: (1.0, 0.8), REGIONS[1]: (0.0, 0.0)},
    )


def trade_off(purity, **changes):
    content = {
        "purity": purity,
        "mixes": (0.0, 1.0),
        "rise": dict.fromkeys(REGIONS, (0.1, 0.1)),
        "shift": dict.fromkeys(REGIONS, (0.4, 0.4)),
        "bound": dict.fromkeys(REGIONS, (0.5, 0.5)),
        "low": {REGIONS[0]: (0.1, 0.2), REGIONS[1]: (0.5, 0.6)},
        "high": {REGIONS[0]: (0.5, 0.6), REGIONS[1]: (0.1, 0.2)},
        "sensitivities": (
            Sensitivity(region=REGIONS[0], kind="all", low=0.15, high=0.55),
            Sensitivity(region=REGIONS[1], kind="all", low=0.55, high=0.15),
        ),
        "pairs": 8,
        "broken": 0,
        "tightest": 0.3,
        "moved": 0.25,
    }
    return TradeOff(**{**content, **changes})


def make_theory_record(**changes):
    content = {
        "command": "aspect theory --seed 0",
        "versions": {"aspect": "0.1.0", "python": "3.11"},
        "scope": Scope(shares=SHARES, purities=PURITIES, seeds=SEEDS, nodes=4, mixes=3),
        "temperature": 1.0,
        "settings": {"order": 5, "readout": "fused", "patience": None},
        "settings_from": "made by hand",
        "cases": tuple(
            case(purity, share, seed, keys)
            for purity in PURITIES
            for share in SHARES
            for seed in SEEDS
            for keys in ("class", "own")
        ),
        "examples": tuple(example(purity) for purity in PURITIES),
        "trade_offs": tuple(trade_off(purity) for purity in PURITIES),
        "device": "cpu",
        "seconds": 1.0,
    }
    return TheoryRecord(**{**content, **changes})
