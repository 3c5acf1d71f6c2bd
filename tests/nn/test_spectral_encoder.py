"""The spectral encoder against eigendecompositions, and its folded form."""

import itertools

import pytest
import torch
from torch.testing import assert_close

from aspect.data.features import dense
from aspect.data.operators import Propagation
from aspect.data.sparse import SparseMatrix
from aspect.nn.filters import chebyshev_basis
from aspect.nn.normalisation import recording
from aspect.nn.spectral_encoder import Signal, SpectralEncoder, TallProduct, fold
from reference.graphs import random_graph
from reference.spectrum import filtered, polynomial, rescaled_laplacian

ORDERS = ["filter-first", "project-first"]


def encoder(layer_order="filter-first", num_features=7, width=5, **options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return SpectralEncoder(num_features, width, layer_order=layer_order, **options).double()


class Counting:
    """An operator that counts how often it is applied."""

    def __init__(self, operator):
        self.operator, self.calls = operator, 0

    def __call__(self, x):
        self.calls += 1
        return self.operator(x)


@pytest.fixture
def graph():
    return random_graph(isolated=2)


@pytest.fixture
def signal(graph):
    return Signal(graph.features, Propagation(graph, self_loops=True).operator())


def expected_views(made, graph, *, self_loops):
    """Eigendecomposition, linear layer and activation, band by band."""
    matrix = rescaled_laplacian(graph, self_loops=self_loops)
    views = []
    for band in made.filters:
        hidden = filtered(matrix, band().tolist(), dense(graph.features))
        views.append(made.activation(hidden @ made.linear.weight.t() + made.linear.bias))
    return torch.stack(views)


@pytest.mark.parametrize("layer_order", ORDERS)
@pytest.mark.parametrize("self_loops", [False, True])
@pytest.mark.parametrize("activation", ["relu", "prelu"])
def test_views_equal_the_eigendecomposition(graph, layer_order, self_loops, activation):
    made = encoder(layer_order, order=6, activation=activation)
    signal = Signal(graph.features, Propagation(graph, self_loops=self_loops).operator())
    assert_close(made(signal), expected_views(made, graph, self_loops=self_loops))


@pytest.mark.parametrize("layer_order", ORDERS)
@pytest.mark.parametrize("options", [{}, {"batch_norm": True}])
def test_sparse_features_equal_dense_ones_with_gradients(layer_order, options):
    graph = random_graph(density=0.15, num_features=30)
    assert isinstance(graph.features, SparseMatrix)
    operator = Propagation(graph, self_loops=True).operator()
    results = []
    for features in (graph.features, graph.features.dense()):
        made = encoder(layer_order, num_features=30, **options)
        views = made(Signal(features, operator))
        views.square().sum().backward()
        results.append((views.detach(), {name: p.grad for name, p in made.named_parameters()}))
    assert_close(results[0], results[1])


def test_kept_basis_equals_propagation_with_gradients(graph, signal):
    made = encoder(order=4, dropout=0.3)
    basis = torch.stack(list(chebyshev_basis(signal.operator, graph.features, 4)))
    results = []
    for given in (signal, Signal(signal.features, signal.operator, basis)):
        made.zero_grad()
        views = made(given, torch.Generator().manual_seed(1))
        views.square().sum().backward()
        results.append((views.detach(), {n: p.grad.clone() for n, p in made.named_parameters()}))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("layer_order", ORDERS)
@pytest.mark.parametrize("bands", [("low",), ("low", "high"), ("low", "high", "high")])
def test_all_bands_share_one_basis(signal, layer_order, bands):
    operator = Counting(signal.operator)
    made = encoder(layer_order, order=6, bands=bands)
    views = made(Signal(signal.features, operator))
    assert operator.calls == 6
    assert len(views) == len(bands)


def test_a_kept_basis_is_not_used_where_the_input_is_dropped_out(graph, signal):
    basis = torch.stack(list(chebyshev_basis(signal.operator, graph.features, 6)))
    operator = Counting(signal.operator)
    made = encoder(order=6, input_dropout=0.4)
    given = Signal(graph.features, operator, basis)
    made(given, torch.Generator())
    assert operator.calls == 6
    made(given)
    assert operator.calls == 6


@pytest.mark.parametrize("layer_order", ORDERS)
def test_dropout_needs_a_generator_and_repeats_with_it(signal, layer_order):
    made = encoder(layer_order, input_dropout=0.3, dropout=0.3)
    assert_close(made(signal), encoder(layer_order)(signal), rtol=0, atol=0)
    first, again = (made(signal, torch.Generator().manual_seed(5)) for _ in range(2))
    assert_close(first, again, rtol=0, atol=0)
    assert not torch.equal(first, made(signal, torch.Generator().manual_seed(6)))


@pytest.mark.parametrize("layer_order", ORDERS)
def test_batch_norm_of_a_band_is_torchs_on_that_band_alone(signal, layer_order):
    made = encoder(layer_order, batch_norm=True, activation="relu")
    plain = encoder(layer_order, activation="relu")
    for band, view in enumerate(made(signal)):
        one = torch.nn.BatchNorm1d(len(made.norm.weight)).double()
        if layer_order == "filter-first":
            filtered = filtered_by(plain, signal.features, signal.operator, band)[0]
            hidden = plain.linear(one(filtered))
        else:
            projected = signal.features @ plain.linear.weight.t()
            filtered = filtered_by(plain, projected, signal.operator, band)[0]
            hidden = one(filtered + plain.linear.bias)
        assert_close(view, hidden.relu())


def filtered_by(made, x, operator, only=None):
    basis = torch.stack(list(chebyshev_basis(operator, x, made.order)))
    return torch.einsum("bt,tnd->bnd", made.coefficients(only), basis)


def test_running_statistics_are_one_average_over_the_bands_in_turn(signal):
    made = encoder(batch_norm=True, norm_statistics="running").train()
    torchs = torch.nn.BatchNorm1d(7, momentum=0.01).double()
    for _ in range(3):
        made(signal)
        for band in filtered_by(made, signal.features, signal.operator):
            torchs(band)
    assert_close(made.norm.running_mean, torchs.running_mean.unsqueeze(0))
    assert_close(made.norm.running_var, torchs.running_var.unsqueeze(0))
    filtered = filtered_by(made, signal.features, signal.operator)
    expected = made.activation(made.linear(torch.stack([torchs.eval()(x) for x in filtered])))
    assert_close(made.eval()(signal), expected)


@pytest.mark.parametrize("layer_order", ORDERS)
@pytest.mark.parametrize("filter_kind", ["monotone", "ramp"])
def test_a_band_by_itself_is_that_band(signal, layer_order, filter_kind):
    made = encoder(layer_order, order=6, filter_kind=filter_kind, batch_norm=True)
    both = made(signal)
    for one, other in zip(made.embed_apart(signal), both, strict=True):
        assert_close(one, other)


def test_bands_by_themselves_draw_masks_of_their_own_the_highest_first(signal):
    made, generator = encoder(order=6, input_dropout=0.5), torch.Generator().manual_seed(0)
    low, high = made.embed_apart(signal, generator)
    both = made(signal, torch.Generator().manual_seed(0))  # one mask, the first that is drawn
    assert_close(high, both[1])
    assert not torch.allclose(low, both[0])


@pytest.mark.parametrize("filter_kind", ["monotone", "ramp"])
@pytest.mark.parametrize("lambda_max", [2.0, 1.3])
def test_responses_are_the_polynomials_at_every_frequency(filter_kind, lambda_max):
    made = encoder(order=6, filter_kind=filter_kind)
    frequencies = torch.linspace(0, lambda_max, 9)
    found = made.responses(frequencies, lambda_max)
    rescaled = (2 * frequencies.double() / lambda_max - 1).tolist()
    expected = [polynomial(band().tolist(), rescaled) for band in made.filters]
    assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


FORMS = list(itertools.product(["filter-first", "project-first"], [True, False], ["relu", "prelu"]))


def trained(layer_order, batch_norm, activation, statistics="recomputed"):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        encoder = SpectralEncoder(
            7,
            5,
            order=4,
            dropout=0.4,
            input_dropout=0.4,
            batch_norm=batch_norm,
            norm_statistics=statistics,
            activation=activation,
            layer_order=layer_order,
        ).double()
        if batch_norm:
            encoder.norm.running_mean.normal_()
            encoder.norm.running_var.uniform_(0.2, 3)
            torch.nn.init.normal_(encoder.norm.weight)
            torch.nn.init.normal_(encoder.norm.bias)
    return encoder.eval()


@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
def test_one_average_for_all_bands_serves_them_all(layer_order):
    encoder = trained(layer_order, True, "prelu", "running")
    graph = random_graph(density=0.3)
    operator = Propagation(graph, self_loops=True).operator()
    folded = fold(encoder)
    assert_close(
        folded.embed(folded.project(graph.features), operator),
        encoder(Signal(graph.features, operator)),
    )


@pytest.mark.parametrize("layer_order", ["filter-first", "project-first"])
@pytest.mark.parametrize("statistics", ["recomputed", "graph"])
def test_on_the_recorded_graph_it_is_the_encoder_as_trained(layer_order, statistics):
    encoder = trained(layer_order, True, "prelu", statistics)
    graph = random_graph(density=0.3)
    operator = Propagation(graph, self_loops=True).operator()
    with torch.no_grad(), recording([encoder.norm]):
        encoder(Signal(graph.features, operator))
    folded = fold(encoder)
    assert_close(
        folded.embed(folded.project(graph.features), operator),
        encoder.train()(Signal(graph.features, operator)),
    )


@pytest.mark.parametrize(("layer_order", "batch_norm", "activation"), FORMS)
@pytest.mark.parametrize("kind", ["dense", "compressed"])
def test_it_embeds_as_the_encoder_does(layer_order, batch_norm, activation, kind):
    encoder = trained(layer_order, batch_norm, activation)
    graph = random_graph(density=0.3)
    features = SparseMatrix.from_dense(graph.features) if kind == "compressed" else graph.features
    operator = Propagation(graph, self_loops=True).operator()
    folded = fold(encoder)
    assert_close(
        folded.embed(folded.project(features), operator), encoder(Signal(features, operator))
    )


def test_it_does_not_follow_the_encoder_and_has_no_gradient():
    encoder = trained("filter-first", True, "prelu")
    folded = fold(encoder)
    before = [each.clone() for each in vars(folded).values()]
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(1)
    assert_close(list(vars(folded).values()), before, rtol=0, atol=0)
    assert not any(each.requires_grad for each in before)


def test_a_product_by_vectors_is_the_product():
    generator = torch.Generator().manual_seed(0)
    rows, matrix = (
        torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)
        for shape in ((2, 6), (6, 50))
    )
    torch.testing.assert_close(TallProduct.apply(rows, matrix), rows @ matrix)
    assert torch.autograd.gradcheck(TallProduct.apply, (rows, matrix))
