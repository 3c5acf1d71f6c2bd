"""Many logistic regressions on the same rows, solved at once by L-BFGS.

A task is one training set with one penalty. It minimises, over weights and a free intercept,

    mean cross-entropy of the training rows + penalty / 2 * |weights|^2,

which has one solution wherever two classes are trained on. All tasks share the rows, so that a
step of L-BFGS is two large products, `direction @ rows.T` and `residual @ rows`, however many tasks
there are; the line search needs none, since logits are linear in the step. Tables are laid out
`[tasks, classes, rows]`: with the rows last, reductions over the few classes are vectorised.

On a GPU a step is some hundred kernels of a few microseconds each. All tensors stay where they are,
so that it is captured as a CUDA graph once, and replayed for every step and every penalty.
"""

from __future__ import annotations

import logging
import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

logger = logging.getLogger(__name__)

MOST_STEPS = 1000  # of L-BFGS for one penalty; a few are common
HISTORY = 5  # steps that L-BFGS remembers
MOST_TRIALS = 20  # of the line search; one is common
CAPTURED_TRIALS = 1  # of a step that is replayed; where they do not do, the next step has all
FLATTENED = 0.5  # a step is long enough where this part of the slope is left, or less


def logits_of(
    weights: Float[Tensor, "tasks classes inputs"],
    inputs: Float[Tensor, "rows inputs"],
    priors: Float[Tensor, "tasks classes"],
) -> Float[Tensor, "tasks classes rows"]:
    """Logits of every row; minus infinity for a class without a training row."""
    tasks, classes, _ = weights.shape
    logits = (weights.flatten(0, 1) @ inputs.t()).view(tasks, classes, len(inputs))
    return logits.masked_fill_((priors == 0).unsqueeze(2), -math.inf)


