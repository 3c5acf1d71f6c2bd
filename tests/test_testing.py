"""Every check of the contract finds the method that violates it, in a sentence."""

from typing import Annotated, ClassVar

import pytest
import torch
from torch import nn

from aspect.config import Choice, Positive, Range
from aspect.data.features import dense
from aspect.errors import UnknownNameError
from aspect.losses.correlation import barlow_loss
from aspect.methods.base import OneEncoder, OneEncoderConfig, Output
from aspect.nn.gcn import GCNStack
from aspect.testing import METHOD_CHECKS, ContractError, MethodContract, check_method
from foreign import registries  # noqa: F401 - a fixture

pytestmark = pytest.mark.usefixtures("registries")


class GoodConfig(OneEncoderConfig):
    """Settings."""

    width: Annotated[int, Choice((4, 8))] = 8
    """Dimensions of the embedding."""
    learning_rate: Positive = 0.01
    """Learning rate of Adam."""


class Good(OneEncoder):
    """Two views by edge drop, one encoder, the Barlow Twins loss."""

    config: GoodConfig

    def __init__(self, config, num_features):
        super().__init__(config)
        self.encoder = GCNStack([num_features, config.width])

    def loss_terms(self, graph, step):
        source = self.source(graph)
        views = [self.encode(source.corrupted(0.2, 0.0, step.generator)) for _ in range(2)]
        return {"correlation": barlow_loss(*views)}


def test_a_good_method_passes_every_check():
    check_method(Good)


class Undocumented(Good):
    inductive: ClassVar = "yes"


Undocumented.__doc__ = None


class SilentConfig(GoodConfig):
    """Settings."""

    width: Annotated[int, Choice((4,))] = 4
    learning_rate: Annotated[Positive, Range(0, 1, log=True)] = 0.01
    """Learning rate of Adam."""


class Silent(Good):
    """With settings that are not explained, nor drawn from two values."""

    config: SilentConfig


class Deaf(Good):
    """Ignores its settings."""

    def __init__(self, config, num_features):
        super().__init__(config, num_features)
        self.config = GoodConfig()


class Idle(Good):
    """With a parameter that nothing uses."""

    def __init__(self, config, num_features):
        super().__init__(config, num_features)
        self.unused = nn.Parameter(torch.ones(3))


class Infinite(Good):
    """With a loss that is no number, and one that the log calls so itself."""

    def loss_terms(self, graph, step):
        terms = super().loss_terms(graph, step)
        return {"loss": terms["correlation"], "rows": terms["correlation"] / 0}


class Stuck(Good):
    """Learns nothing."""

    def loss_terms(self, graph, step):
        return {name: 0 * term + 1 for name, term in super().loss_terms(graph, step).items()}


class Erratic(Good):
    """Draws from torch's own generator."""

    def loss_terms(self, graph, step):
        seed = int(torch.randint(1_000_000, ()))
        other = torch.Generator().manual_seed(seed)
        return super().loss_terms(graph, type(step)(step.epoch, other, step.phase))


class Forgetful(Good):
    """Keeps a number outside of its buffers, which the loss depends on."""

    steps = 0

    def loss_terms(self, graph, step):
        self.steps += 1
        terms = super().loss_terms(graph, step)
        return {name: self.steps * term for name, term in terms.items()}


class Single(Good):
    """Embeds in float32 whatever it is given."""

    def embed(self, graph):
        return super().embed(graph).float()


class Flat(Good):
    """Embeds the graph as a whole."""

    def embed(self, graph):
        return super().embed(graph).mean(0)


class Ordered(Good):
    """Knows nodes by their numbers."""

    def embed(self, graph):
        rows = super().embed(graph)
        return rows + torch.arange(len(rows), dtype=rows.dtype)[:, None]


class Sharing(Good):
    """Gives out what it keeps."""

    kept = None

    def embed(self, graph):
        if self.kept is None or len(self.kept) != graph.num_nodes:
            self.kept = super().embed(graph)
        return self.kept


