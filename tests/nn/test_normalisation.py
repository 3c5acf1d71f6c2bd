"""Batch norm, centring and scaling: torch's layer in training, exact statistics afterwards."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from aspect.nn.normalisation import MEAN_LENGTH, BatchNorm, Centre, Scaling, recording

WIDTH, NODES = 5, 40


def batch(seed=0, nodes=NODES):
    """Columns of different places and sizes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, WIDTH, dtype=torch.float64, generator=generator)
    return x * torch.logspace(-2, 1, WIDTH, dtype=torch.float64) + torch.arange(WIDTH)


def norm(**options):
    made = BatchNorm(WIDTH, **options).double()
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        made.weight.normal_(generator=generator)
        made.bias.normal_(generator=generator)
    return made


def torchs(ours, **options):
    made = nn.BatchNorm1d(WIDTH, **options).double()
    with torch.no_grad():
        made.weight.copy_(ours.weight)
        made.bias.copy_(ours.bias)
    return made


def record(layer, *batches):
    with torch.no_grad(), recording([layer]):
        return [layer(x, band) for band, x in enumerate(batches)]


@pytest.mark.parametrize("statistics", ["recomputed", "running", "graph"])
def test_training_is_torchs_with_the_same_gradients(statistics):
    ours = norm(bands=2, statistics=statistics).train()
    upstream, results = batch(7), []
    for layer in (ours, torchs(ours)):
        x = batch().requires_grad_()
        y = layer(x)
        gradients = torch.autograd.grad((y * upstream).sum(), (x, layer.weight, layer.bias))
        results.append((y.detach(), gradients))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("training", [True, False])
def test_a_recording_stores_mean_and_biased_variance_of_every_band(training):
    ours, batches = norm(bands=3).train(training), [batch(seed) for seed in range(3)]
    record(ours, *batches)
    for band, x in enumerate(batches):
        mean = torch.stack([column.sum() / NODES for column in x.t()])
        variance = torch.stack([((c - c.sum() / NODES) ** 2).sum() / NODES for c in x.t()])
        assert_close(ours.running_mean[band], mean)
        assert_close(ours.running_var[band], variance)


def test_embedding_after_a_recording_is_the_forward_of_training():
    ours, batches = norm(bands=2).eval(), [batch(0), batch(1)]
    while_recording = record(ours, *batches)
    trained = [copy.deepcopy(ours).train()(x, band) for band, x in enumerate(batches)]
    embedded = [ours(x, band) for band, x in enumerate(batches)]
    assert_close(embedded, trained)
    assert_close(while_recording, trained)
    assert not torch.allclose(ours(batches[0], 1), trained[0])  # a band has its own


@pytest.mark.parametrize("momentum", [0.01, 0.1, 0.99, 1.0])
def test_running_statistics_are_torchs(momentum):
    """All bands share one average, and every call moves it."""
    ours = norm(bands=2, statistics="running", momentum=momentum).train()
    theirs = torchs(ours, momentum=momentum)
    for seed in range(4):
        assert_close(ours(batch(seed), band=seed % 2), theirs(batch(seed)))
    assert_close(ours.running_mean, theirs.running_mean.unsqueeze(0))
    assert_close(ours.running_var, theirs.running_var.unsqueeze(0))
    for band in (0, 1):
        assert_close(ours.eval()(batch(8), band), theirs.eval()(batch(8)))


def test_the_graphs_own_statistics_need_no_training():
    ours = norm(bands=2, statistics="graph").eval()
    for seed, nodes in ((0, NODES), (1, 6)):
        expected = torchs(ours, track_running_stats=False)(batch(seed, nodes))
        assert_close(ours(batch(seed, nodes), 1), expected)


@pytest.mark.parametrize("statistics", ["recomputed", "graph"])
def test_the_affine_map_is_the_recorded_layer(statistics):
    ours, batches = norm(bands=2, statistics=statistics).eval(), [batch(0), batch(1)]
    record(ours, *batches)
    for band, x in enumerate(batches):
        scale, shift = ours.affine(band)
        assert_close(x * scale + shift, ours(x, band))


