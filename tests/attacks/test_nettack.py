"""Nettack: exact scores, flips at the targets alone, no label but those of training nodes."""

from dataclasses import replace

import pytest
import torch

from aspect.attacks.base import apply_flips
from aspect.attacks.file import PerturbationFile
from aspect.attacks.flip_ranking import THRESHOLD, AttackedEdges, DegreeTest
from aspect.attacks.nettack import Nettack, NettackConfig, logits_after_flips
from aspect.attacks.perturbation import Perturbation
from aspect.attacks.purification import edge_scores
from aspect.data.graph import Graph, edge_keys
from aspect.errors import GraphError, SettingsError
from aspect.evaluation.stability_request import StabilityRequest
from attacks.attempts import AttackRequest, Killed, killing, labelled_graph, plan, run, timeless
from attacks.tasks import class_task, random_task
from reference.metattack import dense_adjacency, propagated

TASK = class_task()
TARGETS = (3, 40, 71)


def found(count=None, *, target=TASK.target, **settings):
    attack = Nettack.begin(target, {"targets": TARGETS, **settings})
    return attack.find(count or Nettack.count(attack.config, target.graph))


def margin(graph, projected, node, own):
    """The slow way: the whole surrogate on the graph as it is."""
    logits = propagated(dense_adjacency(graph), projected)[node]
    return float(logits[own] - torch.cat([logits[:own], logits[own + 1 :]]).max())


