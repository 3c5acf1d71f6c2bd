"""Blocks and objectives of the baselines on a GPU: the numbers of the CPU, in float64."""

import pytest
import torch
from torch.testing import assert_close

from aspect.losses.correlation import barlow_loss, canonical_loss
from aspect.losses.edges import Reconstruction, pair_cosines
from aspect.losses.info_nce import Positives, intra_view_info_nce, several_positives_info_nce
from aspect.losses.similarity import top_similarity_loss
from aspect.nn.augmentations import (
    ViewSource,
    column_importance,
    draw_batches,
    draw_near,
    draw_order,
    draw_others,
    draw_pairs,
    drop_nodes,
    drop_probabilities,
    eigenvector_centrality,
    grow_subgraph,
    pagerank_centrality,
    rewire_edges,
)
from aspect.nn.diffusion import DiffusedGraph, PersonalisedPageRank, return_probabilities
from aspect.nn.gcn import GCNStack
from aspect.nn.neighbours import EdgeSplit, choose_edges, edge_similarity, nearest_by_cosine
from aspect.nn.propagation import SymmetricPropagation, neighbour_mean
from aspect.nn.scorers import WalkedGraph
from reference.graphs import random_graph

pytestmark = pytest.mark.gpu


@pytest.fixture(params=[1.0, 0.1], ids=["dense", "compressed"])
def graph(request):
    return random_graph(60, 200, 12, isolated=2, density=request.param)


def embeddings(device, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(60, 8, dtype=torch.float64, generator=generator)
    return x.to(device).requires_grad_()


def weights_of(graph):
    return torch.linspace(0, 1, graph.edge_index.shape[1], dtype=torch.float64).to(graph.device)


BLOCKS = {
    "low": lambda g, x: SymmetricPropagation(g).smoothing(weights_of(g))(x),
    "high": lambda g, x: SymmetricPropagation(g).sharpening(weights_of(g))(x),
    "mean": lambda g, x: neighbour_mean(g)(x),
    "diffusion": lambda g, x: PersonalisedPageRank(SymmetricPropagation(g).smoothing())(x),
    "cropped": lambda g, x: (
        DiffusedGraph.of(g).within(torch.arange(20, device=x.device)).diffusion(x[:20])
    ),
    "split": lambda g, x: (
        EdgeSplit.of(ViewSource(g), like_share=0.4, unlike_share=0.7).high().operator(x)
    ),
    "unlike": lambda g, x: WalkedGraph(g, normalise_rows=True, walk_steps=4).filters(
        weights_of(g), 0.3
    )[1](x),
    "walks": lambda g, x: return_probabilities(g) + 0 * x.sum(),
    "nearest": lambda g, x: nearest_by_cosine(g.features, 5) + 0 * x.sum(),
    "edges": lambda g, x: choose_edges(g, edge_similarity(g, x.detach()), 0.4) + 0 * x.sum(),
    "centrality": lambda g, x: (
        drop_probabilities(
            (pagerank_centrality(g) + eigenvector_centrality(g))[g.edge_index[0]].log(), 0.2
        )
        + 0 * x.sum()
    ),
    "columns": lambda g, x: column_importance(g.features, pagerank_centrality(g)) + 0 * x.sum(),
}
LOSSES = {
    "intra": lambda _, x, y: intra_view_info_nce(x, y, 0.3, block=7).symmetric,
    "several": lambda g, x, y: (
        several_positives_info_nce(x, y, 0.3, Positives.from_graph(g), block=7).symmetric
    ),
    "reconstruction": lambda g, x, y: Reconstruction(g).exact(x, block=7) + 0 * y.sum(),
    "pairs": lambda g, x, y: pair_cosines(x, *g.edge_index) + 0 * y.sum(),
    "barlow": lambda _, x, y: barlow_loss(x, y),
    "canonical": lambda _, x, y: canonical_loss(x, y, 0.1),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(graph, name):
    found = []
    for device in ("cpu", "cuda"):
        x = embeddings(device, 0)
        made = BLOCKS[name](graph.to(device), x)
        (gradient,) = torch.autograd.grad((made * made.detach()).sum(), x)
        found.append((made.detach().cpu(), gradient.cpu()))
    assert_close(found[1], found[0])


@pytest.mark.parametrize("name", LOSSES)
def test_losses(graph, name):
    found = []
    for device in ("cpu", "cuda"):
        views = embeddings(device, 0), embeddings(device, 1)
        made = LOSSES[name](graph.to(device), *views)
        gradients = torch.autograd.grad(made.sum(), views)
        found.append([made.detach().cpu(), *(gradient.cpu() for gradient in gradients)])
    assert_close(found[1], found[0])


def test_encoders(graph):
    torch.manual_seed(0)
    encoder = GCNStack((12, 16, 8), batch_norm=True, activation="prelu").double()
    found = []
    for device in ("cpu", "cuda"):
        moved, placed = encoder.to(device), graph.to(device)
        made = moved(placed.features, SymmetricPropagation(placed).smoothing())
        found.append(made.detach().cpu())
    assert_close(found[1], found[0])


def test_draws_are_made_on_the_device(graph):
    placed = graph.to("cuda")
    generator = torch.Generator("cuda").manual_seed(0)
    order = draw_order(60, generator)
    assert order.device.type == "cuda"
    assert not bool((draw_others(order, 60, generator) == order).any())
    assert draw_pairs(5, 60, generator).device.type == "cuda"
    assert [len(batch) for batch in draw_batches(60, 40, generator)] == [40, 20]
    assert len(draw_near(placed, 5, 2, 9, generator)) == 9
    assert drop_nodes(placed, 0.5, generator).graph.num_nodes == 30
    assert grow_subgraph(placed, 0.5, generator).graph.device.type == "cuda"
    assert rewire_edges(placed, 0.5, generator).device.type == "cuda"
    x = embeddings("cuda", 0)
    assert torch.isfinite(top_similarity_loss(x, 3, 5, generator))
    encoder = GCNStack((12, 8), activation="rrelu", input_dropout=0.2).double().to("cuda")
    made = encoder(placed.features, SymmetricPropagation(placed).smoothing(), generator)
    assert torch.isfinite(made).all()
