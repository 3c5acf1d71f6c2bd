"""Ids mapped out of core have the numbers that a dictionary would give them."""

import numpy as np
import pytest

from aspect.errors import GraphError
from aspect.scale.blocks import BlockFolder
from aspect.scale.ids import merge_id_runs, write_id_run
from aspect.scale.store import STORE


@pytest.fixture
def folder(tmp_path):
    with BlockFolder.open(tmp_path / "store", STORE, {}, "Lower something.") as opened:
        yield opened


def drawn_ids(kind, count=500):
    numbers = np.random.default_rng(0).permutation(10**4)[:count] - 300
    texts = [f"{'é' * (k % 5)}{number}" for k, number in enumerate(numbers)]
    return numbers if kind == "integers" else np.array([text.encode() for text in texts])


def table_of(folder, ids, *, has_numbers, memory_bytes, runs=4):
    for k, part in enumerate(np.array_split(np.arange(len(ids)), runs)):
        write_id_run(folder, f"run-{k}", ids[part], part if has_numbers else None)
    names = [f"run-{k}" for k in range(runs)]
    return merge_id_runs(folder, names, "known", has_numbers=has_numbers, memory_bytes=memory_bytes)


@pytest.mark.parametrize("kind", ["integers", "texts"])
@pytest.mark.parametrize("memory_bytes", [2**20, 2000], ids=["one part", "many parts"])
def test_numbers_of_rows(folder, kind, memory_bytes):
    ids = drawn_ids(kind)
    table = table_of(folder, ids, has_numbers=True, memory_bytes=memory_bytes)
    order = np.random.default_rng(1).integers(0, len(ids), 2000)
    np.testing.assert_array_equal(table.numbers(ids[order]), order)
    strangers = np.array([10**6, -(10**6), 3]) if kind == "integers" else np.array([b"", b"\xff"])
    strangers = strangers[~np.isin(strangers, ids)]
    assert (table.numbers(strangers) == -1).all()
    parts = len(list(folder.path.glob("known-*.ids.npy")))
    assert parts == 1 if memory_bytes > 2000 else parts > 5


@pytest.mark.parametrize("kind", ["integers", "texts"])
@pytest.mark.parametrize("memory_bytes", [2**20, 2000])
def test_numbers_by_the_order_of_ids(folder, kind, memory_bytes):
    ids = drawn_ids(kind)
    repeated = np.concatenate([ids, ids[::3]])
    table = table_of(folder, repeated, has_numbers=False, memory_bytes=memory_bytes)
    known = np.sort(ids)
    assert len(table) == len(ids)
    np.testing.assert_array_equal(table.between(0, len(ids)), known)
    np.testing.assert_array_equal(table.between(100, 333), known[100:333])
    np.testing.assert_array_equal(table.numbers(known), np.arange(len(ids)))


def test_an_id_that_stands_in_two_runs_is_refused(folder):
    ids = np.append(drawn_ids("integers"), drawn_ids("integers")[0])
    with pytest.raises(GraphError, match=rf"must be unique. Repeated: {ids[0]} \(1 in all\)"):
        table_of(folder, ids, has_numbers=True, memory_bytes=2000)
