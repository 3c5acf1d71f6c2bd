import pytest

from aspect.experiment.tuning import trial
from experiment.tuning.searches import QUICK, write_graph


@pytest.fixture
def path(tmp_path):
    """A small graph's file."""
    return write_graph(tmp_path)


@pytest.fixture
def out(tmp_path):
    """Where a search may go."""
    return tmp_path / "search"


@pytest.fixture
def quick_probe(monkeypatch):
    """A probe with few penalties: what it finds does not matter, only that it is the same."""
    monkeypatch.setattr(trial, "probe_named", lambda _: QUICK)
