"""The graph that every method sees: simple, undirected, checked, and without labels.

Labels and published splits are kept beside it, in `LabelledGraph`. Pairs of nodes are also handled
as single numbers, smaller end * nodes + larger end, so that sets of them are cheap.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse
import scipy.sparse.csgraph
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from aspect.data.encoder import FeatureEncoder
from aspect.data.sparse import SparseMatrix
from aspect.errors import GraphError, counted, shown

UNLABELLED = -1

Features = Float[Tensor, "nodes features"] | SparseMatrix

# Below this share of non-zero entries a product with compressed rows beats the dense one.
SPARSE_BELOW = 0.2

MOST_NODES = 3_037_000_499  # the largest n for which every key row * n + column fits 64 bits
LONGEST_INTEGER = 18  # digits; what is longer is a name, not a number

PARTS = ("train", "validation", "test")

LARGEST_WEIGHT = 1e30  # sums and products of such weights, and of their inverses, fit float32
SAME_WEIGHT = 1e-6  # two directions whose weights differ by less, relatively, have the same
USUAL_WEIGHTS = (0.01, 100.0)  # the mean weights between which a self-loop of weight one counts


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes with features, joined by undirected edges; build it with `Graph.build`.

    Every edge stands in `edge_index` once in each direction, sorted by (row, column); there are no
    self-loops and no duplicates. Labels are not here: a method cannot read what it must not.
    """

    features: Features  # [nodes, features], dense or in compressed rows
    edge_index: Int[Tensor, "2 entries"]  # int64
    ids: tuple[str, ...] | None = None  # the user's names of the nodes, if there are any
    notices: tuple[str, ...] = ()  # what was cleaned while building, one sentence each
    feature_names: tuple[str, ...] | None = None  # of the columns, where the source has them
    integer_ids: bool = False  # the source kept its ids as integers; here they are their digits
    encoder: FeatureEncoder | None = None  # that made the features, if they were not there as such
    # Above zero, the same for both directions, of the features' type; none: every edge weighs one.
    weights: Float[Tensor, " entries"] | None = None

    def __post_init__(self) -> None:
        if self.feature_names is not None:
            _check_names(self.feature_names, self.num_features, "name", "feature")

    @classmethod
    def build(
        cls,
        features: Features,
        edge_index: Tensor,  # [2, pairs], checked by hand: users give this one
        ids: Sequence[str] | None = None,
        *,
        weights: Tensor | None = None,  # [pairs], checked by hand as well
        feature_names: Sequence[str] | None = None,
        integer_ids: bool = False,
        directed_is_error: bool = False,
        notices: Sequence[str] = (),  # what was cleaned before
    ) -> Graph:
        """Check everything, symmetrise, drop self-loops and duplicates, and note what was done.

        A pair of weight zero is no edge, and weights that are all one, or add up to ones, are none.
        Weights of a pair that is given several times are added. So are those of both directions,
        as PyG's `to_undirected` does it, unless all weights are the same in both directions.
        """
        num_nodes = features.shape[0]
        _check_features(features)
        if ids is not None:
            _check_names(ids, num_nodes, "id", "node")
        _check_finite(features, ids, feature_names)
        edge_index = _as_int64(edge_index, "Ends of edges")
        _check_edges(edge_index, num_nodes)
        edge_index, weights, changes = clean_edges(
            edge_index, weights, num_nodes, directed_is_error=directed_is_error
        )
        if weights is not None:
            weights = weights.to(values_of(features).dtype)
        graph = cls(
            _best_layout(features),
            edge_index,
            None if ids is None else tuple(ids),
            (*notices, *changes),
            None if feature_names is None else tuple(feature_names),
            integer_ids,
            weights=weights,
        )
        return replace(graph, notices=(*graph.notices, *graph.structure_notices()))

    def with_features(
        self,
        features: Features,
        feature_names: Sequence[str] | None = None,
        *,
        encoder: FeatureEncoder | None = None,
        notices: Sequence[str] = (),
    ) -> Graph:
        """The same nodes and edges with other features, checked; and what to know of them."""
        _check_features(features)
        _check_finite(features, self.ids, feature_names)
        return replace(
            self,
            features=_best_layout(features),
            feature_names=None if feature_names is None else tuple(feature_names),
            encoder=encoder,
            notices=(*self.notices, *notices),
        )

    @property
    def num_nodes(self) -> int:
        """How many nodes there are, isolated ones included."""
        return int(self.features.shape[0])

    @property
    def num_features(self) -> int:
        """Columns of the feature matrix."""
        return int(self.features.shape[1])

    @property
    def num_edges(self) -> int:
        """Undirected edges, each counted once."""
        return self.edge_index.shape[1] // 2

    @property
    def is_encoded(self) -> bool:
        """Whether the features come from columns of a node table, scaled one by one."""
        return self.encoder is not None and bool(self.encoder.columns)

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.edge_index.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the features."""
        return self.features.dtype

    def degrees(self) -> Int[Tensor, " nodes"]:
        """Number of neighbours of every node."""
        return torch.bincount(self.edge_index[0], minlength=self.num_nodes)

    def components(self) -> tuple[int, int]:
        """Number of connected components, and the nodes of the largest."""
        rows, columns = self.edge_index.cpu().numpy()
        ones, shape = np.ones(len(rows), dtype=np.int8), (self.num_nodes, self.num_nodes)
        adjacency = scipy.sparse.csr_array((ones, (rows, columns)), shape=shape)
        count, part = scipy.sparse.csgraph.connected_components(adjacency, directed=False)
        return int(count), int(np.bincount(part).max())

    def unweighted(self) -> Graph:
        """The same graph whose edges all weigh one."""
        return self if self.weights is None else replace(self, weights=None)

    def to(self, target: torch.device | str | torch.dtype) -> Graph:
        """The graph on another device, or with features of another floating type.

        It is the same object where nothing changes: a graph on `cuda:0` is on `cuda`.
        """
        weights = None if self.weights is None else self.weights.to(target)
        if isinstance(target, torch.dtype):
            same = target == self.dtype
            features = self.features if same else self.features.to(target)
            return self if same else replace(self, features=features, weights=weights)
        if _resolved(torch.device(target)) == _resolved(self.device):
            return self
        features, edge_index = self.features.to(target), self.edge_index.to(target)
        return replace(self, features=features, edge_index=edge_index, weights=weights)

    def structure_notices(self) -> list[str]:
        """What the user should know although nothing was changed."""
        notices = []
        isolated = int((self.degrees() == 0).sum())
        if self.num_edges == 0:
            notices.append("The graph has no edges: the embedding rests on the features alone.")
        elif isolated:
            notices.append(
                f"{isolated} of {self.num_nodes} nodes have no edge; they keep their own features."
            )
        num_parts, largest = self.components()
        if num_parts - isolated > 1:
            notices.append(
                f"The graph falls into {num_parts} parts without an edge between them; "
                f"the largest has {largest} of {self.num_nodes} nodes."
            )
        return notices

    def __repr__(self) -> str:
        """One line, whatever the size.

        >>> Graph.build(torch.eye(3), torch.tensor([[0, 1], [1, 0]]))
        Graph(3 nodes, 1 edge, 3 features)
        """
        sizes = (counted(self.num_nodes, "node"), counted(self.num_edges, "edge"))
        features = counted(self.num_features, "feature")
        if isinstance(self.features, SparseMatrix):
            features += " (sparse)"
        where = [] if self.device.type == "cpu" else [str(self.device)]
        return f"Graph({', '.join([*sizes, features, *where])})"

    def _repr_html_(self) -> str:
        """For notebooks: the line, and what was cleaned while building."""
        return _html(repr(self), self.notices)


@dataclass(frozen=True, eq=False)
class LabelledGraph:
    """A graph with what only evaluation may see: its classes and the splits that are published."""

    graph: Graph
    labels: Int[Tensor, " nodes"]  # 0 ... classes-1, UNLABELLED where unknown
    class_names: tuple[str, ...]
    # By part: train, validation, test; or empty.
    masks: Mapping[str, Bool[Tensor, "splits nodes"]] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        """Classes, those without a node included."""
        return len(self.class_names)

    @property
    def homophily(self) -> float | None:
        """Ratio of homophilic edges among those whose ends have labels; None where none has."""
        first, second = self.labels[self.graph.edge_index]
        known = (first != UNLABELLED) & (second != UNLABELLED)
        return float((first == second)[known].double().mean()) if bool(known.any()) else None

    def __repr__(self) -> str:
        """One line, whatever the size."""
        splits = counted(len(self.masks["train"]), "split") if self.masks else "no splits"
        inner = repr(self.graph).removeprefix("Graph(").removesuffix(")")
        classes = f"{self.num_classes} class{'' if self.num_classes == 1 else 'es'}"
        return f"LabelledGraph({inner}, {classes}, {splits})"

    def _repr_html_(self) -> str:
        """For notebooks: the line, and what was cleaned while building."""
        return _html(repr(self), self.graph.notices)


def _html(line: str, notices: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(notice)}</li>" for notice in notices)
    return f"<code>{html.escape(line)}</code>" + (f"<ul>{items}</ul>" if items else "")


def pair_keys(
    one: Int[Tensor, " pairs"], other: Int[Tensor, " pairs"], num_nodes: int
) -> Int[Tensor, " pairs"]:
    """One number per pair, whichever end is given first."""
    keys: Tensor = torch.minimum(one, other) * num_nodes + torch.maximum(one, other)
    return keys


def edge_keys(graph: Graph) -> Int[Tensor, " edges"]:
    """One number per undirected edge, ascending."""
    source, target = graph.edge_index
    keys: Tensor = source * graph.num_nodes + target
    return keys[source < target]


def values_of_pairs(
    keys: Int[Tensor, " edges"],
    values: Float[Tensor, " edges"],
    pairs: Int[Tensor, " pairs"],
    otherwise: float = 0.0,
) -> Float[Tensor, " pairs"]:
    """Of pairs that are edges, by their ascending keys, the values; another one for all others."""
    if len(keys) == 0:
        return values.new_full((len(pairs),), otherwise)
    places = torch.searchsorted(keys, pairs).clamp(max=len(keys) - 1)
    return torch.where(keys[places] == pairs, values[places], otherwise)


def edge_index_of(keys: Int[Tensor, " edges"], num_nodes: int) -> Int[Tensor, "2 entries"]:
    """Both directions of every pair, in the order in which a graph keeps its edges."""
    low, high = keys // num_nodes, keys % num_nodes
    both = torch.cat([keys, high * num_nodes + low]).sort().values
    return torch.stack([both // num_nodes, both % num_nodes])


def count_pairs(
    graph: Graph, keys: Int[Tensor, " others"]
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """All pairs that are edges or among the keys, ascending, and of each how often it is either."""
    pairs: Tensor
    pairs, counts = torch.unique(torch.cat([edge_keys(graph), keys]), return_counts=True)
    return pairs, counts


def flip_pairs(graph: Graph, keys: Int[Tensor, " flips"]) -> Graph:
    """The graph with these pairs flipped, each given once: edges are removed, others joined."""
    pairs, counts = count_pairs(graph, keys)
    return with_pairs(graph, pairs[counts == 1])


def with_pairs(graph: Graph, keys: Int[Tensor, " edges"]) -> Graph:
    """The graph with these pairs for edges, given once each and ascending.

    In a weighted graph its own edges keep their weights, and others have the mean of them.
    """
    edge_index = edge_index_of(keys, graph.num_nodes)
    if graph.weights is None:
        return replace(graph, edge_index=edge_index)
    own = graph.weights[graph.edge_index[0] < graph.edge_index[1]]
    mean = float(own.mean()) if len(own) else 1.0
    of_pairs = values_of_pairs(edge_keys(graph), own, keys, otherwise=mean)
    of_entries = pair_keys(edge_index[0], edge_index[1], graph.num_nodes)
    weights = of_pairs[torch.searchsorted(keys, of_entries)]
    return replace(graph, edge_index=edge_index, weights=weights)


def label_graph(
    graph: Graph,
    labels: Tensor,
    class_names: Sequence[str] | None = None,
    masks: Mapping[str, Tensor] | None = None,
) -> LabelledGraph:
    """Join a graph with its labels [nodes] and splits [splits, nodes], checked here by hand.

    Without names, labels beyond the number of nodes, such as years, are the names of classes.
    """
    labels = _as_int64(labels, "Labels")
    _check_labels(labels, graph)
    if not class_names and int(labels.max()) >= graph.num_nodes:
        labels, class_names = renumbered(labels)
        notice = f"Labels up to {class_names[-1]} are taken for names of {len(class_names)} classes"
        graph = replace(graph, notices=(*graph.notices, f"{notice}."))
    num_classes = int(labels.max()) + 1
    names = tuple(class_names or map(str, range(num_classes)))
    if len(names) < num_classes:
        raise GraphError(
            f"Class names must be one per class. Got {len(names)} for {num_classes} classes."
        )
    checked = dict(masks or {})
    if checked:
        check_masks(checked, graph.num_nodes)
    return LabelledGraph(graph, labels, names, checked)


def renumbered(
    labels: Int[Tensor, " nodes"],
) -> tuple[Int[Tensor, " nodes"], tuple[str, ...]]:
    """Labels that are any integers, as classes from 0 on in their order, and these by name."""
    known = labels != UNLABELLED
    numbers, classes = torch.unique(labels[known], return_inverse=True)
    return labels.masked_scatter(known, classes), tuple(map(str, numbers.tolist()))


def unlabelled(graph: Graph) -> LabelledGraph:
    """A graph of which no class is known."""
    return LabelledGraph(graph, torch.full((graph.num_nodes,), UNLABELLED), ())


def encode_labels(cells: Sequence[str | None]) -> tuple[Int[Tensor, " nodes"], tuple[str, ...]]:
    """Class numbers and names; integers are ordered as numbers, and -1 among them is unknown."""
    known = {cell for cell in cells if cell is not None}
    if all(_is_integer(cell) for cell in known):
        known -= {cell for cell in known if int(cell) == UNLABELLED}
        names = sorted(known, key=int)
    else:
        names = sorted(known)
    number: dict[str | None, int] = {name: k for k, name in enumerate(names)}
    return torch.tensor([number.get(cell, UNLABELLED) for cell in cells]), tuple(names)


def _is_integer(cell: str) -> bool:
    digits = cell.removeprefix("-")
    return cell.isascii() and digits.isdigit() and len(digits) <= LONGEST_INTEGER


def _as_int64(numbers: Tensor, what: str) -> Tensor:
    """The same integers with a sign and 64 bits, by which alone they can be compared."""
    wide = numbers if numbers.dtype == torch.bool or _has_fractions(numbers) else numbers.long()
    if numbers.dtype == torch.uint64 and bool((wide < 0).any()):
        beyond = shown(numbers.numpy()[(wide < 0).numpy()])
        raise GraphError(f"{what} must be below 2**63. Got {beyond}.")
    return wide


def _has_fractions(numbers: Tensor) -> bool:
    return numbers.dtype.is_floating_point or numbers.dtype.is_complex


def _check_labels(labels: Tensor, graph: Graph) -> None:
    if labels.ndim != 1 or len(labels) != graph.num_nodes:
        raise GraphError(
            f"Labels must be one per node, of shape [{graph.num_nodes}]. Got {list(labels.shape)}."
        )
    if _has_fractions(labels) or labels.dtype == torch.bool:
        raise GraphError(
            f"Labels must be integers from 0, or {UNLABELLED} where unknown. Got {labels.dtype}."
        )
    below = labels < UNLABELLED
    if bool(below.any()):
        raise GraphError(
            f"Labels must be class numbers from 0, or {UNLABELLED} where unknown. "
            f"Got {shown(labels[below].tolist())}."
        )


def check_masks(masks: Mapping[str, Tensor], num_nodes: int) -> None:
    """Refuse masks of other parts or shapes, parts that overlap and parts without nodes."""
    if set(masks) != set(PARTS):
        raise GraphError(
            f"Splits must name the parts {', '.join(PARTS)}. Got {', '.join(sorted(masks))}."
        )
    train, validation, test = (masks[part] for part in PARTS)
    shapes = [list(masks[part].shape) for part in PARTS]
    if train.ndim != 2 or shapes.count(shapes[0]) != len(PARTS) or train.shape[1] != num_nodes:  # noqa: PLR2004
        raise GraphError(
            f"Split masks must have one shape [splits, {num_nodes}]. "
            f"Got {', '.join(map(str, shapes))}."
        )
    overlap = (train & validation) | (train & test) | (validation & test)
    if bool(overlap.any()):
        shared = shown(f"node {n} in split {s}" for s, n in overlap.nonzero().tolist())
        raise GraphError(f"The parts of a split must not share nodes. Got {shared}.")
    for part in PARTS:
        empty = (~masks[part].any(dim=1)).nonzero().flatten().tolist()
        if empty:
            raise GraphError(f"Every split needs {part} nodes. None in splits {shown(empty)}.")


def _resolved(device: torch.device) -> tuple[str, int]:
    """Kind and number of a device; `cuda` alone is the current one."""
    if device.type == "cuda" and device.index is None:
        return "cuda", torch.cuda.current_device()
    return device.type, device.index or 0


def _check_features(features: Features) -> None:
    num_nodes, num_features = features.shape
    if num_nodes < 2:  # noqa: PLR2004 - two nodes are the least that can be contrasted
        raise GraphError(f"A graph must have at least 2 nodes. Got {num_nodes}.")
    if num_nodes > MOST_NODES:
        raise GraphError(f"A graph must have at most {MOST_NODES} nodes. Got {num_nodes}.")
    if num_features < 1:
        raise GraphError(
            "The nodes have no features. Give a feature table, or ask for structural ones "
            "with --features degree, identity, random or laplacian."
        )
    values = values_of(features)
    if not values.is_floating_point():
        raise GraphError(f"Features must be floating-point numbers. Got {values.dtype}.")


def values_of(features: Features) -> Tensor:
    """The entries that are stored."""
    return features.values if isinstance(features, SparseMatrix) else features


def _check_names(names: Sequence[str], count: int, kind: str, of: str) -> None:
    """Refuse names that are not one for each, or not unique."""
    if len(names) != count:
        raise GraphError(f"There must be one {kind} per {of}. Got {len(names)} for {count} {of}s.")
    if len(set(names)) < count:
        repeated = (repr(name) for name, times in Counter(names).items() if times > 1)
        raise GraphError(f"The {kind}s of {of}s must be unique. Repeated: {shown(repeated)}.")


def _check_finite(
    features: Features, ids: Sequence[str] | None, names: Sequence[str] | None
) -> None:
    bad = ~torch.isfinite(values_of(features).float())  # as which models are trained
    if not bool(bad.any()):
        return
    if isinstance(features, SparseMatrix):
        rows, columns = features.pattern.rows[bad], features.pattern.columns[bad]
    else:
        rows, columns = bad.nonzero(as_tuple=True)
    listed = shown(
        f"row {repr(ids[row]) if ids else row} column {repr(names[k]) if names else k}"
        for row, k in zip(rows.tolist(), columns.tolist(), strict=True)
    )
    raise GraphError(
        "Features must be finite numbers that fit float32, up to 3.4e38. "
        f"Missing, NaN or infinite at {listed}. "
        "Fix them, or pass --impute zero or --impute mean; in Python, numpy.nan_to_num fills an "
        "array."
    )


def _check_edges(edge_index: Tensor, num_nodes: int) -> None:
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:  # noqa: PLR2004 - a pair has two ends
        transposed = edge_index.ndim == 2 and edge_index.shape[1] == 2  # noqa: PLR2004
        looks = " It looks transposed." if transposed else ""
        raise GraphError(
            f"edge_index must have shape [2, pairs]. Got {list(edge_index.shape)}.{looks}"
        )
    if _has_fractions(edge_index) or edge_index.dtype == torch.bool:
        raise GraphError(f"edge_index must hold integers. Got {edge_index.dtype}.")
    outside = ((edge_index < 0) | (edge_index >= num_nodes)).any(dim=0)
    if bool(outside.any()):
        pairs = shown(f"({a}, {b})" for a, b in edge_index[:, outside].t().tolist())
        named = int(edge_index.max()) + 1
        counts = f" They need {named} nodes, and there are features of {num_nodes}."
        raise GraphError(
            f"Edges must join nodes 0 to {num_nodes - 1}. Got {pairs}."
            f"{counts if named > num_nodes else ''}"
        )


def clean_edges(
    edge_index: Tensor,
    weights: Tensor | None,
    num_nodes: int,
    *,
    directed_is_error: bool = False,
) -> tuple[Tensor, Tensor | None, list[str]]:
    """Each edge once per direction, sorted, with its weight; and what had to be changed for that.

    See `Graph.build` for what becomes of weights.
    """
    changes: list[str] = []
    device = edge_index.device
    if weights is not None:
        edge_index, weights, changes = _with_weights_of_edges(edge_index.cpu(), weights.cpu())
    kept = edge_index[0] != edge_index[1]
    source, target = edge_index[:, kept]
    entries = source * num_nodes + target
    given = torch.unique(entries)
    reverse = given % num_nodes * num_nodes + given // num_nodes
    # A table that lists every edge once in an arbitrary direction is as common as a directed graph;
    # nothing in the input tells the two apart, so both are symmetrised, with a notice.
    keys = torch.unique(torch.cat([given, reverse]))
    loops, repeated, missing = (~kept).sum(), len(entries) - len(given), len(keys) - len(given)
    ends = torch.stack([keys // num_nodes, keys % num_nodes])
    if weights is None:
        notices = edge_notices(int(loops), repeated, missing, directed_is_error=directed_is_error)
        return ends.to(device), None, [*changes, *notices]
    places = torch.searchsorted(keys, given)[torch.unique(entries, return_inverse=True)[1]]
    there = weights.new_zeros(len(keys)).index_add(0, places, weights[kept])
    back = there[(ends[1] * num_nodes + ends[0]).argsort()]
    total = there + back
    are_added = missing > 0 or bool(((there - back).abs() > SAME_WEIGHT * total).any())
    if are_added and not missing and directed_is_error:
        raise GraphError(
            "The graph is directed: weights differ by it. Drop --directed error to symmetrise."
        )
    changes += edge_notices(int(loops), 0, missing, directed_is_error=directed_is_error)
    two_way = int(((there > 0) & (back > 0)).sum()) // 2 if are_added else 0
    told = {
        f"{repeated} edges were repeated; their weights were added.": repeated,
        f"{two_way} edges are given in both directions; the two weights were added.": two_way,
    }
    changes += [sentence for sentence, count in told.items() if count]
    sums = total if are_added else total / 2
    return ends.to(device), None if bool((sums == 1).all()) else sums.to(device), changes


def edge_notices(
    loops: int, duplicates: int, missing: int, *, directed_is_error: bool = False
) -> list[str]:
    """What was done to make edges simple and undirected, one sentence each."""
    if missing and directed_is_error:
        raise GraphError(
            f"The graph is directed: {missing} edges lack their reverse. "
            "Drop --directed error to symmetrise."
        )
    told = {
        f"{loops} self-loops removed; methods that need them add them.": loops,
        f"{duplicates} duplicate edges removed.": duplicates,
        f"{missing} edges had no reverse and were made undirected.": missing,
    }
    return [sentence for sentence, count in told.items() if count]


def check_weights(
    weights: Float[Tensor, " pairs"], place: Callable[[int], str] | None = None
) -> None:
    """Refuse weights that are negative, no numbers or far too large or small.

    Args:
        weights: One for each pair.
        place: Where one stands, for the message; by default the number of the edge from 1 on.
    """
    sizes = weights.abs()
    beyond = (weights != 0) & ((sizes > LARGEST_WEIGHT) | (sizes < 1 / LARGEST_WEIGHT))
    wrong = ~torch.isfinite(weights) | (weights < 0) | beyond
    if not bool(wrong.any()):
        return

    def placed(k: int) -> str:
        return f"edge {k + 1}" if place is None else place(k)

    listed = shown(f"{weights[k].item():g} at {placed(k)}" for k in wrong.nonzero()[:, 0].tolist())
    raise GraphError(
        f"Edge weights must be positive numbers up to {LARGEST_WEIGHT:g}, or zero for no edge. "
        f"Got {listed}. Fix them, or leave all weights aside with --unweighted; in Python, give "
        "none."
    )


def _with_weights_of_edges(
    edge_index: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor | None, list[str]]:
    """Pairs of weight zero are no edges; weights that are all one are none."""
    if weights.shape != edge_index.shape[1:]:
        raise GraphError(
            f"There must be one weight per edge, of shape [{edge_index.shape[1]}]. "
            f"Got {list(weights.shape)}."
        )
    if weights.dtype.is_complex:
        raise GraphError(f"Edge weights must be real numbers. Got {weights.dtype}.")
    weights = weights.double()
    check_weights(weights)
    notices, kept = list[str](), weights != 0
    if not bool(kept.all()):
        notices.append(f"{int((~kept).sum())} edges of weight zero left out.")
        edge_index, weights = edge_index[:, kept], weights[kept]
    if bool((weights == 1).all()):
        return edge_index, None, notices
    notices.append("Edge weights are used. Pass --unweighted to leave them aside.")
    lowest, highest = USUAL_WEIGHTS
    if not lowest <= float(weights.mean()) <= highest:
        notices.append(
            f"Edge weights are {float(weights.mean()):g} on average, and the self-loops of graph "
            "convolutions weigh one. Divide the weights by their mean if both should count."
        )
    return edge_index, weights, notices


def _best_layout(features: Features) -> Features:
    """Compressed rows for a matrix that is mostly zeros, dense otherwise."""
    if isinstance(features, SparseMatrix):
        density = len(features.values) / max(1, features.shape[0] * features.shape[1])
        return features if density < SPARSE_BELOW else features.dense()
    density = float((features != 0).float().mean())
    return SparseMatrix.from_dense(features) if density < SPARSE_BELOW else features
