"""What all tests share: shapes checked at run time, one thread per worker, and a small graph."""

import importlib.util
import logging
import os
import signal
import sys

import pytest

# Numerics in several processes are faster with one thread each; child processes inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The import hook must be there before the first module of aspect is imported. It covers the stages
# whose signatures carry shapes; the rest uses hints that cannot be checked at run time (protocols,
# types that are imported only where they are used).
CHECKED = [
    f"aspect.{stage}"
    for stage in (
        "data",
        "losses",
        "nn",
        "attacks",
        "methods",
        "evaluation",
    )
]
if importlib.util.find_spec("beartype") is not None:
    from jaxtyping import install_import_hook

    install_import_hook(CHECKED, "beartype.beartype")


class OptionalPackages:
    """Skips modules, also those of the package, that need an extra which is not installed.

    A machine that only runs `-m gpu` may lack some.
    """

    names = frozenset({"jinja2", "matplotlib", "nbclient", "nbformat", "networkx", "optuna", "ray"})

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector):
        report = yield
        error = report.call.excinfo and report.call.excinfo.value
        while error is not None:
            name = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
            if name in self.names:
                report.outcome = "skipped"
                report.longrepr = (str(collector.path), 0, f"Skipped: {name} is not installed")
                self._forget(collector.path)
                break
            error = error.__cause__
        return report

    def _forget(self, path):
        """Forget a module whose import broke off: pytest keeps it, and would find no test in it."""
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == str(path):
                del sys.modules[name]


def pytest_configure(config):
    import torch
    from hypothesis import settings

    config.pluginmanager.register(OptionalPackages())
    # Examples differ in time by the load of the machine, not by what they test.
    settings.register_profile("no deadline", deadline=None)
    settings.load_profile("no deadline")

    # A shell that starts this in the background (`make test &`, `nohup make test`) has Ctrl-C
    # ignored, which children inherit; the tests press it.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    if "PYTEST_XDIST_WORKER" in os.environ:
        torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    import torch

    reasons = {}
    if not os.environ.get("ASPECT_DATA"):
        reasons["data"] = "ASPECT_DATA is not set"
    if not torch.cuda.is_available():
        reasons["gpu"] = "there is no CUDA device"
    for item in items:
        for mark, reason in reasons.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True)
def _logs_as_before():
    """Scripts of `benchmarks/` make our logger quiet; tests after theirs read it."""
    logger = logging.getLogger("aspect")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture
def small_graph():
    """Thirty labelled nodes: two classes, both kinds of neighbourhood."""
    from aspect import mixed_graph

    return mixed_graph(num_nodes=30, degree=4.0, num_features=6, seed=0)
