"""Files of the repository follow from its records and its code; a difference is noticed."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

from aspect.errors import AspectError, SettingsError, UnknownNameError
from aspect.report.generated import (
    block_names,
    differing,
    expected_docs,
    expected_results,
    fill_blocks,
    tidy_csv,
    write_differing,
)
from aspect.report.results import collect
from aspect.report.statistics import summarise
from report.benchmark_records import ABLATION, NASTY, evade, make_records, poison
from scripts import load_script

ROOT = Path(__file__).parents[2]
main = load_script("tables").main

CLEAN = make_records()
ABLATED = make_records(ABLATION, perturbations=[None, poison()])


def write_records(root, kind, records):
    path = root / "results" / "records" / f"{kind}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{record.model_dump_json()}\n" for record in records]
    path.write_text("".join(lines), encoding="utf-8")


@pytest.fixture
def root(tmp_path):
    write_records(tmp_path, "clean", CLEAN)
    write_records(tmp_path, "ablation", ABLATED)
    (tmp_path / "README.md").write_text(
        "# Title\n\n<!-- table:clean -->\n<!-- /table -->\n\n<!-- table:ablation -->\nold\n"
        "<!-- /table -->\n\n<!-- table:clean-optimistic -->\n<!-- /table -->\n",
        encoding="utf-8",
    )
    return tmp_path


def names(root, paths):
    return [str(path.relative_to(root)) for path in paths]


MADE = [
    f"results/tables/{kind}.{ending}"
    for kind in ("clean", "ablation")
    for ending in ("csv", "md", "tex")
]


def test_everything_is_made_once(root):
    assert names(root, differing(expected_results(root))) == [*MADE, "README.md"]
    assert names(root, write_differing(expected_results(root))) == [*MADE, "README.md"]
    assert differing(expected_results(root)) == []
    assert write_differing(expected_results(root)) == []
    tables = root / "results" / "tables"
    assert (tables / "clean.csv").read_text(encoding="utf-8") == tidy_csv(collect(CLEAN), "clean")
    assert r"\toprule" in (tables / "ablation.tex").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert readme.count("| method | cora | texas |") == 2
    assert readme.count("| variant |") == 2
    assert "old" not in readme


def test_a_changed_number_is_noticed_where_it_stands(root):
    write_differing(expected_results(root))
    for path in (root / "README.md", root / "results" / "tables" / "clean.csv"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("cora", "corb", 1), encoding="utf-8")
        assert differing(expected_results(root)) == [path]
        assert write_differing(expected_results(root)) == [path]
        assert path.read_text(encoding="utf-8") == text


def test_tables_without_records_are_removed(root):
    write_differing(expected_results(root))
    (root / "results" / "records" / "ablation.jsonl").unlink()
    with pytest.raises(SettingsError, match="names the table 'ablation'"):
        expected_results(root)
    (root / "README.md").unlink()
    assert names(root, write_differing(expected_results(root))) == MADE[3:]
    assert not (root / "results" / "tables" / "ablation.csv").exists()


def test_an_empty_repository_is_in_order(tmp_path):
    assert differing(expected_results(tmp_path)) == []
    (tmp_path / "README.md").write_text("# Title\n", encoding="utf-8")
    assert differing(expected_results(tmp_path)) == []


def test_records_that_do_not_parse_are_refused(root):
    path = root / "results" / "records" / "clean.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-100], encoding="utf-8")
    with pytest.raises(AspectError):
        expected_results(root)


def test_the_script_says_what_differs_and_how_to_fix_it(root, capsys):
    assert main(["--check", "--root", str(root)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{name} is not what the records say. Run: make tables" for name in [*MADE, "README.md"]
    ]
    assert main(["--root", str(root)]) == 0
    assert f"Wrote {MADE[0]}." in capsys.readouterr().out
    assert main(["--check", "--root", str(root)]) == 0
    assert capsys.readouterr().out == "The tables are what the records say (clean, ablation).\n"


def test_the_script_refuses_a_broken_readme_in_one_line(root, capsys):
    (root / "README.md").write_text("<!-- table:clean -->\n", encoding="utf-8")
    assert main(["--check", "--root", str(root)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_clean_graphs_come_with_their_tests(root):
    write_records(root, "clean", make_records(splits=8))
    write_differing(expected_results(root))
    text = (root / "results" / "tables" / "clean.md").read_text(encoding="utf-8")
    assert "better / not significant / worse" in text


HEADER = "method,graph,split,selection,perturbation,solver,mode,budget,metric,mean,std,splits,seeds"


def rows(records, kind):
    text = tidy_csv(collect(records), kind)
    assert text.splitlines()[0] == HEADER
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def records():
    attacks = [None, poison(0.1), poison(0.2), evade(0.05)]
    return make_records([*ABLATION, "raw"], ["texas", "cora"], attacks)


def test_a_clean_row_holds_its_number(records):
    (row,) = [
        each
        for each in rows(records, "clean")
        if (each["method"], each["graph"]) == ("raw", "cora")
        and (each["metric"], each["selection"]) == ("accuracy", "strict")
    ]
    number = summarise(collect(records)).loc[("class-balanced", "clean", "raw", "cora")]
    assert row == {
        "method": "raw",
        "graph": "cora",
        "split": "class-balanced",
        "selection": "strict",
        "perturbation": "none",
        "solver": "",
        "mode": "",
        "budget": "0",
        "metric": "accuracy",
        "mean": f"{number['mean']:.4f}",
        "std": f"{number['std']:.4f}",
        "splits": "4",
        "seeds": "2",
    }


def test_metrics_and_selections(records):
    found = {(row["metric"], row["selection"]) for row in rows(records, "clean")}
    assert found == {("accuracy", "strict"), ("accuracy", "optimistic"), ("macro_f1", "strict")}


def attacks(found):
    return {(row["perturbation"], row["mode"], row["budget"]) for row in found}


def test_each_kind_has_its_rows(records):
    clean, first, second = (
        ("none", "", "0"),
        ("random", "poison", "0.1"),
        ("random", "poison", "0.2"),
    )
    evaded = ("random", "evade", "0.05")
    assert attacks(rows(records, "clean")) == {clean}
    assert attacks(rows(records, "perturbed")) == {clean, first, second, evaded}
    assert attacks(rows(records, "sweep")) == {clean, first, second}
    assert attacks(rows(records, "ablation")) == {clean, first, second, evaded}
    assert "raw" not in {row["method"] for row in rows(records, "ablation")}
    assert "raw" in {row["method"] for row in rows(records, "sweep")}


def test_a_clean_graph_is_no_row_of_perturbed_ones_alone():
    records = [*make_records(["aspect"], ["cora"], [None, poison()]), *make_records(["low"])]
    assert {row["method"] for row in rows(records, "perturbed")} == {"aspect"}
    assert rows(records, "sweep") == []


def test_order_of_records_does_not_matter(records):
    shuffled = [records[place] for place in np.random.default_rng(0).permutation(len(records))]
    for kind in ("clean", "perturbed", "ablation", "sweep"):
        assert tidy_csv(collect(shuffled), kind) == tidy_csv(collect(records), kind)


def test_rows_are_unique(records):
    identity = HEADER.split(",")[:9]
    found = [tuple(row[name] for name in identity) for row in rows(records, "perturbed")]
    assert len(set(found)) == len(found)
    edges = make_records(["aspect"], ["cora"], [poison(), poison(features=False)])
    assert {row["perturbation"] for row in rows(edges, "perturbed")} == {"random", "random-edges"}


def test_failures_are_no_rows_and_single_splits_have_no_std():
    records = make_records(
        ["aspect", "low"], ["cora"], splits=1, failed=[lambda each: each.cell.entry == "low"]
    )
    found = rows(records, "clean")
    assert {row["method"] for row in found} == {"aspect"}
    assert {row["std"] for row in found} == {""}


def test_formulas_are_disarmed():
    found = rows(make_records(["=cmd()"], NASTY), "clean")
    assert {row["method"] for row in found} == {"'=cmd()"}
    assert "'=cmd()" in {row["graph"] for row in found}


def test_an_unknown_kind_is_refused(records):
    with pytest.raises(UnknownNameError, match="Unknown kind of table 'cleen'"):
        tidy_csv(collect(records), "cleen")


@pytest.mark.parametrize("kind", ["clean", "perturbed", "sweep", "ablation"])
def test_variants_are_rows_of_the_ablation_alone(records, kind):
    names = {row["method"] for row in rows(records, kind)}
    variants = {"aspect-global", "aspect-no-policy"}
    assert names == ({"aspect"} | variants if kind == "ablation" else {"aspect", "raw"})


TEXT = """# Title

