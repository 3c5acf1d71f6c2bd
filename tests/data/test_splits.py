import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from aspect.data.splits import SEARCH_SEEDS, SPLIT_SEEDS, Split, check_splits, make_splits
from aspect.errors import GraphError, SettingsError, UnknownNameError

DATA = os.environ.get("ASPECT_DATA", "")
needs_data = pytest.mark.skipif(not DATA, reason="ASPECT_DATA is not set")

# Sizes and mean share of the largest test class, in percent: the second pins the drawing order.
CLASS_BALANCED = {
    "cora": ((1557, 542, 609), 50.7),
    "texas": ((85, 37, 61), 80.3),
    "actor": ((4501, 1520, 1579), 34.3),
}


def nodes(*numbers):
    return torch.tensor(numbers, dtype=torch.long)


def labels_of(*sizes):
    return torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))


def stored(name):
    with np.load(Path(DATA) / f"{name}.npz", allow_pickle=False) as file:
        return {
            key: torch.from_numpy(file[key]) for key in file.files if "mask" in key or key == "y"
        }


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", CLASS_BALANCED)
def test_class_balanced_splits_have_the_published_sizes_and_classes(name):
    labels = stored(name)["y"].long()
    splits = make_splits("class-balanced", labels, int(labels.max()) + 1)
    sizes, largest = CLASS_BALANCED[name]
    assert {split.sizes for split in splits} == {sizes}
    shares = [labels[split.test].bincount().max() / sizes[2] for split in splits]
    assert 100 * float(torch.stack(shares).mean()) == pytest.approx(largest, abs=0.051)


@pytest.mark.data
@needs_data
def test_published_splits_are_those_of_the_file():
    file = stored("citeseer")
    masks = {
        "train": file["train_masks"],
        "validation": file["val_masks"],
        "test": file["test_masks"],
    }
    splits = make_splits("published", file["y"].long(), 6, masks=masks)
    assert [split.sizes for split in splits] == [
        (1017, 679, 424) if number in (4, 5) else (1596, 1065, 666) for number in range(10)
    ]
    torch.testing.assert_close(splits[3].test, masks["test"][3].nonzero().flatten())


def test_class_balanced_draws_in_the_order_of_the_public_code():
    labels = labels_of(20, 3, 17)
    split = make_splits("class-balanced", labels, 3, count=1)[0]
    state = np.random.RandomState(SPLIT_SEEDS[0])  # 40 nodes: 8 a class, 8 validation
    train = [state.choice(np.arange(20), 8, replace=False), np.arange(20, 23)]
    train = np.concatenate([*train, state.choice(np.arange(23, 40), 8, replace=False)])
    rest = [node for node in range(40) if node not in train]
    validation = state.choice(rest, 8, replace=False)
    assert set(split.train.tolist()) == set(train.tolist())
    assert set(split.validation.tolist()) == set(validation.tolist())
    assert set(split.test.tolist()) == set(rest) - set(validation.tolist())


@pytest.mark.parametrize("kind", ["class-balanced", "random", "search", "class-balanced-search"])
def test_ten_different_splits_the_same_every_time(kind):
    labels = labels_of(30, 20, 50)
    splits, again = make_splits(kind, labels, 3), make_splits(kind, labels, 3, count=4)
    assert (len(splits), len(again)) == (10, 4)
    assert len({tuple(split.test.tolist()) for split in splits}) == 10
    for split, other in zip(splits, again, strict=False):
        torch.testing.assert_close(split.parts, other.parts)


@pytest.mark.parametrize("kind", ["random", "search"])
def test_random_splits_are_60_20_20_of_every_class(kind):
    labels = labels_of(60, 43, 10)
    for split in make_splits(kind, labels, 3):
        parts = [labels[part].bincount().tolist() for part in split.parts]
        assert parts == [[36, 25, 6], [12, 9, 2], [12, 9, 2]]


@pytest.mark.parametrize(
    ("size", "parts"),
    [(0, (0, 0, 0)), (1, (1, 0, 0)), (2, (1, 0, 1)), (3, (1, 1, 1))],
)
def test_a_small_class_is_in_every_part_for_which_it_has_a_node(size, parts):
    labels = labels_of(20, size, 20)
    for split in make_splits("random", labels, 3):
        assert tuple(int((labels[part] == 1).sum()) for part in split.parts) == parts


def test_settings_are_searched_on_splits_that_no_table_reports():
    labels = labels_of(30, 20, 50)
    tests = {
        tuple(split.test.tolist())
        for kind in ("random", "search", "class-balanced", "class-balanced-search")
        for split in make_splits(kind, labels, 3)
    }
    assert len(tests) == 40
    assert not set(SEARCH_SEEDS) & set(SPLIT_SEEDS)


def test_random_splits_are_drawn_in_a_fixed_order():
    labels = labels_of(10, 3)
    split = make_splits("random", labels, 2, count=1)[0]
    state = np.random.RandomState(SPLIT_SEEDS[0])
    first, second = state.permutation(10), 10 + state.permutation(3)
    assert split.validation.tolist() == sorted([*first[:2], second[0]])
    assert split.test.tolist() == sorted([*first[2:4], second[1]])


