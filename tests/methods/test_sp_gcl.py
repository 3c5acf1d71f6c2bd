import pytest
import torch
from torch.testing import assert_close

from aspect.data.graph import Graph
from aspect.methods.sp_gcl import SPGCL, SPGCLConfig
from aspect.nn.augmentations import draw_near
from aspect.training.trainer import train
from methods.building import step
from reference import two_views
from reference.graphs import path_graph, random_graph

SMALL = {
    "width": 6,
    "dropout": 0.0,
    "seeds": 4,
    "hops": 2,
    "sample": 12,
    "positives": 3,
    "negatives": 7,
}


@pytest.fixture
def graph():
    return random_graph(num_nodes=30, num_edges=50, isolated=2)


def make(graph, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        method = SPGCL(SPGCLConfig(**(SMALL | changes)), graph.num_features)
        for bias in method.encoder.biases:
            torch.nn.init.normal_(bias)
    return method.to(graph.dtype).train()


def encode(method, graph, *, norm=False):
    """Two convolutions, one slope for both, an activation after the last as well."""
    (activation,) = method.encoder.activations
    operator, hidden = two_views.smoothing(graph), two_views.features_of(graph)
    for number, weight in enumerate(method.encoder.weights):
        hidden = operator @ hidden @ weight
        if norm:
            layer = method.encoder.norms[number]
            hidden = two_views.batch_norm(hidden) * layer.weight + layer.bias
        else:
            hidden = hidden + method.encoder.biases[number]
        hidden = two_views.prelu(hidden, activation.function.weight)
    return hidden


def contrast(method, embeddings, sample, generator):
    """The definition, node by node."""
    first, second = method.projector.layers
    hidden = embeddings[sample].clamp(min=0) @ first.weight.t() + first.bias
    hidden = (
        two_views.prelu(hidden, 0.25)
        if method.config.projector_activation == "prelu"
        else (hidden.clamp(min=0))
    )
    projected = hidden @ second.weight.t() + second.bias
    similarity = torch.cosine_similarity(projected[:, None], projected[None, :], dim=2)
    size = len(sample)
    drawn = torch.randint(size, (size, method.config.negatives), generator=generator)
    loss = 0.0
    for i in range(size):
        alike = sorted(similarity[i].tolist(), reverse=True)[: method.config.positives]
        assert alike[0] == pytest.approx(1)  # the node itself
        loss -= 2 * sum(alike) / len(alike) / size
        loss += sum(similarity[i, j].item() ** 2 for j in drawn[i]) / size
    return loss


@pytest.mark.parametrize("batch_norm", [True, False])
@pytest.mark.parametrize("activation", ["prelu", "relu"])
def test_the_loss_is_the_papers(graph, batch_norm, activation):
    method = make(graph, batch_norm=batch_norm, projector_activation=activation)
    generator = step().generator
    sample = draw_near(graph, 4, 2, 12, generator)
    embeddings = encode(method, graph, norm=batch_norm)
    expected = contrast(method, embeddings, sample, generator)
    assert method.loss_terms(graph, step())["contrast"].item() == pytest.approx(expected)


def test_the_embedding_is_neither_projected_nor_dropped(graph):
    method = make(graph, batch_norm=False, dropout=0.5).eval()
    embedding = method.embed(graph)
    assert_close(embedding, encode(method, graph))
    assert bool((embedding < 0).any())  # nor cut at zero
    assert len(embedding) == 30  # nodes without neighbours stay


def test_batch_norm_embeds_by_the_statistics_of_the_clean_graph(graph):
    method = make(graph, batch_norm=True, dropout=0.5, epochs=3)
    train(method, graph, seed=0)
    assert_close(method.embed(graph), encode(method, graph, norm=True))


def test_batch_norm_makes_biases_needless(graph):
    assert len(make(graph, batch_norm=False).encoder.biases) == 2
    assert len(make(graph, batch_norm=True).encoder.biases) == 0


def test_the_last_layer_is_dropped_out_in_training(graph):
    method = make(graph, dropout=0.5, width=64)
    dropped = method.encode(method.source(graph).clean, torch.Generator().manual_seed(0))
    assert (dropped == 0).double().mean().item() == pytest.approx(0.5, abs=0.05)


def test_the_loss_sees_what_dropout_leaves(graph):
    method, generator = make(graph, dropout=0.5), step().generator
    embeddings = method.encode(method.source(graph).clean, generator)
    sample = draw_near(graph, 4, 2, 12, generator)
    expected = contrast(method, embeddings, sample, generator)
    assert method.loss_terms(graph, step())["contrast"].item() == pytest.approx(expected)


class TestSample:
    def test_it_lies_near_few_seeds_and_is_no_larger_than_asked(self):
        line = path_graph(40)
        method = make(line, seeds=1, hops=3, sample=5)
        for seed in range(5):
            sample = method.draw_sample(line, torch.Generator().manual_seed(seed))
            assert len(sample) == 4 or len(sample) == 5  # at an end of the line there are 4
            assert int(sample.max() - sample.min()) <= 6

    def test_seeds_and_positives_are_no_more_than_there_are(self):
        pair = Graph.build(torch.eye(2, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.long))
        method = make(pair, seeds=128, sample=512, positives=5, batch_norm=False)
        loss = method.loss_terms(pair, step())["contrast"]
        assert bool(torch.isfinite(loss))
        assert loss.item() >= -2


def test_decay_is_decoupled(graph):
    (group,) = make(graph, weight_decay=0.3).parameter_groups()
    assert group.decoupled
    assert group.weight_decay == 0.3
