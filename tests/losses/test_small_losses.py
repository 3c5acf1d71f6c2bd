"""Losses of a line or two: bootstrap, squashed divergence, edge ranking, top similarities."""

import math

import pytest
import torch
from torch.testing import assert_close

from aspect.losses.bootstrap import bootstrap_loss
from aspect.losses.cosine import cosines, directions
from aspect.losses.mutual_information import squashed_divergence
from aspect.losses.ranking import edge_ranking_loss
from aspect.losses.spectral_contrast import top_similarity_loss


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


class TestSquashedDivergence:
    def test_zeros_give_the_published_start(self):
        assert squashed_divergence(torch.zeros(4), torch.zeros(20)).item() == pytest.approx(
            1.44815, abs=1e-5
        )

    def test_bounds_are_reached_at_the_ends(self):
        far = torch.full((3,), 1e3)
        assert squashed_divergence(far, -far).item() == pytest.approx(1.0064, abs=1e-4)
        assert squashed_divergence(-far, far).item() == pytest.approx(2.0064, abs=1e-4)

    def test_it_equals_the_formula(self):
        true, false = rows(5, 1).flatten(), rows(5, 3, seed=1)
        squash = [torch.sigmoid(x) for x in (true, false)]
        expected = (
            torch.log(1 + torch.exp(-squash[0])).mean() + torch.log(1 + torch.exp(squash[1])).mean()
        )
        assert_close(squashed_divergence(true, false), expected)


class TestRanking:
    def test_it_equals_the_loop(self):
        joined, random = (torch.tanh(rows(9, 1, seed).flatten()) for seed in (0, 1))
        weights = torch.rand(9, dtype=torch.float64, generator=generator())
        expected = 0.0
        for c, r, w in zip(joined, random, weights, strict=True):
            expected += max(0, r - c + 0.3) * max(0, w - 0.5) / 18
            expected += max(0, c - r + 0.1) * max(0, (1 - w) - 0.5) / 18
        assert_close(edge_ranking_loss(joined, random, weights, 0.3, 0.1), expected)

    def test_well_ranked_edges_cost_nothing(self):
        weights = torch.tensor([0.9, 0.1])
        joined, random = torch.tensor([0.9, -0.9]), torch.zeros(2)
        assert edge_ranking_loss(joined, random, weights, 0.5, 0.5).item() == 0
        assert edge_ranking_loss(-joined, random, weights, 0.5, 0.5).item() > 0

    def test_undecided_edges_have_no_say(self):
        half = torch.full((4,), 0.5)
        assert edge_ranking_loss(rows(4, 1).flatten().float(), half, half, 1.0, 1.0).item() == 0

    def test_weights_and_similarities_get_gradients(self):
        inputs = [
            torch.tensor(values, dtype=torch.float64, requires_grad=True)
            for values in ([0.2, 0.4], [0.3, 0.1], [0.9, 0.2])
        ]
        assert torch.autograd.gradcheck(lambda *x: edge_ranking_loss(*x, 0.5, 0.5), inputs)
        edge_ranking_loss(*inputs, 0.5, 0.5).backward()
        assert all(bool(x.grad.any()) for x in inputs)


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
