"""The only training loop: it knows `Method` and nothing else, and nothing of files or devices."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from aspect.data.graph import Graph
from aspect.errors import CheckpointError, TrainingError, is_out_of_memory
from aspect.methods.base import Method, MethodConfig, Step
from aspect.randomness import seed_for
from aspect.training.data import Check, TrainingData
from aspect.training.gradients import Pass
from aspect.training.health import Health
from aspect.training.progress import Advance

logger = logging.getLogger(__name__)

FULL_RATE = "full_lr"  # a group's learning rate before its schedule
CHECK_EVERY = 10  # epochs between two checks for collapse; a check takes about as long as an epoch
# Devices that are not waited for in epochs between which nothing is looked at. So many of them at
# most, and for so many seconds: progress is told after the last one, and Ctrl-C is heard.
AHEAD_ON, MOST_AHEAD, SECONDS_AHEAD = ("cuda",), 32, 0.5

# Settings that bound the memory of a step, in methods that have them; unset, they bound nothing.
MEMORY_SETTINGS = (
    "width",
    "order",
    "negatives",
    "pairs_per_node",
    "batch_size",
    "sample",
    "exact_up_to",
    "candidates",
)


@dataclass
class EarlyStopping:
    """Counts epochs since the watched loss was last below its best; no patience: never stops."""

    patience: int | None
    best: float = math.inf
    best_epoch: int = 0

    def observe(self, epoch: int, watched: float) -> bool:
        """Note an epoch's loss; true if it is the best so far and worth keeping."""
        if self.patience is None or not watched < self.best:
            return False
        self.best, self.best_epoch = watched, epoch
        return True

    def is_over(self, epoch: int) -> bool:
        """Whether patience ran out."""
        return self.patience is not None and epoch - self.best_epoch >= self.patience


@dataclass
class CollapseStopping:
    """Watches the embedding's health; over when one that was healthy is close to collapse.

    An embedding that was never healthy stops nothing: many start near a common direction, and
    training may still lead them away from it.
    """

    is_on: bool
    healthy_epoch: int | None = None  # of the last check that passed
    is_over: bool = False

    def observe(self, epoch: int, *, is_collapsed: bool) -> bool:
        """Note the result of a check; true if the state is healthy and worth keeping."""
        if is_collapsed:
            self.is_over = self.healthy_epoch is not None
            return False
        self.healthy_epoch = epoch
        return True


@dataclass(frozen=True)
class EpochReport:
    """The numbers of one epoch."""

    epoch: int  # 1 is the first
    epochs: int  # as many as are planned
    values: dict[str, float]  # loss, its terms, and what the method monitors
    is_latest: bool = True  # no later epoch has changed the model since


@dataclass(frozen=True)
class Snapshot:
    """Everything that the rest of a training depends on, after some epoch.

    No generator's state is among it: each epoch derives its own from the seed and its number.
    """

    tensors: dict[str, Tensor]  # weights, buffers, optimiser moments, best and healthy weights
    state: dict[str, Any] = field(default_factory=dict)  # plain numbers, fit for JSON


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended."""

    epochs: int  # run in all, those before an interruption included
    stopped_early: bool
    values: dict[str, float]  # of the last epoch
    kept: int  # the epoch after which the weights were what they are now; 0: before the first


class Recorder:
    """Receives the trainer's reports, and may end a training by raising; this one keeps nothing."""

    def latest(self) -> Snapshot | None:
        """The snapshot to go on from, or None to begin."""
        return None

    def next_look(self, epoch: int) -> int:
        """The next epoch whose state is looked at, by the snapshot or otherwise.

        A GPU runs the epochs before it without being waited for; their reports come together.
        """
        return epoch + 1

    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        """Called after every epoch; taking the snapshot costs something, so it is a function."""

    def training_done(self) -> None:
        """Called once, when no epoch will follow."""


class NoRecorder(Recorder):
    """Looks at nothing."""

    @override
    def next_look(self, epoch: int) -> int:
        return epoch + MOST_AHEAD


