"""Any method for a user's script and for scikit-learn; how it is shown, saved and loaded."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from aspect import __version__
from aspect.config import default_of, meaning_of
from aspect.data.convert import node_numbers
from aspect.data.encoder import FeatureEncoder
from aspect.data.files import is_folder
from aspect.data.graph import Graph, LabelledGraph
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import AspectError, CheckpointError, SettingsError, UnknownNameError, warn
from aspect.estimator.model import GraphModel, choose_device, column_names, keyword_defaults
from aspect.methods.base import Method
from aspect.methods.registry import find_method
from aspect.nn.normalisation import Scaling
from aspect.settings import RowSettings
from aspect.training.files import MODEL

if TYPE_CHECKING:
    import pandas as pd

PROJECTION = "rows/projection"  # of features, in a saved model that was trained on rows
SCALING = "scaling/"  # before the names of its tensors in a saved model
# What a pickle leaves out: tensors stand for the first three, and the rest are caches.
UNPICKLED = ("_method", "_projection", "_scaling", "_unmeasured", "_read", "_copies", "_outputs")


class Embedder(GraphModel):
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
        prune: Prune edges before the method sees a graph, in training and in embedding: the ratio,
            `auto`, or an `aspect.attacks.Pruning`; None: no edge goes.
        graph: The graph whose nodes the rows given to `fit` and `transform` stand for.
        scale: `full` trains on the whole graph at every step, `rows` on batches of nodes whose
            propagated features lie on the disk (`RowSettings` in place of the word say how), `auto`
            on rows where the whole graph would not fit the memory. See docs/scale.md.
        settings: The method's own; `Embedder.settings("grace")` lists them.
    """

    @staticmethod
    def settings(method: str | type[Method]) -> pd.DataFrame:
        """The settings of a method: a row each, with default and meaning."""
        import pandas as pd

        fields = find_method(method).config.model_fields
        rows = [(default_of(field), meaning_of(field)) for field in fields.values()]
        names = pd.Index(list(fields), name="setting")
        return pd.DataFrame(rows, index=names, columns=["default", "meaning"], dtype=object)

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
            cell = cell if value == default_of(fields[name]) else f"<b>{cell}</b>"
            meaning = html.escape(meaning_of(fields[name]))
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
            if value != default_of(fields[name]):
                yield f"{name}={value!r}"
        if self.seed != 0:
            yield f"seed={self.seed}"
        if self._arguments["device"] is not None:
            yield f"device={self._arguments['device']!r}"
        if self.prune is not None:
            yield f"prune={self._arguments['prune']!r}"
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

    # The contract of scikit-learn

    def transform(self, graph: Any = None) -> NDArray[np.float32] | pd.DataFrame:  # noqa: ANN401
        """Embeddings as an array: of a graph's nodes, or of the nodes that a table's rows name.

        Args:
            graph: Any form of a graph. With a graph given at construction: rows of its node table.
                They name nodes by a column `id`, `node` or `node_id`, else by the index of a pandas
                frame, or as an array of ids; None stands for all nodes.
        """
        from sklearn import get_config

        given = self._graph_of(graph)
        rows: NDArray[np.int64] | slice = slice(None)
        if self.graph is not None and graph is not None:
            rows = node_numbers(graph, given)
        if (self._container or get_config()["transform_output"]) == "pandas":
            frame = self.embed(given, as_frame=True).iloc[rows]
            # As scikit-learn's own transformers: rows keep the names that they came with.
            is_named = not isinstance(rows, slice) and hasattr(graph, "iloc")  # by pandas
            return frame.set_axis(graph.index) if is_named else frame
        return np.asarray(self.embed(given).numpy()[rows])

    def fit_transform(
        self,
        graph: Any = None,  # noqa: ANN401 - as for `transform`
        y: object = None,
        **options: Any,  # noqa: ANN401 - of `fit`, as a pipeline passes them
    ) -> NDArray[np.float32] | pd.DataFrame:
        """Train and embed: `fit`, then `transform`."""
        if self.graph is None:
            graph = self._graph_of(graph, is_new=True)  # converted once
        return self.fit(graph, y, **options).transform(graph)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - scikit-learn's
        """All arguments of the constructor, those that were left out with their defaults."""
        defaults = keyword_defaults(self.registration.config)
        return {**self._arguments, "graph": self.graph, **defaults, **self._settings}

    def set_params(self, **params: Any) -> Self:  # noqa: ANN401 - arguments of the constructor
        """Change arguments of the constructor; a fitted model is forgotten, since it had others."""
        if params:
            vars(self).update(vars(self._made_with(params)))
        return self

    def _made_with(self, changes: dict[str, Any]) -> Self:
        """An unfitted one; it shares a graph that both have, which was converted once."""
        arguments = {**self._arguments, "graph": self.graph, **self._settings, **changes}
        if arguments["graph"] is not self.graph:
            made = type(self)(**arguments)
        else:
            made = type(self)(**{**arguments, "graph": None})
            made.graph, made._read, made._told = self.graph, self._read, self._told
        return made.set_output(transform=self._container)

    def set_output(self, *, transform: str | None = None) -> Self:
        """What `transform` returns: `default` (an array) or `pandas`; None changes nothing.

        Without it scikit-learn's own `transform_output` decides.
        """
        if transform not in (None, "default", "pandas"):
            raise SettingsError(f"The output must be default or pandas. Got {transform!r}.")
        self._container = transform or self._container
        return self

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:  # noqa: ARG002
        """The names of the embedding's columns: `z0`, `z1`, ..."""
        self.method.eval()  # refuses if nothing is fitted
        scaling = self._measured_scaling()
        if scaling is None:
            raise AspectError("The training is not complete: no embedding was measured yet.")
        return np.array(column_names(len(scaling.mean)), dtype=object)

    def __sklearn_clone__(self) -> Self:
        """An unfitted one with the same arguments; the graph is shared, not copied."""
        return self._made_with({})

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
        """For pickles, as joblib's workers need: tensors in place of the module and its caches."""
        state = {name: value for name, value in vars(self).items() if name not in UNPICKLED}
        return {**state, "tensors": self._tensors() if self.is_fitted else None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tensors = state.pop("tensors")
        vars(self).update(state, **dict.fromkeys(UNPICKLED))
        self._forget_outputs()
        device = self._arguments["device"]
        try:
            self.device = choose_device(device)
        except SettingsError:
            self._arguments, self.device = {**self._arguments, "device": None}, choose_device(None)
            warn(f"Device {device!r} is not there: the model is on {self.device}.", UserWarning)
        if tensors is not None:
            self._restore(tensors)

    def _tensors(self) -> dict[str, Tensor]:
        """What a file or a pickle holds of a fitted model, on the CPU."""
        tensors = dict(self.method.state_dict())
        if self._projection is not None:
            tensors[PROJECTION] = self._projection
        if (scaling := self._measured_scaling()) is not None:
            tensors |= {f"{SCALING}{name}": value for name, value in vars(scaling).items()}
        return {name: tensor.cpu() for name, tensor in tensors.items()}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Become the fitted model again whose tensors they are."""
        tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        self._projection = tensors.pop(PROJECTION, None)
        scaling = {
            name.removeprefix(SCALING): tensors.pop(name)
            for name in list(tensors)
            if name.startswith(SCALING)
        }
        width = None if self.rows is None else self.rows.projection_width
        method = self.untrained(width or self._num_features)
        method.load_state_dict(tensors)
        self._scaling = Scaling(**scaling) if scaling else None
        self._method = method

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
        if self.prune is not None:
            manifest["prune"] = self.prune.to_json()
        write_tensors(Path(path), self._tensors(), manifest)

    @classmethod
    def load(cls, path: str | Path, *, device: str | None = None) -> Self:
        """Read what `save` wrote, or the model of a run's folder; what is damaged is refused."""
        chosen = str(choose_device(device))
        path = Path(path) / MODEL if is_folder(Path(path)) else path
        tensors, manifest = read_tensors(Path(path))
        _check_manifest(manifest, path)
        if "readout" in manifest["settings"]:
            manifest["settings"].setdefault("skip_weight", 0.0)  # until version 0.2 there was none
        try:
            model = cls._described_by(manifest, path, chosen)
        except (SettingsError, UnknownNameError) as error:
            raise CheckpointError(f"{path} does not fit this version. {error}") from error
        model._num_features = manifest["num_features"]
        model._feature_names = _names_of(manifest, path)
        model.encoder = _encoder_of(manifest, path)
        model._trained_on = manifest.get("trained_on")
        try:
            if manifest.get("rows") is not None:
                model.rows = RowSettings(**manifest["rows"])
            model._restore(tensors)
        except (RuntimeError, TypeError) as error:
            raise CheckpointError(
                f"The weights in {path} do not fit the method {model.name!r} that it names."
            ) from error
        return model

    @classmethod
    def _described_by(cls, manifest: dict[str, Any], path: str | Path, device: str) -> Self:  # noqa: ARG003
        """An unfitted one, as a saved model's manifest says."""
        seed, settings, prune = manifest["seed"], manifest["settings"], manifest.get("prune")
        return cls(manifest["method"], seed=seed, device=device, prune=prune, **settings)


def _check_manifest(manifest: dict[str, Any], path: str | Path) -> None:
    """Refuse what is no saved model, or one of another major version or of 0.1."""
    if manifest.get("kind") != "model":
        kind = manifest.get("kind", "file of another kind")
        raise CheckpointError(f"{path} is not a saved model but a {kind}.")
    missing = {"version", "method", "settings", "num_features", "seed"} - set(manifest)
    if missing:
        raise CheckpointError(
            f"{path} is damaged: its manifest lacks {', '.join(sorted(missing))}."
        )
    version = str(manifest["version"])
    if version.startswith("0.1.") or version.split(".", maxsplit=1)[0] != __version__.split(".")[0]:
        raise CheckpointError(
            f"{path} was written by aspect {version}; this is {__version__}, which may read it "
            "wrongly. Train the model again."
        )


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


def _short(graph: object) -> str:
    """A graph in a few letters, whatever its form."""
    if isinstance(graph, str | Graph | LabelledGraph):
        return repr(graph)
    return f"<{type(graph).__module__.partition('.')[0]} {type(graph).__name__}>"
