"""The file of a running attack: gone on with by the same attack only, never lost by a refusal."""

from dataclasses import replace

import pytest

from aspect.attacks.run import run_attack
from aspect.attacks.trace import Trace
from aspect.attacks.trace_file import TraceFile
from aspect.errors import CheckpointError, FileError, GraphError, RunError
from attacks.attempts import Killed, killing, labelled_graph, plan, plan_toy, run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


def test_a_complete_file_is_left_alone(path):
    run(plan_toy(), path)
    content, changed = path.read_bytes(), path.stat().st_mtime_ns
    planned = plan_toy(flips=12)
    assert len(run(planned, path, resume=True).keys) == 20
    assert planned.strategy.begun == []
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, changed)
    with pytest.raises(RunError, match="complete with 20 flips, and cannot go on to 21"):
        run(plan_toy(flips=21), path, resume=True)


def test_a_file_that_is_there_is_refused_or_replaced(path):
    path.write_text("mine")
    with pytest.raises(FileError, match=r"exists\. Pass --resume .* --overwrite"):
        run(plan_toy(), path)
    with pytest.raises(CheckpointError, match="Pass --overwrite to begin anew"):
        run(plan_toy(), path, resume=True)
    assert path.read_text() == "mine"
    planned = plan_toy()
    run_attack(planned, TraceFile.open(path, planned.facts, overwrite=True))
    assert len(Trace.read(path).keys) == 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"split": 1}, "with split 0. Got 1."),
        ({"seed": 1}, "with seed 0. Got 1."),
        ({"splits": "class-balanced"}, "with splits 'random'. Got 'class-balanced'."),
    ],
)
def test_another_attack_is_not_gone_on_with(path, changes, words):
    run(plan_toy(), path)
    with pytest.raises(RunError) as refusal:
        run(plan_toy(**changes), path, resume=True)
    assert words in str(refusal.value)


def test_other_settings_kinds_and_graphs_are_not_gone_on_with(path):
    labelled = labelled_graph()
    run(plan(labelled, "random"), path)
    with pytest.raises(RunError, match=r"with kind 'random'\. Got 'metattack'"):
        run(plan(labelled), path, resume=True)
    with pytest.raises(RunError, match=r"with setting keep_last_edges True\. Got False"):
        run(plan(labelled, "random", keep_last_edges=False), path, resume=True)
    with pytest.raises(GraphError, match="belongs to another graph, 'small' with sha256"):
        run(plan(labelled_graph(80), "random"), path, resume=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "cuda"}, "with device 'cuda'. Got 'cpu'. Pass --device cuda"),
        ({"versions": {"torch": "1.0"}}, "with torch version '1.0'"),
    ],
)
def test_the_machine_matters_only_while_there_is_more_to_find(path, change, words):
    planned = plan_toy()
    with pytest.raises(Killed):
        run(planned, path, on_progress=killing(3))
    for complete in (False, True):
        trace = Trace.read(path)
        facts = trace.facts.model_copy(update={**change, "complete": complete})
        replace(trace, facts=facts).write(path)
        if complete:
            assert len(run(plan_toy(flips=9), path, resume=True).keys) == 9
        else:
            with pytest.raises(RunError) as refusal:
                run(planned, path, resume=True)
            assert words in str(refusal.value)


def test_two_processes_do_not_write_one_file(path):
    planned = plan_toy()
    first, second = (TraceFile.open(path, planned.facts) for _ in range(2))
    run_attack(planned, first)
    content = path.read_bytes()
    with pytest.raises(RunError, match="Another process has written"):
        run_attack(planned, second)
    assert path.read_bytes() == content


def test_a_folder_is_made_when_there_is_something_to_put_into_it(tmp_path):
    planned = plan_toy()
    TraceFile.open(tmp_path / "new" / "a", planned.facts)
    assert list(tmp_path.iterdir()) == []
    run(planned, tmp_path / "new" / "deep" / "a")
    assert len(Trace.read(tmp_path / "new" / "deep" / "a").keys) == 20
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileError, match="Cannot write"):
        run(planned, tmp_path / "file" / "a")
