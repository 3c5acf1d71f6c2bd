"""All pairs of nodes in O(nodes * block) memory: the losses that never form their matrix."""

import os
import subprocess
import sys

import pytest

NODES, BLOCK = 5000, 64

SCRIPT = """
import re, sys, torch
from pathlib import Path
from aspect.data.graph import Graph
from aspect.losses.edges import Reconstruction
from aspect.losses.info_nce import Positives, intra_view_info_nce, several_positives_info_nce

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

torch.set_num_threads(1)
nodes, block = map(int, sys.argv[1:])
options = {"block": block, "kept_bytes": 0}

def losses(nodes):
    one, other = (torch.randn(nodes, 16, requires_grad=True) for _ in range(2))
    edges = torch.randint(nodes, (2, 3 * nodes))
    graph = Graph.build(torch.ones(nodes, 2), edges)
    positives = Positives.from_neighbours(edges[1].view(nodes, 3))
    yield lambda: Reconstruction(graph).exact(one, block=block)
    yield lambda: several_positives_info_nce(one, other, 0.3, positives, **options).symmetric.mean()
    yield lambda: intra_view_info_nce(one, other, 0.3, **options).symmetric.mean()
    # The measure must see a matrix where there is one.
    kept = {"block": block, "kept_bytes": 10**9}
    yield lambda: intra_view_info_nce(one, other, 0.3, **kept).symmetric.mean()

for loss in losses(2 * block):
    loss().backward()
for loss in losses(nodes):
    before = peak()
    loss().backward()
    print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_the_peak_grows_with_nodes_times_block():
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(NODES), str(BLOCK)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=True,
        capture_output=True,
        text=True,
    )
    *in_blocks, kept = map(int, answer.stdout.split())
    matrix = 4 * NODES**2
    # Half a dozen blocks and [nodes, 16] tensors, and some slack for the allocator.
    allowed = 6 * 4 * NODES * BLOCK + 20 * 4 * NODES * 16 + 16 * 2**20
    assert allowed < matrix / 2
    assert max(in_blocks) < allowed, in_blocks
    # The peak before it was above what was in use by then, so a part of the matrix is not seen.
    assert kept > matrix / 2
