"""What methods have without saying so."""

from typing import Annotated

import pytest
import torch
from pydantic import Field
from torch import nn

from aspect.attacks.projected_ascent import SearchScope
from aspect.errors import SettingsError
from aspect.methods.base import Method, MethodConfig, Step
from aspect.methods.registry import find_method
from aspect.randomness import generator_for
from training.toys import tiny_graph


class RatesConfig(MethodConfig):
    learning_rate: Annotated[float, Field(gt=0)] = 0.3
    weight_decay: Annotated[float, Field(ge=0)] = 0.2


class Layers(Method):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.first, self.frozen, self.last = (nn.Linear(2, 2, bias=False) for _ in range(3))
        self.frozen.requires_grad_(False)

    def loss_terms(self, graph, step):  # noqa: ARG002 - the contract
        return {}

    def embed(self, graph):
        return graph.features


class Decoupled(Layers):
    decoupled_decay = True


class TestGroups:
    def test_all_that_have_gradients_are_trained_in_their_order(self):
        method = Layers(RatesConfig())
        (group,) = method.parameter_groups()
        assert [id(each) for each in group.parameters] == [
            id(method.first.weight),
            id(method.last.weight),
        ]

    @pytest.mark.parametrize(("kind", "decoupled"), [(Layers, False), (Decoupled, True)])
    def test_the_settings_tell_the_rates(self, kind, decoupled):
        (group,) = kind(RatesConfig(weight_decay=0.1)).parameter_groups()
        assert (group.learning_rate, group.weight_decay) == (0.3, 0.1)
        assert group.decoupled is decoupled


class TestParameters:
    def test_those_that_are_trained_by_gradient_are_counted(self):
        assert Layers(MethodConfig()).num_parameters == 2 * 2 * 2  # two of three layers

    def test_a_momentum_encoder_is_not_counted(self):
        entry = find_method("bgrl")
        method = entry.method(entry.config(width=8), num_features=5)
        target = sum(parameter.numel() for parameter in method.target.parameters())
        total = sum(parameter.numel() for parameter in method.parameters())
        assert method.num_parameters == total - target > 0


def test_a_method_without_a_search_problem_says_so():
    method = Layers(MethodConfig())
    assert not method.searchable
    with pytest.raises(SettingsError, match="not searchable"):
        method.search_problem(tiny_graph(), SearchScope(1.0, 0.0, "band", 0.0), torch.Generator())


class TestStep:
    def test_draws_apart_leave_the_step_s_own_as_they_are(self):
        step = Step(1, torch.Generator().manual_seed(5))
        expected = torch.rand(3, generator=torch.Generator().manual_seed(5))
        torch.rand(7, generator=step.apart("search"))
        assert torch.equal(torch.rand(3, generator=step.generator), expected)

    def test_they_are_the_purpose_s_however_much_was_drawn(self):
        step = Step(1, torch.Generator().manual_seed(5))
        expected = torch.rand(3, generator=generator_for(5, "search"))
        for _ in range(2):
            torch.rand(2, generator=step.generator)
            assert torch.equal(torch.rand(3, generator=step.apart("search")), expected)
        assert not torch.equal(torch.rand(3, generator=step.apart("views")), expected)
