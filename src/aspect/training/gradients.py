"""Loss and gradients of one phase: computed step by step, or replayed as a CUDA graph.

On a GPU a step on a small graph is hundreds of kernels of a few microseconds each, and launching
them takes longer than running them. A CUDA graph launches all of them at once.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from aspect.data.graph import Graph
from aspect.data.rows import Rows
from aspect.errors import TrainingError
from aspect.methods.base import Method, Step

logger = logging.getLogger(__name__)

# Of products in training on a GPU, in torch's words: TF32 inputs, float32 sums. Embeddings and
# probes are computed in float32 throughout.
PRECISION = "high"
# Passes before a capture: libraries choose kernels and allocate workspaces in the first ones.
WARM_UP = 2
KINDS = 2  # of steps that are captured side by side, such as those with a search and those without


@dataclass(frozen=True)
class Numbers:
    """What the host learns of a pass."""

    values: dict[str, float]  # loss, its terms, and what the method monitors
    terms: list[str]  # which of them are terms of the loss
    watched: float  # by early stopping
    gradient: float  # norm of all gradients


@dataclass(frozen=True, eq=False)
class Pass:
    """The tensors that a pass writes; those of a captured one are written at every replay."""

    names: list[str]
    terms: list[str]
    numbers: Tensor  # as named, then what early stopping watches and the gradients' norm
    gradients: list[Tensor | None]
    graph: torch.cuda.CUDAGraph | None = None
    apart: dict[str, torch.Generator] = field(default_factory=dict)  # of `Step.apart`, if captured

    @cached_property
    def read(self) -> Numbers:
        """The numbers on the host; one copy for all, since each copy waits for the device."""
        *numbers, watched, norm = self.numbers.tolist()
        return Numbers(dict(zip(self.names, numbers, strict=True)), self.terms, watched, norm)

    def kept(self) -> Pass:
        """Its numbers alone, in a place that the next pass does not overwrite."""
        return replace(self, numbers=self.numbers.clone(), gradients=[], graph=None)


@dataclass
class _Repeated:
    """A kind of step that comes again and again."""

    times: int = 0
    can_be_captured: bool = True
    captured: Pass | None = None
    places: tuple[Tensor, ...] = ()  # that a captured pass reads the rows of a batch from


@contextmanager
def training_precision(device: torch.device) -> Iterator[None]:
    """Products of float32 matrices on a GPU in `PRECISION`, whatever it was before."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision(PRECISION)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _named(method: Method, hook: str, values: object, *taken: str) -> Mapping[str, Tensor]:
    """What a hook returned, if it can be logged: a method may come from outside."""
    refused = ["loss", "epoch", *taken]  # the log has numbers of its own by the first two
    if not isinstance(values, Mapping) or not all(
        isinstance(value, Tensor) and value.shape == () and name not in refused
        for name, value in values.items()
    ):
        raise TrainingError(
            f"{hook} of {method.name} must return a dict of tensors of one number each, and no "
            f"name of it may be {' or '.join(refused)}. Got {values!r:.200}."
        )
    return values


