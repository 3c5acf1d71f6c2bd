import torch
from torch import nn
from torch.testing import assert_close

from aspect.data.sparse import SparseMatrix
from aspect.nn.mlp import MLP


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
