"""The contract of a method, as tests: `check_method(MyMethod)` says what it violates.

In the tests of a package of your own, all at once or check by check:

    def test_the_contract():
        check_method(MyMethod)

    @pytest.mark.parametrize("check", METHOD_CHECKS)
    def test_one_part_of_the_contract(check):
        check_method(MyMethod, checks=[check])

The methods of aspect are tested by the same checks. They train on graphs of thirty nodes, in
seconds, and need no data set.
"""

from __future__ import annotations

import copy
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from typing_extensions import override

from aspect.config import Choice, Range, load_yaml, make_config, to_yaml
from aspect.data.features import dense
from aspect.data.graph import Graph
from aspect.data.synthetic import mixed_graph
from aspect.errors import SettingsError, UnknownNameError, sentence_of
from aspect.estimator import Embedder
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.registry import Cost, find_method
from aspect.randomness import generator_for, isolated_seed
from aspect.training.trainer import EpochReport, Recorder, Snapshot, train

# Settings that make a method small and its searches frequent, where it has them.
SMALL: dict[str, object] = {"width": 8, "order": 2, "gate_width": 8, "warm_up": 0, "interval": 1}
SMALL |= {"perturbation_steps": 2}
# For the count of operations: narrow, so that what grows with the nodes is not hidden by what does
# not; and all that is due now and then is due at once.
WIDTHS = ("width", "gate_width", "hidden_width", "projection_width", "prediction_width")
NARROW: dict[str, object] = dict.fromkeys((*WIDTHS, "discriminator_width"), 8)
NARROW |= {"order": 2, "sample": 64, "warm_up": 0, "interval": 1, "epochs": 1}
# Some encoders have batch norm where a setting asks for it.
NORMED: dict[str, Any] = {"batch_norm": True, "backbone": "mlp"}

NUM_NODES, NUM_FEATURES = 30, 10
SHORT = {"epochs": 5, "patience": 2}
LEARNING_EPOCHS = 20
COUNTED_NODES = 300
# An epoch on twice the nodes, as a multiple of one: least and most.
GROWTH: dict[Cost | str, tuple[float, float]] = {
    "linear": (1.6, 2.3),
    "quadratic": (3.0, 4.2),
    "mini-batch": (0.0, 1.3),
}


class ContractError(AssertionError):
    """A method violates its contract; one sentence a line."""


class MemoryRecorder(Recorder):
    """Keeps every report and a snapshot of every epoch; goes on from one if it is given."""

    def __init__(self, start: Snapshot | None = None) -> None:
        self.start = start
        self.reports: list[EpochReport] = []
        self.snapshots: list[Snapshot] = []
        self.is_done = False

    @override
    def latest(self) -> Snapshot | None:
        return self.start

    @override
    def epoch_done(self, report: EpochReport, snapshot: Callable[[], Snapshot]) -> None:
        self.reports.append(report)
        self.snapshots.append(snapshot())

    @override
    def training_done(self) -> None:
        self.is_done = True


# The graphs


def _dense_graph() -> Graph:
    return mixed_graph(num_nodes=NUM_NODES, degree=5.0, num_features=NUM_FEATURES, seed=3).graph


def _sparse_graph() -> Graph:
    """Words in documents: few of them, never negative; node 0 has none."""
    draw = generator_for(0, "words")
    words = (torch.rand(NUM_NODES, NUM_FEATURES, generator=draw) < 0.15).float()  # noqa: PLR2004
    words[0] = 0
    return Graph.build(words, _dense_graph().edge_index)


GRAPHS: dict[str, Callable[[], Graph]] = {"dense": _dense_graph, "sparse": _sparse_graph}


def _odd_graphs() -> dict[str, Graph]:
    features = torch.randn(12, NUM_FEATURES, generator=generator_for(0, "cases"))
    ring = torch.stack([torch.arange(8), (torch.arange(8) + 1) % 8])
    zero_rows = features.clone()
    zero_rows[::3] = 0
    return {
        "isolated nodes": Graph.build(features, ring),
        "no edges": Graph.build(features, torch.zeros(2, 0, dtype=torch.long)),
        "zero rows": Graph.build(zero_rows, ring),
        "a zero column": Graph.build(features * (torch.arange(NUM_FEATURES) > 0), ring),
        "one feature row for all": Graph.build(features[:1].expand(12, -1).clone(), ring),
        "nothing but zeros": Graph.build(torch.zeros(12, NUM_FEATURES), ring),
        "two nodes": Graph.build(features[:2], torch.tensor([[0], [1]])),
        "large numbers": Graph.build(1e6 * features, ring),
    }