def train(
    method: Method,
    graph: Graph | TrainingData,
    *,
    seed: int,
    recorder: Recorder | None = None,
    advance: Advance = lambda *_: None,
) -> TrainingResult:
    """Train in place; the same seed gives the same weights, interrupted or not.

    With patience, the method ends with its state after the best epoch: the one whose watched loss,
    measured before its step as every epoch's is, was the lowest. Stopped on collapse, it ends with
    its state at the last check that found a healthy embedding. `advance` is told after every epoch
    how far it is.
    """
    training = _Training(method, TrainingData.of(graph), seed, recorder or NoRecorder())
    with training.guarded():
        return training.run(advance)


def try_epochs(
    method: Method, graph: Graph | TrainingData, *, seed: int, epochs: int
) -> list[float]:
    """Train for the first epochs only; the seconds that each took. The method is not finished."""
    training = _Training(method, TrainingData.of(graph), seed, NoRecorder())
    with training.guarded():
        training.data.prepare(method)
        seconds = []
        for _ in range(epochs):
            started = time.perf_counter()
            training.run_epochs(1)  # ends with numbers that are read: a GPU is waited for
            seconds.append(time.perf_counter() - started)
        return seconds


class _Training:
    def __init__(self, method: Method, data: TrainingData, seed: int, recorder: Recorder) -> None:
        self.method, self.data, self.seed, self.recorder = method, data, seed, recorder
        self.optimisers = _optimisers(method, data.device) if method.trainable else {}
        self.gradients = {
            phase: data.gradients(
                method, [one for group in optimiser.param_groups for one in group["params"]]
            )
            for phase, optimiser in self.optimisers.items()
        }
        # Seeded anew for every epoch; one object throughout, which a CUDA graph can draw from.
        self.generator = torch.Generator(device=data.device)
        self.stopping = EarlyStopping(method.config.patience)
        self.collapse = CollapseStopping(method.config.stop_on_collapse)
        self.best: dict[str, Tensor] = {}
        self.healthy: dict[str, Tensor] = {}  # state at the last check that passed
        self.values: dict[str, float] = {}
        self.epoch = 0
        self.seconds = math.inf  # of an epoch, by the last ones

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """In the modes of torch that a training needs; a lack of memory is said in a sentence."""
        autocast = torch.autocast(self.data.device.type, enabled=False)
        try:
            with torch.inference_mode(False), torch.enable_grad(), autocast:
                yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(
                _out_of_memory(self.epoch, self.method.config, self.data.memory_options)
            ) from error

    def run(self, advance: Advance) -> TrainingResult:
        snapshot = self.recorder.latest()
        if snapshot is not None:
            self._restore(snapshot)
        self.data.prepare(self.method)
        epochs = self.method.config.epochs if self.optimisers else 0
        while self.epoch < epochs and not (
            self.collapse.is_over or self.stopping.is_over(self.epoch)
        ):
            begin = self.epoch + 1
            started = time.perf_counter()
            values = self.run_epochs(self._epochs_ahead(epochs))
            self.seconds = (time.perf_counter() - started) / len(values)
            if self.collapse.is_on and self.epoch % CHECK_EVERY == 0:
                self._check_for_collapse()
            for epoch, of_epoch in enumerate(values, begin):
                report = EpochReport(epoch, epochs, of_epoch, is_latest=epoch == self.epoch)
                self.recorder.epoch_done(report, self._snapshot)
                advance(epoch, epochs, f"loss {of_epoch['loss']:.4f}")
        kept = self.healthy if self.collapse.is_over else self.best
        if kept:
            self.method.load_state_dict(kept)
        self.data.calibrate(self.method)
        self.method.eval()
        self.recorder.training_done()
        return TrainingResult(self.epoch, self.epoch < epochs, self.values, self._kept_epoch())

    def _epochs_ahead(self, epochs: int) -> int:
        """How many epochs can be run before anything depends on what they led to."""
        if self.data.device.type not in AHEAD_ON or self.stopping.patience is not None:
            return 1
        look = min(self.recorder.next_look(self.epoch), epochs)
        if self.collapse.is_on:
            look = min(look, self.epoch + CHECK_EVERY - self.epoch % CHECK_EVERY)
        in_time = min(MOST_AHEAD, SECONDS_AHEAD / max(self.seconds, 1e-9))
        return max(1, min(look - self.epoch, int(in_time)))

    def run_epochs(self, count: int) -> list[dict[str, float]]:
        """Some epochs; the values of each. Several are read and checked after the last."""
        if count == 1:
            done = [self._run_epoch(self._check_finite)]
        else:
            begin = self.epoch + 1
            done = [self._run_epoch(None) for _ in range(count)]
            for epoch, by_phase in enumerate(done, begin):
                for of_phase in by_phase.values():
                    self._check_finite(of_phase, epoch)
        values = [
            _joined({phase: of_phase.read.values for phase, of_phase in by_phase.items()})
            for by_phase in done
        ]
        self.values = values[-1]
        return values

    def _run_epoch(self, check: Check | None) -> dict[str, Pass]:
        """One pass of every phase, and what early stopping keeps of it."""
        self.method.train()
        self.epoch += 1
        self.generator.manual_seed(seed_for(self.seed, "epoch", self.epoch))
        before = self._kept_state() if self.method.keeps_before_step else None
        by_phase = {}
        for phase, optimiser in self.optimisers.items():
            factor = self.method.learning_rate_factor(self.epoch)
            for group in optimiser.param_groups:
                group["lr"] = factor * group[FULL_RATE]
            step = Step(self.epoch, self.generator, phase)
            for _ in range(self.method.rounds(phase)):
                by_phase[phase] = self._run_phase(step, optimiser, check)
        if self.stopping.patience is not None:
            watched = sum(done.read.watched for done in by_phase.values())
            if self.stopping.observe(self.epoch, watched):
                self.best = before or self._kept_state()
        return by_phase

    @torch.no_grad()
    def _check_for_collapse(self) -> None:
        """Keep the state of a healthy embedding; warn of the end where it no longer is one."""
        self.data.calibrate(self.method)
        health = Health.of(self.data.uncentred(self.method.eval()))
        if self.collapse.observe(self.epoch, is_collapsed=health.is_collapsed):
            self.healthy = self._kept_state()
        elif self.collapse.is_over:
            logger.warning(
                "Training stopped after epoch %d with the weights after epoch %d. %s",
                self.epoch,
                self.collapse.healthy_epoch,
                " ".join(health.warnings()),
            )

    def _kept_epoch(self) -> int:
        if self.collapse.is_over and self.collapse.healthy_epoch is not None:
            return self.collapse.healthy_epoch
        if not self.best:
            return self.epoch
        return self.stopping.best_epoch - int(self.method.keeps_before_step)

    def _kept_state(self) -> dict[str, Tensor]:
        """A copy of all that the method is now."""
        return {name: value.clone() for name, value in self.method.state_dict().items()}

    def _run_phase(self, step: Step, optimiser: torch.optim.Optimizer, check: Check | None) -> Pass:
        def update() -> None:
            optimiser.step()
            self.method.after_step(step)

        return self.data.one_pass(self.gradients[step.phase], step, update, check)

    def _check_finite(self, done: Pass, epoch: int | None = None) -> None:
        numbers, when = done.read, f"at epoch {epoch or self.epoch}"
        if not math.isfinite(numbers.values["loss"]):
            bad = [name for name in numbers.terms if not math.isfinite(numbers.values[name])]
            told = f"loss is not a finite number {when} (term: {', '.join(bad) or 'their sum'})"
        elif not math.isfinite(numbers.gradient):
            bad = [
                name
                for name, parameter in self.method.named_parameters()
                if parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all())
            ]
            told = f"gradient is not finite {when} (of: {', '.join(bad) or 'all together'})"
        else:
            return
        raise TrainingError(
            f"The {told}. A learning_rate that is too high or a temperature that is too low is "
            "the usual cause."
        )

    def _snapshot(self) -> Snapshot:
        tensors = {f"method/{name}": value for name, value in self.method.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        tensors |= {f"healthy/{name}": value for name, value in self.healthy.items()}
        for phase, optimiser in self.optimisers.items():
            for index, moments in optimiser.state_dict()["state"].items():
                prefix = f"optimiser/{phase}/{index}"
                tensors |= {f"{prefix}/{name}": value for name, value in moments.items()}
        state = {
            "epoch": self.epoch,
            "stopping": asdict(self.stopping),
            "collapse": asdict(self.collapse),
            "values": self.values,
        }
        return Snapshot(
            {name: value.detach().cpu().clone() for name, value in tensors.items()}, state
        )

    def _restore(self, snapshot: Snapshot) -> None:
        device = self.data.device
        best, healthy = (_under(prefix, snapshot.tensors) for prefix in ("best/", "healthy/"))
        try:
            self.method.load_state_dict(_under("method/", snapshot.tensors))
            for phase, optimiser in self.optimisers.items():
                moments = _moments(_under(f"optimiser/{phase}/", snapshot.tensors))
                optimiser.load_state_dict({**optimiser.state_dict(), "state": moments})
            self.epoch = snapshot.state["epoch"]
            self.values = snapshot.state["values"]
            self.stopping = EarlyStopping(**snapshot.state["stopping"])
            self.collapse = CollapseStopping(**snapshot.state["collapse"])
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"The checkpoint does not fit {self.method.name or 'this method'} with these "
                f"settings on a graph with {self.data.num_features} features."
            ) from error
        self.best = {name: value.to(device) for name, value in best.items()}
        self.healthy = {name: value.to(device) for name, value in healthy.items()}


