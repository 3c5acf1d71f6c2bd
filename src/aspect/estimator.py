"""Method and trainer for a user's script: fit, embed, policy, save, load; also in scikit-learn."""

from __future__ import annotations

import html
import inspect
import logging
import operator
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, get_args, overload
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from rich.console import Console
from torch import Tensor
from typing_extensions import override

from aspect import __version__
from aspect.config import Config, make_config
from aspect.data.archives import graph_sha256
from aspect.data.convert import as_graph, changes_of, node_numbers
from aspect.data.encoder import FeatureEncoder
from aspect.data.features import permute_columns
from aspect.data.files import is_folder
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import (
    AspectError,
    CheckpointError,
    GraphError,
    GraphWarning,
    SettingsError,
    TrainingError,
    UnknownNameError,
    shown,
    warn,
)
from aspect.keywords import AspectKeywords
from aspect.methods.base import Method, Output
from aspect.methods.registry import find_method
from aspect.nn.normalisation import Normalisation, Scaling
from aspect.randomness import isolated_seed, seed_for
from aspect.scale.fit import as_rows, check_scale, choose_rows, output_of, row_batches, row_outlook
from aspect.scale.rows import RowBatches, row_plan_of
from aspect.settings import FOLDER, RowSettings, Scale, find_experiment
from aspect.training.health import Health
from aspect.training.outlook import estimate
from aspect.training.progress import is_watched, show_progress
from aspect.training.trainer import ProgressRecorder, Recorder, TrainingResult, train

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Aspect", "Embedder", "choose_device", "settings_for"]

DTYPE = torch.float32
MODEL = "model.safetensors"  # in the folder of a run
PROJECTION = "rows/projection"  # of features, in a saved model that was trained on rows
SCALING = "scaling/"  # before the names of its tensors in a saved model

OLD_STATISTICS = (
    "%s was saved by aspect %s. The statistics that it normalises by are the old ones, running "
    "averages of batch norm that had not converged, or missing. Recompute them on the training "
    "graph: model.calibrate(graph) in Python; `aspect embed RUN` does it by itself."
)

logger = logging.getLogger(__name__)


def settings_for(config: type[Config], *, is_encoded: bool) -> dict[str, Any]:
    """Defaults that a graph decides: an encoded table is scaled already, column by column.

    Dividing its rows by their sums would leave of a single column nothing but the sign.
    """
    return {"row_normalise": False} if is_encoded and "row_normalise" in config.model_fields else {}


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


