"""Stage 6: the one loop, and what it leaves on disk."""

from typing import TYPE_CHECKING

from aspect.exports import exporting

if TYPE_CHECKING:
    from aspect.training.health import Health
    from aspect.training.outlook import Estimate, estimate
    from aspect.training.trainer import EpochReport, Recorder, Snapshot, TrainingResult, train

__all__ = [
    "EpochReport",
    "Estimate",
    "Health",
    "Recorder",
    "Snapshot",
    "TrainingResult",
    "estimate",
    "train",
]

__getattr__, __dir__ = exporting(__name__, __file__)
