"""A method with its trainer, and the graphs that it is given: fit, embed, policy, health."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, get_args, overload
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor

from aspect.attacks.pruning import Pruning
from aspect.config import Config, default_of, make_config
from aspect.data.archives import graph_sha256
from aspect.data.convert import as_graph, changes_of, node_numbers
from aspect.data.encoder import FeatureEncoder
from aspect.data.features import permute_columns
from aspect.data.graph import Graph, LabelledGraph
from aspect.errors import (
    AspectError,
    GraphError,
    GraphWarning,
    SettingsError,
    TrainingError,
    UnknownNameError,
    shown,
    warn,
)
from aspect.methods.base import Method, Output
from aspect.methods.registry import find_method
from aspect.nn.normalisation import Normalisation, Scaling
from aspect.randomness import isolated_seed, seed_for
from aspect.scale.fit import as_rows, check_scale, choose_rows, output_of, row_batches, row_outlook
from aspect.scale.rows import RowBatches, row_plan_of
from aspect.settings import RowSettings
from aspect.training.health import Health, check_finite
from aspect.training.outlook import estimate
from aspect.training.progress import Advance, is_watched, show_progress
from aspect.training.trainer import Recorder, TrainingResult, train

if TYPE_CHECKING:
    import pandas as pd

DTYPE = torch.float32

# A ratio of edges, `auto`, the fields of a `Pruning` by name, or one; None and zero: no edge goes.
PruneLike: TypeAlias = float | str | Mapping[str, Any] | Pruning | None


def settings_for(config: type[Config], *, is_encoded: bool) -> dict[str, Any]:
    """Defaults that a graph decides: an encoded table is scaled already, column by column.

    Dividing its rows by their sums would leave of a single column nothing but the sign.
    """
    return {"row_normalise": False} if is_encoded and "row_normalise" in config.model_fields else {}


def keyword_defaults(config: type[Config]) -> dict[str, Any]:
    """Defaults of a model's keywords; None where the graph decides (`settings_for`)."""
    defaults = {name: default_of(field) for name, field in config.model_fields.items()}
    return defaults | dict.fromkeys(settings_for(config, is_encoded=True))


