"""Groups of options that several commands share; `command` spreads a group out into its options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from aspect.cli.paths import check_target
from aspect.config import make_config
from aspect.data.source import Reading
from aspect.errors import SettingsError, UnknownNameError

__all__ = [
    "CommonOptions",
    "FolderOptions",
    "OutFolder",
    "Overwrite",
    "ProbeOptions",
    "ReadingOptions",
    "ScoreOptions",
    "SeedOptions",
    "SettingsOptions",
    "check_doubt",
]

PROBES = ("neutral", "paper", "published")

OutFolder = Annotated[Path, typer.Option("--out", help="Folder to write to.", metavar="DIR")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


class CommonOptions(NamedTuple):
    """The options of every command."""

    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object on standard output, and nothing else."),
    ] = False
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or cuda:N.  [default: the GPU if there is one]", metavar="NAME"
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(help="Seed of first weights and of every draw in training.", min=0),
    ] = None
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder with the files of named data sets.  [default: $ASPECT_DATA]"),
    ] = None
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole traceback of an error.")
    ] = False


class SettingsOptions(NamedTuple):
    """Which method is trained with which settings."""

    method: Annotated[
        str | None,
        typer.Option(
            help="A method of `aspect methods`.  [default: that of the settings file, or aspect]",
            metavar="NAME",
        ),
    ] = None
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="A settings file, `defaults`, `published` or `paper`.  "
            "[default: what is shipped for the graph]",
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change one setting; may be repeated.", metavar="KEY=VALUE"),
    ] = None


class FolderOptions(NamedTuple):
    """What a run does with its folder."""

    resume: Annotated[bool, typer.Option("--resume", help="Go on with a stopped run.")] = False
    overwrite: Overwrite = False
    checkpoint_every: Annotated[
        int, typer.Option(help="Epochs between checkpoints.", metavar="N", min=1)
    ] = 20
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write curves for TensorBoard.")
    ] = False


class ProbeOptions(NamedTuple):
    """On which nodes the probe is trained and judged, and how."""

    splits: Annotated[
        Literal["random", "published", "class-balanced"] | None,
        typer.Option(help="Kind of splits.  [default: random, or that of the perturbation files]"),
    ] = None
    probe: Annotated[
        str,
        typer.Option(
            help="neutral; paper: the probe of published tables; published: the same as the "
            "published settings of a run have it.",
            metavar="NAME",
        ),
    ] = "neutral"
    doubt: Annotated[
        list[float] | None,
        typer.Option(
            help="A further row, read without this share of the edges, those with the least "
            "support; may be repeated, and validation chooses.",
            metavar="SHARE",
        ),
    ] = None

    def check(self) -> None:
        """Refuse shares that are none, and unknown probes."""
        check_doubt(self.doubt or ())
        if self.probe == "ours":
            raise SettingsError(
                "The probe of version 0.1, --probe ours, is called paper now. Pass --probe paper, "
                "or leave it out for the neutral probe."
            )
        if self.probe not in PROBES:
            raise UnknownNameError("probe", self.probe, PROBES)


def check_doubt(shares: Iterable[float]) -> None:
    """Refuse what is no share of the edges to leave out."""
    for share in shares:
        if not 0 <= share < 1:
            raise SettingsError(
                f"--doubt must be a share of the edges, at least 0 and below 1. Got {share}."
            )


class SeedOptions(NamedTuple):
    """Which runs of a graph are made for an evaluation."""

    seeds: Annotated[
        int | None, typer.Option(help="Pre-trainings of a graph, one seed each.", min=1)
    ] = None
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Replace the graph's runs under runs/.")
    ] = False


class ScoreOptions(NamedTuple):
    """The file that an evaluation leaves."""

    out: Annotated[
        Path | None, typer.Option(help="File for the scores as JSON.", metavar="FILE")
    ] = None
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of scores.")] = (
        False
    )

    def check(self) -> None:
        """Refuse before all the work what could not be written after it."""
        if self.out is not None:
            check_target(self.out, overwrite=self.overwrite)
        elif self.overwrite:
            raise SettingsError(
                "--overwrite replaces the file of --out, and none is named. "
                "Pass --retrain to replace runs."
            )


class ReadingOptions(NamedTuple):
    """How the files of a graph are read."""

    nodes: Annotated[
        Path | None,
        typer.Option(help="Node table of an edge table: id, features, label.", metavar="TABLE"),
    ] = None
    features: Annotated[
        Literal["degree", "identity", "random", "laplacian"] | None,
        typer.Option(help="Structural features in place of the graph's own."),
    ] = None
    impute: Annotated[
        Literal["zero", "mean"] | None,
        typer.Option(help="What stands in for missing features in tables."),
    ] = None
    directed: Annotated[
        Literal["symmetrise", "error"],
        typer.Option(help="What to do with edges without their reverse."),
    ] = "symmetrise"
    encoding: Annotated[str, typer.Option(help="Encoding of text tables.", metavar="NAME")] = (
        "utf-8"
    )
    delimiter: Annotated[
        str | None,
        typer.Option(help="Delimiter of text tables.  [default: comma, or tab in .tsv]"),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(help="Column of the node table that holds the label.", metavar="COLUMN"),
    ] = None

    def reading(self) -> Reading:
        """The same as the library takes it."""
        values = {name: value for name, value in self._asdict().items() if value is not None}
        if self.nodes is not None:
            values["nodes"] = str(self.nodes)
        return make_config(Reading, values, owner="the graph")
