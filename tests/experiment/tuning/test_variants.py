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
    table = script.table(scores)
    assert list(table) == ["texas", "cora", "mean"]
    assert table.loc["defaults"].tolist() == [80.0, 90.0, 85.0]


def test_the_table_of_the_lab_book_is_what_the_results_say(capsys):
    assert script.main(["--tables"]) == 0
    assert capsys.readouterr().out in (script.ROOT / "docs" / "lab_book.md").read_text()


def test_other_variants_of_the_file_are_kept(tmp_path, monkeypatch, capsys):
    path = tmp_path / "variants.csv"
    header = "method,graph,variant,epoch,validation\n"
    path.write_text(header + "aspect,texas,width=8,200,70.0\naspect,texas,defaults,200,1.0\n")
    monkeypatch.setattr(script, "scores_of", _score)
    script.main(["--tables", "--out", str(path), "--method", "grace"])
    assert "70.0" not in capsys.readouterr().out  # which is of another method
    script.main(["--graph", "texas", "--workers", "1", "--out", str(path), "width=16"])
    found = script.table(pd.read_csv(path)).texas.to_dict()
    assert found == {"defaults": 50.0, "width=16": 50.0, "width=8": 70.0}


def _score(variant):
    known = {"method": variant.method, "graph": variant.graph, "variant": variant.name}
    return [{**known, "epoch": 200, "validation": 50.0}]