class Embedder:
    """Any method of the registry: `Embedder("grace", epochs=100).fit(graph).embed(graph)`.

    A graph is a data set's name or a file's path; a PyG `Data` or `HeteroData`; a pandas or polars
    frame of edges, or a pair of frames (edges, nodes); a NetworkX, igraph or DGL graph; an
    adjacency of SciPy, NumPy or torch, or an `edge_index`, each alone or in a pair with a feature
    matrix; or an `aspect.Graph`. What is cleaned in it is said once, by a `GraphWarning`.

    It is also a transformer of scikit-learn. `transform` is `embed` as an array. With the graph
    given at construction, `fit` and `transform` take rows of a node table instead of a graph, so
    that pipelines and cross-validation can choose among nodes.

    Args:
        method: Its name; `aspect methods` lists them. One of another package is named as
            `aspect.plugins` says, or given as a class.
        seed: Of first weights and all draws; the same seed gives the same embeddings.
        device: `cpu`, `cuda` or `cuda:1`, for example; None: the GPU if there is one.
        graph: The graph whose nodes the rows given to `fit` and `transform` stand for.
        scale: `full` trains on the whole graph at every step, `rows` on batches of nodes whose
            propagated features lie on the disk (`RowSettings` in place of the word say how), `auto`
            on rows where the whole graph would not fit the memory. See docs/scale.md.
        settings: The method's own; `Embedder.settings("grace")` lists them.
    """

    def __init__(
        self,
        method: str | type[Method] = "aspect",
        *,
        seed: int = 0,
        device: str | None = None,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        scale: object = "auto",
        **settings: Any,  # noqa: ANN401 - the method's own
    ) -> None:
        self.registration = find_method(method)
        owner = self.registration.method.name
        self.config = make_config(self.registration.config, settings, owner=owner)
        self._given = self.config.model_fields_set
        self.encoder: FeatureEncoder | None = None  # that made the features of the training graph
        self.seed = _whole(seed)
        self.device = choose_device(device)
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
            "scale": scale,
        }
        self._settings = settings
        self._container = "default"  # of what `transform` returns
        self._method: Method | None = None
        self._num_features = 0
        self._feature_names: tuple[str, ...] | None = None
        self._trained_on: str | None = None  # checksum of its graph, where no other can be embedded
        self._size = ""  # of the graph that it was fitted on, in words
        # None: not fitted, saved by version 0.1, or not measured yet on the graph after it.
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

    @staticmethod
    def settings(method: str | type[Method]) -> pd.DataFrame:
        """The settings of a method: a row each, with default and meaning."""
        import pandas as pd

        fields = find_method(method).config.model_fields
        rows = [(_default(field), _meaning(field)) for field in fields.values()]
        names = pd.Index(list(fields), name="setting")
        return pd.DataFrame(rows, index=names, columns=["default", "meaning"], dtype=object)

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
        config, placed = self.config, self._placed(given)
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
        return self._planned(self._placed(self._converted(graph, is_new=True)))[1]

    def untrained(self, num_features: int) -> Method:
        """The method with its first weights, which the seed decides."""
        return self._build(num_features)

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
        method = self._build(graph.num_features)
        rows = choose_rows(self.scale, method, graph)
        if rows is not None and rows.projection_width is not None:
            method = self._build(rows.projection_width)
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
            if progress:
                screen = Console(stderr=True, highlight=False)
                advance = stack.enter_context(show_progress("Epoch", screen))
                recorder = ProgressRecorder(recorder or Recorder(), advance)
            result = train(method, data, seed=self.seed, recorder=recorder)
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
            warn(changes, GraphWarning)
        if source is self.graph:
            self._read = graph
        return graph

    def suit(self, graph: Any) -> None:  # noqa: ANN401
        """Give settings that were left open the defaults that suit a graph; `fit` does so."""
        is_encoded = self._converted(graph, is_new=True).is_encoded
        suited = settings_for(type(self.config), is_encoded=is_encoded)
        given = {name: getattr(self.config, name) for name in self._given}
        self.config = type(self.config)(**{**suited, **given})

    def calibrate(self, graph: Any) -> Self:  # noqa: ANN401
        """Recompute what embeddings are normalised and centred by, on the training graph.

        `fit` does so itself; a model that was saved by version 0.1 needs it.
        """
        given = self._converted(graph)
        self.method.calibrate(self.as_seen(given))
        self._outputs.clear()
        self._scaling, self._unmeasured = None, given
        return self

    def _measured_scaling(self) -> Scaling | None:
        """Measured when it is first needed, by the pass that embeds the training graph."""
        if self._unmeasured is not None:
            graph, self._unmeasured = self._unmeasured, None
            self._scaling = Scaling.of(self._output(graph).embedding)
        return self._scaling

    @property
    def is_stale(self) -> bool:
        """Whether its statistics are those of version 0.1: see `calibrate`."""
        return self.method.is_stale or self._measured_scaling() is None

    def outlook(self, graph: Any) -> tuple[str, ...]:  # noqa: ANN401
        """What to know of a training on a graph before it starts, one sentence each.

        Time and memory are estimated from two trial epochs, unless fewer than 20 are planned; a
        training that follows is not changed by them.
        """
        given = self._converted(graph, is_new=True)
        placed = self._placed(given)
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

    @property
    def _columns(self) -> int:
        """Columns of what the method is given: features, or their projection."""
        width = None if self.rows is None else self.rows.projection_width
        return width or self._num_features

    def _build(self, num_features: int) -> Method:
        with isolated_seed(seed_for(self.seed, "weights")):
            method = self.registration.method(self.config, num_features)
        return method.to(self.device).eval()

    def _placed(self, graph: Graph) -> Graph:
        """The graph as the method needs it; the same object where nothing has to change."""
        if graph.dtype != DTYPE:
            graph = graph.to(DTYPE)
        # Compared after the move: `cuda` is the same device as `cuda:0` but has another name.
        moved = graph.to(self.device)
        return graph if moved.device == graph.device else moved

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
            return _frame(scaled.numpy().copy(), given)
        return scaled.clone() if scaled is embedding else scaled  # the caller may change it

    def scaled(
        self, rows: Float[Tensor, "rows dim"], normalise: Normalisation
    ) -> Float[Tensor, "rows dim"]:
        """Embeddings as the method gives them, moved and scaled as `embed` does it."""
        return (self._measured_scaling() or Scaling.of(rows)).apply(rows, normalise)

    def health(self, graph: Any) -> Health:  # noqa: ANN401
        """Signs of representation collapse, measured before any centring."""
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
            self._outputs.clear()
            kept = self._outputs[given] = (versions, output_of(self.method.eval(), seen))
        return kept[1]

    def as_seen(self, graph: Any) -> Graph:  # noqa: ANN401
        """The graph as the fitted method reads it: columns as in training, on its device."""
        given = self._converted(graph)
        if given in self._copies:
            copy = self._copies[given]
            return given if copy is None else copy
        fitted = self.method
        seen = self._with_known_columns(self._placed(given))
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
        self._copies.clear()
        self._outputs.clear()
        self._copies[given] = None if seen is given else seen

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

    # scikit-learn

    def transform(self, graph: Any = None) -> NDArray[np.float32] | pd.DataFrame:  # noqa: ANN401
        """Embeddings as an array: of a graph's nodes, or of the nodes that a table's rows name.

        Args:
            graph: Any form of a graph. With a graph given at construction: rows of its node table.
                They name nodes by a column `id`, `node` or `node_id`, else by the index of a pandas
                frame, or as an array of ids; None stands for all nodes.
        """
        given = self._graph_of(graph)
        rows: NDArray[np.int64] | slice = slice(None)
        if self.graph is not None and graph is not None:
            rows = node_numbers(graph, given)
        if self._container == "pandas":
            frame = self.embed(given, as_frame=True).iloc[rows]
            # As scikit-learn's own transformers: rows keep the names that they came with.
            return frame if isinstance(rows, slice) else frame.set_axis(_index_of(graph, frame))
        return np.asarray(self.embed(given).numpy()[rows])

    def fit_transform(
        self,
        graph: Any = None,  # noqa: ANN401 - as for `transform`
        y: object = None,
    ) -> NDArray[np.float32] | pd.DataFrame:
        """Train and embed: `fit`, then `transform`."""
        graph = self._graph_of(graph) if self.graph is None else graph  # converted once
        return self.fit(graph, y).transform(graph)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's
        """All arguments of the constructor, those that were left out with their defaults."""
        fields = self.registration.config.model_fields
        defaults = {name: _default(field) for name, field in fields.items()}
        return {**self._arguments, "graph": self.graph, **defaults, **self._settings}

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401 - arguments of the constructor
        """Change arguments of the constructor; a fitted model is forgotten, since it had others."""
        if params:
            before = {**self._arguments, "graph": self.graph, **self._settings}
            vars(self).update(vars(self._made_with({**before, **params})))
        return self

    def _made_with(self, arguments: dict[str, Any]) -> Self:
        """An unfitted one; it shares a graph that both have, which was converted once."""
        if arguments["graph"] is not self.graph:
            made = type(self)(**arguments)
        else:
            made = type(self)(**{**arguments, "graph": None})
            made.graph, made._read, made._told = self.graph, self._read, self._told
        return made.set_output(transform=self._container)

    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` returns: `default` (an array) or `pandas`; None changes nothing."""
        if transform not in (None, "default", "pandas"):
            raise SettingsError(f"The output must be default or pandas. Got {transform!r}.")
        self._container = transform or self._container
        return self

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:  # noqa: ARG002
        """The names of the embedding's columns: `z0`, `z1`, ..."""
        self.method.eval()  # refuses if nothing is fitted
        scaling = self._measured_scaling()
        if scaling is None:
            raise AspectError("The model is of version 0.1. Call calibrate(graph) first.")
        return np.array(_columns(len(scaling.mean)), dtype=object)

    def __sklearn_clone__(self) -> Self:
        """An unfitted one with the same arguments; the graph is shared, not copied."""
        return self._made_with({**self._arguments, "graph": self.graph, **self._settings})

    def __sklearn_is_fitted__(self) -> bool:
        return self.is_fitted

    def __sklearn_tags__(self) -> object:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(),
            input_tags=InputTags(one_d_array=True, string=True),
        )

    def __getstate__(self) -> dict[str, Any]:
        """For pickles, as joblib's workers need: weights in place of the module and its caches."""
        self._measured_scaling()
        state = {name: value for name, value in vars(self).items() if name not in CACHES}
        state["_method"] = None if self._method is None else self._method.state_dict()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        weights = state.pop("_method")
        vars(self).update(state, _method=None, _read=None, _unmeasured=None)
        self._forget_outputs()
        if weights is not None:
            self._method = self._build(self._columns)
            self._method.load_state_dict(weights)

    # How it is shown

    def __repr__(self) -> str:
        """Arguments that differ from their defaults, and whether it is fitted.

        >>> Embedder("grace", epochs=5)
        Embedder('grace', epochs=5) [not fitted]
        """
        return f"{type(self).__name__}({', '.join(self._shown())}) [{self._state}]"

    def _repr_html_(self) -> str:
        """For notebooks: all settings, those that differ from their defaults in bold."""
        fields = self.registration.config.model_fields
        rows = []
        for name, value in self.config:
            cell = html.escape(repr(value))
            cell = cell if value == _default(fields[name]) else f"<b>{cell}</b>"
            meaning = html.escape(_meaning(fields[name]))
            rows.append(f"<tr><td>{name}</td><td>{cell}</td><td>{meaning}</td></tr>")
        return (
            f"<details><summary><code>{html.escape(repr(self))}</code></summary><table>"
            f"<tr><th>setting</th><th>value</th><th>meaning</th></tr>{''.join(rows)}</table>"
            "</details>"
        )

    def _shown(self) -> Iterator[str]:
        """Arguments that differ from their defaults, as one writes them."""
        yield repr(self.name)
        yield from self._shown_keywords()

    def _shown_keywords(self) -> Iterator[str]:
        fields = self.registration.config.model_fields
        for name, value in self.config:
            if value != _default(fields[name]):
                yield f"{name}={value!r}"
        if self.seed != 0:
            yield f"seed={self.seed}"
        if self._arguments["device"] is not None:
            yield f"device={self._arguments['device']!r}"
        if self.scale != "auto":
            yield f"scale={self.scale!r}"
        if self.graph is not None:
            yield f"graph={_short(self.graph)}"

    @property
    def _state(self) -> str:
        if not self.is_fitted:
            return "not fitted"
        epochs = "" if self.result is None else f"{self.result.epochs} epochs on "
        return f"fitted: {epochs}{self._size}" if self._size else "fitted"

    # Files

    def save(self, path: str | Path) -> None:
        """Write the trained model to one safetensors file; nothing in it is code."""
        manifest = {
            "kind": "model",
            "version": __version__,
            "method": self.name,
            "settings": self.config.model_dump(mode="json"),
            "num_features": self._num_features,
            "feature_names": self._feature_names,
            "encoder": None if self.encoder is None else self.encoder.to_json(),
            "seed": self.seed,
            "trained_on": self._trained_on,
            "rows": None if self.rows is None else self.rows.model_dump(mode="json"),
        }
        tensors = dict(self.method.state_dict())
        if self._projection is not None:
            tensors[PROJECTION] = self._projection
        if (scaling := self._measured_scaling()) is not None:
            tensors |= {f"{SCALING}{name}": value for name, value in vars(scaling).items()}
        write_tensors(Path(path), tensors, manifest)

    @classmethod
    def load(cls, path: str | Path, *, device: str | None = None) -> Self:
        """Read what `save` wrote, or the model of a run's folder; what is damaged is refused.

        One of version 0.1 is read with a warning: see `calibrate`.
        """
        chosen = str(choose_device(device))
        path = Path(path) / MODEL if is_folder(Path(path)) else path
        tensors, manifest = read_tensors(Path(path))
        _check_manifest(manifest, path)
        try:
            model = cls._described_by(manifest, path, chosen)
        except (SettingsError, UnknownNameError) as error:
            raise CheckpointError(f"{path} does not fit this version. {error}") from error
        model._num_features = manifest["num_features"]
        model._feature_names = _names_of(manifest, path)
        model.encoder = _encoder_of(manifest, path)
        model._trained_on = manifest.get("trained_on")
        scaling = {
            name.removeprefix(SCALING): tensors.pop(name).to(model.device)
            for name in list(tensors)
            if name.startswith(SCALING)
        }
        try:
            if manifest.get("rows") is not None:
                model.rows = RowSettings(**manifest["rows"])
                model._projection = tensors.pop(PROJECTION, None)
            method = model._build(model._columns)
            method.load_state_dict(tensors)
            model._scaling = Scaling(**scaling) if scaling else None
        except (RuntimeError, TypeError) as error:
            raise CheckpointError(
                f"The weights in {path} do not fit the method {model.name!r} that it names."
            ) from error
        model._method = method
        if model.is_stale:
            logger.warning(OLD_STATISTICS, path, manifest["version"])
        return model

    @classmethod
    def _described_by(cls, manifest: dict[str, Any], path: str | Path, device: str) -> Self:  # noqa: ARG003
        """An unfitted one, as a saved model's manifest says."""
        seed, settings = manifest["seed"], _settings_of(manifest)
        return cls(manifest["method"], seed=seed, device=device, **settings)


CACHES = ("_copies", "_outputs", "_read", "_unmeasured")


def _default(field: FieldInfo) -> Any:  # noqa: ANN401 - of any setting
    return field.get_default(call_default_factory=True)


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _columns(dim: int) -> list[str]:
    """Names of the dimensions, as files of embeddings have them."""
    return [f"z{column}" for column in range(dim)]


def _frame(rows: NDArray[np.float32], graph: Graph) -> pd.DataFrame:
    """Rows with the ids of their nodes; numbers where the graph has none."""
    import pandas as pd

    index: pd.Index[Any] = pd.RangeIndex(graph.num_nodes, name="id")
    if graph.ids is not None:
        index = pd.Index(graph.ids, name="id", dtype="int64" if graph.integer_ids else None)
    return pd.DataFrame(rows, index=index, columns=_columns(rows.shape[1]))


def _index_of(rows: object, frame: pd.DataFrame) -> pd.Index[Any]:
    import pandas as pd

    return rows.index if isinstance(rows, pd.DataFrame | pd.Series) else frame.index


def _short(graph: object) -> str:
    """A graph in a few letters, whatever its form."""
    if isinstance(graph, str | Graph | LabelledGraph):
        return repr(graph)
    return f"<{type(graph).__module__.partition('.')[0]} {type(graph).__name__}>"


def _whole(seed: object) -> int:
    """The seed as Python's own integer: NumPy's are welcome, but JSON does not know them."""
    try:
        return operator.index(seed)  # type: ignore[arg-type]  # this is the check
    except TypeError as error:
        raise SettingsError(f"The seed must be an integer. Got {seed!r}.") from error


def _check_manifest(manifest: dict[str, Any], path: str | Path) -> None:
    if manifest.get("kind") != "model":
        kind = manifest.get("kind", "file of another kind")
        raise CheckpointError(f"{path} is not a saved model but a {kind}.")
    missing = {"version", "method", "settings", "num_features", "seed"} - set(manifest)
    if missing:
        raise CheckpointError(
            f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}."
        )
    if manifest["version"].split(".")[0] != __version__.split(".")[0]:
        raise CheckpointError(
            f"{path} was written by aspect {manifest['version']}; "
            f"this is {__version__}, which may read it wrongly."
        )


def _settings_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The settings under the names of this version."""
    settings = dict(manifest["settings"])
    if "readout" in settings:
        settings.setdefault("skip_weight", 0.0)  # until version 0.2 there was none
    if manifest["version"].startswith("0.1."):
        # Version 0.1 did not centre, and had one setting of CCA-SSG alone for what is
        # `norm_statistics` now.
        if "readout" in settings:
            settings.update(centred=False, unit_rows=False)
        is_running = settings.pop("running_statistics", None)
        if is_running is not None:
            settings["norm_statistics"] = "running" if is_running else "graph"
    return settings


def _names_of(manifest: dict[str, Any], path: str | Path) -> tuple[str, ...] | None:
    """Names of the features; older files have none."""
    names = manifest.get("feature_names")
    if names is None:
        return None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or not len(set(names)) == len(names) == manifest["num_features"]:
        raise CheckpointError(
            f"{path} is damaged: it must name each of its {manifest['num_features']} features once."
        )
    return tuple(names)


def _encoder_of(manifest: dict[str, Any], path: str | Path) -> FeatureEncoder | None:
    """How columns become features; models of arrays and older files have none."""
    try:
        values = manifest.get("encoder")
        return None if values is None else FeatureEncoder.model_validate(values)
    except ValidationError as error:
        raise CheckpointError(f"{path} is damaged: its encoder of features is no such.") from error


def _other_features(known: tuple[str, ...], given: tuple[str, ...]) -> str:
    both = set(known) & set(given)
    missing, extra = ([repr(name) for name in side if name not in both] for side in (known, given))
    sides = (("lacks", missing), ("has besides", extra))
    differences = " and ".join(f"{verb} {shown(names)}" for verb, names in sides if names)
    return (
        f"The model was trained on {len(known)} features. "
        f"Got a graph with {len(given)}, which {differences}."
    )


def _presets() -> set[str]:
    """Data sets that settings are shipped for, and `paper`; published ones are not ours."""
    names = {path.stem for path in (FOLDER / "aspect").glob("*.yaml")}
    return {name for name in names if not name.endswith(".published")}


class Aspect(Embedder):
    """ASPECT with its settings as keywords; with `stable=True` it is ASPECT-S.

    Graphs are given as `Embedder` lists them, and it is a transformer of scikit-learn as well.

    Example:
        >>> from aspect import Aspect, mixed_graph
        >>> graph = mixed_graph(num_nodes=60, seed=0)
        >>> model = Aspect(epochs=2, width=8, seed=0, device="cpu").fit(graph)
        >>> model.embed(graph).shape, model.policy(graph).shape
        (torch.Size([60, 16]), torch.Size([60]))

    Args:
        stable: Train ASPECT-S: searched perturbations of the graph, and a loss on their effect.
        seed: Of first weights and all draws; the same seed gives the same embeddings.
        device: `cpu`, `cuda` or `cuda:1`, for example; None: the GPU if there is one.
        graph: The graph whose nodes the rows given to `fit` and `transform` stand for; without
            it they are given graphs.
        scale: `full` trains on the whole graph at every step, `rows` on batches of nodes whose
            propagated features lie on the disk, `auto` on rows where the whole does not fit.
    """

    def __init__(
        self,
        *,
        stable: bool = False,
        seed: int = 0,
        device: str | None = None,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        scale: Scale | RowSettings = "auto",
        **settings: Unpack[AspectKeywords],
    ) -> None:
        method = "aspect-s" if stable else "aspect"
        super().__init__(method, seed=seed, device=device, graph=graph, scale=scale, **settings)
        self._arguments = {"stable": stable, "seed": seed, "device": device, "scale": scale}

    @override
    def _shown(self) -> Iterator[str]:
        if self._arguments["stable"]:
            yield "stable=True"
        yield from self._shown_keywords()

    @classmethod
    @override
    def _described_by(cls, manifest: dict[str, Any], path: str | Path, device: str) -> Self:
        method, seed, settings = manifest["method"], manifest["seed"], _settings_of(manifest)
        if method not in ("aspect", "aspect-s"):
            raise CheckpointError(
                f"{path} holds a model of {method!r}, not of ASPECT. Read it with Embedder.load."
            )
        return cls(stable=method == "aspect-s", seed=seed, device=device, **settings)

    @classmethod
    def preset(
        cls,
        name: str,
        *,
        stable: bool = False,
        seed: int = 0,
        device: str | None = None,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        scale: Scale | RowSettings = "auto",
        **changes: Unpack[AspectKeywords],
    ) -> Self:
        """The settings shipped for a data set, or those of `paper`; keywords change some."""
        if name not in (known := _presets()):
            raise UnknownNameError("preset", str(name), known)
        method, choice = "aspect-s" if stable else "aspect", "paper" if name == "paper" else None
        experiment, _ = find_experiment(method, name, choice)
        settings: dict[str, Any] = {**experiment.settings, **changes}
        return cls(stable=stable, seed=seed, device=device, graph=graph, scale=scale, **settings)


def _type_text(name: str, field: FieldInfo) -> object:
    """A setting's type as `keywords.py` writes it, without the bounds."""
    hint = AspectKeywords.__annotations__.get(name, field.annotation)
    return getattr(hint, "__forward_arg__", hint)


def _explain_settings(cls: type[Aspect]) -> None:
    """Put every setting, its default and its meaning into the class's signature and docstring.

    They are declared in the settings' classes alone.
    """
    plain, whole = (find_method(name).config.model_fields for name in ("aspect", "aspect-s"))
    lines: list[str] = []
    for name, field in whole.items():
        only = "" if name in plain else ", with stable=True"
        text = f"{name} (default {_default(field)!r}{only}): {_meaning(field)}"
        lines += textwrap.wrap(text, 96, initial_indent="    ", subsequent_indent=" " * 8)
    fixed = list(inspect.signature(cls.__init__).parameters.values())[:-1]
    given = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=_type_text(name, field),
        )
        for name, field in whole.items()
    ]
    signature = inspect.Signature([*fixed, *given], return_annotation=None)
    cls.__init__.__signature__ = signature  # type: ignore[attr-defined]  # what inspect reads
    cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n" + "\n".join(lines)


_explain_settings(Aspect)
