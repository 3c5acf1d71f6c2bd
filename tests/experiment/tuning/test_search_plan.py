"""What a search is planned from: the space of the settings' class, and what the graph offers."""

from dataclasses import replace
from itertools import pairwise
from typing import Annotated

import numpy as np
import pytest
import torch
import yaml
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import Field

from aspect.config import Choice, Range, make_config, to_yaml
from aspect.data.graph import label_graph, unlabelled
from aspect.data.synthetic import mixed_graph
from aspect.errors import GraphError, SettingsError
from aspect.experiment.search import DEFAULT_MAX_EPOCHS, Search, rungs, search_space
from aspect.methods.aspect import AspectMethod
from aspect.methods.base import MethodConfig
from aspect.methods.registry import find_method, method_names
from experiment.tuning.searches import small_search, write_graph


class ToyConfig(MethodConfig):
    plain: float = 1.0
    rate: Annotated[float, Field(gt=0), Range(1e-4, 1e-2, log=True)] = 1e-3
    share: Annotated[float, Range(0.0, 0.5)] = 0.1
    order: Annotated[int, Range(2, 10)] = 5
    drawn: Annotated[int | None, Range(1, 4)] = None
    kind: Annotated[str, Choice(("low", "high"))] = "low"


def test_every_range_and_choice_is_searched_and_nothing_else():
    space = {
        "rate": FloatDistribution(1e-4, 1e-2, log=True),
        "share": FloatDistribution(0.0, 0.5),
        "order": IntDistribution(2, 10),
        "drawn": IntDistribution(1, 4),
        "kind": CategoricalDistribution(("low", "high")),
    }
    assert search_space("toy", ToyConfig) == space
    fixed = search_space("toy", ToyConfig, fixed=["rate", "plain", "epochs"])
    assert fixed == {name: space[name] for name in ("share", "order", "drawn", "kind")}


def test_nothing_to_tune_is_refused():
    with pytest.raises(SettingsError, match="No setting of 'raw' has a search range"):
        search_space("raw", find_method("raw").config)
    with pytest.raises(SettingsError, match=r"are fixed.*Leave one of these open: rate, share"):
        search_space("toy", ToyConfig, fixed=["rate", "share", "order", "drawn", "kind"])


def test_trials_are_compared_by_the_metric_that_is_asked_for(path, tmp_path):
    assert small_search(path).metric == "accuracy"
    assert small_search(path, metric="roc-auc").score_name == "validation ROC AUC"
    with pytest.raises(SettingsError, match="paper probe chooses by accuracy"):
        small_search(path, metric="roc-auc", probe="paper")
    labelled = mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0)
    more = replace(labelled, labels=torch.arange(60) % 3, class_names=("a", "b", "c"))
    with pytest.raises(SettingsError, match=r"roc-auc needs 2 classes\. Got 3"):
        small_search(write_graph(tmp_path, "three.npz", more), metric="roc-auc")


def test_a_start_outside_the_space_goes_to_the_nearest_point(path):
    search = small_search(path, {"weight_decay": 0.0, "learning_rate": 0.9}, fixed=[])
    start = search.start()
    assert start["learning_rate"] == search.space["learning_rate"].high
    assert start["weight_decay"] == search.space["weight_decay"].low
    assert start["temperature"] == search.settings["temperature"]


def test_a_point_changes_what_is_searched_alone(path):
    search = small_search(path)
    settings = search.settings_at({"temperature": 0.123456789, "readout": "weighted"})
    changed = {name for name, value in settings.items() if value != search.settings[name]}
    assert changed <= {"temperature", "readout", "epochs"}
    assert (settings["temperature"], settings["epochs"]) == (0.1235, search.max_epochs)
    fewer = small_search(path, {"epochs": 60}, method="gbt", max_epochs=60)
    assert fewer.settings_at({"epochs": 50})["epochs"] == 50
    assert fewer.settings_at({"epochs": 900})["epochs"] == 60


