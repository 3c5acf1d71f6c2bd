"""Who carries out the tasks of a grid: the cores of one machine, or a Ray cluster.

The seam is `Executor`: tasks in, news of them out. Its users know nothing of processes.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from aspect.errors import SettingsError, sentence_of

Task = TypeVar("Task")
Result = TypeVar("Result")

QUIET_SECONDS = 5.0  # without an event, before that is told

ATTEMPTS = 2  # a worker may be killed for reasons of its own; twice on one task is the task's fault

KILLED = (
    f"Its process was killed {ATTEMPTS} times, as happens when the memory runs out: lower the "
    "number of workers, or use a machine with more memory."
)


@dataclass(frozen=True)
class Started(Generic[Task]):
    """A worker took the task; it comes once per attempt."""

    task: Task


@dataclass(frozen=True)
class Finished(Generic[Task, Result]):
    """The task is done."""

    task: Task
    result: Result


@dataclass(frozen=True)
class Lost(Generic[Task]):
    """The task raised, or its worker died at every attempt."""

    task: Task
    reason: str  # a sentence
    trace: str = ""  # where it raised, for a log


@dataclass(frozen=True)
class Quiet:
    """Nothing happened for a while: an occasion to say how it stands."""


News = Started[Task] | Finished[Task, Result] | Lost[Task] | Quiet


class Executor(Protocol):
    """Carries out tasks side by side."""

    def run(
        self, work: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Generator[News[Task, Result], None, None]:
        """Apply `work` to every task and tell what becomes of it, in the order of the events.

        A task is drawn when a worker is free for it, so later tasks may depend on earlier results.
        Closing the generator stops what is under way: use it within `contextlib.closing`, since
        an error elsewhere may keep it alive.
        """
        ...


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LocalProcesses:
    """Worker processes on this machine, each of them used for many tasks.

    A worker that is killed costs no other worker anything: its task is given to a fresh one, once.
    Workers end with this process, however that ends. Work, tasks and results travel by pickle.

    Args:
        workers: Tasks at a time.
        environments: Variables for the environment of the first worker, the second and so on, over
            again where there are more workers: `CUDA_VISIBLE_DEVICES`, for example. Unless they or
            this process's own name `OMP_NUM_THREADS`, the workers share out the cores.
    """

    def __init__(self, workers: int, *, environments: Sequence[Mapping[str, str]] = ()) -> None:
        if workers < 1:
            raise SettingsError(f"Number of workers must be 1 or more. Got {workers}.")
        common = {
            "OMP_NUM_THREADS": str(max(1, available_cores() // workers)),
            # Threads that wait must not burn the time of the other workers' threads.
            "OMP_WAIT_POLICY": "PASSIVE",
        }
        common |= {name: os.environ[name] for name in common if name in os.environ}
        by_worker = islice(cycle(environments or [{}]), workers)
        self.environments = tuple({**common, **variables} for variables in by_worker)

    def run(
        self, work: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Generator[News[Task, Result], None, None]:
        """Apply `work` to every task; see `Executor.run`."""
        waiting, crew = iter(tasks), [_Worker(environment) for environment in self.environments]
        busy: dict[Future[Result], tuple[_Worker, Task, int]] = {}  # the attempt comes last
        # It waits in C: Ctrl-C never comes between the taking of a lock and its release, as it
        # can in `concurrent.futures.wait`.
        ended: SimpleQueue[Future[Result]] = SimpleQueue()

        def give(worker: _Worker, task: Task, attempt: int = 1) -> Started[Task]:
            future = worker.submit(work, task)
            busy[future] = worker, task, attempt
            future.add_done_callback(ended.put)
            return Started(task)

        try:
            for worker, task in zip(crew, waiting, strict=False):
                yield give(worker, task)
            while busy:
                try:
                    future = ended.get(timeout=QUIET_SECONDS)
                except Empty:
                    yield Quiet()
                    continue
                worker, task, attempt = busy.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    worker.stop()
                    if attempt < ATTEMPTS:
                        yield give(worker, task, attempt + 1)
                        continue
                yield _end(task, future)
                for following in islice(waiting, 1):
                    yield give(worker, following)
        finally:
            _stop(crew)


def _end(task: Task, future: Future[Result]) -> Finished[Task, Result] | Lost[Task]:
    error = future.exception()
    if error is None:
        return Finished(task, future.result())
    if isinstance(error, BrokenProcessPool):
        return Lost(task, KILLED)
    return Lost(task, sentence_of(error), "".join(traceback.format_exception(error)))


class _Worker:
    """One process at a time, begun when it is first needed; a pool of one, so it breaks alone."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.pool: ProcessPoolExecutor | None = None
        self.leash: Connection[Any, Any] | None = None

    def submit(self, work: Callable[[Task], Result], task: Task) -> Future[Result]:
        """Hand over a task; a process that died in idleness is replaced."""
        if self.pool is not None:
            try:
                return self.pool.submit(work, task)
            except BrokenProcessPool:
                self.stop()
        context = get_context("spawn")  # a fork would copy torch's threads and a GPU's context
        end, self.leash = context.Pipe(duplex=False)
        self.pool = ProcessPoolExecutor(1, context, initializer=_settle, initargs=(end,))
        with end, _inherited(self.environment):
            return self.pool.submit(work, task)  # the process begins here

    def cut_loose(self) -> None:
        """End the process, whatever it does, and do not wait for that."""
        if self.leash is not None:
            self.leash.close()
        self.leash = None

    def stop(self) -> None:
        """End the process, whatever it does, and wait until it is gone."""
        self.cut_loose()
        if self.pool is not None:
            self.pool.shutdown(wait=True, cancel_futures=True)
        self.pool = None


