"""Method and trainer for a user's script: fit, embed, policy, save, load."""

from __future__ import annotations

import logging
import operator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, get_args
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from aspect import __version__
from aspect.config import make_config
from aspect.data.archives import graph_sha256
from aspect.data.convert import as_graph
from aspect.data.features import permute_columns
from aspect.data.graph import Graph
from aspect.data.tensors import read_tensors, write_tensors
from aspect.errors import (
    AspectError,
    CheckpointError,
    GraphError,
    SettingsError,
    UnknownNameError,
    shown,
)
from aspect.methods.base import Method, Output
from aspect.methods.registry import find_method
from aspect.nn.normalisation import Normalisation, Scaling
from aspect.randomness import isolated_seed, seed_for
from aspect.settings import FOLDER, find_experiment
from aspect.training.health import Health
from aspect.training.trainer import Recorder, TrainingResult, train

__all__ = ["Aspect", "Embedder", "choose_device"]

DTYPE = torch.float32
SCALING = "scaling/"  # before the names of its tensors in a saved model

OLD_STATISTICS = (
    "%s was saved by aspect %s. The statistics that it normalises by are the old ones, running "
    "averages of batch norm that had not converged, or missing. Recompute them on the training "
    "graph: model.calibrate(graph) in Python; `aspect embed RUN` does it by itself."
)

