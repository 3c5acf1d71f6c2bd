"""`make speed-attack`: what is measured and what is extrapolated, and its targets."""

import json
import subprocess
import sys

import pytest

from scripts import FOLDER, load_script

script = load_script("speed_attack")


def growth(**changes):
    values = {"graph": "cora", "solver": "implicit", "nodes": 10, "edges": 40, "flips": 4}
    values |= {
        "flips_per_gradient": 2,
        "gradients": 3,
        "seconds": 1.5,
        "peak_memory_bytes": 1,
        "budget": 0.1,
    }
    return script.Growth(**values | changes)


def test_less_than_the_target_share_is_extrapolated_and_reaches_nothing():
    whole, part = growth(), growth(budget=0.02)
    assert not whole.is_extrapolated
    assert whole.target_share_seconds == pytest.approx(1.5)
    assert whole.reached is True
    assert part.is_extrapolated
    assert part.target_share_seconds == pytest.approx(7.5)
    assert part.reached is None
    assert growth(seconds=1.8).reached is False
    assert growth(peak_memory_bytes=2**29 + 1).reached is False
    assert growth(graph="citeseer", solver="unrolled").reached is None  # it has no target


def test_an_extrapolation_is_marked_as_one(capsys):
    script.show([], [growth(), growth(solver="unrolled", graph="pubmed", budget=0.02)])
    shown = capsys.readouterr().out
    assert " 1.5 " in shown
    assert "~7.5" in shown
    assert "~: not measured, but extrapolated to 10% in proportion to the flips." in shown
    script.show([], [growth()])
    assert "~" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(1800)
def test_the_library_reaches_its_targets():
    """Needs an otherwise idle machine."""
    command = [sys.executable, str(FOLDER / "speed_attack.py"), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)
    measured = {(each["solver"], each["graph"]): each["reached"] for each in found["graphs"]}
    assert len(measured) == 2 * len(script.GRAPHS)
    for target in script.TARGETS:
        assert measured[target], target
    assert all(ratio["faster_by"] > 1 for ratio in found["ratios"])
