"""The README's picture shows what its command draws."""

import struct
from pathlib import Path

import pytest

from scripts import load_script

ROOT = Path(__file__).parents[1]


def size_of(path):
    """Width and height in the header of a PNG."""
    return struct.unpack(">II", path.read_bytes()[16:24])


def test_the_picture_is_what_the_command_draws(tmp_path):
    """Not to the last bit, since processors round differently; the gate's answer is the same."""
    script = load_script("gate_map")
    means = script.draw(tmp_path / "again.png")
    assert means["homophilic half"] == pytest.approx(0.93, abs=0.05)
    assert means["heterophilic half"] == pytest.approx(0.01, abs=0.05)
    assert size_of(tmp_path / "again.png") == size_of(script.PICTURE)
    assert script.PICTURE.stat().st_size < 200_000
    assert "](docs/gate_map.png)" in (ROOT / "README.md").read_text("utf-8")
