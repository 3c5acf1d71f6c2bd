"""Time and memory of a training, estimated from two trial epochs before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aspect.data.graph import Graph
from aspect.methods.base import Method
from aspect.provenance import forget_peak, peak_bytes
from aspect.training.progress import duration
from aspect.training.trainer import MEMORY_SETTINGS, try_epochs

TRIAL_EPOCHS = 2
FEWEST_EPOCHS = 20  # of a training that is worth a trial
WORTH_TELLING = 10.0  # seconds
LONG = 600.0  # seconds; beyond, there is advice
LINEAR = "ggd"  # a method whose epochs take a time linear in the nodes
NEGATIVES = 1000  # an example


@dataclass(frozen=True)
class Estimate:
    """What a training on a device will take."""

    epochs: int
    nodes: int
    seconds: float  # in all
    bytes: int  # at most at any time: of the GPU's tensors, or of the whole process
    device: str  # cpu or cuda
    may_stop_early: bool

    def sentences(self, method: Method, told: str) -> Iterator[str]:
        """In words, with advice if it is long; `told` is what the method said by itself."""
        if self.seconds < WORTH_TELLING:
            return
        most = "at most " if self.may_stop_early else ""
        place = "the CPU" if self.device == "cpu" else "the GPU"
        yield (
            f"{self.epochs} epochs will take {most}about {duration(self.seconds)} and "
            f"{self.bytes / 1e9:,.1f} GB of memory on {place}, by {TRIAL_EPOCHS} trial epochs."
        )
        if self.seconds > LONG:
            yield f"That is long. Faster: {', '.join(self._advice(method, told))}."

    def _advice(self, method: Method, told: str) -> Iterator[str]:
        settings = method.config.model_dump()
        held = {name: settings[name] for name in MEMORY_SETTINGS if name in settings}
        for name, value in held.items():
            if name == "negatives" and self.nodes <= NEGATIVES:
                continue
            if value is None and f"{name}=" not in told:
                yield f"{name}={NEGATIVES}" if name == "negatives" else f"a {name}"
        lower = [name for name, value in held.items() if value is not None]
        if lower:
            yield f"a lower {' or '.join(lower)}"
        yield "fewer epochs"
        if self.device == "cpu":
            yield "a GPU"
        if method.row_plan() is not None:
            yield "batches of rows (--scale rows)"
        if method.cost == "quadratic":
            yield f"a method of linear cost such as {LINEAR}"


def estimate(method: Method, graph: Graph, *, seed: int) -> Estimate | None:
    """Train a method for two epochs and throw it away; None for a training that is short anyway.

    Nothing is drawn but from generators of its own: a training that follows is the same, bit for
    bit, as one without a trial.
    """
    epochs = method.config.epochs
    if not method.trainable or epochs < FEWEST_EPOCHS:
        return None
    forget_peak(graph.device)
    *_, last = try_epochs(method, graph, seed=seed, epochs=TRIAL_EPOCHS)
    return Estimate(
        epochs,
        graph.num_nodes,
        seconds=last * epochs * method.epoch_factor(graph),
        bytes=peak_bytes(graph.device),
        device=graph.device.type,
        may_stop_early=method.config.patience is not None or method.config.stop_on_collapse,
    )
