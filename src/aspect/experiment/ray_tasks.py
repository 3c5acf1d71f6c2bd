"""An executor on a Ray cluster: runs of a bench and trials of a search on many machines."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from typing import Any, TypeVar

from aspect.errors import sentence_of
from aspect.experiment.executor import (
    ATTEMPTS,
    KILLED,
    QUIET_SECONDS,
    Finished,
    Lost,
    News,
    Quiet,
    Started,
)
from aspect.scale.ray_engine import connect

Task = TypeVar("Task")
Result = TypeVar("Result")


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
                outcome = _outcome(task, ended[0])
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


def _outcome(task: Task, reference: Any) -> Finished[Task, Any] | Lost[Task]:  # noqa: ANN401 - of Ray
    """What a task came to; without a trace where its worker died."""
    import ray

    try:
        return Finished(task, ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None) or error
        return Lost(task, sentence_of(cause), "".join(traceback.format_exception(error)))
    except ray.exceptions.RayError:
        return Lost(task, KILLED)
