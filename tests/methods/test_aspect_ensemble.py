"""An ensemble: its members are the models that ASPECT would train, side by side."""

import pytest
import torch

from aspect.estimator import Embedder
from aspect.experiment.plan import load_plan
from aspect.methods.registry import find_method

TINY = {"width": 8, "gate_width": 4, "order": 2, "skip_dim": 3, "epochs": 5}


def fit(method, graph, **settings):
    return Embedder(method, device="cpu", seed=3, **TINY, **settings).fit(graph)


@pytest.fixture
def trained(small_graph):
    graph = small_graph.graph
    return fit("aspect", graph), fit("aspect-ensemble", graph, members=3), graph


def test_the_first_member_is_the_model_that_aspect_trains(trained):
    alone, together, _ = trained
    first = together.method.members[0]
    torch.testing.assert_close(first.state_dict(), alone.method.state_dict(), rtol=0, atol=0)


def test_an_ensemble_of_one_is_aspect(trained):
    alone, _, graph = trained
    one = fit("aspect-ensemble", graph, members=1)
    assert torch.equal(one.embed(graph), alone.embed(graph))
    assert torch.equal(one.policy(graph), alone.policy(graph))
    assert one.result.values == alone.result.values


def test_members_stand_side_by_side_at_one_length_and_differ(trained):
    alone, together, graph = trained
    rows = together.embed(graph, normalise="none")
    dim = alone.embed(graph).shape[1]
    assert rows.shape == (graph.num_nodes, 3 * dim)
    blocks = rows.split(dim, dim=1)
    lengths = torch.stack([block.norm(dim=1).mean() for block in blocks])
    torch.testing.assert_close(lengths, lengths[0].expand(3))
    for one, other in ((0, 1), (1, 2)):
        filters = [together.method.members[number].encoder for number in (one, other)]
        weights = [next(each.parameters()) for each in filters]
        assert not torch.equal(blocks[one], blocks[other])
        assert not torch.equal(*weights)


def test_gate_weights_are_means_over_the_members(trained):
    _, together, graph = trained
    method = together.method.eval()
    gate = method.output(graph).gate
    torch.testing.assert_close(gate.sum(dim=1), torch.ones(graph.num_nodes))
    torch.testing.assert_close(
        gate, torch.stack([member.output(graph).gate for member in method.members]).mean(dim=0)
    )


def test_every_parameter_is_trained_as_in_aspect(trained):
    alone, together, _ = trained
    groups = zip(alone.method.parameter_groups(), together.method.parameter_groups(), strict=True)
    for one, three in groups:
        assert len(three.parameters) == 3 * len(one.parameters)
        assert (three.learning_rate, three.weight_decay) == (one.learning_rate, one.weight_decay)
    assert together.method.num_parameters == 3 * alone.method.num_parameters


def test_the_ablation_has_four_seeds_at_both_widths():
    rows = [each for each in load_plan("ablation").entries if each.method == "aspect-ensemble"]
    members = find_method("aspect-ensemble").config().members
    width = find_method("aspect").config().width
    assert [each.set.get("width", width) for each in rows] == [width, width / members]
