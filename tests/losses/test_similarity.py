"""Cosines and the losses made of them: bootstrap, information hinge, top similarities."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity
from torch.testing import assert_close

from aspect.losses.similarity import (
    bootstrap_loss,
    cosines,
    directions,
    information_hinge,
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


class TestBootstrap:
    def test_it_runs_from_zero_to_two(self):
        x = rows()
        assert bootstrap_loss(3 * x, x).item() == pytest.approx(0)
        assert bootstrap_loss(-x, x).item() == pytest.approx(2)
        assert_close(bootstrap_loss(x, rows(seed=1)), 1 - cosines(x, rows(seed=1)).mean())

    def test_the_target_gets_no_gradient(self):
        predicted, target = rows(), rows(seed=1)
        bootstrap_loss(predicted, target).backward()
        assert target.grad is None
        assert bool(predicted.grad.any())


class TestInformationHinge:
    @staticmethod
    def plain(first, second, original, temperature):
        def bound(a, b):
            return math.exp(float(cosine_similarity(a, b, dim=0).detach()) / temperature)

        total = 0.0
        for a, b, o in zip(first, second, original, strict=True):
            between = (cosine_similarity(a, b, dim=0) / temperature).exp()
            total = total + torch.relu(2 * between - bound(a, o) - bound(b, o))
        return total / len(first)

    def test_value_and_gradients_are_those_of_the_formula(self):
        first, second, original = (rows(9, seed=seed) for seed in range(3))
        hinge = information_hinge(first, second, original, 0.4)
        expected = self.plain(first, second, original, 0.4)
        assert float(hinge.detach()) > 0
        assert_close(hinge, expected)
        views = first, second
        expected_gradients = torch.autograd.grad(expected, views)
        assert_close(torch.autograd.grad(hinge, views, retain_graph=True), expected_gradients)
        hinge.backward()
        assert original.grad is None

    def test_views_that_are_the_original_pay_nothing(self):
        first = rows()
        assert float(information_hinge(first, first, first, 0.4).detach()) == 0
        assert float(information_hinge(first, -first, first, 0.4).detach()) == 0


class TestTopSimilarity:
    def test_identical_rows(self):
        same = torch.ones(6, 3, dtype=torch.float64)
        assert top_similarity_loss(same, 2, 10, generator()).item() == pytest.approx(-2 + 10)

    def test_orthogonal_rows_have_themselves_alone(self):
        loss = top_similarity_loss(torch.eye(50).double(), 5, 0, generator())
        assert loss.item() == pytest.approx(-2 / 5)

    def test_it_equals_the_loop(self):
        x, unit = rows(), directions(rows())
        similarity = unit @ unit.t()
        drawn = torch.randint(8, (8, 3), generator=generator(4))
        expected = 0.0
        for i in range(8):
            best = similarity[i].sort(descending=True).values[:2]
            assert best[0].item() == pytest.approx(1)  # the node itself
            expected += -2 * best.mean() / 8 + similarity[i][drawn[i]].square().sum() / 8
        assert_close(top_similarity_loss(x, 2, 3, generator(4)), expected)

    def test_the_mean_over_draws_is_that_over_all_pairs(self):
        x = rows(6)
        similarity = directions(x) @ directions(x).t()
        draws = torch.stack(
            [top_similarity_loss(x, 1, 4, generator(seed)) for seed in range(400)]
        ).detach()
        expected = -2 + 4 / 36 * similarity.square().sum().item()
        error = abs(draws.mean().item() - expected) / (draws.std().item() / math.sqrt(400))
        assert error < 4

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