@pytest.mark.parametrize("node", [0, 5, 17, 39])
@pytest.mark.parametrize("isolated", [0, 2])
def test_the_logits_after_every_flip_are_those_of_the_flipped_graph(node, isolated):
    task = random_task(isolated=isolated)
    projected = torch.randn(40, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits = logits_after_flips(AttackedEdges(task.graph).normalised(), projected, node)
    for other in set(range(40)) - {node}:
        flipped = apply_flips(task.graph, torch.tensor([[node, other]]))
        expected = propagated(dense_adjacency(flipped), projected)[node]
        torch.testing.assert_close(logits[other], expected, rtol=1e-12, atol=1e-13)


def test_every_flip_is_the_best_of_all_at_its_target():
    attack = Nettack.begin(TASK.target, {"targets": TARGETS, "flips": 4, "keep_last_edges": False})
    graph, flipped = TASK.graph, set()
    for turn in range(12):
        node = TARGETS[turn % 3]
        own = int(attack._classes[node])
        after = {
            pair: margin(apply_flips(graph, torch.tensor([pair])), attack._projected, node, own)
            for other in set(range(90)) - {node}
            if (pair := tuple(sorted((node, other)))) not in flipped
        }
        (flip,) = attack.advance(99).tolist()
        assert after[tuple(flip)] == pytest.approx(min(after.values()), abs=1e-12)
        flipped.add(tuple(flip))
        graph = apply_flips(graph, torch.tensor([flip]))


def test_flips_are_at_the_targets_and_as_many_as_allowed():
    degrees = TASK.graph.degrees()
    for flips, expected in ((3, [3, 3, 3]), (None, (degrees[list(TARGETS)] + 2).tolist())):
        pairs = found(flips=flips)
        assert len(pairs) == sum(expected)
        assert bool((pairs[:, 0] < pairs[:, 1]).all())  # no self-loop
        apply_flips(TASK.graph, pairs)  # no pair twice
        counts = [int((pairs == node).sum()) for node in TARGETS]
        # A flip between two targets is one flip, and counts at both.
        between = int(torch.isin(pairs, torch.tensor(TARGETS)).all(dim=1).sum())
        assert sum(counts) == len(pairs) + between
        assert all(count >= least for count, least in zip(counts, expected, strict=True))
    with pytest.raises(SettingsError, match="at most 9, those of all targets"):
        found(10, flips=3)


def test_the_flips_of_a_smaller_number_come_first():
    assert torch.equal(found(flips=5)[:6], found(flips=2))


def test_it_turns_the_surrogate_and_random_flips_at_the_targets_do_not():
    attack = Nettack.begin(TASK.target, {"targets": TARGETS})
    attacked = apply_flips(TASK.graph, attack.find(Nettack.count(attack.config, TASK.graph)))
    for node in TARGETS:
        own = int(attack._classes[node])
        before = margin(TASK.graph, attack._projected, node, own)
        assert margin(attacked, attack._projected, node, own) < min(before, 0)


def test_the_label_of_a_training_node_is_known_and_others_are_guessed():
    attack = Nettack.begin(TASK.target, {"targets": TARGETS})
    assert torch.equal(attack._classes[TASK.train], TASK.labels[TASK.train])
    others = torch.ones(90, dtype=torch.bool)
    others[TASK.train] = False
    labels = torch.where(others, (TASK.labels + 1) % 3, TASK.labels)
    assert torch.equal(found(target=replace(TASK, labels=labels).target), found())


def test_a_node_keeps_its_last_edge():
    leaf = 0
    pairs = torch.tensor([[0, 1, 1, 2, 3, 4, 2], [1, 2, 3, 4, 5, 6, 5]])
    graph = Graph.build(torch.eye(7, dtype=torch.float64), pairs)
    target = replace(TASK.target, graph=graph, labels=torch.arange(7) % 2, train=torch.arange(7))
    flips = found(6, target=replace(target, num_classes=2), targets=(1, 2), flips=3)
    assert bool((apply_flips(graph, flips).degrees() > 0).all())
    assert [leaf, 1] not in flips.tolist()


def test_the_test_of_degrees_and_the_edge_score_bind():
    flips = found(flips=2, unnoticeable=True)
    now = apply_flips(TASK.graph, flips).degrees()
    assert DegreeTest(TASK.graph.degrees(), now).ratio < THRESHOLD
    bound = found(flips=2, avoid_below=0.3, avoid_score="features")
    assert not torch.equal(bound, found(flips=2))
    floor = edge_scores(TASK.graph, "features").sort().values
    floor = floor[int(0.3 * len(floor))]
    for flip in bound:
        key = int(flip[0] * 90 + flip[1])
        graph = TASK.graph if key in edge_keys(TASK.graph) else apply_flips(TASK.graph, flip[None])
        score = edge_scores(graph, "features")[edge_keys(graph) == key]
        assert float(score) >= float(floor) - 1e-9
    with pytest.raises(SettingsError, match="Number of flips at node 3 must be smaller"):
        found(flips=60, targets=(3,), unnoticeable=True)


def test_a_killed_attack_ends_with_the_same_bytes(tmp_path):
    planned = plan(labelled_graph(), "nettack", flips=4, targets=(3, 8))
    assert planned.facts.wanted == 8
    path = tmp_path / "cut"
    with pytest.raises(Killed):
        run(planned, path, on_progress=killing(3))
    assert 0 < len(PerturbationFile.read(path).keys) < 8
    again, whole = run(planned, path, resume=True), run(planned, tmp_path / "whole")
    assert timeless(tmp_path / "a", again) == timeless(tmp_path / "b", whole)
    perturbation = whole.perturbation(mode="evade")
    assert perturbation.features is False
    assert len(whole.flips(perturbation.budget)) == 8
    assert planned.working_bytes > 0


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "none is named. Name some: --target-node NODE"),
        ({"targets": (90, 3, -1)}, r"nodes from 0 to 89\. Got 90, -1"),
        ({"targets": (3, 4, 3)}, "different nodes. Got twice: 3"),
        ({"targets": (3,), "flips": 0}, "flips"),
        ({"targets": (3,), "flips": 90}, r"from 1 to 89, its pairs\. Got 90"),
    ],
)
def test_wrong_targets_are_one_sentence(settings, told):
    with pytest.raises((GraphError, SettingsError), match=told) as error:
        Nettack.begin(TASK.target, settings)
    assert "\n" not in str(error.value)


def test_a_target_needs_an_edge_and_the_attack_no_budget():
    task = random_task(isolated=2)
    alone = int((task.graph.degrees() == 0).nonzero()[0])
    with pytest.raises(GraphError, match=f"must have an edge. Got nodes without one: {alone}"):
        Nettack.begin(task.target, {"targets": (alone,)})
    with pytest.raises(SettingsError, match=r"flips at each target, and no budget\. Got 0\.1"):
        AttackRequest(kind="nettack", budget=0.1).given_settings()


def test_where_no_target_can_be_named_it_is_refused():
    with pytest.raises(SettingsError, match="nettack attacks single nodes, and stability"):
        StabilityRequest(["nettack"])
    assert Perturbation(kind="nettack", budget=0.1).features is False
    assert NettackConfig().targets == ()
