"""Cosines and the losses made of them: bootstrap, information hinge, top similarities."""

import pytest
import torch
from torch.testing import assert_close

from aspect.losses.similarity import (
    cosines,
    directions,
    top_similarity_loss,
)


def rows(nodes=8, dim=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, dim, dtype=torch.float64, generator=generator).requires_grad_()


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class TestCosine:
    def test_directions_have_length_one_and_zeros_stay(self):
        x = rows().detach().clone()
        x[3] = 0
        lengths = directions(x).norm(dim=1)
        assert_close(lengths, (torch.arange(8) != 3).double())

    def test_zeros_get_no_gradient_and_spoil_none(self):
        x = rows().detach().clone()
        x[3] = 0
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(cosines(x, rows(seed=1)).sum(), x)
        assert torch.isfinite(gradient).all()
        assert not bool(gradient[3].any())
        assert bool(gradient[2].any())

    def test_it_is_torchs_similarity(self):
        one, other = rows(), rows(seed=1)
        assert_close(cosines(one, other), torch.cosine_similarity(one, other))
        assert torch.autograd.gradcheck(cosines, (one, other))


class TestTopSimilarity:
    def test_gradients_flow_on_both_sides_of_a_similarity(self):
        x = rows(5)
        loss = top_similarity_loss(x, 2, 3, generator())
        (found,) = torch.autograd.grad(loss, x)
        step = 1e-6 * torch.randn(5, 4, dtype=torch.float64, generator=generator(1))
        with torch.no_grad():
            change = top_similarity_loss(x + step, 2, 3, generator()) - top_similarity_loss(
                x - step, 2, 3, generator()
            )
        assert change.item() == pytest.approx(2 * (found * step).sum().item(), rel=1e-5)

    @pytest.mark.parametrize("positives", [0, 9])
    def test_more_positives_than_nodes_are_refused(self, positives):
        with pytest.raises(ValueError, match=r"between 1 and the sample's 8\. Got"):
            top_similarity_loss(rows(), positives, 3, generator())