class Counting(Good):
    """Changes a buffer with every embedding."""

    def __init__(self, config, num_features):
        super().__init__(config, num_features)
        self.register_buffer("calls", torch.zeros(()))

    def embed(self, graph):
        self.calls += 1
        return super().embed(graph)


class Dropping(Good):
    """Embeds otherwise while it is trained."""

    def embed(self, graph):
        return super().embed(graph) * (2 if self.training else 1)


class Split(Good):
    """With an output of its own."""

    def output(self, graph):
        embedding = self.embed(graph)
        return Output(embedding + 1, uncentred=embedding)


class Memorising(Good):
    """Embeds nothing but thirty nodes, and says otherwise."""

    def __init__(self, config, num_features):
        super().__init__(config, num_features)
        self.table = nn.Parameter(torch.zeros(30, config.width))

    def encode(self, view, generator=None):
        return super().encode(view, generator) + self.table


class Fragile(Good):
    """Divides by the sums of the features."""

    def embed(self, graph):
        return super().embed(graph) / dense(graph.features).sum(1, keepdim=True)


class Pairwise(Good):
    """Compares all pairs, and says that its cost is linear."""

    def loss_terms(self, graph, step):
        assert step.epoch
        embedding = self.embed(graph)
        return {"pairs": (embedding @ embedding.T).square().mean()}


@pytest.mark.parametrize(
    ("method", "check", "sentence"),
    [
        (Undocumented, "declaration", "needs a docstring"),
        (Undocumented, "declaration", "must have inductive = True or False. Got 'yes'."),
        (Silent, "declaration", "must explain its setting 'width' by a sentence"),
        (Silent, "settings", "must offer two or more different choices of 'width'"),
        (Silent, "settings", "or a logarithm of 0: Range(low=0, high=1, log=True)."),
        (Silent, "settings", "has a search range that its bounds do not allow: Setting"),
        (Deaf, "settings", "must keep the settings that it is built with as `config`."),
        (Idle, "gradients", "sends no gradient to its parameter 'unused'"),
        (Infinite, "gradients", "calls a term of its loss 'loss'"),
        (Infinite, "gradients", "has a loss term 'rows' of inf on dense features."),
        (Stuck, "gradients", "that is zero everywhere"),
        (Stuck, "learning", "does not lower its loss in 20 epochs on thirty nodes"),
        (Erratic, "seeds", "draw from `step.generator` alone"),
        (Forgetful, "resume", "ends otherwise when its training is interrupted"),
        (Single, "shapes", "embeds a graph of torch.float64 as torch.float32."),
        (Flat, "shapes", "must embed 30 nodes as so many rows. Got the shape [8]."),
        (Ordered, "node order", "gives nodes other embeddings in another order"),
        (Sharing, "side effects", "gives out memory of its own"),
        (Counting, "side effects", "changes its weights or buffers when it embeds."),
        (Dropping, "training mode", "embeds otherwise in evaluation than in training mode"),
        (Split, "output", "has an `output` whose embedding is not that of `embed`."),
        (Memorising, "new graphs", "fails in the check 'new graphs': RuntimeError"),
        (Fragile, "odd graphs", "with nothing but zeros: The embeddings of 12 nodes are not"),
        (Pairwise, "cost", "is declared as linear, and an epoch on twice the nodes takes"),
    ],
)
def test_a_violation_is_a_sentence(method, check, sentence):
    with pytest.raises(ContractError) as caught:
        check_method(method, checks=[check])
    lines = str(caught.value).splitlines()
    assert all(line.startswith(f"{method.__name__} ") for line in lines)
    assert any(sentence in line for line in lines), lines


def test_settings_for_learning_can_be_given():
    assert MethodContract(Good, learning={"learning_rate": 1e-9}).violations("learning")
    assert not MethodContract(Good, learning={"epochs": 30}).violations("learning")
    assert MethodContract(Good, settings={"width": 4}).make().config.width == 4


def test_an_unknown_check_is_refused():
    assert "seeds" in METHOD_CHECKS
    with pytest.raises(UnknownNameError, match=r"Unknown check 'seed'. Did you mean 'seeds'"):
        check_method(Good, checks=["seed"])