def test_every_corner_and_draw_of_every_method_is_a_valid_setting(path):
    random = np.random.default_rng(0)
    tuned = 0
    for name in method_names():
        config = find_method(name).config
        try:
            search = small_search(path, {"epochs": 10_000}, method=name, fixed=[], max_epochs=None)
        except SettingsError:  # nothing to search
            continue
        tuned += 1
        for share in [0.0, 1.0, *random.random(5)]:
            point = {key: value_at(each, share) for key, each in search.space.items()}
            settings = search.settings_at(point)
            assert make_config(config, settings, owner=name).model_dump(mode="json") == settings
            for key, each in search.space.items():
                assert each._contains(each.to_internal_repr(settings[key])), (name, key)
    assert tuned > 15


def value_at(distribution, share):
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[round(share * (len(distribution.choices) - 1))]
    low, high = distribution.low, distribution.high
    if distribution.log:
        value = low * (high / low) ** share if share < 1 else high
    else:
        value = low + share * (high - low)
    return round(value) if isinstance(distribution, IntDistribution) else value


def test_rungs_end_at_the_most_epochs_and_hold_the_start():
    assert rungs(0, 0) == ()
    for most in (1, 3, 8, 40, 401):
        for start in (0, 1, 7, 20, 500):
            epochs = rungs(most, start)
            assert list(epochs) == sorted(set(epochs))
            assert epochs[-1] == most
            assert epochs[0] >= 1
            assert start in epochs or not 0 < start < most
            others = [epoch for epoch in epochs if epoch != start]
            assert all(after - before >= 5 for before, after in pairwise(others))


def test_epochs_are_searched_where_that_means_something(path, monkeypatch):
    def planned(settings=None, **options):
        search = small_search(path, settings, max_epochs=None, **options)
        return search.searches_epochs, search.max_epochs

    assert planned() == (True, DEFAULT_MAX_EPOCHS)
    assert planned({"epochs": 900}) == (True, 900)
    assert planned({"patience": 2}) == (True, DEFAULT_MAX_EPOCHS)
    assert planned({"patience": 2}, fixed=["patience"]) == (False, 3)
    assert planned(fixed=["epochs"]) == (False, 3)
    assert planned(method="random") == (False, 3)
    monkeypatch.setattr(AspectMethod, "anytime", False)  # a schedule is cut to its epochs
    assert planned() == (False, 3)


def test_published_splits_are_a_part_of_a_search(tmp_path):
    labelled = mixed_graph(num_nodes=60, num_features=8, degree=6.0, seed=0)
    parts, names = torch.arange(60).remainder(3), ("train", "validation", "test")
    searches = []
    for order in ((0, 1, 2), (0, 2, 1)):
        masks = {name: parts.eq(part)[None] for name, part in zip(names, order, strict=True)}
        path = write_graph(tmp_path, f"{order[1]}.npz", replace(labelled, masks=masks))
        searches.append(small_search(path, splits="published"))
    first, second = searches
    assert first.graph_sha256 == second.graph_sha256
    assert first.splits_sha256 != second.splits_sha256


def test_a_search_survives_yaml(path):
    search = small_search(path, seeds=2, seed=4, probe="paper")
    assert search.seeds == (4, 5)
    assert search.num_splits == 10
    read = yaml.safe_load(to_yaml(search.model_dump(mode="json")))
    assert make_config(Search, read, owner="search") == search


def test_what_cannot_be_searched_is_refused(path, tmp_path):
    for wrong in ({"max_epochs": 0}, {"seeds": 0}, {"max_cosine": 0.0}, {"max_cosine": 1.1}):
        ((name, value),) = wrong.items()
        with pytest.raises(SettingsError, match=rf"{name!r} of the search must be .* Got {value}"):
            small_search(path, **wrong)
    with pytest.raises(SettingsError, match=r"The epochs are fixed at 3.*Got 9"):
        small_search(path, max_epochs=9, fixed=["epochs"])
    with pytest.raises(SettingsError, match="Unknown setting 'widht' of aspect"):
        small_search(path, {"widht": 3})
    with pytest.raises(GraphError, match="No masks were given"):
        small_search(path, splits="published")
    graph = mixed_graph(num_nodes=20).graph
    bare = write_graph(tmp_path, "bare.npz", unlabelled(graph))
    with pytest.raises(GraphError, match="no node has one"):
        small_search(bare)
    alone = write_graph(tmp_path, "alone.npz", label_graph(graph, torch.zeros(20).long()))
    with pytest.raises(GraphError, match="at least 2 classes"):
        small_search(alone)
