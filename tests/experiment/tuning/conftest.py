import pytest


@pytest.fixture
def path(tmp_path):
    """A small graph's file."""
    from experiment.tuning.searches import write_graph  # needs optuna

    return write_graph(tmp_path)


@pytest.fixture
def out(tmp_path):
    """A folder for a search."""
    return tmp_path / "search"


@pytest.fixture
def quick_probe(monkeypatch):
    """A probe with few penalties: its answers do not matter, only that they are the same."""
    from aspect.experiment import trial
    from experiment.tuning.searches import QUICK

    trial.load_problem.cache_clear()
    monkeypatch.setattr(trial, "probe_named", lambda *_: QUICK)
    yield
    trial.load_problem.cache_clear()