class Solver:
    """L-BFGS for tasks that differ from call to call in their penalties alone.

    Args:
        inputs: Rows whose last entry is a one, for the intercept, which is not penalised.
        targets: 1 / n_train at a training row's class, 0 elsewhere.
    """

    def __init__(
        self,
        inputs: Float[Tensor, "rows inputs"],
        targets: Float[Tensor, "tasks classes rows"],
    ) -> None:
        self.inputs, self.targets = inputs, targets
        self.share = targets.sum(dim=1, keepdim=True)  # 1 / n_train at training rows, 0 elsewhere
        self.priors = targets.sum(dim=2)
        self.weights = inputs.new_zeros(*self.priors.shape, inputs.shape[1])
        self.gradient, self.penalties = (torch.zeros_like(self.weights) for _ in range(2))
        self.logits, self.probabilities = (torch.zeros_like(targets) for _ in range(2))
        self.tolerance = inputs.new_zeros(len(targets))
        self.failures = inputs.new_zeros(len(targets))  # steps in a row without any progress
        # Whether a task can still go on, and whether the last line search was cut short.
        self.state = torch.zeros(2, dtype=torch.bool, device=inputs.device)
        self.memory = _Memory(self.weights)
        self.captured: torch.cuda.CUDAGraph | None = None

    @torch.no_grad()
    def solve(
        self,
        penalties: Float[Tensor, " tasks"],
        start: Float[Tensor, "tasks classes inputs"],
        tolerance: Float[Tensor, " tasks"],
    ) -> Float[Tensor, "tasks classes inputs"]:
        """Weights at which the gradient's length is within the tolerance, task by task.

        Args:
            penalties: One for each task.
            start: Where to start from, such as the solution for a stronger penalty.
            tolerance: Length of the gradient at which a task is solved.
        """
        self._begin(penalties, start, tolerance)
        for _ in range(MOST_STEPS):
            can_go_on, was_cut_short = self.state.tolist()
            if not can_go_on:
                break
            if self.captured is None or was_cut_short:
                self._step(MOST_TRIALS)
            else:
                self.captured.replay()
        if self.captured is None and self.inputs.is_cuda:  # a first run has loaded its kernels
            self.captured = self._capture()
        is_open = self._is_open()
        if bool(is_open.any()):
            logger.warning(
                "%d of %d logistic regressions of the probe were not solved to the tolerance; "
                "their scores are those of the last step.",
                int(is_open.sum()),
                len(is_open),
            )
        return self.weights.clone()

    def _begin(self, penalties: Tensor, start: Tensor, tolerance: Tensor) -> None:
        self.penalties.copy_(penalties.view(-1, 1, 1))
        self.penalties[..., -1] = 0
        self.weights.copy_(start)
        self.tolerance.copy_(tolerance)
        self.failures.zero_()
        self.logits.copy_(logits_of(start, self.inputs, self.priors))
        self.probabilities.copy_(_softmax(self.logits))
        self.gradient.copy_(self._gradient())
        self.memory.begin(self._curvature())
        self.state[0] = self._is_open().any()
        self.state[1] = False

    def _step(self, trials: int) -> None:
        """Go along one direction, which takes so many trials at most, and remember the way."""
        is_open = self._is_open().view(-1, 1, 1)
        direction = self.memory.times(self.gradient).neg_().mul_(is_open)
        change = self._product(direction, self.inputs.t())
        line = _Line(self, direction, change, _dot(self.gradient, direction))
        length, is_flat, probabilities = line.search(trials)
        self.probabilities.copy_(probabilities)
        step = length.view(-1, 1, 1) * direction
        self.logits.addcmul_(length.view(-1, 1, 1), change)
        self.weights.add_(step)
        self.failures.copy_(torch.where(length > 0, 0, self.failures + 1))
        gradient = self._gradient()
        self.memory.keep(step, gradient - self.gradient)
        self.gradient.copy_(gradient)
        self.state[0] = (self._is_open() & (self.failures <= HISTORY)).any()
        self.state[1] = ~is_flat.all()

    def _capture(self) -> torch.cuda.CUDAGraph:
        # Without `torch.cuda.graph`, which gives all cached memory back first.
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(self.inputs.device)  # type: ignore[no-untyped-call]  # torch
        stream.wait_stream(torch.cuda.current_stream(self.inputs.device))
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                self._step(CAPTURED_TRIALS)
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.inputs.device).wait_stream(stream)
        return graph

    def _is_open(self) -> Bool[Tensor, " tasks"]:
        length: Tensor = self.gradient.flatten(1).norm(dim=1)
        return length > self.tolerance

    def _gradient(self) -> Float[Tensor, "tasks classes inputs"]:
        residual = (self.share * self.probabilities).sub_(self.targets)
        return self._product(residual, self.inputs).addcmul_(self.penalties, self.weights)

    def _curvature(self) -> Float[Tensor, "tasks classes inputs"]:
        """Diagonal of the Hessian."""
        spread = self.share * self.probabilities * (1 - self.probabilities)
        return self._product(spread, self.inputs.square()).add_(self.penalties)

    @staticmethod
    def _product(
        table: Float[Tensor, "tasks classes inner"], matrix: Float[Tensor, "inner outer"]
    ) -> Float[Tensor, "tasks classes outer"]:
        return (table.flatten(0, 1) @ matrix).view(*table.shape[:2], matrix.shape[1])


class _Line:
    """The objective of every task along its direction: convex, and known by its slope alone."""

    def __init__(self, solver: Solver, direction: Tensor, change: Tensor, slope: Tensor) -> None:
        self.solver, self.change, self.slope = solver, change, slope
        penalised = solver.penalties * direction
        self.bend = _dot(penalised, direction)
        self.offset = _dot(penalised, solver.weights) - _dot(solver.targets, change)

    def search(
        self, trials: int
    ) -> tuple[
        Float[Tensor, " tasks"], Bool[Tensor, " tasks"], Float[Tensor, "tasks classes rows"]
    ]:
        """How far to go, by Newton's method within a bracket; whether it is nearly flat there.

        Nowhere where the direction does not descend. After the last trial a task goes as far as it
        is known to descend, which may be nowhere. The third result are the probabilities there.
        """
        start, descends = torch.zeros_like(self.slope), self.slope < 0
        before = self.solver.probabilities
        length = torch.where(descends, self._newton(start, self.slope, before), 0)
        low, high = start, torch.full_like(length, math.inf)
        is_done = ~descends
        for trial in range(1, trials + 1):
            probabilities = self._probabilities(length)
            slope = self._slope(length, probabilities)
            is_done = (slope.abs() <= FLATTENED * self.slope.abs()) | ~descends
            # While a step is captured, nothing can be asked.
            is_captured = length.is_cuda and torch.cuda.is_current_stream_capturing()
            if not is_captured and bool(is_done.all()):
                return length, is_done, probabilities
            low = torch.where(slope < 0, length, low)
            if trial == trials:
                break
            high = torch.where(slope > 0, length, high)
            further = self._newton(length, slope, probabilities)
            middle = torch.where(high.isinf(), 2 * length, (low + high) / 2)
            further = torch.where((low < further) & (further < high), further, middle)
            length = torch.where(is_done, length, further)
        length = torch.where(is_done, length, low)
        return length, is_done, self._probabilities(length)

    def _probabilities(self, length: Tensor) -> Float[Tensor, "tasks classes rows"]:
        return _softmax(self.solver.logits + length.view(-1, 1, 1) * self.change)

    def _slope(self, length: Tensor, probabilities: Tensor) -> Float[Tensor, " tasks"]:
        expected = (probabilities * self.change).sum(dim=1, keepdim=True)
        return _dot(expected, self.solver.share) + self.offset + length * self.bend

    def _newton(self, length: Tensor, slope: Tensor, probabilities: Tensor) -> Tensor:
        weighted = probabilities * self.change
        variance = (weighted * self.change).sum(dim=1) - weighted.sum(dim=1).square()
        curvature = (variance * self.solver.share.squeeze(1)).sum(dim=1) + self.bend
        return length - slope / curvature.clamp_min(torch.finfo(curvature.dtype).tiny)


