import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.sparse import SparseMatrix
from aspect.nn.mlp import MLP
from aspect.nn.normalisation import recording


def features(nodes=9, width=6):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(nodes, width, generator=generator).relu()


def made(*widths, **options):
    torch.manual_seed(0)
    return MLP(widths, **options)


def test_it_is_the_plain_sequence():
    ours = made(6, 5, 4, activation="elu")
    plain = nn.Sequential(ours.layers[0], nn.ELU(), ours.layers[1])
    assert_close(ours(features()), plain(features()))


def test_norm_stands_between_layer_and_activation():
    ours = made(6, 5, 4, norm="running")
    plain = nn.Sequential(ours.layers[0], nn.BatchNorm1d(5), nn.ReLU(), ours.layers[1])
    assert_close(ours(features()), plain(features()))


def test_recorded_statistics_embed_a_row_the_same_in_any_company():
    ours = made(6, 5, 4, norm="recomputed")
    trained = ours(features())
    with torch.no_grad(), recording(ours.norms):
        ours.eval()(features())
    assert_close(ours(features()), trained)
    assert_close(ours(features()[:4]), trained[:4])


def test_compressed_features_give_the_same():
    ours = made(6, 5, 4, activation="prelu")
    compressed = SparseMatrix.from_dense(features())
    assert_close(ours(compressed), ours(features()))
    ours(compressed).sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in ours.parameters())


def test_first_weights_are_torchs():
    ours = made(6, 5)
    torch.manual_seed(0)
    assert torch.equal(ours.layers[0].weight, nn.Linear(6, 5).weight)


def test_impossible_widths_are_refused():
    with pytest.raises(ValueError, match=r"Widths must be at least two integers >= 1\. Got \[6\]"):
        made(6)
