"""Pictures of the searches for harmful changes that a training made: one dot per search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aspect.evaluation.details import Details, SomeNumbers
from aspect.report.benchmark.details_figures import placed_curves
from aspect.report.benchmark.gate_figures import drawing_name, full_title
from aspect.report.canvas import Axis, Drawing, Picture, shown
from aspect.report.panels import Trend, trends

__all__ = ["search_drawings"]

BAND_COLOURS = ("blue", "orange", "green", "purple")  # lowest first, as everywhere
BEFORE, AFTER = "search_before", "search_after"
DISTANCE, ENERGY, CHANGED = "sensitivity_", "rayleigh_", "_changed"


def search_drawings(details: Sequence[Details]) -> list[Drawing]:
    """Of every training with searches: what they climbed, what gave way, and how rough it became.

    All of a model stand together.
    """
    return [
        drawing
        for number, each in enumerate(details, start=1)
        for drawing in _drawings(each, number, placed_curves(each))
    ]


def _drawings(
    details: Details, number: int, curves: Mapping[str, SomeNumbers]
) -> Iterator[Drawing]:
    if not {BEFORE, AFTER} <= curves.keys():
        return
    ends = [
        _trend("clean graph", "blue", curves[BEFORE]),
        _trend("changed graph", "orange", curves[AFTER]),
    ]
    yield Drawing(
        drawing_name("search-objective", number, details),
        f"{full_title(details)}: searches",
        "What a search climbs, on the clean graph and on the changed one that it found: the "
        "stability loss and the Rayleigh term. Training then holds the model against that change.",
        f"Objective of the searches: {_told(ends)}.",
        _dots(details, ends, "objective"),
    )
    bands = _bands(curves)
    distances = [
        _trend(f"{band} band", colour, curves[f"{DISTANCE}{band}"])
        for band, colour in zip(bands, BAND_COLOURS, strict=False)
    ]
    if distances:
        yield Drawing(
            drawing_name("search-sensitivity", number, details),
            f"{full_title(details)}: sensitivity",
            "How far each band moved under the change that was found, on average over the nodes.",
            f"Mean sensitivity: {_told(distances)}.",
            _dots(details, distances, "distance moved"),
        )
    energies = list(_energies(curves, bands))
    if energies:
        yield Drawing(
            drawing_name("search-rayleigh", number, details),
            f"{full_title(details)}: roughness",
            "Rayleigh energy of each band, from 0 (smooth) to 2 (rough), on the clean graph and on "
            "the changed one, where the search would have the low band rough and the high one "
            "smooth.",
            f"Rayleigh energy: {_told(energies)}.",
            _dots(details, energies, "Rayleigh energy"),
        )


def _bands(curves: Mapping[str, SomeNumbers]) -> list[str]:
    return [name.removeprefix(DISTANCE) for name in curves if name.startswith(DISTANCE)]


def _energies(curves: Mapping[str, SomeNumbers], bands: Sequence[str]) -> Iterator[Trend]:
    """Of every band before and after, told apart by its colour and by how dark that is."""
    lighter = {"blue": "sky", "orange": "amber", "green": "soft", "purple": "ink"}
    for band, colour in zip(bands, BAND_COLOURS, strict=False):
        for name, label, shade in (
            (f"{ENERGY}{band}", f"{band}, clean", colour),
            (f"{ENERGY}{band}{CHANGED}", f"{band}, changed", lighter[colour]),
        ):
            if name in curves:
                yield _trend(label, shade, curves[name])


def _trend(label: str, colour: str, values: SomeNumbers) -> Trend:
    known = [(epoch, value) for epoch, value in enumerate(values, 1) if value is not None]
    epochs, numbers = zip(*known, strict=True)
    return Trend(label, colour, epochs, numbers)


def _told(groups: Sequence[Trend]) -> str:
    ends = "; ".join(
        f"{shown(group.label)} from {group.y[0]:.2f} to {group.y[-1]:.2f}" for group in groups
    )
    first, last = groups[0].x[0], groups[0].x[-1]
    return f"{ends}; searches from epoch {first} to {last}, {len(groups[0].x)} in all"


def _dots(details: Details, groups: Sequence[Trend], what: str) -> Picture:
    epochs = len(details.curves["loss"])
    return trends(groups, Axis("epoch", 1, max(2, epochs)), Axis(what), has_lines=False)
