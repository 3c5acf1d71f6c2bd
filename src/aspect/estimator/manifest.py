"""What the file of a saved model says of it, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aspect import __version__
from aspect.data.encoder import FeatureEncoder
from aspect.errors import CheckpointError


def check_manifest(manifest: dict[str, Any], path: str | Path) -> None:
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


def settings_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The settings under the names of this version."""
    settings = dict(manifest["settings"])
    if "readout" in settings:
        settings.setdefault("skip_weight", 0.0)  # until version 0.2 there was none
    return settings


def names_of(manifest: dict[str, Any], path: str | Path) -> tuple[str, ...] | None:
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


def encoder_of(manifest: dict[str, Any], path: str | Path) -> FeatureEncoder | None:
    """How columns become features; models of arrays and older files have none."""
    try:
        values = manifest.get("encoder")
        return None if values is None else FeatureEncoder.model_validate(values)
    except ValidationError as error:
        raise CheckpointError(f"{path} is damaged: its encoder of features is no such.") from error