def choose_device(name: str | None) -> torch.device:
    """The named device; without a name the GPU if there is one, else the CPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = ["cpu", *["cuda"] * bool(count), *(f"cuda:{index}" for index in range(count))]
    known = ", ".join(devices)
    try:
        device = torch.device(name or ("cuda" if count else "cpu"))
    except RuntimeError as error:
        raise SettingsError(f"Unknown device {name!r}. Known here: {known}.") from error
    if device.type not in ("cpu", "cuda"):
        raise SettingsError(
            f"Device must be cpu or cuda; {device.type!r} lacks sparse products. Got {name!r}."
        )
    if str(device) not in devices:
        raise SettingsError(f"Device {name!r} is not there. Known here: {known}. Try cpu.")
    return device


class GraphModel:
    """A method with its trainer: fit, embed, gate weights, health."""

    # Arguments beside the method and its settings, to offer for a misspelt one.
    _offered: ClassVar[tuple[str, ...]] = ("seed", "device", "prune", "graph", "scale")

    def __init__(
        self,
        method: str | type[Method] = "aspect",
        *,
        seed: int = 0,
        device: str | None = None,
        prune: PruneLike = None,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        scale: object = "auto",
        **settings: Any,  # noqa: ANN401 - the method's own
    ) -> None:
        self.registration = find_method(method)
        owner = self.registration.method.name
        for name in settings_for(self.registration.config, is_encoded=True):
            if settings.get(name, ...) is None:
                del settings[name]
        self.config = make_config(
            self.registration.config, settings, owner=owner, besides=self._offered
        )
        self.encoder: FeatureEncoder | None = None  # that made the features of the training graph
        try:  # NumPy's integers are welcome, but JSON does not know them
            self.seed = operator.index(seed)
        except TypeError as error:
            raise SettingsError(f"The seed must be an integer. Got {seed!r}.") from error
        self.device = choose_device(device)
        self.prune = Pruning.of(prune)
        self.graph = graph
        self.scale = check_scale(scale)
        self.rows: RowSettings | None = None  # how the fitted model sees a graph; None: whole
        self._projection: Tensor | None = None  # of features, before they are propagated as rows
        self.result: TrainingResult | None = None
        # As given, for `get_params` and `clone`.
        self._arguments: dict[str, Any] = {
            "method": method,
            "seed": seed,
            "device": device,
            "prune": prune,
            "scale": scale,
        }
        self._settings = settings
        self._container: str | None = None  # of `transform`; None: as scikit-learn says
        self._method: Method | None = None
        self._num_features = 0
        self._feature_names: tuple[str, ...] | None = None
        self._trained_on: str | None = None  # checksum of its graph, where no other can be embedded
        self._size = ""  # of the graph that it was fitted on, in words
        # None: not fitted, in the midst of a training, or not measured yet on the graph after it.
        self._scaling: Scaling | None = None
        self._unmeasured: Graph | None = None
        self._told: set[str] = set()  # warnings about graphs, each given once
        self._read: Graph | None = None  # `graph`, converted: now, so that faults show at once
        if graph is not None:
            self._converted(graph)
        self._forget_outputs()

    def _forget_outputs(self) -> None:
        # Of the last graph, while it lives: its copy as the method reads it (None: it is read
        # itself), and the result of a forward pass with the versions of the weights.
        self._copies: WeakKeyDictionary[Graph, Graph | None] = WeakKeyDictionary()
        self._outputs: WeakKeyDictionary[Graph, tuple[list[int], Output]] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The method's name."""
        return self.registration.name

    @property
    def method(self) -> Method:
        """The fitted method itself."""
        if self._method is None:
            name = type(self).__name__
            raise AspectError(f"This {name} is not fitted yet. Call fit(graph) first.")
        return self._method

    @property
    def is_fitted(self) -> bool:
        """Whether `fit` or `load` gave it a trained model."""
        return self._method is not None

    @torch.inference_mode(False)  # whose tensors are never trained
    def fit(
        self,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        y: object = None,  # noqa: ARG002 - scikit-learn passes labels by position
        *,
        progress: bool | None = None,
        recorder: Recorder | None = None,
    ) -> Self:
        """Learn from a graph; labels, if it has any, are not looked at.

        A training that fails or is interrupted leaves this object as it was.

        Args:
            graph: In any of the forms that the class lists; with a graph given at construction,
                rows of its node table, which choose nothing here: all nodes are trained on.
            y: Not used; scikit-learn passes it.
            progress: Show a bar with the time left, or a line every few seconds where none can be
                drawn; None: on terminals and in notebooks, unless a recorder is given.
            recorder: Receives the numbers of every epoch.
        """
        given = self._graph_of(graph, is_new=True)
        if self.graph is not None and graph is not None:
            node_numbers(graph, given)  # rows that are no nodes are refused before the training
        if progress is None:
            progress = recorder is None and is_watched(Console(stderr=True))
        config, placed = self.config, self._to_train_on(given)
        self.suit(given)
        try:
            method, rows = self._planned(placed)
            self.result, projection = self._train(method, placed, rows, recorder, progress=progress)
        except BaseException:
            self.config = config
            raise
        self._method, self._num_features = method, placed.num_features
        self.rows, self._projection = rows, projection
        self._feature_names, self.encoder = placed.feature_names, placed.encoder
        self._trained_on = None if method.inductive else graph_sha256(placed)
        self._size = f"{given.num_nodes:,} nodes and {given.num_edges:,} edges"
        self._forget_outputs()
        if rows is None:
            self._keep_copy(given, placed)
        self._scaling, self._unmeasured = None, given
        return self

    def rows_for(self, graph: Any) -> RowSettings | None:  # noqa: ANN401
        """How `fit` would train on a graph as rows; None: whole."""
        return self._planned(self._to_train_on(self._converted(graph, is_new=True)))[1]

    def take(
        self,
        method: Method,
        *,
        num_features: int,
        rows: RowSettings,
        projection: Tensor | None,
        scaling: Scaling | None,
        result: TrainingResult,
    ) -> None:
        """Become the model that was trained on the rows of a store (`aspect.scale.rows`)."""
        self._method, self._num_features, self.result = method, num_features, result
        self.rows, self._projection = rows, projection
        self._scaling, self._unmeasured = scaling, None
        self._forget_outputs()

    def _planned(self, graph: Graph) -> tuple[Method, RowSettings | None]:
        """An untrained method, and how it is trained on rows."""
        method = self.untrained(graph.num_features)
        rows = choose_rows(self.scale, method, graph)
        if rows is not None and rows.projection_width is not None:
            method = self.untrained(rows.projection_width)
        return method, rows

    def _train(
        self,
        method: Method,
        graph: Graph,
        rows: RowSettings | None,
        recorder: Recorder | None,
        *,
        progress: bool,
    ) -> tuple[TrainingResult, Tensor | None]:
        """The result, and what features were projected by."""
        with ExitStack() as stack:
            data: Graph | RowBatches = graph
            if rows is not None:
                data = stack.enter_context(row_batches(method, graph, rows, seed=self.seed))
            told: dict[str, Advance] = {}
            if progress:
                screen = Console(stderr=True, highlight=False)
                told["advance"] = stack.enter_context(show_progress("Epoch", screen))
            result = train(method, data, seed=self.seed, recorder=recorder, **told)
            return result, None if isinstance(data, Graph) else data.projection

    def _graph_of(self, source: Any, *, is_new: bool = False) -> Graph:  # noqa: ANN401
        """The graph given at construction, else the one given here."""
        if self.graph is None and source is None:
            raise GraphError("There is no graph. Give one here, or as graph=... at construction.")
        return self._converted(source if self.graph is None else self.graph, is_new=is_new)

    def _converted(self, source: Any, *, is_new: bool = False) -> Graph:  # noqa: ANN401
        """Our form; what was cleaned for it is a warning, once for this object.

        Features are made as those of the training graph were, unless it is a new one to train on.
        """
        if source is self.graph and self._read is not None:
            return self._read
        graph = as_graph(source, encoder=None if is_new else self.encoder)
        # Who built a graph of ours could read its notices.
        is_ours = isinstance(source, Graph | LabelledGraph)
        changes = "" if is_ours else " ".join(changes_of(graph))
        if changes and changes not in self._told:
            self._told.add(changes)
            options = {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", changes)}
            keywords = f" For files, aspect.read_graph takes {', '.join(sorted(options))}."
            warn(changes + (keywords if options else ""), GraphWarning)
        if source is self.graph:
            self._read = graph
        return graph

    def suit(self, graph: Any) -> None:  # noqa: ANN401
        """Give settings that were left open the defaults that suit a graph; `fit` does so."""
        is_encoded = self._converted(graph, is_new=True).is_encoded
        suited = settings_for(type(self.config), is_encoded=is_encoded)
        self.config = type(self.config)(**{**suited, **self._settings})

    def _measured_scaling(self) -> Scaling | None:
        """Measured when it is first needed, by the pass that embeds the training graph."""
        graph = self._unmeasured
        if graph is not None:
            self._scaling = Scaling.of(self._output(graph).embedding)
            self._unmeasured = None  # last: an interrupt, or another thread, may come before
        return self._scaling

    def outlook(self, graph: Any) -> tuple[str, ...]:  # noqa: ANN401
        """What to know of a training on a graph before it starts, one sentence each.

        Time and memory are estimated from two trial epochs, unless fewer than 20 are planned; a
        training that follows is not changed by them.
        """
        placed = self._to_train_on(self._converted(graph, is_new=True))
        method, rows = self._planned(placed)
        if rows is not None:
            return tuple(row_outlook(method, placed, rows, is_chosen=self.scale == "auto"))
        sentences = tuple(method.outlook(placed))
        try:
            expected = estimate(method, placed, seed=self.seed)
        except TrainingError:  # which the training itself will raise
            expected = None
        if expected is None:
            return sentences
        return (*sentences, *expected.sentences(method, " ".join(sentences)))

    def untrained(self, num_features: int) -> Method:
        """The method with its first weights, which the seed decides."""
        with isolated_seed(seed_for(self.seed, "weights")):
            method = self.registration.method(self.config, num_features)
        return method.to(self.device, DTYPE).eval()

    def _placed(self, graph: Graph) -> Graph:
        """The graph as the method needs it; the same object where nothing has to change."""
        if graph.dtype != DTYPE:
            graph = graph.to(DTYPE)
        # Compared after the move: `cuda` is the same device as `cuda:0` but has another name.
        moved = graph.to(self.device)
        return graph if moved.device == graph.device else moved

    def pruned(self, graph: Any) -> Graph:  # noqa: ANN401
        """The graph without the edges that the fitted model prunes before the method sees it."""
        if self.rows is None:
            return self.as_seen(graph)  # kept from the last look at it
        return self._pruned(self._placed(self._converted(graph)))  # rows have no edges

    def _to_train_on(self, given: Graph) -> Graph:
        """The graph as the method is to learn from it; found once before the first training."""
        if not self.is_fitted and given in self._copies:
            return self._copies[given] or given
        seen = self._pruned(self._placed(given))
        if not self.is_fitted:
            self._keep_copy(given, seen)
        return seen

    def _pruned(self, graph: Graph) -> Graph:
        return graph if self.prune is None else self.prune.apply(graph)

    @overload
    def embed(
        self,
        graph: Any,  # noqa: ANN401 - any form of a graph
        *,
        normalise: Normalisation = ...,
        as_frame: Literal[False] = ...,
    ) -> Float[Tensor, "nodes dim"]: ...

    @overload
    def embed(
        self,
        graph: Any,  # noqa: ANN401
        *,
        normalise: Normalisation = ...,
        as_frame: Literal[True],
    ) -> pd.DataFrame: ...

    def embed(
        self,
        graph: Any,  # any form of a graph
        *,
        normalise: Normalisation = "centre",
        as_frame: bool = False,
    ) -> Tensor | pd.DataFrame:
        """One row per node, on the CPU; the graph need not be the one trained on.

        Args:
            graph: With the features that it was trained on.
            normalise: `centre` subtracts the mean and divides by one number, `standard` by each
                column's standard deviation, `unit` gives centred rows of length one; all as
                measured on the training graph. `none` leaves the method's output as it is.
            as_frame: Return a pandas frame with columns `z0`, `z1`, ... and the nodes' ids as its
                index, in place of a tensor.
        """
        if normalise not in get_args(Normalisation):
            raise UnknownNameError("way to normalise", str(normalise), get_args(Normalisation))
        given = self._converted(graph)
        scaling = self._measured_scaling()
        embedding = self._output(given).embedding
        scaled = (scaling or Scaling.of(embedding)).apply(embedding, normalise).cpu()
        if as_frame:
            return frame_of(scaled.numpy().copy(), given)
        return scaled.clone() if scaled is embedding else scaled  # the caller may change it

    def scaled(
        self, rows: Float[Tensor, "rows dim"], normalise: Normalisation
    ) -> Float[Tensor, "rows dim"]:
        """Embeddings as the method gives them, moved and scaled as `embed` does it."""
        return (self._measured_scaling() or Scaling.of(rows)).apply(rows, normalise)

    def health(self, graph: Any) -> Health:  # noqa: ANN401
        """Signs of representation collapse, measured before any centring.

        A skip connection is not trained and is left out: `dim` is less than the columns of `embed`.
        """
        return Health.of(self._output(graph).uncentred)

    def policy(self, graph: Any) -> Float[Tensor, " nodes"] | None:  # noqa: ANN401
        """The gate weight of every node's low band, from 0 to 1; None without a gate."""
        gate = self._output(graph).gate
        # The whole is copied, not the column: sums over another layout round otherwise.
        return None if gate is None else gate.clone()[:, 0].cpu()

    def warnings(self, graph: Any) -> tuple[str, ...]:  # noqa: ANN401
        """What is wrong with the model's output on a graph, one sentence each."""
        return tuple(self.method.warnings(self._output(graph)))

    @torch.no_grad()
    def _output(self, graph: Any) -> Output:  # noqa: ANN401
        """The result of one forward pass; that of the last graph is kept."""
        given = self._converted(graph)
        seen = self.as_seen(given)
        versions = [tensor._version for tensor in self.method.state_dict().values()]
        kept = self._outputs.get(given)
        if kept is None or kept[0] != versions:
            with torch.autocast(seen.device.type, enabled=False):
                output = output_of(self.method.eval(), seen)
            check_finite(output.embedding)
            kept = (versions, output)
            self._outputs = WeakKeyDictionary({given: kept})
        return kept[1]

    def as_seen(self, graph: Any) -> Graph:  # noqa: ANN401
        """The graph as the fitted method reads it: pruned, with columns as in training."""
        given = self._converted(graph)
        copies = self._copies
        if given in copies:
            return copies[given] or given
        fitted = self.method
        seen = self._pruned(self._with_known_columns(self._placed(given)))
        if seen.num_features != self._num_features:
            raise GraphError(
                f"The model was trained on {self._num_features} features. "
                f"Got a graph with {seen.num_features}."
            )
        self._check_encoder(seen)
        if self.rows is not None:
            seen = as_rows(seen, row_plan_of(fitted), self._projection)
        if not fitted.inductive and self._trained_on != graph_sha256(seen):
            raise GraphError(f"{self.name} cannot embed a graph that it was not trained on.")
        self._keep_copy(given, seen)
        return seen

    def _check_encoder(self, graph: Graph) -> None:
        """Refuse columns that were scaled or coded otherwise than in training."""
        given = graph.encoder
        if self.encoder is None or given is None or not given.columns or given == self.encoder:
            return
        raise GraphError(
            "The columns of this graph became features in another way than those of the training "
            "graph. Read it with the model's encoder: read_graph(..., encoder=model.encoder)."
        )

    def _keep_copy(self, given: Graph, seen: Graph) -> None:
        # Replaced, not emptied: another thread may be reading the ones before.
        self._copies = WeakKeyDictionary({given: None if seen is given else seen})
        self._outputs = WeakKeyDictionary()

    def _with_known_columns(self, graph: Graph) -> Graph:
        """The columns as in training, by their names where both sides have them."""
        known, given = self._feature_names, graph.feature_names
        if known is None or given is None or known == given:
            return graph
        columns = {name: column for column, name in enumerate(given)}
        if columns.keys() != set(known):
            raise GraphError(_other_features(known, given))
        order = torch.tensor([columns[name] for name in known], device=graph.device)
        features = permute_columns(graph.features, order)
        return replace(graph, features=features, feature_names=known)


def column_names(dim: int) -> list[str]:
    """Names of the dimensions, as files of embeddings have them."""
    return [f"z{column}" for column in range(dim)]


def frame_of(rows: NDArray[np.float32], graph: Graph) -> pd.DataFrame:
    """Rows with the ids of their nodes; numbers where the graph has none."""
    import pandas as pd

    index: pd.Index[Any] = pd.RangeIndex(graph.num_nodes, name="id")
    if graph.ids is not None:
        index = pd.Index(graph.ids, name="id", dtype="int64" if graph.integer_ids else None)
    return pd.DataFrame(rows, index=index, columns=column_names(rows.shape[1]))


def _other_features(known: tuple[str, ...], given: tuple[str, ...]) -> str:
    both = set(known) & set(given)
    missing, extra = ([repr(name) for name in side if name not in both] for side in (known, given))
    sides = (("lacks", missing), ("has besides", extra))
    differences = " and ".join(f"{verb} {shown(names)}" for verb, names in sides if names)
    return (
        f"The model was trained on {len(known)} features. "
        f"Got a graph with {len(given)}, which {differences}."
    )
