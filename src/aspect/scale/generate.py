"""Large mixed graphs, written in blocks: anyone can try scale without a download.

The model is that of `aspect.data.synthetic.mixed_graph` with degrees that follow a power law: a
homophilic and a heterophilic region, features as a class mean plus noise.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC
from aspect.errors import GraphError
from aspect.randomness import seed_for
from aspect.scale.blocks import SCRATCH, BlockFolder, block_name, converted, row_ranges
from aspect.scale.options import ROWS_PER_BLOCK, FeatureType, MixedModel
from aspect.scale.sorting import EDGE_BYTES, RUN_BYTES, merge_runs, write_run
from aspect.scale.store import (
    FACTS,
    FULL_DISK,
    STORE,
    GraphStore,
    StoreFacts,
    check_size,
    store_bytes,
)

EDGES_PER_RUN = 2**21
GOLDEN = (math.sqrt(5) - 1) / 2


def generate_store(
    model: MixedModel,
    path: Path,
    rows_per_block: int = ROWS_PER_BLOCK,
    *,
    seed: int = 0,
    dtype: FeatureType = "float32",
    memory_bytes: int = 2**30,
) -> GraphStore:
    """Draw the graph into a store, with labels and regions; a killed call goes on.

    Every block of rows and every part of the edges has a seed of its own.
    """
    check_size(model.nodes, rows_per_block)
    first = _homophilic_nodes(model)
    if model.nodes < 4 * model.classes or any(
        0 < region < model.classes for region in (first, model.nodes - first)
    ):
        raise GraphError(
            f"A mixed graph needs at least {4 * model.classes} nodes, and {model.classes} in each "
            f"region that it has. Got {first} and {model.nodes - first}."
        )
    job = {
        "model": model.model_dump(),
        "seed": seed,
        "rows_per_block": rows_per_block,
        "dtype": dtype,
    }
    num_bytes = store_bytes(model.nodes, model.edges, model.features, dtype)
    num_bytes += model.edges * RUN_BYTES
    with BlockFolder.open(path, STORE, job, FULL_DISK, num_bytes) as folder:
        if not folder.is_complete:
            _write_nodes(model, seed, folder, rows_per_block, dtype, memory_bytes)
            num_edges = _write_edges(model, seed, folder, rows_per_block, memory_bytes)
            facts = StoreFacts(
                num_nodes=model.nodes,
                num_edges=num_edges,
                num_features=model.features,
                rows_per_block=rows_per_block,
                columns=("labels", "region"),
                class_names=tuple(map(str, range(model.classes))),
            )
            folder.finish(FACTS, facts)
    return GraphStore.open(path)


def _write_nodes(
    model: MixedModel,
    seed: int,
    folder: BlockFolder,
    rows_per_block: int,
    dtype: FeatureType,
    memory_bytes: int,
) -> None:
    means = np.random.default_rng(seed_for(seed, "class means")).standard_normal(
        (model.classes, model.features)
    )
    means -= means.mean(axis=0)
    means *= model.signal / np.linalg.norm(means, axis=1, keepdims=True)
    ranges = row_ranges(model.nodes, rows_per_block)

    def write(block: int) -> None:
        numbers = np.arange(*ranges[block])
        labels = (numbers % model.classes).astype(np.int32)
        if not folder.has(block_name("features", block)):
            drawn = np.random.default_rng(seed_for(seed, "features", block))
            noise = drawn.standard_normal((len(numbers), model.features), dtype=np.float32)
            noise += means.astype(np.float32)[labels]
            folder.write(block_name("features", block), converted(noise, dtype))
        folder.write(block_name("labels", block), labels)
        region = np.where(numbers < _homophilic_nodes(model), HOMOPHILIC, HETEROPHILIC)
        folder.write(block_name("region", block), region.astype(np.int8))

    folder.fill(write, range(len(ranges)), memory_bytes // (12 * rows_per_block * model.features))


def _homophilic_nodes(model: MixedModel) -> int:
    return model.nodes - math.floor(model.nodes * model.heterophilic + 0.5)


def _write_edges(
    model: MixedModel, seed: int, folder: BlockFolder, rows_per_block: int, memory_bytes: int
) -> int:
    """Draw and sort the edges; return how many are left without loops and duplicates."""
    groups = _Groups(model)
    runs = [f"{SCRATCH}run-{number:05d}" for number in range(-(-model.edges // EDGES_PER_RUN))]
    ranges = row_ranges(model.edges, EDGES_PER_RUN)

    def write(number: int) -> None:
        if not folder.has(f"{runs[number]}.keys.npy"):
            drawn = np.random.default_rng(seed_for(seed, "edges", number))
            start, end = ranges[number]
            write_run(folder, runs[number], *groups.pairs(end - start, drawn), model.nodes)

    folder.fill(write, range(len(runs)), memory_bytes // (2 * EDGE_BYTES * EDGES_PER_RUN))
    counts = merge_runs(folder, runs, model.nodes, rows_per_block, memory_bytes=memory_bytes)
    return counts.num_edges


class _Groups:
    """The nodes of one class in one region, and how one of them is drawn by its degree."""

    def __init__(self, model: MixedModel) -> None:
        self.model = model
        classes, border = np.arange(model.classes), _homophilic_nodes(model)
        # Group [region, class] holds the nodes first, first + classes, ...: so many of them.
        self.first = np.stack([classes, border + (classes - border) % model.classes])
        ends = np.array([[border], [model.nodes]])
        self.sizes = np.maximum(0, -(-(ends - self.first) // model.classes))
        self.steps = np.vectorize(_coprime)(self.sizes)

    def pairs(
        self, count: int, drawn: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Both ends of so many edges."""
        model = self.model
        share = _homophilic_nodes(model) / model.nodes
        across = model.bridges * 4 * share * (1 - share)
        kinds = drawn.random(count)
        is_bridge = kinds < across
        in_second = ~is_bridge & (kinds >= across + (1 - across) * share)
        regions = in_second.astype(np.int64)
        classes = drawn.integers(0, model.classes, count)
        same = np.where(in_second, 1 - model.purity, model.purity)
        same = np.where(is_bridge, 1 / model.classes, same)
        shifts = drawn.integers(1, model.classes, count)
        others = (classes + shifts * (drawn.random(count) >= same)) % model.classes
        source = self._nodes(regions, classes, drawn.random(count))
        target = self._nodes(np.where(is_bridge, 1, regions), others, drawn.random(count))
        return source, target

    def _nodes(
        self,
        regions: NDArray[np.int64],
        classes: NDArray[np.int64],
        uniform: NDArray[np.float64],
    ) -> NDArray[np.int64]:
        """Nodes of these groups, each with a chance of `rank^(-1 / (exponent - 1))`.

        Ranks are spread over the group, so that no block of rows has all the hubs.
        """
        sizes, decay = self.sizes[regions, classes], 1 / (self.model.exponent - 1)
        ranks = (sizes * uniform ** (1 / (1 - decay))).astype(np.int64)
        places = np.minimum(ranks, sizes - 1) * self.steps[regions, classes] % sizes
        nodes: NDArray[np.int64] = self.first[regions, classes] + self.model.classes * places
        return nodes


def _coprime(size: int) -> int:
    """A step through a group that visits every member, neighbouring ranks far apart."""
    step = max(1, int(GOLDEN * size))
    while math.gcd(step, size) > 1:
        step += 1
    return step
