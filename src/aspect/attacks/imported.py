"""Perturbations that were found elsewhere, as perturbation files: which pairs they flip.

A published perturbation is an adjacency after the attack, an edge list after it, or a list of the
pairs that it flips. Which pair was flipped first is known of a list alone, so that a file serves
the budget of all its flips and no smaller one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from jaxtyping import Int
from torch import Tensor

from aspect.attacks.base import check_flips, pairs_of
from aspect.attacks.file import AttackFacts, PerturbationFile
from aspect.attacks.registry import IMPORTED
from aspect.attacks.run import splits_by_number
from aspect.data.files import file_bytes
from aspect.data.graph import Graph, LabelledGraph, count_pairs, pair_keys
from aspect.data.splits import SplitKind
from aspect.errors import FileError, GraphError, sentence_of, shown

SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": r"\s+"}
ENDS = (("source", "target"), ("src", "dst"), ("from", "to"), ("u", "v"))


def read_perturbed(path: Path, graph: Graph) -> Int[Tensor, "flips 2"]:
    """The pairs in which a perturbed graph differs from the clean one, by their numbers.

    Args:
        path: Its adjacency (`.npz` of `scipy.sparse.save_npz`, nodes in the graph's order), or
            its edge list (`.csv`, `.tsv`, `.txt`, by the ids of the nodes).
        graph: The clean graph.
    """
    pairs = _adjacency(path, graph) if path.suffix.lower() == ".npz" else _pairs(path, graph)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    after = torch.unique(pair_keys(pairs[:, 0], pairs[:, 1], graph.num_nodes))
    both, times = count_pairs(graph, after)
    flips = both[times == 1]
    if not len(flips):
        raise GraphError(f"{path} holds the edges of the clean graph: nothing is perturbed.")
    return pairs_of(flips, graph.num_nodes)


def read_flips(path: Path, graph: Graph) -> Int[Tensor, "flips 2"]:
    """Flipped pairs in the order of a list (`.csv`, `.tsv`, `.txt`), smaller node first."""
    pairs = _pairs(path, graph)
    loops = pairs[pairs[:, 0] == pairs[:, 1]]
    if len(loops):
        raise GraphError(f"{path} must list pairs of two nodes. Got {shown(loops.tolist())}.")
    keys = pair_keys(pairs[:, 0], pairs[:, 1], graph.num_nodes)
    if len(torch.unique(keys)) < len(keys):
        raise GraphError(f"{path} must list each pair once. Got {len(keys)} rows with repetitions.")
    return pairs_of(keys, graph.num_nodes)


def _adjacency(path: Path, graph: Graph) -> Int[Tensor, "pairs 2"]:
    file_bytes(path)  # says in a sentence what is wrong with the file as such
    try:
        matrix = scipy.sparse.coo_array(scipy.sparse.load_npz(path))
        matrix.sum_duplicates()
    except Exception as error:  # whatever a damaged archive leads to
        raise FileError(
            f"{path} must be an adjacency of scipy.sparse.save_npz. {sentence_of(error)}"
        ) from error
    nodes = graph.num_nodes
    if matrix.shape != (nodes, nodes):
        raise GraphError(
            f"The adjacency in {path} must have the {nodes} nodes of the graph, in its order. Got "
            f"the shape {list(matrix.shape)}. Many publish the largest connected component: name "
            "that one as the graph."
        )
    wrong = matrix.data[~((matrix.data >= 0) & np.isfinite(matrix.data))]
    if len(wrong):
        raise GraphError(
            f"The adjacency in {path} must hold the edges after the attack, as finite numbers "
            f"from 0. Got {shown(np.unique(wrong).tolist())}."
        )
    entries = matrix.data != 0
    ends = np.stack([coordinates[entries] for coordinates in matrix.coords], axis=1)
    return torch.from_numpy(ends.astype(np.int64))


def _pairs(path: Path, graph: Graph) -> Int[Tensor, "pairs 2"]:
    """Two columns of ids, called source and target or the only ones, as numbers of nodes."""
    suffix = path.suffix.lower()
    if suffix not in SEPARATORS:
        raise FileError(
            f"A perturbation is read from .npz, {', '.join(SEPARATORS)}. Got the name "
            f"{path.name!r}."
        )
    file_bytes(path)
    try:
        frame = pd.read_csv(
            path, sep=SEPARATORS[suffix], header=None, dtype=str, keep_default_na=False
        )
    except (ValueError, UnicodeError) as error:
        raise FileError(f"Cannot read {path}. {sentence_of(error)}") from error
    first, *rows = frame.to_numpy().tolist()
    names = [cell.strip().lower() for cell in first]
    named = next((pair for pair in ENDS if set(pair) <= set(names)), None)
    if named is None and len(names) != 2:  # noqa: PLR2004 - an edge has two ends
        raise FileError(
            f"{path} must have two columns, or name them source and target in its first line. "
            f"Got {shown(map(repr, first))}."
        )
    known = graph.ids or tuple(map(str, range(graph.num_nodes)))
    number = {name: node for node, name in enumerate(known)}
    # Without those names a first line is a header only if none of it can be a node.
    if named is None and any(cell in number or cell.isdecimal() for cell in first):
        rows = [first, *rows]
    columns = (0, 1) if named is None else [names.index(end) for end in named]
    cells = [[row[column] for column in columns] for row in rows]
    unknown = dict.fromkeys(cell for row in cells for cell in row if cell not in number)
    if unknown:
        raise GraphError(
            f"{path} names nodes that are not in the graph: {shown(map(repr, unknown))}."
        )
    if not cells:
        raise FileError(f"{path} holds no pairs.")
    return torch.tensor([[number[cell] for cell in row] for row in cells])


def imported_files(
    labelled: LabelledGraph,
    name: str,
    flips: Int[Tensor, "flips 2"],
    *,
    source: Path,
    splits: SplitKind,
    numbers: Sequence[int] | None = None,
) -> list[PerturbationFile]:
    """A file in memory for each of the splits; all of them flip the same pairs.

    Args:
        labelled: The clean graph.
        name: Of the graph, for the files.
        flips: From `read_perturbed` or `read_flips`.
        source: The file that they were read from.
        splits: Kind of splits.
        numbers: Of the splits whose training labels the attack knew; None: all that there are.
    """
    check_flips(len(flips), labelled.graph)
    edges = labelled.graph.num_edges
    if len(flips) > edges:
        raise GraphError(
            f"{source} flips {len(flips)} pairs, more than the graph's {edges} edges. Are these "
            "nodes those of the graph, in the same order?"
        )
    chosen = splits_by_number(labelled, splits, numbers)
    sha256 = hashlib.sha256(file_bytes(source)).hexdigest()
    settings = {"file": source.name, "sha256": sha256}
    keys = flips[:, 0] * labelled.graph.num_nodes + flips[:, 1]
    all_facts = AttackFacts.by_split(
        labelled,
        name,
        chosen,
        kind=IMPORTED,
        splits=splits,
        settings=settings,
        wanted=len(keys),
        complete=True,
        device="cpu",
    )
    return [PerturbationFile(facts, keys) for facts in all_facts]
