"""Methods on poisoned graphs: rows that say what was trained, and a script that goes on."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from scripts import load_script

poisoned = load_script("poisoned")
ROOT = Path(__file__).parents[2]
FLIPS = ROOT / "results" / "perturbations" / "cora-metattack-unrolled-class-balanced-0.safetensors"


def called(*words):
    """In a process of its own, whose workers can import the script."""
    script = [sys.executable, str(ROOT / "benchmarks" / "poisoned.py")]
    done = subprocess.run([*script, *words], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.data
def test_rows_are_written_once_and_tell_settings(tmp_path):
    out = tmp_path / "poisoned.csv"
    words = [str(FLIPS), "--device", "cpu", "--out", str(out)]
    assert "auto, auto" in called(*words, "--method", "raw", "--method", "propagated")
    first = pd.read_csv(out, keep_default_na=False)
    assert list(zip(first.method, first.score, strict=True)) == [
        ("raw", ""),
        ("propagated", ""),
        ("propagated", "auto"),
    ]
    assert set(first.rate) == {0.1}
    whole, pruned = first[first.method == "propagated"].test
    assert pruned > whole + 2
    assert list(first.pruned)[:2] == [0.0, 0.0]
    changes = ["--set", "epochs=2", "--set", "width=8"]
    told = called(*words, "--method", "aspect", "--seeds", "1", *changes)
    assert "epochs=2 width=8" in told
    again = pd.read_csv(out, keep_default_na=False)
    pd.testing.assert_frame_equal(again[: len(first)], first)
    more = again[len(first) :]
    assert set(more.settings) == {"epochs=2 width=8"}
    assert list(more.method) == ["aspect", "aspect"]


@pytest.mark.data
def test_known_flips_leave_a_graph_with_edges_of_the_clean_one_alone(tmp_path):
    out = tmp_path / "poisoned.csv"
    words = [str(FLIPS), "--device", "cpu", "--out", str(out), "--method", "propagated"]
    told = called(*words, "--score", "known", "--score", "auto")
    assert "added edges known" in told
    rows = pd.read_csv(out, keep_default_na=False).set_index("score")
    labelled, graph, _ = poisoned.read_case(FLIPS, poisoned.BUDGET)
    clean, flipped = (
        set(zip(*g.edge_index.tolist(), strict=True)) for g in (labelled.graph, graph)
    )
    assert rows.pruned["known"] == pytest.approx(len(flipped - clean) / len(flipped), abs=1e-4)
    assert rows.test["known"] > rows.test["auto"] > rows.test[""]


@pytest.mark.parametrize("source", ["none.safetensors", "."])
def test_a_source_that_is_not_there_is_told_once(source, tmp_path, capsys):
    assert poisoned.main([str(tmp_path / source), "--out", str(tmp_path / "rows.csv")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_validation_chooses_among_ratios_and_the_table_shows_its_test_score():
    row = {"source": "g", "rate": 0.1, "method": "aspect", "seed": 0, "settings": ""}
    rows = [
        {**row, "score": "", "ratio": "", "validation": 60.0, "test": 90.0},
        {**row, "score": "paths", "ratio": "0.1", "validation": 70.0, "test": 75.0},
        {**row, "score": "paths", "ratio": "0.2", "validation": 65.0, "test": 95.0},
    ]
    lines = poisoned.table(pd.DataFrame(rows)).splitlines()
    assert [line.split()[-4] for line in lines[2:]] == ["90.0", "75.0"]


def test_the_tables_of_the_guide_are_means_over_seeds_with_and_without_pruning():
    row = {"rate": 0.25, "ratio": "", "seed": 0, "settings": ""}
    scores = [
        ("poisoned", "aspect", "", 0, 60.0),
        ("poisoned", "aspect", "", 1, 70.0),
        ("poisoned", "aspect", "auto", 0, 80.0),
        ("poisoned", "aspect", "known", 0, 84.0),
        ("poisoned", "grace", "", 0, 50.0),
        ("poisoned", "grace", "auto", 0, 81.0),
        ("poisoned", "raw", "", 0, 73.0),
        ("cora-pr-bcd-avoiding-auto", "aspect", "", 0, 79.3),
        ("cora-pr-bcd-avoiding-auto", "aspect", "auto", 0, 1.0),
        ("citeseer-metattack-implicit-avoiding-auto", "raw", "", 0, 75.3),
    ]
    names = ("source", "method", "score", "seed", "test")
    rows = [row | dict(zip(names, values, strict=True)) for values in scores]
    rows.append(rows[0] | {"settings": "width=8", "test": 99.0})
    made = poisoned.blocks(pd.DataFrame(rows))
    assert made["poisoned-cora-ml"].splitlines()[2:] == [
        "| GRACE | 50.0 / 81.0 | 1 |",
        "| ASPECT | 65.0 / 80.0 | 2 |",
        "| Raw features | 73.0 | 1 |",
    ]
    assert made["poisoned-avoiding"].splitlines() == [
        "| method | Citeseer, Metattack | Cora, PR-BCD |",
        "| --- | --: | --: |",
        "| ASPECT | - | 79.3 |",
        "| Raw features | 75.3 | - |",
    ]
