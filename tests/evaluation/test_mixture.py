"""Regions scored by one probe, the oracle's blend, and a whole study in small."""

from dataclasses import replace

import pytest
import torch

from aspect import Embedder, linear_probe, mixed_graph
from aspect.data.splits import Split, make_splits
from aspect.data.synthetic import HETEROPHILIC, HOMOPHILIC, mixed_regions
from aspect.errors import GraphError, SettingsError
from aspect.evaluation.baselines import majority_probe
from aspect.evaluation.entrants import ENTRANTS, LINES
from aspect.evaluation.inspection import CurveRecorder
from aspect.evaluation.mixture import (
    bands_of,
    oracle_weights,
    regional_scores,
    study_mixture,
)
from aspect.evaluation.mixture_record import WHOLE, MixtureRecord
from aspect.nn.fusion import fuse
from aspect.settings import Experiment, find_experiment

TINY = {"epochs": 3, "width": 4, "order": 2, "gate_width": 4, "readout": "fused"}
NODES = 80


@pytest.fixture(scope="module")
def labelled():
    return mixed_graph(num_nodes=NODES, num_features=6, seed=0)


@pytest.fixture(scope="module")
def places():
    region = mixed_regions(NODES)
    return {"homophilic": region == HOMOPHILIC, "heterophilic": region == HETEROPHILIC}


@pytest.fixture(scope="module")
def model(labelled):
    return Embedder("aspect", seed=0, device="cpu", **TINY).fit(labelled.graph)


def study(labelled, **options):
    experiment = Experiment(graph="mixed", settings=TINY, origin="a test")
    region = mixed_regions(NODES)
    return study_mixture(labelled, region, experiment, num_splits=2, device="cpu", **options)


@pytest.fixture(scope="module")
def record(labelled):
    return study(labelled, seeds=(0, 1))


def test_a_region_counts_its_own_test_nodes_only():
    labels = torch.tensor([0, 1, 0, 0, 1, 0, 1])
    split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3, 4, 5, 6]))
    result = replace(majority_probe(labels, [split]), predictions=(torch.tensor([0, 1, 1, 1]),))
    places = {"first": torch.arange(7) < 5, "sixth": torch.arange(7) == 5}
    scores = regional_scores(result, labels, [split], places)
    assert (scores["first"], scores["sixth"]) == ([100.0], [0.0])


def test_the_majority_answers_one_class_everywhere(record):
    row = next(row for row in record.rows if row.name == "majority")
    whole, low, high = (row.scores[place][0] for place in (WHOLE, "homophilic", "heterophilic"))
    for each, first, second in zip(whole, low, high, strict=True):
        assert min(first, second) <= each <= max(first, second)


def test_regions_are_parts_of_one_probe(labelled, places):
    splits = make_splits("random", labelled.labels, 2)
    result = linear_probe(labelled.graph.features, labelled.labels, splits)
    scores = regional_scores(result, labelled.labels, splits, places)
    for number, split in enumerate(splits):
        shares = {name: float(where[split.test].float().mean()) for name, where in places.items()}
        joined = sum(shares[name] * scores[name][number] for name in places)
        assert joined == pytest.approx(result.splits[number].strict)


def test_a_region_without_test_nodes_is_refused(labelled):
    splits = make_splits("random", labelled.labels, 2, count=1)
    result = linear_probe(labelled.graph.features, labelled.labels, splits)
    nowhere = {"empty": torch.zeros(NODES, dtype=torch.bool)}
    with pytest.raises(GraphError, match="Split 0 has no test node in the empty region"):
        regional_scores(result, labelled.labels, splits, nowhere)


def test_the_bands_blended_by_the_policy_are_the_embedding(labelled, model):
    bands, low = bands_of(model, labelled.graph), model.policy(labelled.graph)
    weights = torch.stack([low, 1 - low], dim=1)
    torch.testing.assert_close(fuse(bands, weights), model.embed(labelled.graph, normalise="none"))


