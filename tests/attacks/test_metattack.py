"""The attack as a whole: exact budgets, nested, resumable, blind to labels it must not see."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from aspect.attacks import meta_gradient
from aspect.attacks.base import Target, apply_flips, flips_within
from aspect.attacks.drawn import random_flips
from aspect.attacks.flip_ranking import THRESHOLD, DegreeTest
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.data.graph import Graph
from aspect.errors import GraphError, SettingsError, TrainingError
from attacks.graphs import edge_set
from attacks.tasks import class_task
from reference.metattack import (
    attack_loss,
    dense_adjacency,
    first_order_meta_gradient,
    fitted,
    loss_at_optimum,
    propagated,
    unrolled_meta_gradient,
)


def attacked(task, count, settings=None, seed=0, **changes):
    given = {"labels": task.labels, "train": task.train, "graph": task.graph} | changes
    target = Target(num_classes=task.num_classes, **given)
    return Metattack(target, settings or config(), seed=seed).find(count)


SOLVERS = ["implicit", "unrolled"]


def config(solver="implicit", **settings):
    return MetattackConfig(
        **{"solver": solver, "flips_per_gradient": 4, "inner_steps": 15} | settings
    )


@pytest.fixture(scope="module")
def task():
    return class_task()


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_smaller_budget_is_a_prefix_and_the_same_seed_gives_the_same(task, solver):
    longer = attacked(task, 40, config(solver))
    for count in (1, 7):
        assert torch.equal(attacked(task, count, config(solver)), longer[:count])
    backwards = attacked(task, 40, config(solver), train=task.train.flip(0))
    assert torch.equal(backwards, longer)
    other_seed = attacked(task, 40, config(solver), seed=1)
    assert torch.equal(other_seed, longer) is (solver == "implicit")  # it draws no weights
    assert longer.shape == (40, 2)
    assert bool((longer[:, 0] < longer[:, 1]).all())
    after = apply_flips(task.graph, longer)
    assert len(edge_set(after) ^ edge_set(task.graph)) == 40
    assert not bool(((task.graph.degrees() > 0) & (after.degrees() == 0)).any())


@pytest.mark.parametrize(
    ("solver", "dtype"), [("implicit", torch.float32), ("unrolled", torch.float64)]
)
def test_renumbered_nodes_are_flipped_as_before(solver, dtype):
    task = class_task(dtype=dtype)
    order = torch.randperm(task.graph.num_nodes, generator=torch.Generator().manual_seed(3))
    new = torch.argsort(order)  # the number that a node gets
    graph = Graph.build(task.graph.features[order], new[task.graph.edge_index])
    flips = attacked(task, 30, config(solver))
    renumbered = attacked(
        task, 30, config(solver), graph=graph, labels=task.labels[order], train=new[task.train]
    )
    assert torch.equal(renumbered, new[flips].sort(dim=1).values)


def test_the_scale_of_the_features_changes_nothing(task):
    larger = Graph.build(10 * task.graph.features, task.graph.edge_index)
    assert torch.equal(attacked(task, 30), attacked(task, 30, graph=larger))
    zeros = Graph.build(torch.zeros_like(task.graph.features), task.graph.edge_index)
    assert len(attacked(task, 6, graph=zeros)) == 6


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("at", [0, 17])
def test_an_interrupted_attack_goes_on_to_the_same_flips(task, solver, at):
    settings = config(solver, unnoticeable=True)
    expected = attacked(task, 30, settings)
    first = Metattack(task.target, settings, seed=0)
    while first.made < at:
        first.advance(at - first.made)
    stored = {name: tensor.clone() for name, tensor in first.state().items()}
    second = Metattack(task.target, settings, seed=0, state=stored)
    assert torch.equal(second.flips, expected[:at])
    while second.made < 30:
        second.advance(30 - second.made)
    assert torch.equal(second.flips, expected)


@pytest.mark.parametrize("train_weight", [0.0, 1.0])
def test_the_loss_of_a_retrained_surrogate_rises_above_that_of_random_flips(task, train_weight):
    settings = config(train_weight=train_weight)
    state = Metattack(task.target, settings, seed=0).state()
    count = flips_within(0.2, task.graph)
    ridge = settings.ridge * float(state["mean_square"])
    chance = random_flips(task.graph, count, torch.Generator().manual_seed(0))

    def loss(graph):
        return float(
            loss_at_optimum(
                graph,
                dense_adjacency(graph),
                state["classes"],
                task.train,
                3,
                ridge,
                train_weight,
            )
        )

    clean = loss(task.graph)
    random = loss(apply_flips(task.graph, chance))
    worst = loss(apply_flips(task.graph, attacked(task, count, settings)))
    assert worst > max(clean, random) + abs(random - clean)


def test_classes_are_guessed_by_a_fit_of_their_own(task):
    state = Metattack(task.target, config(), seed=0).state()
    s = propagated(dense_adjacency(task.graph), task.graph.features)
    mean_square = float(s[task.train].square().sum(1).mean())
    assert float(state["mean_square"]) == pytest.approx(mean_square)
    guess = (s @ fitted(s, task.labels, task.train, 3, 2e-4 * mean_square)).argmax(1)
    guess[task.train] = task.labels[task.train]
    assert float((guess == state["classes"]).double().mean()) > 0.98
    assert torch.equal(state["classes"][task.train], task.labels[task.train])
    trained = fitted(s, task.labels, task.train, 3, 5e-3 * mean_square)
    torch.testing.assert_close(state["weights"], trained, rtol=0, atol=1e-2)


@pytest.mark.parametrize("first_order", [None, True])
def test_one_flip_at_a_time_follows_the_dense_unrolled_gradient(task, first_order, monkeypatch):
    """Each flip is the best allowed one of the plain form, from the same first weights."""
    from aspect.attacks import metattack as module

    seen = []
    build = module.Descent
    monkeypatch.setattr(
        module, "Descent", lambda **fields: seen.append(build(**fields)) or build(**fields)
    )
    settings = config("unrolled", flips_per_gradient=1, first_order=first_order)
    attack = Metattack(task.target, settings, seed=0)
    derive = first_order_meta_gradient if first_order else unrolled_meta_gradient
    graph, classes = task.graph, attack.state()["classes"]
    for _ in range(5):
        done = attack.flips
        (flip,) = attack.advance(1).tolist()
        gradient = derive(graph, classes, task.train, (seen[-1].first, seen[-1].second), steps=15)
        matrix = dense_adjacency(graph)
        worth = gradient * (1 - 2 * matrix)
        degrees = matrix.sum(1)
        last = (matrix > 0) & ((degrees[:, None] <= 1) | (degrees <= 1))
        worth[last | torch.eye(len(worth), dtype=torch.bool)] = -torch.inf
        worth[done[:, 0], done[:, 1]] = worth[done[:, 1], done[:, 0]] = -torch.inf
        assert sorted(divmod(int(worth.argmax()), len(worth))) == flip
        graph = apply_flips(task.graph, attack.flips)


def test_to_the_first_order_the_trained_weights_are_constants(task):
    settings = config(flips_per_gradient=1, first_order=True, keep_last_edges=False)
    attack = Metattack(task.target, settings, seed=0)
    classes = attack.state()["classes"]
    (flip,) = attack.advance(1).tolist()
    adjacency = dense_adjacency(task.graph).requires_grad_()
    logits = propagated(adjacency, task.graph.features) @ attack.state()["weights"]
    loss = attack_loss(logits, classes, task.train)
    (gradient,) = torch.autograd.grad(loss, adjacency)
    worth = (gradient + gradient.t()) * (1 - 2 * adjacency.detach())
    worth.fill_diagonal_(-torch.inf)
    assert sorted(divmod(int(worth.argmax()), len(worth))) == flip


def test_degrees_look_as_before_where_asked_for(task):
    count = flips_within(0.2, task.graph)
    plain, careful = (
        apply_flips(task.graph, attacked(task, count, config(unnoticeable=on))).degrees()
        for on in (False, True)
    )
    clean = task.graph.degrees()
    assert DegreeTest(clean, careful).ratio < THRESHOLD
    assert DegreeTest(clean, plain).ratio > THRESHOLD


def test_every_pair_can_be_flipped_but_the_last_edges():
    task = class_task(9, seed=2)
    pairs = 9 * 8 // 2
    everything = attacked(task, pairs, config(keep_last_edges=False))
    assert len({tuple(pair) for pair in everything.tolist()}) == pairs
    assert edge_set(apply_flips(task.graph, everything)).isdisjoint(edge_set(task.graph))
    complete = Graph.build(task.graph.features, torch.combinations(torch.arange(9)).t())
    with pytest.raises(SettingsError, match=r"must be at most \d+ here: every further one"):
        attacked(task, pairs, graph=complete)


def test_flips_per_gradient_depend_on_the_graph_alone():
    sizes = {  # nodes and edges of the graphs of the benchmark
        "cora": (2708, 5278, 20, 10),
        "citeseer": (3327, 4552, 20, 10),
        "chameleon": (2277, 31371, 50, 30),
        "actor": (7600, 26659, 50, 50),
        "pubmed": (19717, 44324, 50, 50),
        "squirrel": (5201, 198353, 100, 100),
        "small": (30, 60, 1, 1),
    }

    for nodes, edges, implicit, unrolled in sizes.values():
        graph = Graph(torch.zeros(nodes, 1), torch.zeros(2, 2 * edges, dtype=torch.long))
        assert MetattackConfig().flips_at_once(graph) == implicit
        assert MetattackConfig(solver="unrolled").flips_at_once(graph) == unrolled
        assert MetattackConfig(flips_per_gradient=7).flips_at_once(graph) == 7


@pytest.mark.parametrize("solver", SOLVERS)
def test_training_that_leaves_the_numbers_is_said(task, solver):
    graph = Graph(1e250 * task.graph.features, task.graph.edge_index)  # which `build` refuses
    with pytest.raises(TrainingError, match=rf"solver '{solver}'.* not finite\. Scale"):
        attacked(task, 3, config(solver), graph=graph)


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_that_are_formed_as_on_a_gpu_give_the_same_flips(task, solver, monkeypatch):
    expected = attacked(task, 20, config(solver))
    monkeypatch.setitem(meta_gradient.MOST_FORMED_ENTRIES, "cpu", 10_000)
    assert torch.equal(attacked(task, 20, config(solver)), expected)


MEMORY_SCRIPT = """
import re
from pathlib import Path
import torch
from aspect.attacks.base import Target
from aspect.attacks.metattack import Metattack, MetattackConfig
from aspect.data.graph import Graph