@contextmanager
def _inherited(environment: Mapping[str, str]) -> Iterator[None]:
    """What a process that begins now is born with: these variables, and no ear for Ctrl-C.

    Ctrl-C reaches all processes of a terminal, but only the first may decide what becomes of it.
    """
    before = {name: os.environ.get(name) for name in environment}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _stop(crew: Sequence[_Worker]) -> None:
    """End all workers, which is soon: a second Ctrl-C must not leave any of them behind."""
    # A thread other than the main one never gets to see a Ctrl-C.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    try:
        for worker in crew:
            worker.cut_loose()  # all of them first, so that they end side by side
        for worker in crew:
            worker.stop()
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _settle(leash: Connection[Any, Any]) -> None:
    """The first thing that a worker does: see to it that it ends with its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(leash,), daemon=True).start()


def _end_with_parent(leash: Connection[Any, Any]) -> None:
    parent = parent_process()
    assert parent is not None  # a worker has one
    wait_for_any([leash, parent.sentinel])  # the leash is cut, or its holder is gone
    os._exit(1)


# Elsewhere: a cluster


class RayTasks:
    """Tasks on the cluster that `aspect.scale.ray_engine.connect` joins or starts.

    A task whose worker is killed is run again, once. Work, tasks and results travel by pickle;
    files that they name must be seen by all machines.

    Args:
        workers: Tasks at a time; none: as many as the cluster has CPUs, or GPUs where they are
            used.
        gpus: Of a GPU, what each task takes.
    """

    def __init__(self, workers: int | None = None, *, gpus: float = 0.0) -> None:
        from aspect.scale.ray_engine import connect

        cores = connect(workers)
        self.workers, self.gpus = workers or cores, gpus

    def run(
        self, work: Callable[[Task], Result], tasks: Iterable[Task]
    ) -> Generator[News[Task, Result], None, None]:
        """Apply `work` to every task; see `Executor.run`."""
        import ray

        remote: Any = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=0)(_call)
        shared, waiting = ray.put(work), iter(tasks)
        busy: dict[Any, tuple[Task, int]] = {}  # the attempt comes last

        def give(task: Task, attempt: int = 1) -> Started[Task]:
            busy[remote.remote(shared, task)] = task, attempt
            return Started(task)

        try:
            for task in islice(waiting, self.workers):
                yield give(task)
            while busy:
                ended, _ = ray.wait(list(busy), num_returns=1, timeout=QUIET_SECONDS)
                if not ended:
                    yield Quiet()
                    continue
                task, attempt = busy.pop(ended[0])
                outcome = _ray_outcome(task, ended[0])
                if isinstance(outcome, Lost) and not outcome.trace and attempt < ATTEMPTS:
                    yield give(task, attempt + 1)
                    continue
                yield outcome
                for following in islice(waiting, 1):
                    yield give(following)
        finally:
            for reference in busy:
                ray.cancel(reference, force=True)


def _call(work: Callable[[Task], Result], task: Task) -> Result:
    return work(task)


def _ray_outcome(task: Task, reference: Any) -> Finished[Task, Any] | Lost[Task]:  # noqa: ANN401 - of Ray
    """What a task came to; without a trace where its worker died."""
    import ray

    try:
        return Finished(task, ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None) or error
        return Lost(task, sentence_of(cause), "".join(traceback.format_exception(error)))
    except ray.exceptions.RayError:
        return Lost(task, KILLED)
