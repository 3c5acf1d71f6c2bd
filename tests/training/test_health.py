from itertools import combinations

import pytest
import torch
from torch.nn.functional import cosine_similarity

from aspect.errors import TrainingError
from aspect.training import health
from aspect.training.health import Health


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow(rows):
    """All numbers by their definitions, one pair at a time."""
    cosines = [
        cosine_similarity(rows[i], rows[j], dim=0) for i, j in combinations(range(len(rows)), 2)
    ]
    singular = torch.linalg.svdvals(rows)
    ratios = singular / singular.sum()
    entropy = -sum(ratio * ratio.log() for ratio in ratios if ratio > 0)
    outside = (rows - rows.mean(dim=0)).square().sum()
    return {
        "mean_cosine": float(torch.stack(cosines).mean()),
        "variance_share": float(outside / rows.square().sum()),
        "effective_rank": float(entropy.exp()),
        "min_norm": min(float(row.norm()) for row in rows),
        "max_norm": max(float(row.norm()) for row in rows),
        "nodes": len(rows),
        "dim": rows.shape[1],
    }


@pytest.mark.parametrize("shape", [(30, 6), (6, 30), (2, 5), (7, 1)])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_agrees_with_the_definitions(shape, shift):
    rows = normal(*shape) + shift
    assert Health.of(rows).to_dict() == pytest.approx(slow(rows))


def test_it_comes_back_from_a_record_as_it_was():
    healthy = Health.of(normal(30, 6))
    told = {name: float(value) for name, value in healthy.to_dict().items()}
    assert Health.from_dict(told) == healthy


def test_a_zero_row_has_cosine_zero_with_all_others():
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert Health.of(rows).mean_cosine == pytest.approx(1 / 3)
    assert Health.of(rows).min_norm == 0


def test_parts_make_the_whole(monkeypatch):
    rows = normal(50, 4)
    whole = Health.of(rows)
    monkeypatch.setattr(health, "ROWS_AT_ONCE", 7)
    assert Health.of(rows).to_dict() == pytest.approx(whole.to_dict())


def test_rank_of_a_large_graph_is_that_of_evenly_spread_rows(monkeypatch):
    rows = normal(1000, 4)
    monkeypatch.setattr(health, "ROWS_OF_RANK", 112)
    assert Health.of(rows).effective_rank == pytest.approx(slow(rows[::9])["effective_rank"])


def test_scale_does_not_matter():
    rows = normal(40, 6) + 1
    for scale in (1e-30, 1e30, 1e200):
        scaled = Health.of(scale * rows)
        assert scaled.mean_cosine == pytest.approx(Health.of(rows).mean_cosine)
        assert scaled.effective_rank == pytest.approx(Health.of(rows).effective_rank)
        assert scaled.max_norm == pytest.approx(scale * Health.of(rows).max_norm)


@pytest.mark.parametrize("shape", [(40, 6), (2, 6), (40, 1), (1, 6), (300, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_healthy_embeddings_have_no_warning(shape, dtype):
    healthy = Health.of(normal(*shape).to(dtype))
    assert not healthy.is_collapsed
    assert healthy.warnings() == []


def test_one_positive_dimension_is_no_collapse_but_one_constant_is():
    assert not Health.of(normal(40, 1).abs()).is_collapsed
    assert Health.of(torch.ones(40, 1)).is_collapsed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("nodes", [2, 40])
def test_a_common_direction_is_a_collapse(nodes, dtype):
    """The shift is in one dimension, so that centring would show nothing of it."""
    rows = normal(nodes, 6)
    rows[:, 0] += 100
    shifted = Health.of(rows.to(dtype))
    assert shifted.is_collapsed
    assert not Health.of(rows - rows.mean(0)).has_common_direction
    (sentence,) = shifted.warnings()
    assert f"mean cosine of two nodes is {shifted.mean_cosine:.4f}" in sentence
    assert "Try" in sentence


def test_zero_rows_are_a_collapse():
    (sentence,) = Health.of(torch.zeros(40, 6)).warnings()
    assert "every embedding is zero" in sentence


def test_a_line_is_a_collapse_by_rank():
    line = Health.of((normal(100, 1) * normal(1, 64, seed=1)).float())
    assert line.effective_rank == pytest.approx(1, abs=1e-3)
    assert not line.has_common_direction
    (sentence,) = line.warnings()
    assert "effective rank is 1.0 of 64" in sentence


def test_rank_is_measured_against_the_nodes_where_they_are_fewer_than_the_width():
    few = normal(20, 2) @ normal(2, 512, seed=1)
    assert not Health.of(few).has_low_rank  # about 2 of 20
    assert Health.of(few.repeat(30, 1)).has_low_rank  # about 2 of 512


def test_what_is_not_a_number_is_refused():
    rows = normal(40, 6)
    rows[3, 2] = torch.nan
    with pytest.raises(TrainingError, match="embeddings of 1 nodes are not finite"):
        Health.of(rows)