logger = logging.getLogger(__name__)


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
    """Any method of the registry: `Embedder("aspect", epochs=100).fit(graph).embed(graph)`.

    A method of another package is named as `aspect.plugins` says, or given as a class.

    Graphs may be a PyG `Data`, an `aspect.Graph`, a pair of SciPy adjacency and feature matrix, or
    a NetworkX graph.
    """

    def __init__(
        self,
        method: str | type[Method] = "aspect",
        *,
        seed: int = 0,
        device: str | None = None,
        **settings: Any,  # noqa: ANN401 - the method's own
    ) -> None:
        self.registration = find_method(method)
        owner = self.registration.method.name
        self.config = make_config(self.registration.config, settings, owner=owner)
        self.seed = _whole(seed)
        self.device = choose_device(device)
        self.result: TrainingResult | None = None
        self._method: Method | None = None
        self._num_features = 0
        self._feature_names: tuple[str, ...] | None = None
        self._trained_on: str | None = None  # checksum of its graph, where no other can be embedded
        # None: not fitted, saved by version 0.1, or not measured yet on the graph after it.
        self._scaling: Scaling | None = None
        self._unmeasured: Graph | None = None
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

    def fit(self, graph: Any, *, recorder: Recorder | None = None) -> Self:  # noqa: ANN401
        """Learn from a graph; labels, if it has any, are not looked at.

        A training that fails or is interrupted leaves this object as it was.
        """
        given = as_graph(graph)
        placed = self._placed(given)
        method = self._build(placed.num_features)
        self.result = train(method, placed, seed=self.seed, recorder=recorder)
        self._method, self._num_features = method, placed.num_features
        self._feature_names = placed.feature_names
        self._trained_on = None if method.inductive else graph_sha256(placed)
        self._keep_copy(given, placed)
        self._scaling, self._unmeasured = None, given
        return self

    def calibrate(self, graph: Any) -> Self:  # noqa: ANN401
        """Recompute what embeddings are normalised and centred by, on the training graph.

        `fit` does so itself; a model that was saved by version 0.1 needs it.
        """
        self.method.calibrate(self.as_seen(graph))
        self._outputs.clear()
        self._scaling, self._unmeasured = None, as_graph(graph)
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
        """What to know of a training on a graph before it starts, one sentence each."""
        placed = self._placed(as_graph(graph))
        return tuple(self._build(placed.num_features).outlook(placed))

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

    def embed(
        self,
        graph: Any,  # noqa: ANN401
        *,
        normalise: Normalisation = "centre",
    ) -> Float[Tensor, "nodes dim"]:
        """One row per node, on the CPU; the graph need not be the one trained on.

        Args:
            graph: With the features that it was trained on.
            normalise: `centre` subtracts the mean and divides by one number, `standard` by each
                column's standard deviation, `unit` gives centred rows of length one; all as
                measured on the training graph. `none` leaves the method's output as it is.
        """
        if normalise not in get_args(Normalisation):
            raise UnknownNameError("way to normalise", str(normalise), get_args(Normalisation))
        scaling = self._measured_scaling()
        embedding = self._output(graph).embedding
        scaled = (scaling or Scaling.of(embedding)).apply(embedding, normalise).cpu()
        return scaled.clone() if scaled is embedding else scaled  # the caller may change it

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
        given = as_graph(graph)
        seen = self.as_seen(given)
        versions = [tensor._version for tensor in self.method.state_dict().values()]
        kept = self._outputs.get(given)
        if kept is None or kept[0] != versions:
            self._outputs.clear()
            kept = self._outputs[given] = (versions, self.method.eval().output(seen))
        return kept[1]

    def as_seen(self, graph: Any) -> Graph:  # noqa: ANN401
        """The graph as the fitted method reads it: columns as in training, on its device."""
        given = as_graph(graph)
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
        if not fitted.inductive and self._trained_on != graph_sha256(seen):
            raise GraphError(f"{self.name} cannot embed a graph that it was not trained on.")
        self._keep_copy(given, seen)
        return seen

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

    def save(self, path: str | Path) -> None:
        """Write the trained model to one safetensors file; nothing in it is code."""
        manifest = {
            "kind": "model",
            "version": __version__,
            "method": self.name,
            "settings": self.config.model_dump(mode="json"),
            "num_features": self._num_features,
            "feature_names": self._feature_names,
            "seed": self.seed,
            "trained_on": self._trained_on,
        }
        tensors = dict(self.method.state_dict())
        if (scaling := self._measured_scaling()) is not None:
            tensors |= {f"{SCALING}{name}": value for name, value in vars(scaling).items()}
        write_tensors(Path(path), tensors, manifest)

    @classmethod
    def load(cls, path: str | Path, *, device: str | None = None) -> Self:
        """Read what `save` wrote; a damaged file or one of another kind is refused.

        One of version 0.1 is read with a warning: see `calibrate`.
        """
        chosen = str(choose_device(device))
        tensors, manifest = read_tensors(Path(path))
        _check_manifest(manifest, path)
        try:
            model = cls._described_by(manifest, path, chosen)
        except (SettingsError, UnknownNameError) as error:
            raise CheckpointError(f"{path} does not fit this version. {error}") from error
        model._num_features = manifest["num_features"]
        model._feature_names = _names_of(manifest, path)
        model._trained_on = manifest.get("trained_on")
        scaling = {
            name.removeprefix(SCALING): tensors.pop(name).to(model.device)
            for name in list(tensors)
            if name.startswith(SCALING)
        }
        try:
            method = model._build(model._num_features)
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

    Example:
        >>> from aspect import Aspect, mixed_graph
        >>> graph = mixed_graph(num_nodes=60, seed=0)
        >>> model = Aspect(epochs=2, width=8, seed=0, device="cpu").fit(graph)
        >>> model.embed(graph).shape, model.policy(graph).shape
        (torch.Size([60, 16]), torch.Size([60]))
    """

    def __init__(
        self,
        *,
        stable: bool = False,
        seed: int = 0,
        device: str | None = None,
        **settings: Any,  # noqa: ANN401 - the method's own
    ) -> None:
        method = "aspect-s" if stable else "aspect"
        super().__init__(method, seed=seed, device=device, **settings)

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
        **changes: Any,  # noqa: ANN401 - settings
    ) -> Self:
        """The settings shipped for a data set, or those of `paper`; keywords change some."""
        if name not in (known := _presets()):
            raise UnknownNameError("preset", str(name), known)
        method, choice = "aspect-s" if stable else "aspect", "paper" if name == "paper" else None
        experiment, _ = find_experiment(method, name, choice)
        settings = {**experiment.settings, **changes}
        return cls(stable=stable, seed=seed, device=device, **settings)
