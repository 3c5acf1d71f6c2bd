"""ASPECT and ASPECT-S with their settings as keywords."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

from typing_extensions import override

from aspect.config import default_of, meaning_of
from aspect.errors import CheckpointError, SettingsError, UnknownNameError
from aspect.estimator.embedder import Embedder
from aspect.estimator.model import PruneLike, keyword_defaults, settings_for
from aspect.keywords import AspectKeywords
from aspect.methods.aspect import AspectConfig
from aspect.methods.aspect_s import AspectSConfig
from aspect.settings import FOLDER, RowSettings, Scale, find_experiment

SEARCH_SETTINGS = AspectSConfig.model_fields.keys() - AspectConfig.model_fields.keys()
DEFAULTS = keyword_defaults(AspectSConfig)


class Aspect(Embedder):
    """ASPECT with its settings as keywords; with `stable=True` it is ASPECT-S.

    Graphs are given as `Embedder` lists them, and it is a transformer of scikit-learn as well.

    Example:
        >>> from aspect import Aspect, mixed_graph
        >>> graph = mixed_graph(num_nodes=60, seed=0)
        >>> model = Aspect(epochs=2, width=8, seed=0, device="cpu").fit(graph)
        >>> len(model.embed(graph)), len(model.policy(graph))  # a row for each node
        (60, 60)

    Args:
        stable: Train ASPECT-S: searched perturbations of the graph, and a loss on their effect.
        seed: Of first weights and all draws; the same seed gives the same embeddings.
        device: `cpu`, `cuda` or `cuda:1`, for example; None: the GPU if there is one.
        prune: Prune edges before the method sees a graph, in training and in embedding: the ratio,
            `auto`, or an `aspect.attacks.Pruning`; None: no edge goes.
        graph: The graph whose nodes the rows given to `fit` and `transform` stand for; without
            it they are given graphs.
        scale: `full` trains on the whole graph at every step, `rows` on batches of nodes whose
            propagated features lie on the disk, `auto` on rows where the whole does not fit.
    """

    _offered: ClassVar[tuple[str, ...]] = ("stable", *Embedder._offered)

    def __init__(
        self,
        *,
        stable: bool = False,
        seed: int = 0,
        device: str | None = None,
        prune: PruneLike = None,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        scale: Scale | RowSettings = "auto",
        **settings: Unpack[AspectKeywords],
    ) -> None:
        method = "aspect-s" if stable else "aspect"
        chosen: dict[str, Any] = {**settings}
        for name in () if stable else sorted(SEARCH_SETTINGS & settings.keys()):
            if chosen.pop(name) != DEFAULTS[name]:
                raise SettingsError(
                    f"Setting {name!r} is one of ASPECT-S: give stable=True as well."
                )
        super().__init__(
            method, seed=seed, device=device, prune=prune, graph=graph, scale=scale, **chosen
        )
        del self._arguments["method"]
        self._arguments["stable"] = stable

    @override
    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {**DEFAULTS, **super().get_params(deep)}

    @override
    def _shown(self) -> Iterator[str]:
        if self._arguments["stable"]:
            yield "stable=True"
        yield from self._shown_keywords()

    @classmethod
    @override
    def _described_by(cls, manifest: dict[str, Any], path: str | Path, device: str) -> Self:
        method, seed, settings = manifest["method"], manifest["seed"], manifest["settings"]
        if method not in ("aspect", "aspect-s"):
            raise CheckpointError(
                f"{path} holds a model of {method!r}, not of ASPECT. Read it with Embedder.load."
            )
        stable, prune = method == "aspect-s", manifest.get("prune")
        return cls(stable=stable, seed=seed, device=device, prune=prune, **settings)

    @classmethod
    def preset(
        cls,
        name: str,
        *,
        stable: bool = False,
        seed: int = 0,
        device: str | None = None,
        prune: PruneLike = None,
        graph: Any = None,  # noqa: ANN401 - any form of a graph
        scale: Scale | RowSettings = "auto",
        **changes: Unpack[AspectKeywords],
    ) -> Self:
        """The settings shipped for a data set, or those of `paper`; keywords change some."""
        known = {path.stem for path in (FOLDER / "aspect").glob("*.yaml")}
        known = {preset for preset in known if not preset.endswith(".published")}  # not ours
        if name not in known:
            raise UnknownNameError("preset", str(name), known)
        method, choice = "aspect-s" if stable else "aspect", "paper" if name == "paper" else None
        experiment, _ = find_experiment(method, name, choice)
        settings: dict[str, Any] = {**experiment.settings, **changes}
        return cls(
            stable=stable,
            seed=seed,
            device=device,
            prune=prune,
            graph=graph,
            scale=scale,
            **settings,
        )


def _explain_settings(cls: type[Aspect]) -> None:
    """Put every setting, its default and its meaning into the class's signature and docstring.

    They are declared in the settings' classes alone.
    """
    whole, of_tables = AspectSConfig.model_fields, settings_for(AspectSConfig, is_encoded=True)
    lines: list[str] = []
    for name, field in whole.items():
        rest = ", with stable=True" if name in SEARCH_SETTINGS else ""
        if name in of_tables:
            rest = f": {default_of(field)!r}, or {of_tables[name]!r} for columns of a node table"
        text = f"{name} (default {DEFAULTS[name]!r}{rest}): {meaning_of(field)}"
        lines += textwrap.wrap(text, 96, initial_indent="    ", subsequent_indent=" " * 8)
    types = {  # as `keywords.py` writes them, without the bounds
        name: getattr(hint, "__forward_arg__", hint)
        for name, hint in AspectKeywords.__annotations__.items()
    }
    fixed = list(inspect.signature(cls.__init__).parameters.values())[:-1]
    given = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=DEFAULTS[name],
            annotation=types.get(name, field.annotation),
        )
        for name, field in whole.items()
    ]
    signature = inspect.Signature([*fixed, *given], return_annotation=None)
    cls.__init__.__signature__ = signature  # type: ignore[attr-defined]  # what inspect reads
    cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n" + "\n".join(lines)


_explain_settings(Aspect)