<!-- table:clean -->
old
| a |
<!-- /table -->
between
<!-- table:perturbed -->
<!-- /table -->
end without a newline"""

BLOCKS = {"clean": "| new |\n", "perturbed": "| other |\n", "unused": "x"}


def test_blocks_are_replaced_and_the_rest_is_kept():
    filled = fill_blocks(TEXT, BLOCKS)
    assert (
        filled
        == """# Title

<!-- table:clean -->

| new |

<!-- /table -->
between
<!-- table:perturbed -->

| other |

<!-- /table -->
end without a newline"""
    )
    assert fill_blocks(filled, BLOCKS) == filled
    assert block_names(TEXT) == ["clean", "perturbed"]


def test_a_text_without_blocks_is_left_alone():
    assert fill_blocks("a\n\nb\n", {}) == "a\n\nb\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("<!-- table:clean -->\n", "The block of the table 'clean' in README.md must end with"),
        (
            "<!-- table:clean -->\n<!-- table:perturbed -->\n<!-- /table -->\n",
            "The block of the table 'clean' in README.md must end with",
        ),
        ("<!-- /table -->\n", "README.md has a line '<!-- /table -->' without a"),
        (
            "<!-- table:cleen -->\n<!-- /table -->\n",
            "README.md names the table 'cleen'. The records give: clean, perturbed, unused",
        ),
    ],
)
def test_broken_and_unknown_blocks_are_refused(text, sentence):
    with pytest.raises(SettingsError) as caught:
        fill_blocks(text, BLOCKS)
    assert str(caught.value).startswith(sentence)


def test_a_block_without_any_records_is_refused():
    with pytest.raises(SettingsError, match="none, since there are no records yet"):
        fill_blocks("<!-- table:clean -->\n<!-- /table -->\n", {})


def test_the_table_of_methods_is_up_to_date():
    stale = [str(path.relative_to(ROOT)) for path in differing(expected_docs(ROOT))]
    assert not stale, f"{', '.join(stale)} differs from the registry. Run: make tables"


def test_the_methods_that_are_left_out_are_named():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert "<!-- table:methods -->" in page
    after = page.partition("## Methods that are not here")[2]
    assert "LOHA" in after
    assert "DPGCL" in after


@pytest.fixture
def docs(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "methods.md").write_text(
        "# Mine\n\n<!-- table:methods -->\nstale\n<!-- /table -->\nrest\n", encoding="utf-8"
    )
    return tmp_path


def test_a_stale_table_is_noticed_and_renewed(docs, capsys):
    page = docs / "docs" / "methods.md"
    assert differing(expected_docs(docs)) == [page]
    assert main(["--check", "--root", str(docs)]) == 1
    expected = "docs/methods.md is not what the registry says. Run: make tables\n"
    assert capsys.readouterr().out == expected
    assert main(["--root", str(docs)]) == 0
    assert capsys.readouterr().out == "Wrote docs/methods.md.\n"
    text = page.read_text(encoding="utf-8")
    assert "| `grace` |" in text
    assert "stale" not in text
    assert text.endswith("<!-- /table -->\nrest\n")
    assert write_differing(expected_docs(docs)) == []
    assert main(["--check", "--root", str(docs)]) == 0


def test_a_folder_without_pages_has_nothing_to_renew(tmp_path):
    assert differing(expected_docs(tmp_path)) == []
    assert write_differing(expected_docs(tmp_path)) == []


def test_an_unknown_table_is_refused(docs):
    (docs / "docs" / "methods.md").write_text("<!-- table:other -->\n<!-- /table -->\n")
    with pytest.raises(SettingsError, match=r"docs/methods.md names the table 'other'"):
        differing(expected_docs(docs))
