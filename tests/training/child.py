"""Processes that tests may kill: a server that imports everything once and forks for every task.

The server reads one JSON object a line, `{"task": name, ...arguments}`, forks, and answers with the
child's process id and, when the child has ended, with its exit status (minus the signal's number).
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

import aspect.data.files
import aspect.data.tensors
from aspect.config import to_yaml
from aspect.data.files import replacing
from aspect.data.synthetic import mixed_graph
from aspect.errors import AspectError
from aspect.estimator import Embedder
from aspect.training.folder import RunFolder

INTERRUPTED, REFUSED, BROKEN = 130, 2, 70


def train(
    out: str,
    settings: dict[str, Any],
    seconds_per_epoch: float = 0.0,
    hold_at: int = 0,
    die: str = "",
    die_at: int = 3,
) -> None:
    """Train into a folder, resuming what is there.

    After epoch `hold_at` it waits to be killed; `die` names a moment of a checkpoint's write.
    """
    path = Path(out)
    labelled = mixed_graph(num_nodes=60, num_features=8, seed=0)
    model = Embedder("aspect", seed=3, device="cpu", **settings)
    if die:
        die_while_writing(die, die_at)
    config = to_yaml({"seed": 3, "settings": settings})
    with RunFolder.open(path, config, resume=True, checkpoint_every=5) as folder:
        if folder.is_complete:
            return
        folder.on_epoch = lambda report: time.sleep(
            60 if report.epoch == hold_at else seconds_per_epoch
        )
        model.fit(labelled, recorder=folder)
        model.save(path / "model.safetensors")
        with replacing(path / "embeddings.npy", overwrite=True) as file:
            np.save(file, model.embed(labelled).numpy())
        folder.complete(
            {"epochs": model.result.epochs, "stopped_early": model.result.stopped_early}
        )


def die_while_writing(moment: str, at: int) -> None:
    """Kill this process at its `at`-th checkpoint: `half-written`, `written` or `renamed`."""
    count = 0
    original = aspect.data.tensors.replacing

    @contextmanager
    def deadly(path: Path, *, overwrite: bool) -> Iterator[Any]:
        nonlocal count
        count += 1
        with original(path, overwrite=overwrite) as file:
            yield _HalfWriter(file) if count == at and moment == "half-written" else file
            if count == at and moment == "written":
                file.flush()
                kill_self()
        if count == at and moment == "renamed":
            kill_self()

    aspect.data.tensors.replacing = deadly


class _HalfWriter:
    def __init__(self, file: Any) -> None:
        self.file = file

    def write(self, content: bytes) -> None:
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        kill_self()


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hold(out: str) -> None:
    """Hold a run's folder until killed."""
    with RunFolder.open(Path(out), "held: true\n", resume=True):
        (Path(out) / "metrics.jsonl").write_text("")
        time.sleep(60)


def log_limited(out: str, limit: int) -> None:
    """Train where no file may grow beyond `limit` bytes, so that the log fills its disk first."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    train(out, {"epochs": 40, "width": 4, "order": 1})


def open_without_rights(out: str) -> None:
    """Open a folder as a user who may only read it; root may always write, so root steps down."""
    if os.geteuid() == 0:
        os.setuid(65534)
    with RunFolder.open(Path(out), "x: 1\n", resume=True):
        pass


def watch_generators() -> None:
    """Train and embed; fail if a generator that is everyone's was touched."""
    graph = mixed_graph(num_nodes=40, num_features=8, seed=0)
    settings = {"epochs": 3, "width": 4, "order": 2, "negatives": 5, "views": "both"}
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    Embedder("aspect", device="cpu", **settings).fit(graph).embed(graph)
    after = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    assert torch.equal(before[0], after[0]), "torch"
    np.testing.assert_array_equal(before[1][1], after[1][1])
    assert before[1][2:] == after[1][2:], "numpy"
    assert before[2] == after[2], "python"


TASKS = {
    task.__name__: task
    for task in (
        train,
        hold,
        log_limited,
        open_without_rights,
        watch_generators,
    )
}


def perform(request: dict[str, Any], errors: TextIO) -> int:
    """The exit code of a task; what it says goes to a file."""
    try:
        TASKS[request.pop("task")](**request)
    except AspectError as error:
        errors.write(f"{type(error).__name__}: {error}")
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException:
        errors.write(traceback.format_exc())
        return BROKEN
    return 0


def answer(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def serve(errors: Path) -> None:
    torch.set_num_threads(1)
    # torch imports much of itself at the first step; done here, no child has to.
    graph = mixed_graph(num_nodes=10, num_features=2, seed=0)
    Embedder("aspect", epochs=1, width=2, order=1, device="cpu").fit(graph)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            with errors.open("w") as words:
                code = perform(json.loads(line), words)
            os._exit(code)
        answer(child)
        answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
