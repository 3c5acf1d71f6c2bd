import pytest
import torch
from torch.testing import assert_close

from aspect.nn.gate import fuse, read_out


@pytest.fixture(params=[1, 2, 3])
def bands(request):
    return request.param


@pytest.fixture
def views(bands):
    return torch.randn(bands, 5, 4, dtype=torch.float64)


@pytest.fixture
def weights(bands):
    return torch.rand(5, bands, dtype=torch.float64).softmax(1)


def test_fusion_is_the_weighted_sum_node_by_node(views, weights):
    expected = torch.stack(
        [sum(weights[v, b] * views[b, v] for b in range(len(views))) for v in range(5)]
    )
    assert_close(fuse(views, weights), expected)


def test_weight_one_keeps_that_band_alone(views, bands):
    chosen = torch.arange(5) % bands
    weights = torch.nn.functional.one_hot(chosen, bands).double()
    expected = torch.stack([views[chosen[v], v] for v in range(5)])
    assert_close(fuse(views, weights), expected, rtol=0, atol=0)


def test_gate_zero_and_one_of_two_bands():
    views = torch.randn(2, 3, 4)
    gate = torch.tensor([1.0, 0.0, 0.25])
    fused = fuse(views, torch.stack([gate, 1 - gate], dim=1))
    assert_close(fused[0], views[0, 0], rtol=0, atol=0)
    assert_close(fused[1], views[1, 1], rtol=0, atol=0)
    assert_close(fused[2], 0.25 * views[0, 2] + 0.75 * views[1, 2])


def test_equal_bands_fuse_to_themselves_whatever_the_weights(weights, bands):
    view = torch.randn(5, 4, dtype=torch.float64)
    assert_close(fuse(view.expand(bands, 5, 4), weights), view)


def test_readouts(views, weights, bands):
    assert_close(read_out(views, weights, "fused"), fuse(views, weights), rtol=0, atol=0)
    side_by_side = read_out(views, weights, "concatenated")
    assert side_by_side.shape == (5, 4 * bands)
    weighted = read_out(views, weights, "weighted")
    for band in range(bands):
        columns = slice(4 * band, 4 * band + 4)
        assert_close(side_by_side[:, columns], views[band], rtol=0, atol=0)
        assert_close(weighted[:, columns], weights[:, band : band + 1] * views[band])


def test_parts_of_the_weighted_readout_add_up_to_the_fused_one(views, weights, bands):
    parts = read_out(views, weights, "weighted").view(5, bands, 4)
    assert_close(parts.sum(1), fuse(views, weights))


def test_fusion_passes_exact_gradients(views, weights):
    inputs = views.requires_grad_(), weights.detach().requires_grad_()
    assert torch.autograd.gradcheck(fuse, inputs)