class _Memory:
    """L-BFGS: the inverse Hessian as the last steps show it, from its diagonal on."""

    def __init__(self, like: Float[Tensor, "tasks classes inputs"]) -> None:
        self.tiny, self.eps = torch.finfo(like.dtype).tiny, torch.finfo(like.dtype).eps
        self.is_captured = like.is_cuda
        self.inverse = torch.zeros_like(like)  # of the Hessian's diagonal
        self.scale = like.new_ones(len(like), 1, 1)
        self.moves = like.new_zeros(HISTORY, 2, *like.shape)  # steps, and changes of the gradient
        self.inverses = like.new_zeros(HISTORY, len(like))  # of their products; 0: nothing learned
        # The latest at the end; those that were not kept yet change nothing, so they may be used.
        self.pairs = list(zip(self.moves, self.inverses, strict=True))
        self.used = HISTORY

    def begin(self, curvature: Float[Tensor, "tasks classes inputs"]) -> None:
        """Forget all steps; start from the diagonal of the Hessian."""
        self.inverse.copy_(1 / curvature.clamp_min(self.eps**2))
        self.scale.fill_(1)
        self.moves.zero_()
        self.inverses.zero_()
        self.used = HISTORY if self.is_captured else 0

    def keep(self, step: Tensor, change: Tensor) -> None:
        """Learn from a step and what it did to the gradient; nothing where there was no step."""
        product = _dot(step, change)
        is_sound = product > self.tiny
        if self.is_captured:  # a CUDA graph knows places: what is kept moves on
            for table in (self.moves, self.inverses):
                table.copy_(table.roll(-1, dims=0))
        else:
            self.pairs.append(self.pairs.pop(0))
            self.used = min(self.used + 1, HISTORY)
        move, inverse = self.pairs[-1]
        torch.stack([step, change], out=move)
        inverse.copy_(torch.where(is_sound, 1 / product, 0))
        size = _dot(change, change * self.inverse)
        self.scale.copy_(torch.where(is_sound, product / size, 1).view(-1, 1, 1))

    def times(self, gradient: Tensor) -> Float[Tensor, "tasks classes inputs"]:
        """The inverse Hessian times the gradient, by the two-loop recursion."""
        product, factors = gradient.clone(), []
        pairs = self.pairs[HISTORY - self.used :]
        for (step, change), inverse in reversed(pairs):
            factor = (inverse * _dot(step, product)).view(-1, 1, 1)
            product.addcmul_(factor, change, value=-1)
            factors.append(factor)
        product.mul_(self.scale * self.inverse)
        for (step, change), inverse in pairs:
            factor = factors.pop() - (inverse * _dot(change, product)).view(-1, 1, 1)
            product.addcmul_(factor, step)
        return product


def _dot(one: Tensor, other: Tensor) -> Float[Tensor, " tasks"]:
    return (one * other).sum(dim=(1, 2))


def _softmax(logits: Float[Tensor, "tasks classes rows"]) -> Float[Tensor, "tasks classes rows"]:
    """Over the classes; on a CPU torch.softmax is slow over an axis that is not the last."""
    if logits.is_cuda:
        return torch.softmax(logits, dim=1)
    table = (logits - logits.amax(dim=1, keepdim=True)).exp_()
    return table.div_(table.sum(dim=1, keepdim=True))
