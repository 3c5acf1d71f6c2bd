"""Files of a run's folder; nothing heavy is imported, so that a wrong path is refused at once.

- config.yaml: what was asked for; `aspect train --config` takes it as it is
- start.json: where that came from, where the data lies and on which device; `--resume` reads it
- metrics.jsonl: every loss term and the gate, one line an epoch; tensorboard/ if wanted
- checkpoint.safetensors: the latest snapshot, until the run is complete
- model.safetensors: the trained method
- embeddings.npy, policy.npy, ids.txt
- bases/, checkpoints/, embedding.json: of a run of a store, until it is complete
- features.json: how columns of a node table became features; the model knows it too
- manifest.json: the SHA-256 of every file of the run, checked whenever it is opened
- record.json: seeds, versions, timings; written last, so its presence says "complete"
- .lock: taken while a process works here; what is left of it afterwards means nothing
"""

from __future__ import annotations

import shlex
from pathlib import Path

from aspect.data.files import is_file, is_present
from aspect.errors import RunError

CONFIG, START, METRICS = "config.yaml", "start.json", "metrics.jsonl"
CHECKPOINT, TENSORBOARD, RECORD = "checkpoint.safetensors", "tensorboard", "record.json"
MODEL, EMBEDDINGS, POLICY, IDS, FEATURES = OUTPUTS = (
    "model.safetensors",
    "embeddings.npy",
    "policy.npy",
    "ids.txt",
    "features.json",
)
BASES, CHECKPOINTS, PROGRESS = "bases", "checkpoints", "embedding.json"  # of a store

# Many a folder holds a config.yaml; only beside one of these it tells of a run.
SIGNS_OF_A_RUN = {START, METRICS, CHECKPOINT, RECORD}


def is_run(folder: Path) -> bool:
    """Whether a run lives there, complete or not."""
    return is_file(folder / CONFIG) and any(is_present(folder / name) for name in SIGNS_OF_A_RUN)


def check_run(run: Path, *, is_complete: bool = True) -> None:
    """Refuse what is no run, or no complete one."""
    train = f"aspect train --out {shlex.quote(str(run))}"
    if not is_file(run / CONFIG):
        raise RunError(f"{run} is not a run's folder. Train one with: {train}.")
    if is_complete and not is_file(run / RECORD):
        raise RunError(f"The run in {run} is not complete. Go on with: {train} --resume.")