def test_only_a_method_with_bands_has_some(labelled):
    raw = Embedder("raw", device="cpu").fit(labelled.graph)
    with pytest.raises(SettingsError, match=r"have bands\. Got 'raw'"):
        bands_of(raw, labelled.graph)


def test_the_oracle_keeps_the_band_that_suits_the_region(labelled, model):
    bands, region = bands_of(model, labelled.graph), mixed_regions(NODES)
    blend = fuse(bands, oracle_weights(region))
    half = NODES // 2
    torch.testing.assert_close(blend[:half], bands[0, :half])
    torch.testing.assert_close(blend[half:], bands[1, half:])


def test_watching_a_training_does_not_change_it(labelled, places, model):
    twin = Embedder("random", device="cpu", **TINY).fit(labelled.graph)
    recorder = CurveRecorder(twin.method, labelled.graph, places, every=2)
    watched = Embedder("aspect", seed=0, device="cpu", **TINY)
    watched.fit(labelled.graph, recorder=recorder)
    assert torch.equal(watched.embed(labelled.graph), model.embed(labelled.graph))
    assert recorder.gate_epochs == [1, 2, 3]
    assert [len(values) for values in recorder.values.values()] == [3] * len(recorder.values)
    policy = watched.policy(labelled.graph)
    for name, where in places.items():
        assert recorder.gate[name][-1] == pytest.approx(float(policy[where].mean()), abs=1e-6)


def test_a_study_has_every_row_with_every_seed_and_split(labelled, record):
    assert [row.name for row in record.rows] == [line.name for line in LINES]
    seeds = {row.name: len(row.scores[WHOLE]) for row in record.rows}
    assert {name for name, count in seeds.items() if count == 1} == {
        "propagated",
        "spectral",
        "raw",
        "twins",
        "majority",
    }
    assert set(seeds.values()) == {1, 2}
    for row in record.rows:
        assert list(row.scores) == [WHOLE, "homophilic", "heterophilic"]
        assert {len(scores) for table in row.scores.values() for scores in table} == {2}
    assert {name: len(table) for name, table in record.gates.items()} == {
        "aspect": 2,
        "paper-gate": 2,
    }
    assert len(record.curves) == len(record.spectrum.responses["low"]) == 2
    assert sum(record.spectrum.nodes) == pytest.approx(1)
    source, target = labelled.graph.edge_index
    half = labelled.graph.num_nodes // 2
    assert 2 * record.graph.crossing == int(((source < half) != (target < half)).sum()) > 0


def test_a_seed_gives_the_same_numbers_whatever_stands_beside_it(labelled, record):
    seen = []
    again = study(labelled, seeds=(1,), advance=lambda *news: seen.append(news))
    for own, other in zip(again.rows, record.rows, strict=True):
        assert {place: table[-1] for place, table in other.scores.items()} == {
            place: table[0] for place, table in own.scores.items()
        }
    assert again.gates == {name: table[1:] for name, table in record.gates.items()}
    assert again.curves == record.curves[1:]
    assert again.graph == record.graph
    assert [done for done, _, _ in seen] == list(range(len(ENTRANTS) + 1))
    assert {total for _, total, _ in seen} == {len(ENTRANTS)}


def test_a_record_comes_back_from_its_text(record):
    assert MixtureRecord.model_validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize("seeds", [(), (1, 1)])
def test_seeds_must_be_there_and_differ(labelled, seeds):
    with pytest.raises(SettingsError, match="one or more, each once"):
        study_mixture(labelled, mixed_regions(NODES), Experiment(settings=TINY), seeds=seeds)


def test_the_shipped_settings_fit_the_method():
    experiment, origin = find_experiment("aspect", "mixed", None)
    assert origin == "settings shipped for aspect on mixed"
    assert Embedder(experiment.method, device="cpu", **experiment.settings).config.epochs > 0
    assert experiment.origin
