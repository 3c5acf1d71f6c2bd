"""Tasks in worker processes: drawn when they are needed, lost by nobody's death but their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

import aspect
from aspect.errors import SettingsError
from aspect.experiment.executor import Finished, LocalProcesses, Lost, Quiet, Started, _Worker
from experiment.tasks import (
    double,
    fail,
    is_alive,
    note_and_die,
    note_and_hold,
    process_and_threads,
    wait_for,
)

SOURCES = Path(aspect.__file__).parent.parent


def results(news):
    return {each.task: each.result for each in news if isinstance(each, Finished)}


def test_every_task_is_started_and_finished_once():
    news = list(LocalProcesses(2).run(double, range(7)))
    assert results(news) == {number: 2 * number for number in range(7)}
    told = [type(each) for each in news if not isinstance(each, Quiet)]
    assert Counter(told) == {Started: 7, Finished: 7}


def test_silence_is_told_so_that_one_can_say_how_it_stands(tmp_path, monkeypatch):
    monkeypatch.setattr("aspect.experiment.executor.QUIET_SECONDS", 0.01)
    with closing(LocalProcesses(1).run(note_and_hold, [str(tmp_path / "pid")])) as news:
        assert [type(next(news)) for _ in range(3)] == [Started, Quiet, Quiet]


def test_no_tasks_need_no_worker():
    assert list(LocalProcesses(3).run(double, [])) == []


def test_tasks_are_drawn_when_a_worker_is_free_and_may_depend_on_results():
    known = []

    def ask():
        number = 1
        while number < 20:
            yield number
            number = known[-1]  # fails if it is asked before the answer is there

    for news in LocalProcesses(1).run(double, ask()):
        known += [news.result] if isinstance(news, Finished) else []
    assert known == [2, 4, 8, 16, 32]


def test_never_more_tasks_are_drawn_than_there_are_workers():
    open_tasks = most = 0

    def draw():
        nonlocal open_tasks, most
        for number in range(6):
            open_tasks += 1
            most = max(most, open_tasks)
            yield number

    for news in LocalProcesses(2).run(double, draw()):
        open_tasks -= isinstance(news, Finished)
    assert most == 2


def test_workers_are_used_again_and_know_their_place(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    places = [{"PLACE": place, "OMP_NUM_THREADS": "3"} for place in ("left", "right")]
    executor = LocalProcesses(2, environments=places)
    found = results(executor.run(process_and_threads, range(8))).values()
    assert len({pid for pid, *_ in found}) <= 2
    assert {place for _, _, place, _ in found} <= {"left", "right"}
    assert {threads for _, threads, _, _ in found} == {"3"}
    assert not any(loaded for *_, loaded in found), "the threads are set before torch is imported"
    assert "OMP_NUM_THREADS" not in os.environ
    assert "PLACE" not in os.environ


def test_what_raises_is_lost_with_its_sentence_and_others_go_on():
    news = list(LocalProcesses(1).run(fail, ["ours", "theirs", "good"]))
    lost = {each.task: each for each in news if isinstance(each, Lost)}
    assert lost["ours"].reason == "The graph is wrong."
    assert lost["theirs"].reason == "ZeroDivisionError: none left."
    assert "in fail" in lost["theirs"].trace
    assert results(news) == {"good": "good"}


def test_a_killed_worker_costs_one_attempt_and_no_other_worker(tmp_path):
    tasks = [(str(tmp_path / f"{k}"), 1 if k == 1 else 0) for k in range(4)]
    news = list(LocalProcesses(2).run(note_and_die, tasks))
    attempts = [len(Path(path).read_text().split()) for path, _ in tasks]
    assert attempts == [1, 2, 1, 1]
    assert set(results(news)) == set(tasks)
    assert sum(isinstance(each, Started) for each in news) == 5
    assert len(set(results(news).values())) <= 3, "only the killed one was replaced"


def test_what_kills_its_worker_twice_is_lost(tmp_path):
    tasks = [(str(tmp_path / "deadly"), 9), (str(tmp_path / "good"), 0)]
    news = list(LocalProcesses(1).run(note_and_die, tasks))
    (lost,) = [each for each in news if isinstance(each, Lost)]
    assert lost.task == tasks[0]
    assert "killed 2 times" in lost.reason
    assert len((tmp_path / "deadly").read_text().split()) == 2
    assert set(results(news)) == {tasks[1]}


def test_closing_early_ends_the_workers(tmp_path):
    path = tmp_path / "pid"
    news = LocalProcesses(1).run(note_and_hold, [str(path)])
    next(news)
    wait_for(path.exists)
    pid = int(path.read_text())
    assert is_alive(pid)
    news.close()
    assert not is_alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
def test_workers_end_with_their_parent(tmp_path, number):
    paths = [tmp_path / "one", tmp_path / "two"]
    parent = subprocess.Popen(
        [sys.executable, Path(__file__).parent / "tasks.py", *paths],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: all(path.exists() for path in paths))
        pids = [int(path.read_text()) for path in paths]
        assert all(map(is_alive, pids))
        parent.send_signal(number)
        parent.wait(timeout=30)
        wait_for(lambda: not any(map(is_alive, pids)))
    finally:
        parent.kill()
        parent.wait()


def test_an_interrupt_that_reaches_a_worker_is_not_its_business(tmp_path):
    path = tmp_path / "pid"
    news = LocalProcesses(1).run(note_and_hold, [str(path)])
    next(news)
    wait_for(path.exists)
    pid = int(path.read_text())
    os.kill(pid, signal.SIGINT)
    time.sleep(0.3)
    assert is_alive(pid)
    news.close()


def test_a_second_interrupt_leaves_no_worker_behind(tmp_path, monkeypatch):
    stop, stopped = _Worker.stop, []

    def interrupted(worker):
        os.kill(os.getpid(), signal.SIGINT)
        stop(worker)
        stopped.append(worker)

    monkeypatch.setattr(_Worker, "stop", interrupted)
    paths = [tmp_path / "one", tmp_path / "two"]
    news = LocalProcesses(2).run(note_and_hold, map(str, paths))
    for _ in paths:
        next(news)
    wait_for(lambda: all(path.exists() for path in paths))
    heeded = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        news.throw(KeyboardInterrupt)
    assert len(stopped) == 2
    assert not any(is_alive(int(path.read_text())) for path in paths)
    assert signal.getsignal(signal.SIGINT) == heeded


def test_no_workers_are_refused():
    with pytest.raises(SettingsError, match=r"1 or more\. Got 0"):
        LocalProcesses(0)