@settings(max_examples=12, deadline=None)
@given(
    kind=st.sampled_from(["class-balanced", "random", "search", "class-balanced-search"]),
    labels=st.lists(st.integers(-1, 2), min_size=10, max_size=60),
)
def test_splits_cover_exactly_the_labelled_nodes(kind, labels):
    known = [node for node, label in enumerate(labels) if label >= 0]
    labels = torch.tensor(labels)
    try:
        splits = make_splits(kind, labels, 3)
    except GraphError:
        too_few = len(known) < 10 or len(labels[labels >= 0].unique()) < 2
        assert too_few, "only few nodes or one class may be refused"
        return
    for split in splits:
        assert torch.cat(split.parts).sort().values.tolist() == known


def test_published_splits_leave_out_unlabelled_nodes():
    masks = {
        "train": torch.tensor([[1, 1, 1, 0, 0, 0]]).bool(),
        "validation": torch.tensor([[0, 0, 0, 1, 0, 0]]).bool(),
        "test": torch.tensor([[0, 0, 0, 0, 1, 1]]).bool(),
    }
    split = make_splits("published", torch.tensor([0, 1, -1, 0, 1, -1]), 2, masks=masks)[0]
    assert [part.tolist() for part in split.parts] == [[0, 1], [3], [4]]


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (([0, 1], [1, 3], [3, 4]), r"must not overlap. Got twice: nodes 1, 3 \(2 in all\)"),
        (([0, 0], [1], [2]), r"Got twice: nodes 0 \(1 in all\)"),
        (([0, 1], [], [2]), "validation nodes of a split must not be empty"),
        (([0], [1], [-2]), "test nodes of a split must be 0 or more. Got -2"),
        (([0], [1], torch.tensor([True])), r"must be a list of integers. Got torch.bool"),
    ],
)
def test_parts_that_are_refused(parts, sentence):
    assert Split(nodes(4, 1), nodes(3), nodes(2, 0)).train.tolist() == [1, 4]  # ascending
    with pytest.raises(GraphError, match=sentence):
        Split(*(part if torch.is_tensor(part) else nodes(*part) for part in parts))


@pytest.mark.parametrize(
    ("splits", "labels", "sentence"),
    [
        ([(3, 2), (9, 7)], [0, 1, 0, 1, 0], r"nodes 0 to 4. Split 1 names 9, 7 \(2 in all\)"),
        ([(2, 3)], [0, 1, 0, -1], r"Split 0 holds unlabelled nodes 3 \(1 in all\)"),
        ([(2, 3)], [1, 1, 0, 0], "at least 2 classes. Split 0 has 1 class"),
        ([], [0, 1], "at least one split"),
    ],
)
def test_splits_that_do_not_fit_the_labels_are_refused(splits, labels, sentence):
    built = [Split(nodes(0, 1), nodes(validation), nodes(test)) for validation, test in splits]
    with pytest.raises(GraphError, match=sentence):
        check_splits(built, torch.tensor(labels))


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ([-1, -1, -1], "no node has one"),
        ([1] * 20, "at least 2 classes. Got 1 class"),
        ([0, 1, 5, 1], r"classes 0 to 2, or -1 for none. Got 5 \(1 in all\)"),
        ([0, 1, 2], "3 labelled nodes in 3 classes are too few to split"),
    ],
)
def test_labels_that_cannot_be_split_are_refused(labels, sentence):
    with pytest.raises(GraphError, match=sentence):
        make_splits("class-balanced", torch.tensor(labels), 3)


def test_too_few_nodes_for_a_random_split_are_refused():
    with pytest.raises(GraphError, match="2 training, 0 validation and 0 test nodes"):
        make_splits("random", torch.tensor([0, 1]), 2)
    with pytest.raises(GraphError, match="4 labelled nodes in 2 classes are too few to split"):
        make_splits("random", torch.tensor([0, 1, 0, 1]), 2)
    assert make_splits("random", torch.tensor([0, 1, 0, 1, 0]), 2)[0].sizes == (2, 1, 2)


def test_counts_kinds_and_masks_that_are_refused():
    labels = labels_of(30, 30)
    for count in (0, 11):
        with pytest.raises(SettingsError, match=f"random splits must be from 1 to 10. Got {count}"):
            make_splits("random", labels, 2, count=count)
    with pytest.raises(UnknownNameError, match="Did you mean 'class-balanced'"):
        make_splits("balanced", labels, 2)
    for masks in (None, {}):
        with pytest.raises(GraphError, match=r"^No masks were given: .*Pass masks=\.\.\., or use"):
            make_splits("published", labels, 2, masks=masks)
    masks = {"train": torch.ones(2, 50).bool()}
    with pytest.raises(GraphError, match=r"name the parts train, validation, test\. Got train"):
        make_splits("published", labels, 2, masks=masks)
    masks |= {"validation": masks["train"], "test": masks["train"]}
    with pytest.raises(GraphError, match=r"one shape \[splits, 60\]. Got \[2, 50\]"):
        make_splits("published", labels, 2, masks=masks)
