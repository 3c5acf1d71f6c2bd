"""A local Ray cluster of two workers: the results of one process, though workers are killed."""

import os
import signal
import sys
from functools import partial

import numpy as np
import pytest
import ray
import torch
from torch.testing import assert_close

from aspect.cli.main import run
from aspect.data.synthetic import mixed_graph
from aspect.experiment.executor import Finished, Lost, Quiet, RayTasks, Started
from aspect.experiment.store import BenchFolder
from aspect.methods.aspect import AspectConfig, AspectMethod
from aspect.randomness import isolated_seed
from aspect.scale.bases import BasisSettings, compute_bases
from aspect.scale.ray_engine import RayTraining, _propagate, connect, propagate_by_ray
from aspect.scale.rows import RowBatches, row_plan_of, stored_views
from aspect.scale.store import GraphStore
from aspect.settings import RowSettings
from aspect.training.trainer import train

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

PLAN = """
title: Two small runs
entries:
  - {name: raw, title: Raw features}
  - {name: ggd, title: GGD}
graphs: [mixed]
splits: random
num_splits: 2
seeds: 1
set: {epochs: 2, width: 8}
"""
ROWS = RowSettings(batch=64, queue=32, pool=2)
CONFIG = AspectConfig(
    epochs=4, order=2, width=8, gate_width=4, dropout=0, input_dropout=0, batch_norm=True
)


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    connect(workers=2)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    graph = mixed_graph(num_nodes=200, seed=3)
    return GraphStore.from_graph(graph, tmp_path_factory.mktemp("large") / "store", 64)


def die_once(marker):
    """Kill this process, as a machine would go; a second one lives on."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Mortal(AspectMethod):
    """ASPECT whose first worker dies in the third epoch."""

    def __init__(self, config, num_features, marker=None):
        super().__init__(config, num_features)
        self.marker = marker

    def loss_terms(self, graph, step):
        if self.marker is not None and step.epoch == 3 and step.rank == 1:
            die_once(self.marker)
        return super().loss_terms(graph, step)


def method_of(store, marker=None):
    with isolated_seed(0):
        return Mortal(CONFIG, store.num_features, marker)


class TestPropagation:
    def test_the_bases_are_those_of_one_process_though_a_worker_is_killed(self, store, tmp_path):
        marker = tmp_path / "killed"
        settings = BasisSettings(order=3, edge_drop=0.2, dtype="float16")

        def mortal(missing, block, previous):
            if block == 2:
                die_once(marker)
            return _propagate(missing, block, previous)

        engine = partial(propagate_by_ray, work=mortal)
        spread = compute_bases(store, tmp_path / "ray", settings, engine=engine)
        alone = compute_bases(store, tmp_path / "alone", settings)
        assert marker.exists()
        everything = slice(0, store.num_nodes)
        np.testing.assert_array_equal(spread.rows(everything), alone.rows(everything))


class TestTasks:
    def test_a_task_whose_worker_is_killed_is_run_again(self, tmp_path):
        marker = tmp_path / "killed"

        def work(task):
            if task == 1:
                die_once(marker)
            if task == 2:
                raise ValueError("Two is refused.")
            return 10 * task

        news = [one for one in RayTasks(2).run(work, range(4)) if not isinstance(one, Quiet)]
        ended = [one for one in news if not isinstance(one, Started)]
        assert {one.task: one.result for one in ended if isinstance(one, Finished)} == {
            0: 0,
            1: 10,
            3: 30,
        }
        assert [one.reason for one in ended if isinstance(one, Lost)] == [
            "ValueError: Two is refused."
        ]
        assert [one.task for one in news if isinstance(one, Started)].count(1) == 2

    def test_a_task_whose_worker_is_killed_every_time_is_lost(self):
        def work(_):
            os.kill(os.getpid(), signal.SIGKILL)

        *_, last = RayTasks(1).run(work, [0])
        assert isinstance(last, Lost)
        assert "killed 2 times" in last.reason

    @pytest.mark.slow
    def test_a_bench_has_the_records_of_one_process(self, tmp_path):
        plan = tmp_path / "plan.yaml"
        plan.write_text(PLAN)
        found = {}
        for engine in ("local", "ray"):
            out = tmp_path / engine
            words = ["bench", str(plan), "--engine", engine, "--workers", "1", "--out", str(out)]
            assert run([*words, "--device", "cpu"]) == 0
            records = BenchFolder(out).records()
            found[engine] = {record.cell.entry: record.scores for record in records}
        assert len(found["ray"]) == 2
        assert found["ray"] == found["local"]


class TestTraining:
    @pytest.mark.slow
    def test_two_workers_one_of_them_killed_end_with_the_model_of_one_process(
        self, store, tmp_path
    ):
        alone = method_of(store)
        views = stored_views(store, tmp_path / "bases", row_plan_of(alone), ROWS, seed=1)
        data = RowBatches(views, ROWS, seed=1, device=torch.device("cpu"))
        expected = train(alone, data, seed=1)
        marker = tmp_path / "killed"
        spread = method_of(store, marker)
        training = RayTraining(2, str(tmp_path / "storage"), "test", checkpoint_every=1)
        result = training.train(spread, views, ROWS, seed=1)
        assert marker.exists()
        assert result.epochs == expected.epochs == 4
        assert_close(result.values, expected.values, rtol=1e-4, atol=1e-5)
        # Not weight by weight: a bias before batch norm has no gradient but rounding.
        first, second = (
            torch.cat([output.embedding for _, _, output in data.outputs(method)])
            for method in (spread, alone)
        )
        assert_close(first, second, rtol=1e-3, atol=1e-3)