def test_a_layer_that_a_recording_does_not_meet_is_recorded_too():
    """BGRL's target and S3GCL's branches train but never embed."""
    seen, unseen = norm(), norm()
    with torch.no_grad(), recording([seen, unseen]):
        seen(batch())
    assert bool(unseen.recorded)
    assert_close(unseen.running_var, torch.ones(1, WIDTH, dtype=torch.float64))


def test_a_recording_that_fails_leaves_the_layers_unrecorded_and_at_rest():
    ours = norm()

    def fail():
        with recording([ours]):
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert not bool(ours.recorded)
    assert not ours.is_recording


def test_centring_subtracts_the_mean_of_each_band():
    bands = torch.stack([batch(0), batch(1)])
    centre = Centre(WIDTH, 2).double().train()
    expected = torch.stack([band - band.sum(0) / NODES for band in bands])
    assert_close(centre(bands), expected)
    with recording([centre]):
        assert_close(centre.eval()(bands), expected)
    assert_close(centre(bands), expected)
    assert_close(centre.mean, torch.stack([batch(0).mean(0), batch(1).mean(0)]))


@pytest.mark.parametrize("training", [True, False])
def test_a_constant_band_becomes_exactly_zero(training):
    constant = torch.linspace(0.1, 0.7, WIDTH).expand(1, 1001, WIDTH)
    centre = Centre(WIDTH, 1).train(training)
    with recording([centre]):
        centre(constant)
    assert not bool(centre(constant).any())


DOUBLE = torch.float64


WAYS = ["centre", "standard", "unit"]


def embeddings(seed=0, nodes=30, dim=6):
    """Rows around a common direction, columns of different sizes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(nodes, dim, dtype=DOUBLE, generator=generator)
    return x * torch.linspace(0.1, 3, dim, dtype=DOUBLE) + 5


def plain(rows, how, by):
    """The formulas, number by number, with statistics of the rows `by`."""
    columns = list(zip(*by, strict=True))
    means = [sum(column) / len(by) for column in columns]
    stds = [
        math.sqrt(sum((value - mean) ** 2 for value in column) / len(by))
        for column, mean in zip(columns, means, strict=True)
    ]
    length = sum(math.dist(row, means) for row in by) / len(by)
    out = []
    for row in rows:
        centred = [value - mean for value, mean in zip(row, means, strict=True)]
        size = math.hypot(*centred)
        divisors = {
            "centre": [length / MEAN_LENGTH] * len(row),
            "standard": stds,
            "unit": [size] * len(row),
        }[how]
        out.append([value / divisor for value, divisor in zip(centred, divisors, strict=True)])
    return torch.tensor(out, dtype=DOUBLE)


@pytest.mark.parametrize("how", WAYS)
def test_every_normalisation_is_the_formula(how):
    rows = embeddings()
    expected = plain(rows.tolist(), how, rows.tolist())
    assert_close(Scaling.of(rows).apply(rows, how), expected)


@pytest.mark.parametrize("exponent", [-110, -80, 70, 120])
def test_unit_rows_have_length_one_however_large_they_are(exponent):
    rows = embeddings().float()
    expected = Scaling.of(rows).apply(rows, "unit")
    assert_close(expected, plain(rows.tolist(), "unit", rows.tolist()).float())
    scaled = rows * 2.0**exponent
    assert torch.equal(Scaling.of(scaled).apply(scaled, "unit"), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("how", WAYS)
def test_constant_columns_become_zero_and_disturb_no_other(how, dtype):
    rows = embeddings().to(dtype)
    with_constant = torch.cat([rows, torch.full((30, 1), 0.1, dtype=dtype)], dim=1)
    made = Scaling.of(with_constant).apply(with_constant, how)
    assert made.dtype == dtype
    assert_close(made[:, :-1], Scaling.of(rows).apply(rows, how))
    assert float(made[:, -1].abs().max()) < 1e-5


def test_statistics_are_measured_in_double_precision():
    """A common direction a thousand times as long as what tells the rows apart."""
    rows = (embeddings() + 1e4).float()
    scaling = Scaling.of(rows)
    exact = rows.double()
    assert_close(scaling.mean, exact.mean(0).float(), rtol=0, atol=0)
    assert_close(scaling.std, exact.std(0, correction=0).float(), rtol=1e-6, atol=0)
