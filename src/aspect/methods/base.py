"""The contract between methods and the one trainer."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from aspect.attacks.projected_ascent import InnerProblem, SearchScope
from aspect.config import Choice, Config, Count
from aspect.data.features import mask_columns
from aspect.data.graph import Graph
from aspect.data.operators import Operator
from aspect.data.rows import RowPlan, Rows, RowView
from aspect.errors import SettingsError
from aspect.methods.registry import Cost
from aspect.nn.augmentations import RowViews, View, ViewSource, draw_order
from aspect.nn.gcn import GCNStack
from aspect.nn.normalisation import Calibrated, NormStatistics, recording
from aspect.randomness import seed_for


class MethodConfig(Config):
    """Settings that the trainer reads, whatever the method."""

    epochs: Annotated[int, Field(ge=0)] = 200
    """Passes over the graph."""
    patience: Count | None = None
    """Epochs without a lower watched loss before stopping at the best; none: never stop early."""
    stop_on_collapse: bool = False
    """Look at the embedding every ten epochs, and stop with the weights of the last healthy look
    when it is close to representation collapse."""


class BatchNormConfig(MethodConfig):
    """The setting of every method with batch norm."""

    norm_statistics: NormStatistics = "recomputed"
    """What batch norm embeds by: the clean training graph (`recomputed` after training), averages
    over training (`running`), or the graph at hand (`graph`); official codes have the last two."""


@dataclass(frozen=True)
class Step:
    """One optimisation step, as a method sees it."""

    epoch: int  # 1 is the first
    generator: torch.Generator  # the only source of randomness; on the graph's device
    phase: str = "main"
    rank: int = 0  # of the process, where several train one model on shares of a batch
    # Rows of all processes along a dimension, with gradients; here one process has all of them.
    gather: Callable[[Tensor, int], Tensor] = lambda rows, dim: rows  # noqa: ARG005
    # Generators apart of a step that is captured: a CUDA graph knows them, and none can be seeded.
    held: Mapping[str, torch.Generator] = field(default_factory=dict)

    @property
    def own(self) -> torch.Generator:
        """For draws that differ between processes: those of single rows."""
        return self.generator if self.rank == 0 else self.apart(f"rank {self.rank}")

    def apart(self, purpose: str) -> torch.Generator:
        """A generator for a purpose of its own: its draws leave those of the step as they are."""
        if purpose in self.held:
            return self.held[purpose]
        return self.seeded_apart(purpose, torch.Generator(device=self.generator.device))

    def seeded_apart(self, purpose: str, generator: torch.Generator) -> torch.Generator:
        """The generator, seeded for a purpose of this step."""
        return generator.manual_seed(seed_for(self.generator.initial_seed(), purpose))


@dataclass(frozen=True)
class Group:
    """Parameters that share a learning rate and a weight decay."""

    parameters: list[nn.Parameter]
    learning_rate: float
    weight_decay: float = 0.0
    phase: str = "main"
    decoupled: bool = False  # decay the weights themselves (AdamW) rather than by the gradient


@dataclass(frozen=True, eq=False)
class FilterBank:
    """What a method's filters do at some eigenvalues of the graph's normalised Laplacian."""

    responses: dict[str, Float[Tensor, " frequencies"]]  # by band, lowest first
    self_loops: bool  # the Laplacian is that of the graph with self-loops


@dataclass(frozen=True, eq=False)
class Output:
    """The result of one forward pass over a graph, in evaluation mode."""

    embedding: Float[Tensor, "nodes dim"]  # what the probe sees
    uncentred: Float[Tensor, "nodes trained"]  # before any centring; without a skip connection
    gate: Float[Tensor, "nodes bands"] | None = None  # gate weights, lowest band first


class Method(nn.Module, ABC):
    """A way to learn node embeddings; it knows nothing of files, devices or seeds.

    Built as `cls(config, num_features)`, under a seed that the caller sets.
    """

    name: ClassVar[str] = ""  # filled in by the registry
    cost: ClassVar[Cost] = "linear"
    inductive: ClassVar[bool] = True  # embeds graphs that it was not trained on
    # Trains on a part of the graph at a time, so that a step takes no more on a larger graph. Who
    # only contrasts a sample, after seeing every node, does not.
    mini_batch: ClassVar[bool] = False
    trainable: ClassVar[bool] = True
    phases: ClassVar[tuple[str, ...]] = ("main",)  # optimised one after the other in every epoch
    # Its state after an epoch is the same however many are planned: nothing in it, such as a
    # schedule, reads `config.epochs`. The tuner then finds the number of epochs in passing.
    anytime: ClassVar[bool] = True
    # With patience, a training ends with its weights after the step of the best epoch; or with
    # those before it, whose loss was the lowest.
    keeps_before_step: ClassVar[bool] = False
    decoupled_decay: ClassVar[bool] = False  # of `parameter_groups` by default: AdamW
    searchable: ClassVar[bool] = False  # implements `search_problem`
    draws_apart: ClassVar[tuple[str, ...]] = ()  # purposes of `Step.apart` in `loss_terms`

    config: MethodConfig

    def row_plan(self) -> RowPlan | None:
        """What it takes to train on rows (`aspect.data.rows`); None: it needs the whole graph.

        A method with a plan takes `Rows` wherever it takes a graph: in `loss_terms` with the
        plan's views, in `embed` and `output` with the clean one alone.
        """
        return None

    def row_neighbourhood(self, epoch: int) -> int:  # noqa: ARG002
        """Nodes of a sampled part of the graph that an epoch trains on besides its rows."""
        return 0

    def prepare(self, graph: Graph) -> None:
        """Compute once what every epoch on this graph needs: each `PerGraph` of the method."""
        for attribute in vars(self).values():
            if isinstance(attribute, PerGraph):
                attribute(graph)

    @abstractmethod
    def loss_terms(self, graph: Graph, step: Step) -> dict[str, Tensor]:
        """The named terms whose sum is minimised, each with its weight already applied."""

    def watched(self, terms: Mapping[str, Tensor]) -> Tensor:
        """What early stopping watches; the whole loss unless a method says otherwise."""
        return torch.stack(list(terms.values())).sum()

    def monitors(self) -> dict[str, Tensor]:
        """Numbers of the last step worth logging beside the loss terms."""
        return {}

    def parameter_groups(self) -> list[Group]:
        """Which parameters are trained how; every phase needs at least one group.

        By default all that have gradients, by the `learning_rate` and `weight_decay` of the
        settings.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        rates = self.config.model_dump(include={"learning_rate", "weight_decay"})
        return [Group(trained, **{"learning_rate": 1e-3, **rates}, decoupled=self.decoupled_decay)]

    @property
    def num_parameters(self) -> int:
        """The numbers that training fits by gradient, whether `embed` uses them or not.

        A momentum encoder follows by averaging and is not counted; an untrained method has none.
        """
        trained = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return sum(parameter.numel() for parameter in trained) if self.trainable else 0

    def before_step(self, graph: Graph, step: Step) -> None:
        """Called before a step, captured or not: for draws whose shapes the host must know."""

    def capture_key(self, step: Step) -> Hashable | None:  # noqa: ARG002
        """What must stay the same for a step to repeat as the same kernels on the same shapes.

        On a GPU such steps are captured as a CUDA graph once and replayed; a new key captures them
        anew. None: this step is never captured, since it draws shapes or reads numbers back.
        """
        return ()

    def learning_rate_factor(self, epoch: int) -> float:  # noqa: ARG002
        """What all learning rates are multiplied by in an epoch: a schedule."""
        return 1.0

    def rounds(self, phase: str) -> int:  # noqa: ARG002
        """How many steps a phase takes in every epoch."""
        return 1

    def after_step(self, step: Step) -> None:
        """Called after each optimiser step."""

    @torch.no_grad()
    def calibrate(self, graph: Graph) -> None:
        """Recompute what `embed` normalises and centres by, exactly, on the clean training graph.

        Called after training, and before a check of the embedding during one.
        """
        layers = [layer for layer in self.modules() if isinstance(layer, Calibrated)]
        if layers:
            was_training = self.training
            self.eval()
            with recording(layers):
                self.embed(graph)
            self.train(was_training)

    @abstractmethod
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        """What the probe sees; called in evaluation mode without gradients."""

    def output(self, graph: Graph) -> Output:
        """The embedding with what else the same pass gives; called as `embed` is."""
        embedding = self.embed(graph)
        return Output(embedding, uncentred=embedding)

    def band_losses(
        self,
        graph: Graph,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> dict[str, Float[Tensor, " nodes"]]:
        """Contrastive loss of every band at every node, lowest first, as one step weighs it.

        Called without gradients, in training mode and on a copy: looking may move a batch norm's
        running statistics. Empty for a method without bands.
        """
        return {}

    def filter_bank(
        self,
        graph: Graph,  # noqa: ARG002
        frequencies: Float[Tensor, " frequencies"],  # noqa: ARG002
    ) -> FilterBank | None:
        """The filters at eigenvalues of the Laplacian; None for a method without filters."""
        return None

    def search_problem(
        self,
        graph: Graph,  # noqa: ARG002
        scope: SearchScope,  # noqa: ARG002
        generator: torch.Generator,  # noqa: ARG002
    ) -> InnerProblem:
        """What a search for harmful perturbations maximises on the model as it embeds now."""
        raise SettingsError(f"{self.name} is not searchable: no gradient of it reaches the edges.")

    def epoch_factor(self, graph: Graph) -> float:  # noqa: ARG002
        """Time of an average epoch as a multiple of the first ones, for estimates."""
        return 1.0

    def outlook(self, graph: Graph) -> Iterable[str]:  # noqa: ARG002
        """What the user should know before training, one sentence each."""
        return ()

    def warnings(self, output: Output) -> Iterable[str]:  # noqa: ARG002
        """What is wrong with a trained model's output, one sentence each."""
        return ()


def cosine_decay(step: int | float, steps: int | float) -> float:
    """`(1 + cos(pi step / steps)) / 2`: from 1 at step 0 to 0 at the last."""
    return (1 + math.cos(math.pi * step / steps)) / 2


Prepared = TypeVar("Prepared")


class PerGraph(Generic[Prepared]):
    """What a method computes once for a graph (operators, neighbours, diffusion), by `make`.

    The result is kept until another graph is given. It is no part of a method's state, since a
    graph gives the same again; a result that depends on weights needs `forget`.
    """

    def __init__(self, make: Callable[[Graph], Prepared]) -> None:
        self._make = make
        self._kept: tuple[Graph, Prepared] | None = None

    def __call__(self, graph: Graph) -> Prepared:
        """The result for this very graph, computed now if need be."""
        kept = self._kept  # another thread may replace it by that of its own graph
        if kept is None or kept[0] is not graph:
            kept = self._kept = (graph, self._make(graph))
        return kept[1]

    def forget(self, *_: object) -> None:
        """Compute it anew at the next call; a hook for torch, whose arguments are ignored."""
        self._kept = None


class OneEncoderConfig(MethodConfig):
    """Settings of every method with one encoder."""

    row_normalise: Annotated[bool, Choice((True, False))] = True
    """Divide each node's features by the sum of their sizes, as most official codes do."""


class OneEncoder(Method):
    """A method whose embedding is one encoder's output on the clean graph.

    Subclasses build `encoder` after `super().__init__(config)` and define the loss. `source` gives
    the clean view of a graph, and augmented ones.
    """

    config: OneEncoderConfig
    encoder: nn.Module  # of a view's features and operator, and of a generator or None

    def __init__(self, config: OneEncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.source = PerGraph(self._views_of)
        self.monitored: dict[str, Tensor] = {}  # of the last step, where there is more than a loss

    def _views_of(self, graph: Graph) -> ViewSource:
        if isinstance(graph, Rows):
            return RowViews(graph)
        return ViewSource(graph, normalise_rows=self.config.row_normalise)

    def smoothed_rows(self, layers: int, *views: RowView) -> RowPlan:
        """The plan of a graph convolution of so many layers: all hops first, then the layers.

        That is a variation of the method: nothing is propagated between two layers.
        """
        return RowPlan(layers, True, self.config.row_normalise, views, smoothed=True)

    def embed_both(
        self,
        graph: Graph,
        projected: Float[Tensor, "nodes hidden"],
        operator: Operator,
        generator: torch.Generator,
        keep: Float[Tensor, " features"] | None = None,
    ) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, "nodes dim"]]:
        """Embeddings of the nodes, and of the same graph with its features shuffled (DGI, GGD).

        Args:
            graph: The graph, or rows that have a shuffled view.
            projected: Its features times the encoder's first weights.
            operator: What propagates them.
            generator: For the order; rows were shuffled before they were propagated.
            keep: The columns that `projected` was made of.
        """
        encoder = self.encoder
        assert isinstance(encoder, GCNStack)
        if isinstance(graph, Rows):
            shuffled = encoder(mask_columns(graph.shuffled, keep), operator)
            return encoder.propagate(projected, operator), shuffled
        order = draw_order(graph.num_nodes, generator)
        return encoder.propagate_both(projected, operator, order)

    def encode(
        self, view: View, generator: torch.Generator | None = None
    ) -> Float[Tensor, "nodes dim"]:
        """The encoder's output for a view; without a generator nothing in it is drawn."""
        embeddings: Tensor = self.encoder(view.features, view.operator, generator)
        return embeddings

    @override
    def monitors(self) -> dict[str, Tensor]:
        return self.monitored

    @override
    def embed(self, graph: Graph) -> Float[Tensor, "nodes dim"]:
        return self.encode(self.source(graph).clean)