def _optimisers(method: Method, device: torch.device) -> dict[str, torch.optim.Optimizer]:
    """One optimiser a phase, in the order of the phases."""
    groups = method.parameter_groups()
    named = {group.phase for group in groups if group.parameters}
    if named != set(method.phases):
        raise ValueError(
            f"Every phase of a method needs a parameter group, and no other phase may have one. "
            f"Got phases {sorted(method.phases)} and groups of {sorted(named)}."
        )
    settings: dict[str, list[dict[str, Any]]] = {phase: [] for phase in method.phases}
    for group in groups:
        settings[group.phase].append(
            {
                "params": group.parameters,
                "lr": group.learning_rate,
                FULL_RATE: group.learning_rate,
                "weight_decay": group.weight_decay,
                "decoupled_weight_decay": group.decoupled,
            }
        )
    # One kernel for all weights on a GPU; on a CPU the plain form, bit for bit as ever.
    fused = device.type == "cuda"
    return {phase: torch.optim.Adam(of_phase, fused=fused) for phase, of_phase in settings.items()}


def _moments(tensors: dict[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """An optimiser's moments by parameter, from names such as `3/exp_avg`."""
    moments: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, kind = name.split("/")
        # The optimiser keeps what it is given and changes it in place; the snapshot stays whole.
        moments.setdefault(int(index), {})[kind] = value.clone()
    return moments


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _joined(by_phase: dict[str, dict[str, float]]) -> dict[str, float]:
    """One phase's values as they are; of several, each under its phase, and the losses' sum."""
    if len(by_phase) == 1:
        return next(iter(by_phase.values()))
    joined = {"loss": sum(values["loss"] for values in by_phase.values())}
    for phase, values in by_phase.items():
        joined |= {f"{phase}/{name}": value for name, value in values.items()}
    return joined


def _out_of_memory(epoch: int, config: MethodConfig, options: Sequence[str]) -> str:
    moment = f"at epoch {epoch}" if epoch else "before the first epoch"
    held = {name: value for name, value in config.model_dump().items() if name in MEMORY_SETTINGS}
    lower = " or ".join([*(name for name, value in held.items() if value is not None), *options])
    bound = " or ".join(name for name, value in held.items() if value is None and not options)
    words = [f"lower {lower}"] * bool(lower) + [f"set {bound}"] * bool(bound)
    advice = ", ".join([*words, f"{'or ' if words else ''}choose another device"])
    return f"Out of memory {moment}. {advice[0].upper()}{advice[1:]}."
