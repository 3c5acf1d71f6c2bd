import math

import pytest

from aspect.nn.ema import falling_cosine


def test_it_falls_from_one_to_zero_and_is_half_in_the_middle():
    every = [falling_cosine(step, 40) for step in range(41)]
    assert every[0] == 1
    assert every[20] == pytest.approx(0.5)
    assert every[40] == pytest.approx(0)
    assert every == sorted(every, reverse=True)


@pytest.mark.parametrize("step", [0.0, 1.5, 3.0, 6.9])
def test_it_is_the_square_of_a_quarter_wave(step):
    assert falling_cosine(step, 7) == pytest.approx(math.cos(math.pi * step / 14) ** 2)


def test_what_has_fallen_is_what_rises_from_the_other_end():
    assert falling_cosine(3, 10) + falling_cosine(7, 10) == pytest.approx(1)