def _relabelled(graph: Graph, order: Tensor) -> Graph:
    """The same graph, in which new node k is old node order[k]."""
    number = torch.empty_like(order)
    number[order] = torch.arange(len(order))
    return Graph.build(dense(graph.features)[order], number[graph.edge_index])


class CountOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Counts what torch does while it is entered, backward passes and optimiser included.

    Operations are counted and not timed: numbers written, and multiplications of products, those
    with a sparse matrix by its entries. The count is the same on every machine.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total: int = 0

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        result = func(*args, **given)
        self.total += sum(map(_stored, _tensors(result)))
        if (packet := func._overloadpacket) in flop_registry:
            sparse = [tensor for tensor in _tensors(args) if tensor.layout is not torch.strided]
            if sparse:
                self.total += 2 * sum(map(_stored, sparse)) * result.shape[-1]
            else:
                self.total += flop_registry[packet](*args, **given, out_val=result)
        return result


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _stored(tensor: Tensor) -> int:
    return tensor.numel() if tensor.layout is torch.strided else int(tensor._nnz())


def _same(found: object, expected: object, tolerance: float = 0.0) -> bool:
    """Whether tensors, or containers of them, agree to a tolerance, by default to the last bit."""
    try:
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    except AssertionError:
        return False
    return True


@torch.no_grad()
def _embed(method: Method, graph: Graph) -> Tensor:
    return method.eval().embed(graph)


Check = Callable[["MethodContract"], Iterator[str]]
_checks: dict[str, Check] = {}


def _check(name: str) -> Callable[[Check], Check]:
    def enter(check: Check) -> Check:
        _checks[name] = check
        return check

    return enter


