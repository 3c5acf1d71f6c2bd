"""How far answers move: the formulas, exact where nothing moves, and what a model is asked."""

import math
from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from aspect import Embedder, mixed_graph
from aspect.errors import TrainingError
from aspect.evaluation import stability
from aspect.evaluation.stability import (
    Look,
    Shift,
    look_at,
    mean_distance,
    movement,
    relative_shifts,
    turns,
)


def rows(seed, count=40, dim=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=generator, dtype=torch.float64)


def by_hand(before, after):
    """Turns and relative shifts, number by number."""
    old, new = before.tolist(), after.tolist()
    centre = [math.fsum(column) / len(old) for column in zip(*old, strict=True)]
    pairs = [math.dist(x, y) for x, y in combinations(old, 2)]
    unit = math.fsum(pairs) / len(pairs)
    turned = []
    for x, y in zip(old, new, strict=True):
        first, second = ([a - c for a, c in zip(row, centre, strict=True)] for row in (x, y))
        product = math.fsum(a * b for a, b in zip(first, second, strict=True))
        turned.append(1 - product / (math.hypot(*first) * math.hypot(*second)))
    moved = [math.dist(x, y) / unit for x, y in zip(old, new, strict=True)]
    return torch.tensor([turned, moved], dtype=torch.float64)


def measured(before, after):
    """The same by the code under test."""
    relative = relative_shifts(before, after, mean_distance(before))
    return torch.stack([turns(before, after), relative])


def test_both_measures_are_those_of_a_count_by_hand(monkeypatch):
    before, after = rows(0) + 3, rows(1) + 2
    assert_close(measured(before, after), by_hand(before, after))
    monkeypatch.setattr(stability, "ROWS_AT_ONCE", 7)  # in parts
    assert_close(measured(before, after), by_hand(before, after))
    moves = torch.arange(101.0)[torch.randperm(101, generator=torch.Generator().manual_seed(0))]
    assert Shift.of(moves) == Shift(mean=50.0, median=50.0, p95=95.0)


def test_neither_place_nor_scale_nor_direction_of_all_embeddings_counts():
    before = rows(0)
    after = before + 0.1 * rows(1)
    expected = measured(before, after)
    constant = 1e4 * torch.randn(6, generator=torch.Generator().manual_seed(2)).double()
    rotation, _ = torch.linalg.qr(rows(3, 6))
    changes = [lambda x: x + constant, lambda x: 1e-5 * x, lambda x: 1e5 * x]
    changes.append(lambda x: x @ rotation)
    for change in changes:
        assert_close(measured(change(before), change(after)), expected, rtol=1e-6, atol=1e-9)


def test_a_collapsed_embedding_does_not_look_stable():
    """A common direction, a thousand times as long as what tells the nodes apart."""
    common = torch.tensor([1e3, 0, 0, 0, 0, 0], dtype=torch.float64)
    before, after = rows(0) + common, rows(1) + common
    assert float(1 - torch.cosine_similarity(before, after).min()) < 1e-4  # what it looked like
    turn, relative = measured(before, after)
    assert float(turn.mean()) > 0.5  # nothing is left of the old direction
    assert float(relative.mean()) > 0.5


def test_a_tiny_turn_is_not_lost():
    angle = 1e-6
    before = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    after = torch.tensor([[math.cos(angle), math.sin(angle)], [-1.0, 0.0]], dtype=torch.float64)
    assert_close(turns(before, after)[0].item(), angle**2 / 2, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_what_stays_has_not_moved_at_all(kind):
    same = rows(0).to(kind)
    same[3] = 0
    assert torch.equal(measured(same, same), torch.zeros(2, 40, dtype=torch.float64))


def test_a_row_at_the_mean_has_no_direction():
    before = torch.tensor([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]])
    after = torch.tensor([[1.0, 5.0], [2.0, 5.0], [2.0, 9.0]])
    assert turns(before, after).tolist() == [0, 1, 1]
    assert turns(before, before).tolist() == [0, 0, 0]


def test_the_mean_distance_of_many_nodes_is_that_of_a_fixed_sample(monkeypatch):
    many = rows(0, 500)
    exact = mean_distance(many)
    monkeypatch.setattr(stability, "MOST_EXACT_NODES", 400)
    sampled = mean_distance(many)
    assert sampled == mean_distance(many) != exact
    assert sampled == pytest.approx(exact, rel=0.005)
    monkeypatch.setattr(stability, "PAIR_NUMBERS", 1)  # one pair after the other
    monkeypatch.setattr(stability, "SAMPLED_PAIRS", 1_000)
    assert mean_distance(many) == pytest.approx(exact, rel=0.05)
    assert mean_distance(torch.tensor([[0.0], [1.0]]).repeat(300, 1)) == pytest.approx(0.5, abs=0.1)


def test_where_all_nodes_are_the_same_nothing_can_be_measured():
    for constant in (torch.full((4, 3), 2.5), torch.ones(1, 3)):
        collapsed = Look(constant, None, {})
        with pytest.raises(TrainingError, match="All nodes have the same embedding"):
            movement(collapsed, collapsed)


def test_movements_are_of_embeddings_gate_and_bands():
    before = Look(rows(0), torch.tensor([0.2] * 40), {"low": rows(1), "high": rows(2)})
    after = Look(rows(3), torch.tensor([0.5, 0.1] * 20), {"low": rows(1), "high": rows(4)})
    found = movement(before, after)
    assert found.shift == Shift.of(turns(rows(0), rows(3)))
    relative = relative_shifts(rows(0), rows(3), mean_distance(rows(0)))
    assert found.relative_shift == Shift.of(relative)
    assert found.gate_shift == pytest.approx(0.2)
    assert list(found.band_shift) == ["low", "high"]
    assert found.band_shift["low"] == Shift(0.0, 0.0, 0.0)
    assert found.band_shift["high"] == Shift.of(turns(rows(2), rows(4)))
    assert movement(before, before).gate_shift == 0


QUICK = {"width": 8, "epochs": 1, "gate_width": 4, "device": "cpu"}


def test_a_look_asks_a_model_for_all_that_it_has():
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0).graph
    model = Embedder("aspect", **QUICK).fit(graph)
    found = look_at(model, graph)
    assert torch.equal(found.embeddings, model.embed(graph, normalise="none"))
    assert torch.equal(found.gate, model.policy(graph))
    with torch.no_grad():
        views = model.method.encode(graph).bands
    assert torch.equal(torch.stack(list(found.bands.values())), views)
    assert list(found.bands) == ["low", "high"]


@pytest.mark.parametrize("name", ["raw", "low"])
def test_what_a_model_lacks_is_left_out(name):
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0).graph
    settings = {"device": "cpu"} if name == "raw" else QUICK
    found = look_at(Embedder(name, **settings).fit(graph), graph)
    assert found.gate is None
    assert found.bands == {}
    assert movement(found, found).gate_shift is None
