"""What methods declare of themselves is there, and holds against a count of operations.

Operations are counted and not timed: numbers written, and multiplications of products, those with
a sparse matrix by its entries. Twice the nodes at as many edges for each are then twice or four
times the work, on every machine.
"""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from aspect.config import make_config
from aspect.data.synthetic import mixed_graph
from aspect.methods.registry import Citation, find_method, method_names
from aspect.randomness import isolated_seed
from aspect.training.trainer import train

NAMES = method_names()
TRAINABLE = [name for name in NAMES if find_method(name).method.trainable]

NODES, NUM_FEATURES = 300, 10
# Narrow, so that what grows with the nodes is not hidden by what does not; and all that is due now
# and then is due at once.
WIDTHS = ("width", "gate_width", "hidden_width", "projection_width", "prediction_width")
SMALL = dict.fromkeys((*WIDTHS, "discriminator_width"), 8)
SMALL |= {"order": 2, "sample": 64, "warm_up": 0, "interval": 1, "epochs": 1}


class CountOperations(TorchDispatchMode):
    """Counts what torch does while it is entered, backward passes and optimiser included."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        given = kwargs or {}
        result = function(*args, **given)
        self.total += sum(stored(each) for each in tensors(result))
        if (packet := function._overloadpacket) in flop_registry:
            sparse = [each for each in tensors(args) if each.layout is not torch.strided]
            if sparse:
                self.total += 2 * sum(map(stored, sparse)) * result.shape[-1]
            else:
                self.total += flop_registry[packet](*args, **given, out_val=result)
        return result


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def stored(tensor):
    return tensor.numel() if tensor.layout is torch.strided else tensor._nnz()


def operations_of_an_epoch(name, nodes):
    entry = find_method(name)
    graph = mixed_graph(num_nodes=nodes, degree=5.0, num_features=NUM_FEATURES, seed=3).graph
    settings = {key: value for key, value in SMALL.items() if key in entry.config.model_fields}
    with isolated_seed(7):
        method = entry.method(make_config(entry.config, settings, owner=name), NUM_FEATURES)
    method.prepare(graph)
    with CountOperations() as count:
        assert train(method, graph, seed=0).epochs == 1
    return count.total


@pytest.mark.parametrize("name", TRAINABLE)
def test_the_declared_cost_is_what_is_counted(name):
    """An epoch on twice the nodes, as a multiple of one."""
    method = find_method(name).method
    growth = operations_of_an_epoch(name, 2 * NODES) / operations_of_an_epoch(name, NODES)
    if method.mini_batch:
        assert growth < 1.3
    elif method.cost == "quadratic":
        assert 3 < growth < 4.2
    else:
        assert growth > 1.6
        assert growth < 2.3


@pytest.mark.parametrize("nodes", [40, 80])
def test_products_are_counted_by_what_they_multiply(nodes):
    dense, narrow = torch.ones(nodes, nodes), torch.ones(nodes, 3)
    with CountOperations() as count:
        dense @ narrow
    assert count.total == 2 * nodes * nodes * 3 + nodes * 3
    sparse = torch.eye(nodes).to_sparse_csr()
    with CountOperations() as count:
        sparse @ narrow
    assert count.total < 20 * nodes


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_declared(name):
    entry = find_method(name)
    method = entry.method
    assert entry.name == method.name == name
    assert method.__doc__
    assert all(isinstance(flag, bool) for flag in (method.inductive, method.mini_batch))
    assert method.cost in ("linear", "quadratic")
    assert method.trainable or not (method.mini_batch or method.cost == "quadratic")
    assert entry.family
    if entry.family == "control":
        assert entry.paper == ""
        return
    paper = entry.paper
    assert isinstance(paper, Citation), f"{name} must cite its paper: Citation(authors, title, ...)"
    assert paper.title
    assert paper.authors
    assert 2000 < paper.year < 2100
    assert paper.venue or name.startswith("aspect")
