import pytest
import torch

from aspect.nn.augmentations import draw_batches, draw_near, draw_order, draw_others, draw_pairs
from reference.graphs import path_graph, random_graph


def test_an_order_holds_every_node_once():
    order = draw_order(50, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(50))
    assert not torch.equal(order, draw_order(50, torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("shape", [(6,), (5, 6)])
def test_others_are_uniform_over_the_rest(shape):
    nodes = torch.arange(6).expand(shape)
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([draw_others(nodes, 6, generator) for _ in range(3000)])
    assert draws.shape[1:] == shape
    assert not bool((draws == nodes).any())
    counts = torch.nn.functional.one_hot(draws.reshape(-1, 6), 6).double().mean(0)
    expected = (1 - torch.eye(6)) / 5
    assert float((counts - expected).abs().max()) < 5 * (0.2 * 0.8 / 3000) ** 0.5


def test_two_nodes_have_each_other():
    drawn = draw_others(torch.tensor([0, 1, 0]), 2, torch.Generator())
    assert drawn.tolist() == [1, 0, 1]


def test_a_node_alone_has_no_other():
    with pytest.raises(ValueError, match=r"at least 2 nodes to draw another one\. Got 1"):
        draw_others(torch.zeros(1, dtype=torch.long), 1, torch.Generator())


def test_pairs_are_uniform_over_two_nodes_that_differ():
    one, other = draw_pairs(20_000, 4, torch.Generator().manual_seed(0))
    counts = torch.zeros(4, 4).index_put((one, other), torch.ones(20_000), accumulate=True)
    expected = (1 - torch.eye(4)) / 12
    assert float((counts / 20_000 - expected).abs().max()) < 5 * (11 / 144 / 20_000) ** 0.5


def test_batches_hold_every_node_once():
    batches = draw_batches(23, 10, torch.Generator().manual_seed(0))
    assert [len(batch) for batch in batches] == [10, 10, 3]
    assert sorted(torch.cat(batches).tolist()) == list(range(23))
    assert torch.cat(batches).tolist() != list(range(23))


@pytest.mark.parametrize("size", [None, 23, 99])
def test_one_batch_of_all_is_not_drawn(size):
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert draw_batches(23, size, generator) is None
    assert torch.equal(generator.get_state(), before)


class TestNear:
    @pytest.mark.parametrize("hops", [0, 1, 3])
    def test_the_whole_list_holds_every_seeds_neighbourhood(self, hops):
        graph = path_graph(9)
        drawn = draw_near(graph, 1, hops, 99, torch.Generator().manual_seed(2))
        (seed,) = draw_near(graph, 1, 0, 99, torch.Generator().manual_seed(2)).tolist()
        assert sorted(drawn.tolist()) == [node for node in range(9) if abs(node - seed) <= hops]

    def test_nodes_near_to_several_seeds_come_several_times(self):
        graph = path_graph(5)
        drawn = draw_near(graph, 5, 1, 99, torch.Generator().manual_seed(0))
        counts = torch.bincount(drawn, minlength=5)
        assert counts.tolist() == [2, 3, 3, 3, 2]

    def test_the_size_is_bounded_and_seeds_are_no_more_than_nodes(self):
        graph = random_graph(isolated=2)
        assert len(draw_near(graph, 10, 2, 7, torch.Generator().manual_seed(0))) == 7
        everyone = draw_near(graph, 999, 0, 999, torch.Generator().manual_seed(0))
        assert sorted(everyone.tolist()) == list(range(20))

    def test_places_of_the_list_are_drawn_alike(self):
        graph, generator = path_graph(3), torch.Generator().manual_seed(0)
        counts = torch.zeros(3)
        for _ in range(800):
            counts[draw_near(graph, 3, 1, 1, generator)] += 1
        expected = torch.tensor([2.0, 3.0, 2.0]) / 7
        assert float((counts / 800 - expected).abs().max()) < 5 * (0.25 / 800) ** 0.5
