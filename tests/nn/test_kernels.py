"""The filter of a training step by kernels of ours on a GPU: the same as in plain torch."""

import pytest
import torch
from torch.testing import assert_close

from aspect.data import sparse
from aspect.data.features import dense
from aspect.data.operators import Propagation
from aspect.data.sparse import SparseMatrix
from aspect.data.synthetic import mixed_graph
from aspect.nn import gate, spectral_encoder
from aspect.nn.filters import chebyshev_basis
from aspect.nn.spectral_encoder import Signal, SpectralEncoder
from aspect.randomness import isolated_seed

kernels = pytest.importorskip("aspect.nn.kernels", reason="needs Triton, which comes with CUDA")
pytestmark = pytest.mark.gpu


def signal_of(num_features, *, self_loops, lambda_max=2.0, dtype=torch.float64):
    graph = mixed_graph(num_nodes=150, num_features=num_features, seed=1).graph.to(dtype).to("cuda")
    propagation = Propagation(graph, self_loops=self_loops, lambda_max=lambda_max)
    return Signal(graph.features, propagation.operator())


def encoder_of(num_features, dtype=torch.float64, **settings):
    with isolated_seed(3):
        encoder = SpectralEncoder(num_features, 24, order=4, **settings)
    return encoder.to(dtype).to("cuda").train()


def bands_and_gradients(encoder, signal, only=None):
    generator = torch.Generator(device="cuda").manual_seed(5)
    bands = encoder._embed(signal, generator, only)
    weights = torch.linspace(-1, 1, bands.numel(), dtype=bands.dtype, device="cuda")
    total = (bands.square() * weights.view_as(bands)).mean()
    names, parameters = zip(*encoder.named_parameters(), strict=True)
    found = torch.autograd.grad(total, parameters, allow_unused=True)
    return bands, {name: part for name, part in zip(names, found, strict=True) if part is not None}


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
@pytest.mark.parametrize("only", [None, 1])
@pytest.mark.parametrize(("self_loops", "lambda_max"), [(True, 2.0), (False, 1.7)])
def test_the_same_as_in_plain_torch(
    batch_norm, layer_order, only, self_loops, lambda_max, monkeypatch
):
    # Sixteen columns need no padding, so that both draw the same numbers for dropout.
    signal = signal_of(16, self_loops=self_loops, lambda_max=lambda_max)
    settings = {"batch_norm": batch_norm, "layer_order": layer_order}
    encoder = encoder_of(16, **settings, input_dropout=0.3, dropout=0.4)
    fused = bands_and_gradients(encoder, signal, only)
    monkeypatch.setattr(spectral_encoder, "has_triton", lambda: False)
    assert_close(fused, bands_and_gradients(encoder, signal, only))


@pytest.mark.parametrize("num_features", [5, 13])
@pytest.mark.parametrize("has_basis", [True, False])
def test_columns_that_need_padding(num_features, has_basis, monkeypatch):
    signal = signal_of(num_features, self_loops=True)
    if has_basis:
        terms = list(chebyshev_basis(signal.operator, dense(signal.features), 4))
        signal = Signal(signal.features, signal.operator, torch.stack(terms))
    encoder = encoder_of(num_features, batch_norm=True)
    fused = bands_and_gradients(encoder, signal)
    monkeypatch.setattr(spectral_encoder, "has_triton", lambda: False)
    assert_close(fused, bands_and_gradients(encoder, signal))


def test_close_where_products_may_be_in_tf32(monkeypatch):
    exact = bands_and_gradients(encoder_of(16, batch_norm=True), signal_of(16, self_loops=True))
    signal = signal_of(16, self_loops=True, dtype=torch.float32)
    large = Signal(signal.features * torch.logspace(-6, 6, 16, device="cuda"), signal.operator)
    encoder = encoder_of(16, torch.float32, batch_norm=True)
    torch.set_float32_matmul_precision("high")
    try:
        quick = bands_and_gradients(encoder, signal)
        scaled = bands_and_gradients(encoder, large)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert float((quick[0] - exact[0]).norm() / exact[0].norm()) < 5e-3
    monkeypatch.setattr(spectral_encoder, "has_triton", lambda: False)
    plain = bands_and_gradients(encoder, large)
    assert float((scaled[0] - plain[0]).norm() / plain[0].norm()) < 5e-3


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_sparse_features_give_the_basis_of_dense_ones(precision):
    signal = signal_of(13, self_loops=True, dtype=torch.float32)
    features = signal.features * (signal.features > 0.5)
    torch.set_float32_matmul_precision(precision)
    try:
        sparse, scale = kernels.scaled_basis(
            signal.operator, SparseMatrix.from_dense(features), order=4
        )
        whole, other = kernels.scaled_basis(signal.operator, features, order=4)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert_close(sparse, whole)
    if precision == "highest":
        assert scale is None
    else:
        assert_close(scale, other)


def test_what_is_embedded_takes_the_plain_form():
    signal = signal_of(16, self_loops=True)
    encoder = encoder_of(16, batch_norm=True)
    assert encoder._is_fused(signal)
    assert not encoder.eval()._is_fused(signal)


def test_fusion_is_the_same_as_in_plain_torch(monkeypatch):
    def fused_and_gradients():
        bands = torch.linspace(-1, 2, 3 * 50 * 20, dtype=torch.float64, device="cuda")
        bands = bands.sin().view(3, 50, 20).requires_grad_()
        weights = torch.linspace(-1, 1, 150, dtype=torch.float64, device="cuda").view(50, 3)
        weights = weights.softmax(1).requires_grad_()
        fused = gate.fuse(bands, weights)
        return fused, torch.autograd.grad(fused.pow(3).sum(), [bands, weights])

    fast = fused_and_gradients()
    monkeypatch.setattr(gate, "has_triton", lambda: False)
    assert_close(fast, fused_and_gradients())


def test_a_graph_with_many_edges_is_propagated_as_a_dense_matrix(monkeypatch):
    signal = signal_of(16, self_loops=True, dtype=torch.float32)
    torch.set_float32_matmul_precision("high")
    try:
        found = []
        for ratio in (0, 10**6):
            monkeypatch.setattr(sparse, "DENSE_RATIO", ratio)
            basis, scale = kernels.scaled_basis(signal.operator, dense(signal.features), 4)
            found.append(basis.float() / scale)
    finally:
        torch.set_float32_matmul_precision("highest")
    exact = torch.stack(list(chebyshev_basis(signal.operator, dense(signal.features), 4)))
    for basis in found:
        assert float((basis - exact).norm() / exact.norm()) < 2e-3
