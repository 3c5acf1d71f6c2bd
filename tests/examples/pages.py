"""The examples in small: seconds instead of minutes."""

from functools import cache

from aspect import mixed_graph
from aspect.examples.demo import run_demo
from aspect.examples.theory import TheoryScope, run_theory

SETTINGS = {"epochs": 3, "width": 4, "order": 2, "gate_width": 4, "readout": "fused"}
SCOPE = TheoryScope(
    shares=(0.0, 0.5),
    purities=(0.5, 0.9),
    seeds=(0, 1),
    nodes=60,
    epochs=3,
    width=6,
    mixes=21,
    perturbations=2,
)
FACTS = {"Command": "aspect demo --seeds 2"}


def small_graph():
    return mixed_graph(num_nodes=80, num_features=6, seed=0)


@cache
def small_demo(seeds=(0, 1)):
    calls = []
    demo = run_demo(
        seeds,
        labelled=small_graph(),
        settings=SETTINGS,
        num_splits=2,
        device="cpu",
        advance=lambda *call: calls.append(call),
    )
    assert [done for done, _, _ in calls] == list(range(calls[0][1] + 1))
    return demo


@cache
def small_theory(scope=SCOPE):
    return run_theory(scope, {"order": 2, "temperature": 0.7}, device="cpu")
