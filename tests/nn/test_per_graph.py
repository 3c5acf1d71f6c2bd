import copy

from torch import nn

from aspect.nn.per_graph import PerGraph
from reference.graphs import random_graph


def test_it_is_made_once_for_a_graph_and_anew_for_another():
    made = []
    prepared = PerGraph(lambda graph: made.append(graph) or len(made))
    one, other = random_graph(seed=0), random_graph(seed=1)
    assert [prepared(one), prepared(one), prepared(other), prepared(one)] == [1, 1, 2, 3]
    assert [graph is one for graph in made] == [True, False, True]


class Doubling(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2
        self.prepared = PerGraph(self.make)

    def make(self, graph):
        return self.factor * graph.num_nodes


def test_a_copied_module_makes_its_own():
    original = Doubling()
    copied = copy.deepcopy(original)
    copied.factor = 3
    graph = random_graph(num_nodes=20)
    assert (original.prepared(graph), copied.prepared(graph)) == (40, 60)
    assert original.state_dict() == {}


def test_what_is_forgotten_is_made_anew():
    made = []
    prepared = PerGraph(lambda graph: made.append(graph) or len(made))
    graph = random_graph()
    assert prepared(graph) == 1
    prepared.forget()
    assert [prepared(graph), prepared(graph)] == [2, 2]


def test_loading_a_state_makes_it_forget_in_a_copy_too():
    original = Doubling()
    original.register_load_state_dict_post_hook(original.prepared.forget)
    copied = copy.deepcopy(original)
    graph = random_graph(num_nodes=20)
    for module in (original, copied):
        assert module.prepared(graph) == 40
        module.factor = 3
        assert module.prepared(graph) == 40
    copied.load_state_dict({})
    assert (original.prepared(graph), copied.prepared(graph)) == (40, 60)