torch.set_num_threads(1)
torch.manual_seed(0)
graph = Graph.build(torch.randn(20_000, 50), torch.randint(0, 20_000, (2, 40_000)))
target = Target(graph, torch.randint(0, 3, (20_000,)), torch.arange(10_000), 3)
for solver in ("implicit", "unrolled"):
    Metattack(target, MetattackConfig(solver=solver, inner_steps=20), seed=0).advance(1)
print(re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="there is no /proc")
def test_twenty_thousand_nodes_take_less_than_a_gibibyte():
    answer = subprocess.run(
        [sys.executable, "-c", MEMORY_SCRIPT],
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )
    kibibytes = int(answer.stdout)
    assert 0 < kibibytes < 2**20  # one matrix of all pairs would have 1.5 GiB


def test_what_cannot_be_attacked_is_refused(task):
    empty = Graph.build(task.graph.features, torch.zeros(2, 0, dtype=torch.long))
    everything = torch.arange(task.graph.num_nodes)
    with pytest.raises(GraphError, match="needs edges to flip"):
        attacked(task, 3, graph=empty)
    with pytest.raises(GraphError, match="outside of the training set"):
        attacked(task, 3, train=everything)
    assert len(attacked(task, 5, config(train_weight=1.0), train=everything)) == 5
    attack = Metattack(task.target, config(), seed=0)
    with pytest.raises(SettingsError, match=r"1 or more\. Got 0"):
        attack.advance(0)


@pytest.mark.gpu
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_gpu_finds_the_same_flips(task, solver):
    flips = attacked(task, 20, config(solver), graph=task.graph.to("cuda"))
    assert torch.equal(flips, attacked(task, 20, config(solver)))
