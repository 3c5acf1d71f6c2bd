"""Cosines over all pairs of nodes, and of rows with fewer columns."""

import pytest
import torch

from aspect.attacks.cosines import COMPONENTS, compressed, deviation_of_cosines, mean_cosine


def test_mean_and_deviation_are_those_of_all_pairs():
    rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    unit = rows / rows.norm(dim=1, keepdim=True)
    pairs = torch.combinations(torch.arange(40))
    cosines = (unit[pairs[:, 0]] * unit[pairs[:, 1]]).sum(1)
    expected = float(cosines.mean()), float(cosines.std(correction=0))
    found = mean_cosine(rows), deviation_of_cosines(rows)
    assert found == pytest.approx(expected)


def test_many_columns_are_compressed_with_about_the_same_cosines():
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(80, 20, generator=generator, dtype=torch.float64)
    wide = few @ torch.linalg.qr(torch.randn(400, 20, generator=generator, dtype=torch.float64)).Q.T
    rows = compressed(wide)
    assert rows.shape == (80, COMPONENTS)
    torch.testing.assert_close(rows @ rows.T, few @ few.T)
