"""Two processes that share a batch: the loss and the gradients of one, in float64."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing import assert_close

from aspect.data.rows import Rows
from aspect.data.synthetic import mixed_graph
from aspect.methods.base import Step
from aspect.methods.registry import find_method
from aspect.randomness import isolated_seed
from aspect.scale.fit import as_rows
from aspect.scale.ranks import Ranks
from aspect.scale.rows import row_plan_of

WORLD = 2
PLAIN = {"width": 8, "order": 3, "gate_width": 4, "dropout": 0.0, "input_dropout": 0.0}
METHODS = {
    "aspect": {**PLAIN, "views": "both"},
    "bgrl": {"width": 8, "hidden_width": 8, "prediction_width": 8},
    "cca-ssg": {"width": 8},
    "dgi": {"width": 8},
    "ggd": {"width": 8},
    "grace": {"width": 8, "projection_width": 8},
}


def losses_and_gradients(name, ranks):
    """Two steps on one batch, so that the second has a queue; every process has its share."""
    graph = mixed_graph(num_nodes=61, seed=2).graph.to(torch.float64)  # no multiple of two
    registered = find_method(name)
    with isolated_seed(1):
        method = registered.method(registered.config(**METHODS[name]), graph.num_features)
    method = method.double().train()
    ranks.prepare(method)
    view = as_rows(graph, row_plan_of(method)).views[0]
    other = view + 0.1 * view.roll(1, dims=1)  # as if edges were dropped, or features shuffled
    share = ranks.share(torch.arange(graph.num_nodes))
    rows = Rows.of((view[:, share], other[:, share]), 100, queue=50)
    step = Step(1, torch.Generator(), rank=ranks.rank, gather=ranks.gathering(graph.num_nodes))
    parameters = [one for one in method.parameters() if one.requires_grad]
    found = []
    for seed in (5, 6):
        step.generator.manual_seed(seed)
        loss = torch.stack(list(method.loss_terms(replace_batch(rows), step).values())).sum()
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        ranks.average(parameters)
        found.append((loss.detach(), [one.grad for one in parameters if one.grad is not None]))
    return found


def replace_batch(rows):
    """A batch of its own for every step, as the trainer has it."""
    return replace(rows)


def work(rank, port, out):
    """A process of two."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    found = {name: losses_and_gradients(name, Ranks.here()) for name in METHODS}
    torch.save(found, Path(out) / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What each of two processes finds."""
    out = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = f"import sys; sys.path[:0] = {sys.path!r}; import runpy; "
    source += f"runpy.run_path({__file__!r})['work'](int(sys.argv[1]), {port}, {str(out)!r})"
    children = [
        subprocess.Popen([sys.executable, "-c", source, str(rank)]) for rank in range(WORLD)
    ]
    assert [child.wait(timeout=200) for child in children] == [0] * WORLD
    return [torch.load(out / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.distributed
@pytest.mark.parametrize("name", METHODS)
def test_shares_of_a_batch_have_its_loss_and_gradients(shared, name):
    expected = losses_and_gradients(name, Ranks())
    for found in shared:
        assert_close(found[name], expected, rtol=1e-9, atol=1e-9)


def test_shares_are_all_rows_in_their_order():
    rows = torch.arange(7)
    shares = [Ranks(rank, 3).share(rows) for rank in range(3)]
    assert_close(torch.cat(shares), rows)
    assert [len(share) for share in shares] == [3, 2, 2]
