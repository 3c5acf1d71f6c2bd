"""`make speed` of ASPECT-S: what is measured and how it is judged, and its targets."""

import json
import subprocess
import sys

import pytest
import torch

from aspect import mixed_graph
from aspect.methods.aspect_s import AspectSConfig
from scripts import FOLDER, load_script

script = load_script("speed_stable")

TINY = {"width": 8, "order": 2, "warm_up": 0, "interval": 1, "perturbation_steps": 1, "draws": 1}


@pytest.fixture(scope="module")
def graph():
    return mixed_graph(num_nodes=60, degree=4.0, num_features=6).graph.to(torch.float32)


def test_an_average_epoch_has_one_search_in_ten():
    one = script.Ratio(
        "cora", "project-first", 9, plain_seconds=2.0, search_seconds=22.0, counted=2
    )
    assert one.ratio == pytest.approx((9 * 2.0 + 22.0) / (10 * 2.0))
    assert one.reached
    slow = script.Ratio(
        "cora", "project-first", 9, plain_seconds=2.0, search_seconds=23.0, counted=2
    )
    assert not slow.reached


def searches(*taken):
    return [script.Searched(1.0, 1000 * number, used) for number, used in enumerate(taken, start=1)]


def test_growth_is_a_line_or_is_not():
    line = script.Growth.of(searches(5_000, 7_000, 9_000, 11_000))
    assert line.bytes_per_pair == pytest.approx(2)
    assert line.explained == pytest.approx(1)
    assert line.reached
    assert not script.Growth.of(searches(5_000, 6_000, 9_000, 20_000)).reached
    assert not script.Growth.of(searches(9_000, 8_000, 7_000, 6_000)).reached


def test_both_kinds_of_epoch_are_timed_and_the_count_stands_beside_them(graph):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = script.compare("mixed", graph, AspectSConfig(**TINY), repetitions=2)
    torch.set_num_threads(threads)
    assert (found.graph, found.layer_order, found.steps) == ("mixed", "project-first", 1)
    assert found.search_seconds > found.plain_seconds > 0
    assert found.counted > 1


def test_a_search_and_epochs_are_measured(graph):
    config = AspectSConfig(**TINY, candidates=2.0)
    search = script.measure_search(graph, config)
    assert (search.candidates, search.pairs) == (2.0, 3 * graph.num_edges)
    peak = script.measure_epochs("mixed", graph, config)
    assert peak.search_bytes >= peak.plain_bytes > 0
    assert min(peak.plain_seconds, peak.search_seconds) > 0


def test_findings_are_shown_and_written(capsys):
    ratio = script.Ratio("cora", "project-first", 9, 1.0, 7.0, 1.58)
    peak = script.Peak("pubmed", 2, 30.0, 2_000_000_000, 200.0, 3_000_000_000)
    growing = searches(5_000, 7_000, 9_000)
    found = script.Findings((ratio,), tuple(growing), (peak,))
    script.show(found)
    shown = capsys.readouterr().out
    assert "1.60 x" in shown
    assert "2 bytes a pair" in shown
    assert shown.count("reached") == 3
    told = json.loads(found.as_json())
    assert told["ratios"][0]["ratio"] == pytest.approx(1.6)
    assert told["growth"]["reached"]
    assert told["large"][0]["reached"]
    nothing = script.Findings((), (), ())
    script.show(nothing)
    assert capsys.readouterr().out == ""
    assert json.loads(nothing.as_json())["growth"] is None


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.timeout(2400)
def test_aspect_s_reaches_its_targets():
    """Needs an otherwise idle machine."""
    command = [sys.executable, str(FOLDER / "speed_stable.py"), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(answer.stdout)
    assert len(found["ratios"]) == 4
    for part in (*found["ratios"], found["growth"], *found["large"]):
        assert part["reached"], part
