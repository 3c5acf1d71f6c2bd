import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.sparse import SparseMatrix
from aspect.losses.mutual_information import two_group_loss
from aspect.nn.scorers import BilinearScorer, SummedLinearScorer, relu_mean, sigmoid_mean


def rows(nodes, width, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(nodes, width, dtype=torch.float64, generator=generator)


def scorer(left=4, right=3, **options):
    torch.manual_seed(0)
    ours = BilinearScorer(left, right, **options).double()
    ours.bias.data.fill_(0.3)
    return ours


class TestSummaries:
    def test_values(self):
        x = torch.tensor([[1.0, -4.0], [3.0, 2.0]])
        assert_close(sigmoid_mean(x), torch.sigmoid(torch.tensor([2.0, -1.0])))
        assert_close(relu_mean(x), torch.tensor([2.0, 0.0]))

    def test_order_of_nodes_does_not_matter(self):
        x = rows(7, 3)
        assert_close(sigmoid_mean(x), sigmoid_mean(x.flip(0)))
        assert bool(((sigmoid_mean(x) > 0) & (sigmoid_mean(x) < 1)).all())


class TestBilinear:
    def test_it_is_torchs_bilinear_form(self):
        ours, nodes, summary = scorer(), rows(6, 4), rows(1, 3, seed=1)[0]
        expected = nn.functional.bilinear(
            nodes, summary.expand(6, 3).contiguous(), ours.matrix[None], ours.bias[None]
        )
        assert_close(ours(nodes, summary), expected[:, 0])

    def test_pairs_are_scored_row_by_row(self):
        ours, left, right = scorer(), rows(6, 4), rows(6, 3, seed=1)
        expected = nn.functional.bilinear(left, right, ours.matrix[None], ours.bias[None])[:, 0]
        assert_close(ours.pairs(ours.project(left), right), expected)
        assert_close(ours.pairs(ours.project(SparseMatrix.from_dense(left)), right), expected)

    def test_any_partner_can_be_taken_from_the_projected(self):
        ours, left, right = scorer(), rows(6, 4), rows(6, 3, seed=1)
        drawn = torch.randint(6, (5, 6), generator=torch.Generator().manual_seed(0))
        found = ours.pairs(ours.project(left)[drawn], right.expand(5, 6, 3))
        for one, order in zip(found, drawn, strict=True):
            assert_close(one, ours.pairs(ours.project(left[order]), right))

    def test_small_first_weights(self):
        ours = BilinearScorer(512, 512)
        bound = math.sqrt(6 / (512 * 512 + 512))
        assert bound == pytest.approx(0.00478, abs=1e-5)
        assert 0.999 * bound < float(ours.matrix.detach().abs().max()) <= bound
        assert ours.bias.item() == 0
        reference = nn.init.xavier_uniform_(torch.empty(1, 30, 20)).abs().max()
        assert float(reference) <= math.sqrt(6 / (30 * 20 + 20))
        assert float(BilinearScorer(30, 20).matrix.detach().abs().max()) == pytest.approx(
            float(reference), rel=0.02
        )

    def test_torch_first_weights(self):
        ours = BilinearScorer(400, 300, start="torch")
        assert 0.999 / 20 < float(ours.matrix.detach().abs().max()) <= 1 / 20
        assert 0 < abs(ours.bias.item()) <= 1 / 20

    def test_without_weights_the_loss_is_the_logarithm_of_two(self):
        ours = scorer()
        ours.matrix.data.zero_(), ours.bias.data.zero_()
        scores = ours(rows(6, 4), rows(1, 3)[0])
        assert two_group_loss(scores, scores).item() == pytest.approx(math.log(2))


class TestSummedLinear:
    @pytest.mark.parametrize("layers", [1, 3])
    def test_it_is_the_sum_of_the_outputs(self, layers):
        torch.manual_seed(0)
        ours = SummedLinearScorer(5, layers).double()
        nodes = rows(7, 5)
        hidden = nodes
        for layer in ours.layers:
            hidden = layer(hidden)
        assert_close(ours(nodes), hidden.sum(1))

    def test_every_layer_gets_a_gradient(self):
        ours = SummedLinearScorer(5, 2).double()
        ours(rows(7, 5)).square().sum().backward()
        assert all(bool(parameter.grad.any()) for parameter in ours.parameters())

    def test_no_layers_are_refused(self):
        with pytest.raises(ValueError, match=r"must be an integer >= 1\. Got 0"):
            SummedLinearScorer(5, 0)
