"""A small graph with perturbation files, and runs on it, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aspect.attacks.file import PerturbationFile
from aspect.data.archives import write_npz
from aspect.data.graph import LabelledGraph
from aspect.data.source import GraphSource
from aspect.experiment.trained import RunOptions, train_run
from aspect.settings import Experiment, PerturbedBy, PublishedProbe
from attacks.attempts import labelled_graph, plan, run

TINY = {"epochs": 4, "width": 8, "gate_width": 4}
SPLITS = "random"


@dataclass(frozen=True)
class Place:
    """A folder with a graph file; what tests need of it is made at first use."""

    folder: Path
    probe: PublishedProbe | None = None  # of its runs

    @classmethod
    def make(
        cls,
        folder: Path,
        labelled: LabelledGraph | None = None,
        probe: PublishedProbe | None = None,
    ) -> Place:
        write_npz(folder / "small.npz", labelled or labelled_graph())
        return cls(folder, probe)

    @property
    def graph(self) -> str:
        return str(self.folder / "small.npz")

    @property
    def labelled(self) -> LabelledGraph:
        return GraphSource(graph=self.graph).read()

    def flips(self, split: int, *, kind: str = "random", flips: int = 40, name: str = "") -> Path:
        """The file of an attack on a split."""
        path = self.folder / (name or f"small-{kind}-{split}.safetensors")
        if not path.exists():
            run(plan(self.labelled, kind, flips=flips, split=split, splits=SPLITS), path)
        return path

    def train(
        self,
        out: str,
        *,
        split: int | None = None,
        budget: float | None = 0.1,
        features: bool = True,
        seed: int = 0,
        method: str = "aspect",
        kind: str = "random",
        **options,
    ) -> Path:
        """A run on the clean graph, or on the one that is poisoned for a split."""
        perturbation = None
        if split is not None:
            file = str(self.flips(split, kind=kind))
            perturbation = PerturbedBy(file=file, budget=budget, features=features)
        experiment = Experiment(
            method=method,
            graph=self.graph,
            seed=seed,
            settings=TINY if method == "aspect" else {},
            perturbation=perturbation,
            probe=self.probe,
        )
        train_run(experiment, self.folder / out, RunOptions(device="cpu", **options))
        return self.folder / out


def cut(path: Path, count: int, new: Path) -> Path:
    """The same attack, stopped after so many flips."""
    file = PerturbationFile.read(path)
    facts = file.facts.model_copy(update={"wanted": count})
    PerturbationFile(facts, file.keys[:count], file.state).write(new)
    return new


def changed(path: Path, **facts) -> None:
    """Write other facts into a file."""
    file = PerturbationFile.read(path)
    PerturbationFile(file.facts.model_copy(update=facts), file.keys, file.state).write(path)
