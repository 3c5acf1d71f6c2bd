import math

import pytest
import torch
from torch.testing import assert_close

from aspect.losses.intra_view import intra_view_info_nce
from aspect.losses.others import log_sum_of_others
from reference import contrast


def pair(nodes=9, dim=5, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    shared = torch.randn(nodes, dim, dtype=dtype, generator=generator)
    return tuple(
        (shared + 0.5 * torch.randn(nodes, dim, dtype=dtype, generator=generator)).requires_grad_()
        for _ in range(2)
    )


def weighed(found):
    generator = torch.Generator().manual_seed(5)
    by_row, by_column = torch.randn(2, len(found.rows), dtype=torch.float64, generator=generator)
    return (by_row * found.rows).sum() + (by_column * found.columns).sum()


@pytest.mark.parametrize("temperature", [0.1, 0.4, 2.0])
def test_both_directions_equal_the_loop(temperature):
    queries, keys = pair()
    found = intra_view_info_nce(queries, keys, temperature)
    assert_close(found.rows, contrast.intra_view(queries, keys, temperature))
    assert_close(found.columns, contrast.intra_view(keys, queries, temperature))


@pytest.mark.parametrize("block", [1, 7, 9, None])
def test_gradients_equal_those_of_the_loop(block):
    queries, keys = pair()
    found = intra_view_info_nce(queries, keys, 0.3, block=block)
    slow = type(found)(
        contrast.intra_view(queries, keys, 0.3), contrast.intra_view(keys, queries, 0.3)
    )
    expected = torch.autograd.grad(weighed(slow), (queries, keys))
    assert_close(torch.autograd.grad(weighed(found), (queries, keys)), expected)


def test_gradients_are_exact():
    def losses(queries, keys):
        found = intra_view_info_nce(queries, keys, 0.5, block=4)
        return found.rows, found.columns

    assert torch.autograd.gradcheck(losses, pair(nodes=6, dim=3))


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_equal_rows_cannot_be_told_apart(temperature):
    same = torch.ones(8, 3, dtype=torch.float64)
    found = intra_view_info_nce(same, same, temperature).symmetric
    assert_close(found, torch.full((8,), math.log(15), dtype=torch.float64))


def test_warm_similarities_say_nothing():
    found = intra_view_info_nce(*pair(nodes=8), 1e9).symmetric.mean()
    assert found.item() == pytest.approx(math.log(15))


def test_orthonormal_rows_have_a_closed_form():
    basis = torch.eye(6, dtype=torch.float64)
    expected = math.log(1 + 10 * math.exp(-1 / 0.4))
    found = intra_view_info_nce(basis, basis, 0.4).rows
    assert_close(found, torch.full((6,), expected, dtype=torch.float64))


def test_exchanged_rotated_and_scaled_views():
    queries, keys = pair()
    found = intra_view_info_nce(queries, keys, 0.3)
    back = intra_view_info_nce(keys, queries, 0.3)
    assert_close(found.rows, back.columns)
    turn = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0]
    lengths = torch.linspace(0.1, 9, 9, dtype=torch.float64).unsqueeze(1)
    assert_close(intra_view_info_nce(lengths * queries @ turn, keys @ turn, 0.3).rows, found.rows)


def test_a_node_alone_has_no_loss():
    queries, keys = pair(nodes=1)
    found = intra_view_info_nce(queries, keys, 0.3)
    assert_close(found.symmetric, torch.zeros(1, dtype=torch.float64))
    for gradient in torch.autograd.grad(found.symmetric.sum(), (queries, keys)):
        assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


def test_rows_of_zeros_are_served_and_get_no_gradient():
    queries, keys = (x.detach().clone() for x in pair())
    queries[2] = 0
    queries.requires_grad_(), keys.requires_grad_()
    found = intra_view_info_nce(queries, keys, 0.3)
    assert found.rows[2].item() == pytest.approx(math.log(17))
    gradients = torch.autograd.grad(found.symmetric.sum(), (queries, keys))
    assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
    assert not bool(gradients[0][2].any())


@pytest.mark.parametrize("temperature", [0.005, 0.02, 0.03])
def test_low_temperatures_are_stable_in_float32(temperature):
    queries, keys = pair(dtype=torch.float32)
    found = intra_view_info_nce(queries, keys, temperature)
    expected = contrast.intra_view(queries.double(), keys.double(), temperature)
    assert found.rows.dtype == torch.float32
    assert_close(found.rows.double(), expected, rtol=1e-4, atol=1e-4)
    for gradient in torch.autograd.grad(found.symmetric.sum(), (queries, keys)):
        assert torch.isfinite(gradient).all()


def test_the_node_itself_is_left_out_although_it_outweighs_all():
    # exp(1 / 0.026) is 5e16: subtracting it from the sum would leave nothing but rounding.
    x = torch.eye(4, dtype=torch.float32)
    assert_close(log_sum_of_others(x, 0.026), torch.full((4,), math.log(3)))


def test_no_second_derivative():
    (x, _) = pair()
    (slope,) = torch.autograd.grad(log_sum_of_others(x, 0.3).sum(), x, retain_graph=True)
    assert slope.shape == x.shape
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(log_sum_of_others(x, 0.3).sum(), x, create_graph=True)


def test_temperatures_that_are_too_low_are_refused():
    with pytest.raises(ValueError, match=r"Temperature of InfoNCE must be at least"):
        log_sum_of_others(torch.eye(3), 0.001)
