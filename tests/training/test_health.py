import pytest
import torch

from aspect.training.health import collapse_of


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_a_healthy_embedding_has_no_complaint():
    assert collapse_of(normal(40, 6)) is None
    assert collapse_of(normal(40, 6).float()) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_embedding_for_all_nodes(dtype):
    same = normal(1, 6).expand(40, 6).to(dtype)
    assert "the same one" in collapse_of(same)
    assert "the same one" in collapse_of(same + 1e-6 * normal(40, 6).to(dtype))
    assert "the same one" in collapse_of(torch.zeros(40, 6, dtype=dtype))


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_all_nodes_on_one_line(offset):
    line = offset + normal(40, 1) * normal(1, 6, seed=1)
    assert torch.linalg.matrix_rank(line - line.mean(0)) == 1
    assert "rank 1" in collapse_of(line)
    assert "rank 1" in collapse_of(line.float())
    assert collapse_of(line + 0.01 * normal(40, 6, seed=2)) is None


def test_agrees_with_the_singular_values_where_two_axes_are_close():
    """Power steps converge slowly here, and must not call it a line."""
    values = torch.tensor([1.0, 0.999, 0.01])
    rows = torch.linalg.qr(normal(40, 3))[0] * values
    assert collapse_of(rows - rows.mean(0)) is None


def test_what_can_only_be_a_line_is_none_of_ours_to_blame():
    assert collapse_of(normal(40, 1)) is None
    assert collapse_of(normal(2, 6)) is None


def test_the_scale_does_not_matter():
    healthy, line = normal(40, 6), normal(40, 1) * normal(1, 6, seed=1)
    for scale in (1e-12, 1e12):
        assert collapse_of(scale * healthy) is None
        assert "rank 1" in collapse_of(scale * line)
