"""Normalised embeddings: slow formulas in float64, statistics of the training graph for all."""

import math

import pytest
import torch
from torch.testing import assert_close

from aspect.nn.normalisation import MEAN_LENGTH, Scaling

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


@pytest.mark.parametrize("how", WAYS)
def test_other_graphs_are_moved_by_the_statistics_of_the_training_graph(how):
    rows, others = embeddings(), embeddings(1, nodes=7)
    expected = plain(others.tolist(), how, rows.tolist())
    assert_close(Scaling.of(rows).apply(others, how), expected)
    assert_close(Scaling.of(rows).apply(others[:1], how), expected[:1])


def test_none_leaves_everything_as_it_is():
    rows = embeddings()
    assert Scaling.of(rows).apply(rows, "none") is rows


def test_centred_rows_have_mean_zero_and_the_stated_mean_length():
    rows = embeddings()
    centred = Scaling.of(rows).apply(rows, "centre")
    assert_close(centred.mean(0), torch.zeros(6, dtype=DOUBLE), rtol=0, atol=1e-12)
    assert float(centred.norm(dim=1).mean()) == pytest.approx(MEAN_LENGTH)


def test_centring_keeps_the_proportions_of_distances():
    rows = embeddings()
    before = torch.cdist(rows, rows)
    after = torch.cdist(*[Scaling.of(rows).apply(rows, "centre")] * 2)
    off_diagonal = ~torch.eye(len(rows), dtype=torch.bool)
    ratios = (after / before)[off_diagonal]
    assert_close(ratios, torch.full_like(ratios, float(ratios[0])))


def test_standard_columns_have_mean_zero_and_std_one():
    rows = embeddings()
    made = Scaling.of(rows).apply(rows, "standard")
    assert_close(made.mean(0), torch.zeros(6, dtype=DOUBLE), rtol=0, atol=1e-12)
    assert_close(made.std(0, correction=0), torch.ones(6, dtype=DOUBLE))


def test_unit_rows_have_length_one_and_the_centred_direction():
    rows = embeddings()
    made = Scaling.of(rows).apply(rows, "unit")
    assert_close(made.norm(dim=1), torch.ones(30, dtype=DOUBLE))
    cosines = torch.cosine_similarity(made, rows - rows.mean(0), dim=1)
    assert_close(cosines, torch.ones(30, dtype=DOUBLE))


@pytest.mark.parametrize("how", ["centre", "unit"])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_place_and_size_of_the_cloud_do_not_matter(how, scale):
    rows = embeddings()
    moved = scale * rows + 17
    assert_close(Scaling.of(moved).apply(moved, how), Scaling.of(rows).apply(rows, how))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("how", WAYS)
def test_constant_columns_become_zero_and_disturb_no_other(how, dtype):
    rows = embeddings().to(dtype)
    with_constant = torch.cat([rows, torch.full((30, 1), 0.1, dtype=dtype)], dim=1)
    made = Scaling.of(with_constant).apply(with_constant, how)
    assert made.dtype == dtype
    assert_close(made[:, :-1], Scaling.of(rows).apply(rows, how))
    assert float(made[:, -1].abs().max()) < 1e-5


@pytest.mark.parametrize("how", WAYS)
def test_equal_rows_become_zero(how):
    rows = torch.linspace(0.1, 0.7, 6).expand(1001, 6)
    assert not bool(Scaling.of(rows).apply(rows, how).any())


@pytest.mark.parametrize("how", WAYS)
def test_a_row_at_the_mean_is_zero(how):
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    made = Scaling.of(rows).apply(rows, how)
    assert not bool(made[2].any())
    assert bool(made[:2, 0].all())


def test_statistics_are_measured_in_double_precision():
    """A common direction a thousand times as long as what tells the rows apart."""
    rows = (embeddings() + 1e4).float()
    scaling = Scaling.of(rows)
    exact = rows.double()
    assert_close(scaling.mean, exact.mean(0).float(), rtol=0, atol=0)
    assert_close(scaling.std, exact.std(0, correction=0).float(), rtol=1e-6, atol=0)
