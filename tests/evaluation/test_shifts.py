"""How far answers move: the formulas, exact where nothing moves, and what a model is asked."""

import math

import pytest
import torch
from torch.testing import assert_close

from aspect import Embedder, mixed_graph
from aspect.evaluation import shifts
from aspect.evaluation.shifts import Look, Shift, look_at, movement, relative_shifts, turns


def rows(seed, count=40, dim=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, dim, generator=generator, dtype=torch.float64)


def test_a_turn_is_one_minus_the_cosine():
    before, after = rows(0), rows(1)
    expected = [
        1 - sum(a * b for a, b in zip(x, y, strict=True)) / (math.hypot(*x) * math.hypot(*y))
        for x, y in zip(before.tolist(), after.tolist(), strict=True)
    ]
    assert_close(turns(before, after), torch.tensor(expected, dtype=torch.float64))


def test_a_turn_knows_no_length_and_a_relative_shift_does():
    before = rows(0)
    assert_close(turns(before, 3 * before), torch.zeros(40, dtype=torch.float64))
    assert_close(turns(before, -before), torch.full((40,), 2.0, dtype=torch.float64))
    assert_close(relative_shifts(before, 3 * before), torch.full((40,), 2.0, dtype=torch.float64))


def test_a_tiny_turn_is_not_lost():
    angle = 1e-6
    before = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    after = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64)
    assert_close(turns(before, after).item(), angle**2 / 2, rtol=1e-6, atol=0)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_what_stays_has_not_moved_at_all(kind):
    same = rows(0).to(kind)
    same[3] = 0
    assert torch.equal(turns(same, same), torch.zeros(40, dtype=torch.float64))
    assert torch.equal(relative_shifts(same, same), torch.zeros(40, dtype=torch.float64))


def test_a_row_of_zeros_has_no_direction_and_no_length():
    zero, one = torch.zeros(1, 3), torch.tensor([[0.0, 2.0, 0.0]])
    assert turns(zero, one).item() == turns(one, zero).item() == 1
    before = torch.cat([zero, one, 2 * one])  # lengths 0, 2 and 4: the mean is 2
    after = before + torch.tensor([[3.0, 0, 0], [0, 0, 0], [0, 0, 0]])
    assert_close(relative_shifts(before, after).tolist(), [1.5, 0.0, 0.0])
    assert relative_shifts(zero, one).item() == 2  # nothing has a length: the distance itself


def test_many_rows_are_done_in_parts(monkeypatch):
    before, after = rows(0), rows(1)
    whole = turns(before, after), relative_shifts(before, after)
    monkeypatch.setattr(shifts, "ROWS_AT_ONCE", 7)
    assert_close((turns(before, after), relative_shifts(before, after)), whole)


def test_three_numbers_of_a_hundred_and_one():
    moves = torch.arange(101.0)[torch.randperm(101, generator=torch.Generator().manual_seed(0))]
    assert Shift.of(moves) == Shift(mean=50.0, median=50.0, p95=95.0)


def test_movements_are_of_embeddings_gate_and_bands():
    before = Look(rows(0), torch.tensor([0.2] * 40), {"low": rows(1), "high": rows(2)})
    after = Look(rows(3), torch.tensor([0.5, 0.1] * 20), {"low": rows(1), "high": rows(4)})
    found = movement(before, after)
    assert found.turn == Shift.of(turns(rows(0), rows(3)))
    assert found.relative == Shift.of(relative_shifts(rows(0), rows(3)))
    assert found.gate == pytest.approx(0.2)
    assert list(found.bands) == ["low", "high"]
    assert found.bands["low"] == Shift(0.0, 0.0, 0.0)
    assert found.bands["high"] == Shift.of(turns(rows(2), rows(4)))
    assert movement(before, before).to_dict()["gate_shift"] == 0


QUICK = {"width": 8, "epochs": 1, "gate_width": 4, "device": "cpu"}


def test_a_look_asks_a_model_for_all_that_it_has():
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0).graph
    model = Embedder("aspect", **QUICK).fit(graph)
    found = look_at(model, graph)
    assert torch.equal(found.embeddings, model.embed(graph))
    assert torch.equal(found.gate, model.policy(graph))
    with torch.no_grad():
        views = model.method.see(graph).views
    assert torch.equal(torch.stack(list(found.bands.values())), views)
    assert list(found.bands) == ["low", "high"]


@pytest.mark.parametrize("name", ["raw", "low", "high"])
def test_what_a_model_lacks_is_left_out(name):
    graph = mixed_graph(num_nodes=40, degree=4.0, num_features=6, seed=0).graph
    settings = {"device": "cpu"} if name == "raw" else QUICK
    found = look_at(Embedder(name, **settings).fit(graph), graph)
    assert found.gate is None
    assert found.bands == {}
    assert movement(found, found).to_dict()["gate_shift"] is None