class Gradients:
    """Sets `grad` of the phase's parameters; the same numbers, captured or not.

    A step is captured once it repeats: on a GPU, after some passes with the same
    `Method.capture_key`. A method whose step cannot be captured goes on as before.
    """

    def __init__(self, method: Method, graph: Graph, parameters: list[nn.Parameter]) -> None:
        self.method, self.graph, self.parameters = method, graph, parameters
        self.may_capture = graph.device.type == "cuda"
        self.kinds: dict[Hashable, _Repeated] = {}  # by key, the last one used at the end

    def compute(self, step: Step) -> Pass:
        """Gradients of the loss at the method's present weights; nothing is read back."""
        self.method.before_step(self.graph, step)
        key = self.method.capture_key(step) if self.may_capture else None
        if key is None:
            done = self._run(step, self.graph)
        else:
            done = self._repeat(step, self.graph, self._kind(key))
        self._hand_over(done)
        # What a captured pass wrote was read, if at all, before its replay.
        return replace(done) if done.graph is not None else done

    def of_batch(self, step: Step, batch: Graph) -> Pass:
        """The same of a batch in place of the graph; nothing is read back to the host.

        Batches of as many rows repeat a step. What the pass wrote is overwritten by the next one.
        """
        key = self.method.capture_key(step) if self.may_capture else None
        if key is None or not isinstance(batch, Rows):
            done = self._run(step, batch)
        else:
            kind = self._kind((key, *(view.shape for view in batch.views)))
            kind.places = kind.places or tuple(map(torch.empty_like, batch.views))
            for place, view in zip(kind.places, batch.views, strict=True):
                place.copy_(view)
            done = self._repeat(step, Rows.of(kind.places, batch.whole, batch.queue), kind)
        self._hand_over(done)
        return done

    def _hand_over(self, done: Pass) -> None:
        for parameter, gradient in zip(self.parameters, done.gradients, strict=True):
            parameter.grad = gradient

    def _kind(self, key: Hashable) -> _Repeated:
        kind = self.kinds[key] = self.kinds.pop(key, _Repeated())
        if len(self.kinds) > KINDS:
            self.kinds.pop(next(iter(self.kinds)))  # the memory of what was captured is freed
        return kind

    def _repeat(self, step: Step, graph: Graph, kind: _Repeated) -> Pass:
        if kind.captured is None and kind.can_be_captured and kind.times >= WARM_UP:
            kind.captured = self._capture(step, graph)
            kind.can_be_captured = kind.captured is not None
        if kind.captured is None or kind.captured.graph is None:
            kind.times += 1
            return self._run(step, graph)
        for purpose, generator in kind.captured.apart.items():
            step.seeded_apart(purpose, generator)
        kind.captured.graph.replay()
        return kind.captured

    def _run(self, step: Step, graph: Graph) -> Pass:
        with training_precision(self.graph.device):
            terms = _named(self.method, "loss_terms", self.method.loss_terms(graph, step))
            if not any(term.requires_grad for term in terms.values()):
                raise TrainingError(f"No term of {self.method.name}'s loss depends on its weights.")
            loss = torch.stack(list(terms.values())).sum()
            parts: Sequence[Tensor | None] = torch.autograd.grad(
                loss, self.parameters, allow_unused=True
            )
        # As the weights lie in memory, which a fused optimiser asks for.
        gradients = [None if part is None else part.contiguous() for part in parts]
        monitors = _named(self.method, "monitors", self.method.monitors(), *terms)
        named = {"loss": loss, **terms, **monitors}
        norm = torch.nn.utils.get_total_norm([part for part in gradients if part is not None])
        numbers = torch.stack([*named.values(), self.method.watched(terms), norm]).detach()
        return Pass(list(named), list(terms), numbers, gradients)

    def _capture(self, step: Step, graph: Graph) -> Pass | None:
        try:
            # A failed capture spoils its generator, so the first one draws from another.
            self._record(replace(step, generator=torch.Generator(device=self.graph.device)), graph)
            return self._record(step, graph)
        except RuntimeError as error:
            logger.warning(
                "A step of %s cannot be captured as a CUDA graph and runs as it is. (%s)",
                self.method.name,
                str(error).splitlines()[0],
            )
            return None

    def _record(self, step: Step, graph: Graph) -> Pass:
        recorded = torch.cuda.CUDAGraph()
        device, purposes = self.graph.device, self.method.draws_apart
        apart = {purpose: torch.Generator(device=device) for purpose in purposes}
        for generator in (step.generator, *apart.values()):
            recorded.register_generator_state(generator)
        with torch.cuda.graph(recorded, capture_error_mode="thread_local"):
            done = self._run(replace(step, held=apart), graph)
        return replace(done, graph=recorded, apart=apart)
