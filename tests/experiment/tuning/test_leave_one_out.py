"""The defaults that other graphs choose, on made-up numbers."""

import math

import pandas as pd
import pytest

from aspect.errors import SettingsError
from scripts import load_script

script = load_script("leave_one_out")


def scores(**graphs):
    return pd.DataFrame(graphs, index=["defaults", "wide", "deep"], dtype=float)


def test_each_graph_gets_what_the_others_prefer():
    # `wide` is best on cora alone, by far; on the others the defaults are best.
    found = script.leave_one_out(scores(cora=[50, 80, 40], actor=[60, 55, 50], pubmed=[70, 60, 50]))
    assert found["chosen by the others"].to_dict() == {
        "cora": "defaults",
        "actor": "wide",
        "pubmed": "wide",
    }
    assert found["its score"].to_dict() == {"cora": 50, "actor": 55, "pubmed": 60}
    assert found["shipped defaults"].to_dict() == {"cora": 50, "actor": 60, "pubmed": 70}


def test_graphs_with_the_same_nodes_do_not_choose_for_each_other():
    table = scores(texas=[50, 90, 40], cornell_old=[50, 90, 40], cora=[60, 55, 50])
    chosen = script.leave_one_out(table)["chosen by the others"]
    assert chosen["texas"] == chosen["cornell_old"] == "defaults"
    assert chosen["cora"] == "wide"
    assert script.shared_nodes("squirrel") == {"squirrel", "squirrel_filtered"}


def test_of_equals_the_defaults_are_chosen_and_gaps_are_no_candidates():
    table = scores(cora=[50, 50, 99], actor=[60, 60, math.nan])
    assert set(script.leave_one_out(table)["chosen by the others"]) == {"defaults"}
    for bad in (table.drop(index="defaults"), table[["cora"]]):
        with pytest.raises(SettingsError, match="Scores must have 'defaults' on 2 graphs"):
            script.leave_one_out(bad)


def test_the_table_is_read_after_the_last_epoch_and_beside_the_search(tmp_path, capsys):
    variants = tmp_path / "variants.csv"
    rows = ["method,graph,variant,epoch,validation", "dgi,cora,defaults,9,99"]
    for graph, score in (("cora", 70), ("actor", 30)):
        rows += [f"aspect,{graph},defaults,100,{score}", f"aspect,{graph},defaults,10,1"]
        rows += [f"aspect,{graph},wide,100,{score + 2}"]
    variants.write_text("\n".join(rows))
    (tmp_path / "cora-aspect.csv").write_text(
        "trial,state,validation\n0,complete,71\n1,complete,75\n2,pruned,90\n"
    )
    options = ["--variants", str(variants), "--searches", str(tmp_path)]
    assert script.main(options) == 0
    lines = capsys.readouterr().out.splitlines()
    cora = next(line for line in lines if line.startswith("cora")).split()
    assert cora == ["cora", "wide", "72.0", "70.0", "75.0"]
    assert next(line for line in lines if line.startswith("actor")).split()[-1] == "-"
    assert lines[-1].startswith("Mean over 1 graphs with all three: its score 72.00;")
    assert script.main(["--variants", str(tmp_path / "none.csv")]) == 2
    assert "There is no table" in capsys.readouterr().err
