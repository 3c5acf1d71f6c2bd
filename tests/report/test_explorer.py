"""What the page's script is given: safe inside a script element, small, and true to the details."""

import json

import pytest

from aspect.report.explorer import explorer_json
from report.node_details import NASTY, make_details, plain_details


def test_every_node_is_there_with_all_that_is_known_of_it():
    details = make_details(6)
    (model,) = json.loads(explorer_json([details]))
    assert model["ids"] == list(details.ids)
    assert model["nodes"] is None  # 0 to 5, in this order
    assert model["gate"] == list(details.gate)
    assert model["neighbours"] == [list(places) for places in details.neighbours]
    assert dict(model["losses"]) == {band: list(each) for band, each in details.losses.items()}
    assert [band for band, _ in model["losses"]] == ["low", "high"]
    assert model["moved"] == [
        [band, list(values)] for band, values in details.sensitivity.distances.items()
    ]
    assert model["homophily"][0] is None


def test_a_graph_without_labels_and_a_model_without_bands_say_so():
    (model,) = json.loads(explorer_json([plain_details(5)]))
    assert (model["ids"], model["labels"], model["gate"]) == (None, [], None)
    assert (model["homophily"], model["losses"], model["moved"]) == (None, [], [])


@pytest.mark.parametrize("name", [NASTY, "\u2028\u2029", 'a"\\b'])
def test_no_name_leaves_the_element_and_all_are_kept(name):
    text = explorer_json([make_details(3, ids=(name, "b", "c"), class_names=(name, "x", "y"))])
    assert not any(letter in text for letter in "<>&\u2028\u2029")
    (model,) = json.loads(text)
    assert model["ids"][0] == model["classes"][0] == name


def test_a_name_that_cannot_be_written_is_replaced_and_a_long_one_cut():
    text = explorer_json([make_details(3, ids=("\ud800", "b", "c" * 10_000))])
    names = json.loads(text.encode().decode())[0]["ids"]
    assert (names[:2], len(names[2])) == (["?", "b"], 200)


def test_thinning_keeps_what_belongs_to_a_node_together():
    details = make_details(24)
    (fewer,) = json.loads(explorer_json([details], most_nodes=7))
    assert len(fewer["nodes"]) == 7
    assert fewer["nodes"] == sorted(set(fewer["nodes"]))
    losses, moved = dict(fewer["losses"]), dict(fewer["moved"])
    for place, node in enumerate(fewer["nodes"]):
        assert fewer["ids"][place] == details.ids[node]
        assert fewer["gate"][place] == details.gate[node]
        assert losses["low"][place] == details.losses["low"][node]
        assert moved["high"][place] == details.sensitivity.distances["high"][node]
        assert fewer["x"][place] == details.map_x[node]
        kept = {fewer["nodes"][other] for other in fewer["neighbours"][place]}
        assert kept == set(details.neighbours[node]) & set(fewer["nodes"])
    assert fewer["count"] == 24


def test_the_largest_graphs_are_thinned_and_small_ones_stay_whole():
    models = json.loads(explorer_json([make_details(100), make_details(6)], most_nodes=40))
    assert [len(model["x"]) for model in models] == [34, 6]
    assert [model["count"] for model in models] == [100, 6]
    assert models[0]["nodes"] is not None
