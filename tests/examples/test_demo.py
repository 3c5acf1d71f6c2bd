"""The demo in small, and its numbers and sentences where all scores are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from aspect import Embedder
from aspect.data.splits import Split
from aspect.data.synthetic import mixed_regions
from aspect.errors import GraphError, SettingsError
from aspect.evaluation.baselines import majority_probe
from aspect.evaluation.headroom import centred_bands
from aspect.examples.demo import (
    REGIONS,
    ROWS,
    WHOLE,
    Demo,
    demo_tables,
    findings,
    oracle_weights,
    run_demo,
    significance,
    summary,
)
from aspect.nn.gate import fuse
from aspect.settings import find_experiment
from examples.pages import SETTINGS, small_demo, small_graph

MEANS = {
    "aspect": 96.0,
    "paper-gate": 93.0,
    "global": 90.0,
    "half": 89.0,
    "low": 88.0,
    "high": 87.0,
    "concatenated": 86.0,
    "random": 80.0,
    "propagated": 84.0,
    "spectral": 88.0,
    "raw": 75.0,
    "twins": 70.0,
    "majority": 50.0,
    "oracle": 98.0,
}
SINGLE = ("propagated", "spectral", "raw", "twins", "majority")


class KnownDemo(Demo):
    """Scores of two seeds, one point below and above a known mean, the same on all ten splits."""

    means = MEANS

    def scores(self, name, place=WHOLE):
        mean = self.means[name] + {WHOLE: 0, "homophilic": 1, "heterophilic": -1}[place]
        seeds = [mean] if name in SINGLE else [mean - 1, mean + 1]
        noise = np.resize([0.1, -0.1], 10) if name == "aspect" else 0.0
        return np.asarray(seeds)[:, None] + np.zeros(10) + noise


def known(**means):
    demo = KnownDemo(small_graph(), mixed_regions(80), [None] * 10, (0, 1), {}, "cpu")
    demo.means = {**MEANS, **means}
    low = torch.tensor([0.9] * 40 + [0.1] * 40)
    demo.gates = {"aspect": [low - 0.01, low + 0.01], "paper-gate": [1 - low]}
    return demo


def test_every_row_has_every_seed_and_split_and_regions_are_parts_of_one_probe():
    demo = small_demo()
    seeds = {name: len(results) for name, results in demo.results.items()}
    assert set(seeds) == set(ROWS)
    assert {name for name, count in seeds.items() if count == 1} == set(SINGLE)
    gates = {name: len(weights) for name, weights in demo.gates.items()}
    assert gates == {"aspect": 2, "paper-gate": 2}
    for name in ROWS:
        parts = 0
        for place in REGIONS:
            ratio = [float(demo.inside(place)[split.test].double().mean()) for split in demo.splits]
            parts = parts + ratio * demo.scores(name, place)
        assert parts.shape == (seeds[name], 2)
        np.testing.assert_allclose(parts, demo.scores(name))


def test_a_region_counts_its_own_test_nodes_only():
    labels = torch.tensor([0, 1, 0, 0, 1, 0, 1])
    split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3, 4, 5, 6]))
    result = replace(majority_probe(labels, [split]), predictions=(torch.tensor([0, 1, 1, 1]),))
    labelled = replace(small_graph(), labels=labels)
    by_hand = Demo(labelled, (torch.arange(7) == 5).long(), [split], (0,), {}, "cpu")
    by_hand.results["raw"] = [result]
    assert by_hand.scores("raw", "heterophilic").tolist() == [[0.0]]
    assert by_hand.scores("raw", "homophilic").tolist() == [[100.0]]
    by_hand.region = torch.zeros(7)
    with pytest.raises(GraphError, match="no test node in the heterophilic region"):
        by_hand.scores("raw", "heterophilic")


def test_a_seed_gives_the_same_numbers_whatever_stands_beside_it():
    demo, again = small_demo(), small_demo((1,))
    for name in ROWS:
        assert again.scores(name)[0].tolist() == demo.scores(name)[-1].tolist()
    assert torch.equal(again.gates["aspect"][0], demo.gates["aspect"][1])


def test_the_oracle_blends_the_bands_of_the_model_by_region():
    graph = small_graph().graph
    model = Embedder("aspect", seed=0, device="cpu", **SETTINGS, skip_weight=0).fit(graph)
    bands, weights = centred_bands(model, graph)
    torch.testing.assert_close(fuse(bands, weights), model.embed(graph, normalise="none"))
    blend = fuse(bands, oracle_weights(mixed_regions(80)))
    torch.testing.assert_close(blend, torch.cat([bands[0, :40], bands[1, 40:]]))


@pytest.mark.parametrize("seeds", [(), (1, 1)])
def test_seeds_must_be_there_and_differ(seeds):
    with pytest.raises(SettingsError, match="one or more, each once"):
        run_demo(seeds)


def test_the_shipped_settings_fit_the_method():
    experiment, origin = find_experiment("aspect", "mixed", None)
    assert origin == "settings shipped for aspect on mixed"
    assert Embedder(experiment.method, device="cpu", **experiment.settings).config.epochs > 0


def test_tables_have_means_deviations_marks_and_paired_tests():
    accuracies, gates = (cells.to_numpy().tolist() for cells in demo_tables(known()).values())
    cells = {row[0]: row[1:] for row in accuracies}
    assert cells["ASPECT"] == ["96.00 ± 1.41*", "97.00 ± 1.41*", "95.00 ± 1.41*", "-", "-"]
    assert cells["Paper's gate"][0] == "93.00 ± 1.41'"
    assert cells["Raw features"] == ["75.00", "76.00", "74.00", "21.0", "0.023"]
    assert cells["Per-node oracle"] == ["98.00 ± 1.41", "99.00 ± 1.41", "97.00 ± 1.41", "-", "-"]
    assert gates[0] == ["ASPECT, homophilic", "0.90 ± 0.01", "0.00", "100.0"]
    assert gates[-1][1:] == ["0.90", "0.00", "0.0"]  # the wrong way round


def test_tests_are_paired_and_corrected_for_their_number():
    tests = significance(known())
    assert set(tests) == set(ROWS) - {"aspect", "oracle"}
    test, p_value = tests["global"]
    assert (test.difference, test.wins) == (pytest.approx(6), 10)
    assert p_value == pytest.approx(12 * 2 / 2**10)  # twelve tests, 2^10 signs


def test_the_summary_is_plain():
    content = summary(known())
    assert content["rows"][0]["strict"][WHOLE]["mean"] == pytest.approx(96)
    assert content["gap"] == pytest.approx({"oracle": 8, "won": 6, "share": 75})
    assert summary(known(oracle=89.0))["gap"]["share"] is None
    assert {fact["region"] for fact in content["gate"]} == set(REGIONS)


def test_sentences_say_what_the_numbers_say():
    headline, control, gap, _ = findings(known())
    assert "of 96.0% of the test nodes" in headline
    assert "90.0%: ASPECT has 6.0 points more (95% interval" in headline
    assert "is Spectral embedding" in control
    assert "with 88.0%: ASPECT has 8.0 points more" in control
    assert "gains 8.0 points; the gate, which is given nothing, gains 6.0." in gap
    lost = findings(known(aspect=85.0))
    assert "90.0%: ASPECT has 5.0 points fewer" in lost[0]
    assert "with 88.0%: ASPECT has 3.0 points fewer" in lost[1]
    assert "points, not significant" in findings(known(**{"global": 96.0}))[0]