class MethodContract:
    """One method and what it must hold to; trainings that several checks look at are made once.

    Args:
        method: Its name, `module:Class`, or the class.
        settings: Changes to its defaults for all checks, such as a smaller size; `width` and some
            others are made small by themselves.
        learning: Further changes for the training that must lower the loss: `epochs` (else 20), a
            larger `width` or `learning_rate`.
    """

    def __init__(
        self,
        method: str | type[Method],
        *,
        settings: Mapping[str, Any] | None = None,
        learning: Mapping[str, Any] | None = None,
    ) -> None:
        self.entry = find_method(method)
        self.name = self.entry.method.name
        self.settings, self.learning = dict(settings or {}), dict(learning or {})
        self.fitted = cache(self._fitted)

    def violations(self, check: str) -> list[str]:
        """What a check finds, one sentence each; what the method raises is one as well."""
        if check not in _checks:
            raise UnknownNameError("check", check, _checks)
        try:
            return [f"{self.name} {sentence}" for sentence in _checks[check](self)]
        except Exception as error:
            return [f"{self.name} fails in the check {check!r}: {_where(error)}"]

    def settings_of(self, *, narrow: bool = False, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
        """The method's defaults but for its size."""
        known = self.entry.config.model_fields
        values = {**(NARROW if narrow else SMALL), **self.settings, **changes}
        return {key: value for key, value in values.items() if key in known}

    def make(self, *, narrow: bool = False, **changes: Any) -> Method:  # noqa: ANN401
        """A method with fixed first weights."""
        settings = self.settings_of(narrow=narrow, **changes)
        config = make_config(self.entry.config, settings, owner=self.name)
        with isolated_seed(7):
            return self.entry.method(config, NUM_FEATURES)

    def embedder(self, seed: int = 4, **changes: Any) -> Embedder:  # noqa: ANN401
        """An estimator that is not fitted yet."""
        settings = self.settings_of(**changes)
        return Embedder(self.entry.method, seed=seed, device="cpu", **settings)

    def _fitted(self, kind: str) -> tuple[Embedder, MemoryRecorder, Graph]:
        """A short training that several checks look at and none changes."""
        recorder, graph = MemoryRecorder(), GRAPHS[kind]()
        return self.embedder(**SHORT).fit(graph, recorder=recorder), recorder, graph


def _where(error: Exception) -> str:
    """The error with the line of the method, or wherever else, that raised it."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{sentence_of(error)} ({Path(last.filename).name}, line {last.lineno})"


def check_method(
    method: str | type[Method],
    *,
    settings: Mapping[str, Any] | None = None,
    learning: Mapping[str, Any] | None = None,
    checks: Iterable[str] | None = None,
) -> None:
    """Run the contract tests of a method; raise a `ContractError` with a line for each violation.

    Args:
        method: Its name, `module:Class`, or the class.
        settings: See `MethodContract`.
        learning: See `MethodContract`.
        checks: Names out of `METHOD_CHECKS`; all of them by default.
    """
    contract = MethodContract(method, settings=settings, learning=learning)
    names: Sequence[str] = METHOD_CHECKS if checks is None else list(checks)
    found = [sentence for name in names for sentence in contract.violations(name)]
    if found:
        raise ContractError("\n".join(found))


# What is declared


@_check("declaration")
def _declaration(contract: MethodContract) -> Iterator[str]:
    """A docstring, flags of the right type, and settings that explain themselves."""
    entry, method = contract.entry, contract.entry.method
    if not method.__doc__:
        yield "needs a docstring, whose first sentence says what it is."
    for flag in ("inductive", "mini_batch", "trainable", "anytime"):
        if not isinstance(getattr(method, flag), bool):
            yield f"must have {flag} = True or False. Got {getattr(method, flag)!r}."
    if not method.trainable and (method.mini_batch or method.cost == "quadratic"):
        yield "is not trainable, so that no step of it is mini-batch or of quadratic cost."
    if not issubclass(entry.config, MethodConfig) or not entry.config.__doc__:
        yield "needs settings that are a MethodConfig with a docstring."
    for key, field in entry.config.model_fields.items():
        if not (field.description or "").endswith("."):
            yield f"must explain its setting {key!r} by a sentence below it."


@_check("settings")
def _settings(contract: MethodContract) -> Iterator[str]:
    """They come back from a file, bound what the tuner draws, and reach the method."""
    entry, name = contract.entry, contract.name
    config = make_config(entry.config, contract.settings_of(patience=3), owner=name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(to_yaml(config.model_dump(mode="json")), encoding="utf-8")
        if make_config(entry.config, load_yaml(path), owner=name) != config:
            yield "has settings that do not come back from a YAML file as they were."
    for key, field in entry.config.model_fields.items():
        for hint in field.metadata:
            yield from _wrong_search(contract, key, hint)
    changes: dict[str, Any] = (
        {"learning_rate": 0.0123} if "learning_rate" in entry.config.model_fields else {}
    )
    method = contract.make(**changes)
    expected = make_config(entry.config, contract.settings_of(**changes), owner=name)
    if method.config != expected:
        yield "must keep the settings that it is built with as `config`."
    rates = {group.learning_rate for group in method.parameter_groups()} if changes else set()
    if rates and method.trainable and 0.0123 not in rates:  # noqa: PLR2004 - as given above
        yield "has a setting learning_rate that none of its parameter groups uses."


def _wrong_search(contract: MethodContract, key: str, hint: object) -> Iterator[str]:
    """What is wrong with a setting's search range."""
    drawn: tuple[object, ...] = ()
    if isinstance(hint, Range):
        drawn = hint.low, hint.high
        if hint.low >= hint.high or (hint.log and hint.low <= 0):
            yield f"has an empty search range of {key!r}, or a logarithm of 0: {hint}."
    elif isinstance(hint, Choice):
        drawn = hint.values
        if not len(set(drawn)) == len(drawn) > 1:
            yield f"must offer two or more different choices of {key!r}. Got {drawn}."
    for value in drawn:
        try:
            config = make_config(contract.entry.config, {key: value}, owner=contract.name)
        except SettingsError as error:
            yield f"has a search range that its bounds do not allow: {error}"
            continue
        if getattr(config, key) != value:
            yield f"does not keep {key}={value!r}, which its search range draws."


# Learning


@_check("gradients")
def _gradients(contract: MethodContract) -> Iterator[str]:
    """Loss and gradients are finite and reach every parameter that is trained."""
    if not contract.entry.method.trainable:
        return
    for kind, make_graph in GRAPHS.items():
        method, graph = contract.make(), make_graph()
        method.prepare(graph)
        groups = method.parameter_groups()
        trained = [id(parameter) for group in groups for parameter in group.parameters]
        if sorted(trained) != sorted(id(p) for p in method.parameters() if p.requires_grad):
            yield "must name every parameter with a gradient in its parameter groups, and once."
        for phase in method.phases:
            terms = method.train().loss_terms(graph, Step(1, generator_for(0, phase), phase))
            yield from _wrong_terms(terms, kind)
            torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            if all(group.phase != phase for group in groups):
                yield f"has no parameters to train in its phase {phase!r}."
        named = method.named_parameters()
        for label, parameter in ((name, one) for name, one in named if one.requires_grad):
            yield from _wrong_gradient(label, parameter.grad, kind)


def _wrong_terms(terms: Mapping[str, Tensor], kind: str) -> Iterator[str]:
    for name in {"loss", "epoch"} & set(terms):
        yield f"calls a term of its loss {name!r}, which the log needs itself."
    for name, value in terms.items():
        if value.shape != ():
            yield f"has a loss term {name!r} that is no single number but of {list(value.shape)}."
        elif not bool(torch.isfinite(value)):
            yield f"has a loss term {name!r} of {float(value.detach())} on {kind} features."


def _wrong_gradient(label: str, gradient: Tensor | None, kind: str) -> Iterator[str]:
    if gradient is None:
        yield f"sends no gradient to its parameter {label!r}: freeze or remove it."
    elif not bool(torch.isfinite(gradient).all()):
        yield f"has a gradient of {label!r} that is not finite on {kind} features."
    elif kind == "dense" and not bool(gradient.any()):
        yield f"has a gradient of {label!r} that is zero everywhere."


@_check("learning")
def _learning(contract: MethodContract) -> Iterator[str]:
    """A short training lowers the loss; what is not trainable keeps its first weights."""
    if not contract.entry.method.trainable:
        method = contract.make(epochs=5)
        before = {key: value.clone() for key, value in method.named_parameters()}
        epochs = train(method, _dense_graph(), seed=0).epochs
        if epochs or method.num_parameters or not _same(dict(method.named_parameters()), before):
            yield "is declared as not trainable, and training changes it."
        return
    changes = {"epochs": LEARNING_EPOCHS, "patience": None, **contract.learning}
    method, graph = contract.make(**changes), _dense_graph()
    method.prepare(graph)
    before_loss = _loss(method, graph)
    result = train(method, graph, seed=0)
    after_loss = _loss(method, graph)
    if result.epochs != changes["epochs"]:
        yield f"trained {result.epochs} epochs, where its settings ask for {changes['epochs']}."
    if not after_loss < before_loss - 0.01 * abs(before_loss):
        yield (
            f"does not lower its loss in {result.epochs} epochs on thirty nodes: from "
            f"{before_loss:.4g} to {after_loss:.4g}. Pass settings under which it does as "
            "`learning`."
        )


@torch.no_grad()
def _loss(method: Method, graph: Graph) -> float:
    """The first epoch's loss of the first phase, always with the same draws."""
    step = Step(1, generator_for(0, "epoch", 1), method.phases[0])
    return float(torch.stack(list(method.train().loss_terms(graph, step).values())).sum())


@_check("seeds")
def _seeds(contract: MethodContract) -> Iterator[str]:
    """The same seed gives the same numbers, to the last bit."""
    whole, told, graph = contract.fitted("dense")
    recorder = MemoryRecorder()
    again = contract.embedder(**SHORT).fit(graph, recorder=recorder)
    if [report.values for report in recorder.reports] != [one.values for one in told.reports]:
        yield (
            "logs other numbers when it is trained again with the same seed: draw from "
            "`step.generator` alone."
        )
    if not _same(again.method.state_dict(), whole.method.state_dict()):
        yield "has other weights when it is trained again with the same seed."
    if not _same(again.embed(graph), whole.embed(graph)):
        yield "embeds otherwise when it is trained again with the same seed."


@_check("resume")
def _resume(contract: MethodContract) -> Iterator[str]:
    """A training that was interrupted ends as one that was not, to the last bit."""
    whole, told, graph = contract.fitted("dense")
    for start in told.snapshots[:2][-1:]:
        recorder = MemoryRecorder(start)
        again = contract.embedder(**SHORT).fit(graph, recorder=recorder)
        is_same = again.result == whole.result and _same(
            again.method.state_dict(), whole.method.state_dict()
        )
        expected = [report.values for report in told.reports[2:]]
        if not is_same or [report.values for report in recorder.reports] != expected:
            yield (
                "ends otherwise when its training is interrupted and resumed: keep what lasts "
                "longer than a step in parameters and buffers."
            )


# Embedding


@_check("shapes")
def _shapes(contract: MethodContract) -> Iterator[str]:
    """One row of finite numbers a node, in the graph's own precision."""
    for kind in GRAPHS:
        model, _, graph = contract.fitted(kind)
        for dtype in (torch.float32, torch.float64):
            method = copy.deepcopy(model.method).to(dtype)
            embedding = _embed(method, graph.to(dtype))
            shape = list(embedding.shape)
            if len(shape) != 2 or shape[0] != graph.num_nodes:  # noqa: PLR2004 - nodes, dim
                yield f"must embed {graph.num_nodes} nodes as so many rows. Got the shape {shape}."
            if embedding.dtype != dtype:
                yield f"embeds a graph of {dtype} as {embedding.dtype}."
            if embedding.requires_grad:
                yield "embeds with a gradient, although none is asked for."
            if not bool(torch.isfinite(embedding).all()):
                yield f"embeds {kind} features by numbers that are not finite."


@_check("node order")
def _node_order(contract: MethodContract) -> Iterator[str]:
    """Relabelling the nodes permutes the rows."""
    for kind in GRAPHS:
        model, _, graph = contract.fitted(kind)
        method, graph = copy.deepcopy(model.method).double(), graph.to(torch.float64)
        order = torch.randperm(graph.num_nodes, generator=generator_for(1, "order"))
        found, expected = _embed(method, _relabelled(graph, order)), _embed(method, graph)[order]
        if not _same(found, expected, 1e-10):
            yield f"gives nodes other embeddings in another order, with {kind} features."


@_check("edge order")
def _edge_order(contract: MethodContract) -> Iterator[str]:
    """The order and number of equal edges do not matter."""
    graph, method = _dense_graph(), contract.make()
    pairs = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    order = torch.randperm(pairs.shape[1], generator=generator_for(2, "order"))
    shuffled = pairs[:, order]
    turned = torch.cat([shuffled[:, ::2], shuffled[:, 1::2].flip(0), shuffled[:, :3]], dim=1)
    if not _same(_embed(method, Graph.build(graph.features, turned)), _embed(method, graph)):
        yield "embeds otherwise when the same edges come in another order, or twice."


@_check("side effects")
def _side_effects(contract: MethodContract) -> Iterator[str]:
    """Neither training nor embedding changes the graph, and embedding not the model."""
    for kind, make_graph in GRAPHS.items():
        model, _, graph = contract.fitted(kind)
        method = copy.deepcopy(model.method)
        before, untouched = copy.deepcopy(method.state_dict()), make_graph()
        first = _embed(method, graph)
        copied = first.clone()
        first.fill_(-1)  # it shares no memory with the graph or the model
        if not _same(_embed(method, graph), copied):
            yield "gives out memory of its own: who changes an embedding changes the next one."
        if not _same(method.state_dict(), before):
            yield "changes its weights or buffers when it embeds."
        now, then = ((dense(one.features), one.edge_index) for one in (graph, untouched))
        if not _same(now, then):
            yield "changes the graph that it is given."


@_check("labels")
def _labels(contract: MethodContract) -> Iterator[str]:
    """Other classes of the nodes change nothing: none is seen."""
    labelled = mixed_graph(num_nodes=NUM_NODES, degree=5.0, num_features=NUM_FEATURES, seed=3)
    others = replace(labelled, labels=labelled.labels.flip(0))
    first, second = (contract.embedder(epochs=2).fit(one).embed(one) for one in (labelled, others))
    if not _same(first, second):
        yield "embeds otherwise when the labels change, which no method may see."


@_check("saving")
def _saving(contract: MethodContract) -> Iterator[str]:
    """Saved and loaded, it embeds the same."""
    for kind in GRAPHS:
        model, _, graph = contract.fitted(kind)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            model.save(path)
            loaded = Embedder.load(path, device="cpu")
        if not _same(loaded.embed(graph), model.embed(graph)):
            yield f"embeds otherwise after it was saved and loaded, with {kind} features."
        gates = model.policy(graph), loaded.policy(graph)
        if gates[0] is not None and not (
            _same(*gates) and bool(((gates[0] >= 0) & (gates[0] <= 1)).all())
        ):
            yield "must have gate weights from 0 to 1 that are the same after saving and loading."


@_check("training mode")
def _training_mode(contract: MethodContract) -> Iterator[str]:
    """What is embedded is what was trained: nothing dropped or augmented, the same statistics."""
    has_norm_setting = bool(NORMED.keys() & contract.entry.config.model_fields.keys())
    cases: list[tuple[str, dict[str, Any]]] = [("dense", {})]
    cases += [("sparse", NORMED)] if has_norm_setting else []
    for kind, norm in cases:
        graph = GRAPHS[kind]().to(torch.float64)
        method = contract.make(epochs=4, **norm).double()
        train(method, graph, seed=0)
        trained = copy.deepcopy(method).train()
        with torch.no_grad():
            expected = trained.embed(graph)
        if not _same(_embed(method, graph), expected, 1e-8):
            yield (
                "embeds otherwise in evaluation than in training mode: use the batch norm of "
                "aspect.nn.normalisation, and draw nothing in `embed`."
            )
        before = copy.deepcopy(method.state_dict())
        method.calibrate(graph)
        if not _same(method.state_dict(), before):
            yield "is not calibrated after training: `calibrate` changes it once more."


@_check("output")
def _output(contract: MethodContract) -> Iterator[str]:
    """One pass gives what `embed` does, and as many rows before any centring."""
    model, _, graph = contract.fitted("dense")
    method = copy.deepcopy(model.method).eval()
    with torch.no_grad():
        output = method.output(graph)
        if not _same(output.embedding, method.embed(graph)):
            yield "has an `output` whose embedding is not that of `embed`."
    if len(output.uncentred) != len(output.embedding):
        yield "must give as many rows before centring as after it."


@_check("new graphs")
def _new_graphs(contract: MethodContract) -> Iterator[str]:
    """An inductive method embeds a graph that it was not trained on."""
    if not contract.entry.method.inductive:
        return
    model, _, _ = contract.fitted("dense")
    other = mixed_graph(num_nodes=17, degree=4.0, num_features=NUM_FEATURES, seed=8)
    embedding = copy.deepcopy(model).embed(other)
    if len(embedding) != other.graph.num_nodes or not bool(torch.isfinite(embedding).all()):
        yield (
            "is declared as inductive, and does not embed another graph: set inductive = False, "
            "or compute what a graph needs in a PerGraph."
        )


@_check("odd graphs")
def _odd(contract: MethodContract) -> Iterator[str]:
    """Graphs without edges, with zeros or with large numbers are served with finite numbers."""
    for case, graph in _odd_graphs().items():
        try:
            embedding = contract.embedder(seed=0, epochs=2).fit(graph).embed(graph)
        except Exception as error:
            yield f"fails on a graph with {case}: {_where(error)}"
            continue
        if len(embedding) != graph.num_nodes:
            yield f"embeds a graph with {case} as {len(embedding)} rows, not {graph.num_nodes}."


@_check("cost")
def _cost(contract: MethodContract) -> Iterator[str]:
    """An epoch on twice the nodes takes as many more operations as the declared cost says."""
    method = contract.entry.method
    if not method.trainable:
        return
    counts = [_operations(contract, nodes) for nodes in (COUNTED_NODES, 2 * COUNTED_NODES)]
    growth, declared = counts[1] / counts[0], "mini-batch" if method.mini_batch else method.cost
    least, most = GROWTH[declared]
    if not least < growth < most:
        yield (
            f"is declared as {declared}, and an epoch on twice the nodes takes {growth:.2f} times "
            f"the operations, which must be {least:g} to {most:g} times."
        )


def _operations(contract: MethodContract, nodes: int) -> int:
    """Of one epoch."""
    graph = mixed_graph(num_nodes=nodes, degree=5.0, num_features=NUM_FEATURES, seed=3).graph
    method = contract.make(narrow=True)
    method.prepare(graph)
    count = CountOperations()
    with count:
        train(method, graph, seed=0)
    return count.total


METHOD_CHECKS: tuple[str, ...] = tuple(_checks)
