from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import yaml

from aspect.config import make_config, to_yaml
from aspect.data.graph import label_graph, unlabelled
from aspect.data.synthetic import mixed_graph
from aspect.errors import GraphError, SettingsError
from aspect.experiment.tuning.request import LEAST_MOST_EPOCHS, Search, rungs
from aspect.methods.aspect import AspectMethod
from experiment.tuning.searches import small_search, write_graph


@pytest.mark.parametrize("most", [1, 2, 3, 5, 8, 40, 200, 401])
@pytest.mark.parametrize("start", [0, 1, 7, 20, 500])
def test_rungs_end_at_the_most_and_hold_the_start(most, start):
    found = rungs(most, start)
    assert list(found) == sorted(set(found))
    assert found[-1] == most
    assert found[0] >= 1
    assert start in found or not 0 < start < most
    others = [epoch for epoch in found if epoch != start]
    assert all(after - before >= 5 for before, after in pairwise(others))


def test_no_epochs_no_rungs():
    assert rungs(0, 0) == ()


def test_epochs_are_searched_where_that_means_something(path):
    free = small_search(path, max_epochs=None)
    assert (free.searches_epochs, free.max_epochs) == (True, LEAST_MOST_EPOCHS)
    assert small_search(path, {"epochs": 900}, max_epochs=None).max_epochs == 900
    patient = small_search(path, {"patience": 2}, max_epochs=None)
    assert (patient.searches_epochs, patient.max_epochs) == (True, LEAST_MOST_EPOCHS)
    stubborn = small_search(path, {"patience": 2}, fixed=["patience"], max_epochs=None)
    assert (stubborn.searches_epochs, stubborn.max_epochs) == (False, 3)
    fixed = small_search(path, fixed=["epochs"], max_epochs=None)
    assert (fixed.searches_epochs, fixed.max_epochs) == (False, 3)
    random = small_search(path, method="random", max_epochs=None)
    assert (random.searches_epochs, random.max_epochs) == (False, 3)


def test_a_method_with_a_schedule_keeps_its_epochs(path, monkeypatch):
    monkeypatch.setattr(AspectMethod, "anytime", False)
    search = small_search(path, max_epochs=None)
    assert (search.searches_epochs, search.max_epochs) == (False, 3)


def test_published_splits_are_a_part_of_what_is_asked(tmp_path):
    labelled = mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0)
    parts, names = torch.arange(60).remainder(3), ("train", "validation", "test")
    searches = []
    for order in ((0, 1, 2), (0, 2, 1)):
        masks = {name: parts.eq(place)[None] for name, place in zip(names, order, strict=True)}
        path = write_graph(tmp_path, f"{order[1]}.npz", replace(labelled, masks=masks))
        searches.append(small_search(path, splits="published"))
    first, second = searches
    assert first.graph_sha256 == second.graph_sha256
    assert first.splits_sha256 != second.splits_sha256


def test_it_survives_the_way_through_yaml(path):
    search = small_search(path, seeds=2, seed=4)
    assert search.seeds == (4, 5)
    assert search.num_splits == 10
    read = yaml.safe_load(to_yaml(search.model_dump(mode="json")))
    assert make_config(Search, read, owner="search") == search


def test_what_cannot_be_searched_is_refused(path, tmp_path):
    with pytest.raises(SettingsError, match=r"Maximum of epochs must be 1 or more\. Got 0"):
        small_search(path, max_epochs=0)
    with pytest.raises(SettingsError, match=r"The epochs are fixed at 3.*Got 9"):
        small_search(path, max_epochs=9, fixed=["epochs"])
    with pytest.raises(SettingsError, match=r"Number of seeds must be 1 or more\. Got 0"):
        small_search(path, seeds=0)
    for cosine in (0.0, 1.1):
        with pytest.raises(SettingsError, match=rf"mean cosine must be in \(0, 1\]. Got {cosine}"):
            small_search(path, max_cosine=cosine)
    with pytest.raises(GraphError, match="No masks were given"):
        small_search(path, splits="published")
    graph = mixed_graph(num_nodes=20).graph
    bare = write_graph(tmp_path, "bare.npz", unlabelled(graph))
    with pytest.raises(GraphError, match="no node has one"):
        small_search(bare)
    alone = write_graph(tmp_path, "alone.npz", label_graph(graph, torch.zeros(20).long()))
    with pytest.raises(GraphError, match="at least 2 classes"):
        small_search(alone)
