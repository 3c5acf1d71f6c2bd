"""`make variants`: the defaults and changes of them, scored as trials of a search are."""

import pandas as pd
import pytest

from aspect.experiment.trial import load_problem, score_settings
from experiment.tuning.searches import small_search, write_graph
from scripts import load_script

script = load_script("variants")


def test_a_variant_is_scored_as_a_trial_with_its_settings(tmp_path):
    path = write_graph(tmp_path)
    variant = script.Variant("dgi", str(path), ("epochs=6", "width=8"), "cpu")
    *_, last = script.scores_of(variant)
    assert (last["variant"], last["epoch"]) == ("epochs=6 width=8", 6)
    search = small_search(path, method="dgi")
    problem = load_problem(search.model_dump_json(), None)
    settings = {**search.settings, "epochs": 6, "width": 8}
    expected = score_settings(problem, search, settings, lambda *_: None)[6].validation
    assert last["validation"] == pytest.approx(expected, abs=1e-3)


def test_the_table_has_the_last_epoch_and_the_mean_over_graphs():
    rows = [("texas", "defaults", 50, 1.0), ("texas", "defaults", 200, 80.0)]
    rows += [("cora", "defaults", 200, 90.0), ("cora", "width=8", 200, 70.0)]
    scores = pd.DataFrame(rows, columns=["graph", "variant", "epoch", "validation"])
    lines = script.table(scores).splitlines()
    assert lines[0].split() == ["graph", "texas", "cora", "mean"]
    assert lines[2].split() == ["defaults", "80.0", "90.0", "85.0"]


def test_the_table_of_the_lab_book_is_what_the_results_say(capsys):
    assert script.main(["--tables"]) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    book = (script.ROOT / "docs" / "lab_book.md").read_text()
    for name, *scores in table[2:]:
        written = name if name == "defaults" else f"`{name}`"
        assert f"| {written} | {' | '.join(scores[:-1])} |" in book
