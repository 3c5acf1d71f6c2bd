"""The targets of `make speed`; they need an otherwise idle machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "speed.py"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(900)
def test_the_library_reaches_its_targets():
    command = [sys.executable, str(SCRIPT), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)
    assert set(found["epochs"]) == {"project-first", "filter-first"}
    for name, epoch in found["epochs"].items():
        assert epoch["ratio"] >= epoch["target"], name
        assert sum(epoch["shares"].values()) == pytest.approx(1, abs=0.25)
    assert found["memory"]["gigabytes"] < found["memory"]["target"]
