"""An attack from start to end: killed at any moment it ends as if nothing had happened."""

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aspect
from aspect.attacks.base import apply_flips, one_thread
from aspect.attacks.file import PerturbationFile
from aspect.attacks.run import AttackRequest, plan_attacks, run_attack
from aspect.data.graph import Graph, label_graph, unlabelled
from aspect.errors import GraphError, SettingsError
from attacks import attempts
from attacks.attempts import CPU, Killed, killing, labelled_graph, plan, plan_toy, run, timeless

SOURCES = Path(aspect.__file__).parent.parent
REAL = {
    "implicit": {"solver": "implicit", "flips_per_gradient": 3, "unnoticeable": True},
    "unrolled": {"solver": "unrolled", "flips_per_gradient": 3, "inner_steps": 10},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


def killed_and_resumed(planned, path, after):
    """Kill after so many steps, again and again, until the attack is through."""
    processes = 0
    while True:
        processes += 1
        try:
            return run(planned, path, resume=True, on_progress=killing(after)), processes
        except Killed:
            assert path.exists() == (after > 0)


@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_toy_ends_with_the_same_bytes(tmp_path, path, after):
    whole = run(plan_toy(), tmp_path / "whole")
    planned = plan_toy()
    trace, processes = killed_and_resumed(planned, path, after)
    assert processes == -(-7 // after)  # 20 flips are seven steps of three at most
    assert [state is None for state in planned.attack.states] == [True] + [False] * (processes - 1)
    assert timeless(tmp_path / "b", trace) == timeless(tmp_path / "c", whole)
    assert PerturbationFile.read(path).facts == trace.facts
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.safetensors", "b", "c", "whole"]


@pytest.mark.parametrize("settings", REAL.values(), ids=REAL)
def test_a_killed_metattack_ends_with_the_same_bytes(tmp_path, path, settings):
    labelled = labelled_graph()
    whole = run(plan(labelled, **settings), tmp_path / "whole")
    trace, processes = killed_and_resumed(plan(labelled, **settings), path, after=2)
    assert processes > 2
    assert timeless(tmp_path / "b", trace) == timeless(tmp_path / "c", whole)


def test_a_process_killed_by_the_system_is_resumed(tmp_path, path):
    settings = {"flips_per_gradient": 1, "flips": 30}
    child = subprocess.Popen(
        [sys.executable, attempts.__file__, str(path)],
        env={"PYTHONPATH": f"{SOURCES}:{Path(attempts.__file__).parent.parent}"},
    )
    deadline = time.monotonic() + 60
    versions = set()
    while len(versions) < 3:
        assert time.monotonic() < deadline, "it does not get on"
        assert child.poll() is None, "it ended by itself"
        if path.exists():
            versions.add(path.stat().st_mtime_ns)
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = PerturbationFile.read(path)
    assert not before.facts.complete
    assert before.state
    planned = plan(labelled_graph(), **settings)
    trace = run(planned, path, resume=True)
    whole = run(planned, tmp_path / "whole")
    assert torch.equal(trace.keys[: len(before.keys)], before.keys)
    assert timeless(tmp_path / "b", trace) == timeless(tmp_path / "c", whole)


@pytest.mark.parametrize("flips", [5, 9, 30])
def test_one_that_was_interrupted_may_go_on_to_another_budget(tmp_path, path, flips):
    with pytest.raises(Killed):
        run(plan_toy(flips=20), path, on_progress=killing(3))
    unfinished = PerturbationFile.read(path)
    assert (len(unfinished.first(9)), unfinished.facts.complete) == (9, False)
    with pytest.raises(SettingsError, match="holds 9 flips"):
        unfinished.first(10)
    trace = run(plan_toy(flips=flips), path, resume=True)
    whole = run(plan_toy(flips=flips), tmp_path / "whole")
    assert timeless(tmp_path / "b", trace) == timeless(tmp_path / "c", whole)
    assert PerturbationFile.read(path).facts.complete
    assert trace.facts.seconds > unfinished.facts.seconds > 0


def test_threads_are_as_before(path):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        run(plan_toy(), path, on_progress=lambda _: seen.append(torch.get_num_threads()))
        assert (set(seen), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_the_file_tells_all_that_was_decided():
    labelled = labelled_graph()
    facts = plan(labelled, solver="unrolled", split=3, seed=5).facts
    assert (facts.kind, facts.solver, facts.split, facts.seed) == ("metattack", "unrolled", 3, 5)
    assert "graph convolution" in facts.surrogate
    # What depends on the graph's size is resolved, so that the rule may change.
    assert facts.settings["flips_per_gradient"] == max(1, labelled.graph.num_edges // 100)
    assert facts.splits_sha256 is None
    assert (facts.graph.nodes, facts.graph.edges) == (60, labelled.graph.num_edges)


def test_published_splits_are_named_by_their_checksum():
    labelled = labelled_graph()
    masks = {
        part: (torch.arange(60) // 20 == place).repeat(2, 1)
        for place, part in enumerate(("train", "validation", "test"))
    }
    published = replace(labelled, masks=masks)
    facts = plan(published, splits="published", split=1).facts
    assert len(facts.splits_sha256) == 64
    with pytest.raises(SettingsError, match=r"from 0 to 1, the published splits .*Got 2"):
        plan(published, splits="published", split=2)
    alike = replace(published, labels=published.labels * ~masks["train"][1])
    with pytest.raises(GraphError, match=r"at least 2 classes\. Published split 1 has one"):
        plan(alike, splits="published", split=1)


def bare(num_edges=0):
    edges = torch.arange(10)
    pairs = torch.stack([edges, (edges + 1) % 10])[:, :num_edges]
    return Graph.build(torch.rand(10, 3), pairs)


@pytest.mark.parametrize(
    ("labelled", "request_", "error", "words"),
    [
        (None, {}, SettingsError, "a budget or a number of flips. Got neither"),
        (None, {"budget": 0.1, "flips": 3}, SettingsError, "Got both"),
        (None, {"budget": 1.5}, SettingsError, "ratio in (0, 1]"),
        (None, {"budget": 1e-5}, SettingsError, "allows no flip"),
        (None, {"flips": 0}, SettingsError, "from 1 to 1770, the pairs of nodes. Got 0"),
        (None, {"flips": 1771}, SettingsError, "from 1 to 1770, the pairs of nodes. Got 1771"),
        (None, {"flips": 3, "settings": {"rigde": 1}}, SettingsError, "Did you mean 'ridge'?"),
        (None, {"flips": 3, "settings": {"solver": "magic"}}, SettingsError, "'solver'"),
        (unlabelled(bare(8)), {"flips": 3}, GraphError, "no node has one"),
        (label_graph(bare(), torch.arange(10) % 2), {"flips": 3}, GraphError, "needs edges"),
        (label_graph(bare(8), torch.zeros(10).long()), {"flips": 3}, GraphError, "2 classes"),
    ],
)
def test_what_cannot_be_done_is_refused_beforehand(labelled, request_, error, words):
    with pytest.raises(error) as refusal:
        plan_attacks(labelled or labelled_graph(), "g", AttackRequest(**request_), [0], CPU)
    assert words in str(refusal.value)


def test_flips_without_a_disk_are_those_in_the_file(tmp_path, path):
    progress = []
    planned = plan_toy()
    file = run_attack(planned, PerturbationFile(planned.facts), progress.append)
    assert list(tmp_path.iterdir()) == []
    assert [step.made for step in progress] == [3, 6, 9, 12, 15, 18, 20]
    assert {step.wanted for step in progress} == {20}
    assert progress[0].seconds_left > 0 == progress[-1].seconds_left
    assert timeless(tmp_path / "a", file) == timeless(tmp_path / "b", run(plan_toy(), path))


def test_an_attack_that_knows_no_weights_says_so_once(caplog):
    labelled = labelled_graph()
    weights = torch.linspace(1, 2, labelled.graph.num_edges)
    pairs = labelled.graph.edge_index[
        :, labelled.graph.edge_index[0] < labelled.graph.edge_index[1]
    ]
    graph = Graph.build(labelled.graph.features, pairs, weights=weights)
    weighted = replace(labelled, graph=graph)
    planned, other = plan(weighted), plan(labelled)
    (record,) = caplog.records
    assert "metattack knows no edge weights" in record.getMessage()
    with one_thread():
        flips = planned.begin().advance(3)
        assert torch.equal(flips, other.begin().advance(3))
    assert apply_flips(graph, flips).weights is not None
