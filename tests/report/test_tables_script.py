"""Files of the repository follow from its records and its code; a difference is noticed."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aspect.errors import AspectError, SettingsError, UnknownNameError
from aspect.experiment.plan import lay_out
from aspect.report.results import collect
from aspect.report.statistics import summarise
from experiment.grids import FACTS, cells_of, done, failed, make_plan
from report.benchmark_records import ABLATION, NASTY, evade, make_records, poison
from scripts import load_script

ROOT = Path(__file__).parents[2]
tables = load_script("tables")
main = tables.main
block_names = tables.block_names
differing = tables.differing
expected_docs = tables.expected_docs
expected_results = tables.expected_results
fill_blocks = tables.fill_blocks
plan_state = tables.plan_state
tidy_csv = tables.tidy_csv
write_differing = tables.write_differing

CLEAN = make_records(["aspect", "raw"], seeds=1, splits=2)
ABLATED = make_records(ABLATION[:2], ["cora"], [None, poison()], seeds=1, splits=2)


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


def test_everything_is_made_once_and_a_changed_number_is_noticed_where_it_stands(root):
    expected = expected_results(root)
    assert names(root, write_differing(expected)) == [*MADE, "README.md"]
    assert differing(expected) == []
    tables = root / "results" / "tables"
    assert (tables / "clean.csv").read_text(encoding="utf-8") == tidy_csv(collect(CLEAN), "clean")
    assert r"\toprule" in (tables / "ablation.tex").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert readme.count("| method | cora | texas |") == 2
    assert readme.count("| variant |") == 2
    assert "old" not in readme
    for path in (root / "README.md", tables / "clean.csv"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("cora", "corb", 1), encoding="utf-8")
        assert differing(expected_results(root)) == [path]
        assert write_differing(expected) == [path]
        assert path.read_text(encoding="utf-8") == text


def test_tables_without_records_are_removed(root):
    write_differing(expected_results(root))
    (root / "results" / "records" / "ablation.jsonl").unlink()
    assert names(root, write_differing(expected_results(root))) == [*MADE[3:], "README.md"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert "Not made yet: its records come from `aspect bench ablation`." in readme
    assert "| variant |" not in readme
    assert not (root / "results" / "tables" / "ablation.csv").exists()


def test_an_empty_repository_is_in_order_and_damaged_records_are_refused(tmp_path):
    (tmp_path / "README.md").write_text("# Title\n", encoding="utf-8")
    assert differing(expected_results(tmp_path)) == []
    assert differing(expected_docs(tmp_path)) == []
    write_records(tmp_path, "clean", CLEAN)
    path = tmp_path / "results" / "records" / "clean.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-100], encoding="utf-8")
    with pytest.raises(AspectError):
        expected_results(tmp_path)


def test_the_script_says_what_differs_and_how_to_fix_it(root, capsys):
    assert main(["--check", "--root", str(root)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{name} is not what the records say. Run: make tables" for name in [*MADE, "README.md"]
    ]
    assert main(["--root", str(root)]) == 0
    assert f"Wrote {MADE[0]}." in capsys.readouterr().out
    assert main(["--check", "--root", str(root)]) == 0
    assert capsys.readouterr().out == "The tables are what the records say (clean, ablation).\n"
    (root / "README.md").write_text("<!-- table:clean -->\n", encoding="utf-8")
    assert main(["--check", "--root", str(root)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_clean_graphs_come_with_their_tests(tmp_path):
    write_records(tmp_path, "clean", make_records(["aspect", "raw"], ["cora"], splits=6))
    text = expected_results(tmp_path)[tmp_path / "results" / "tables" / "clean.md"]
    assert "better / not significant / worse" in text


def test_pages_tell_how_complete_the_records_are(tmp_path):
    page = tmp_path / "docs" / "results.md"
    page.parent.mkdir()
    blocks = ("clean-state", "clean-short", "clean-figure-random")
    page.write_text("".join(f"<!-- table:{name} -->\n<!-- /table -->\n\n" for name in blocks))
    write_differing(expected_results(tmp_path))
    assert page.read_text().count("Not made yet") == 3
    some = make_records(["aspect", "raw", "grace"], ["cora", "texas"], split_kind="random", seeds=3)
    write_records(tmp_path, "clean", some)
    changed = names(tmp_path, write_differing(expected_results(tmp_path)))
    assert "docs/ranks-random.svg" in changed
    assert "6 of 360 on random splits, 0 of 336 on published splits" in page.read_text()
    assert page.read_text().count("**Not complete**") == 2  # beside the short table as well
    assert "](ranks-random.svg)" in page.read_text()
    assert "**Not complete**" in (tmp_path / "results" / "tables" / "clean.md").read_text()
    # A figure differs where a number of it does.
    figure = tmp_path / "docs" / "ranks-random.svg"
    figure.write_text(figure.read_text().replace("<svg ", "<svg  "))
    assert differing(expected_results(tmp_path)) == []
    figure.write_text(figure.read_text().replace(">1.0<", ">1.5<"))
    assert differing(expected_results(tmp_path)) == [figure]


def test_a_plan_is_complete_with_all_seeds_of_all_its_cells():
    plan = make_plan(
        entries=["aspect", {"name": "raw", "seeds": 1}],
        seeds=2,
        also=[{"splits": "class-balanced"}],
    )
    facts = {"mixed": replace(FACTS, kinds=2 * ((10, None),))}
    records = [done(cell) for cell in lay_out(plan, facts, "cpu")]
    words = "2 of 2 on random splits, 2 of 2 on class-balanced splits. Complete."
    assert words in plan_state(plan, collect(records))
    assert "1 of 2 on random" in plan_state(plan, collect(records[1:]))
    failing = [failed(records[0].cell), *records[1:]]
    assert "1 of 2 on random" in plan_state(plan, collect(failing))


def test_a_plan_is_complete_with_all_splits_under_all_perturbations():
    few = {"name": "raw", "num_splits": 1}
    attack = {"kind": "random", "budgets": [0.1]}
    plan = make_plan(entries=["aspect", few], seeds=1, perturbations=["none", attack])
    records = [done(cell) for cell in cells_of(plan)]
    # Poisoned, ASPECT has a training for each of two splits, and raw features for one.
    assert [len(record.spec.split_numbers) for record in records] == [2, 1, 1, 1, 1]
    words = "methods on graphs under perturbations: 4 of 4 on random splits. Complete."
    assert words in plan_state(plan, collect(records))
    for missing in range(len(records)):
        others = [record for place, record in enumerate(records) if place != missing]
        assert "3 of 4 on random splits. **Not" in plan_state(plan, collect(others))


def test_tests_under_perturbations_name_whom_they_are_of(tmp_path):
    pruned = ["aspect", "aspect-pruned", "raw"]
    records = make_records(pruned, ["cora"], [None, poison()], seeds=1, splits=6)
    write_records(tmp_path, "perturbed", records)
    write_differing(expected_results(tmp_path))
    text = (tmp_path / "results" / "tables" / "perturbed.md").read_text()
    for title in ("aspect", "aspect-pruned"):
        assert text.count(f"{title} less each other method") == 2  # clean and poisoned
    assert "raw less each other method" not in text


HEADER = "method,graph,split,selection,perturbation,solver,mode,budget,metric,mean,std,splits,seeds"


def rows(records, kind):
    text = tidy_csv(collect(records), kind)
    assert text.splitlines()[0] == HEADER
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def records():
    attacks = [None, poison(0.1), poison(0.2), evade(0.05)]
    return make_records([*ABLATION, "raw"], ["texas", "cora"], attacks, splits=2)


def test_a_clean_row_holds_its_number(records):
    found = rows(records, "clean")
    (row,) = [
        each
        for each in found
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
        "splits": "2",
        "seeds": "2",
    }
    metrics = {(row["metric"], row["selection"]) for row in found}
    assert metrics == {("accuracy", "strict"), ("accuracy", "optimistic"), ("macro_f1", "strict")}


POISONED, EVADED = (
    {("random", "poison", "0.1"), ("random", "poison", "0.2")},
    (
        "random",
        "evade",
        "0.05",
    ),
)


@pytest.mark.parametrize(
    ("kind", "attacks"),
    [
        ("clean", set()),
        ("perturbed", {*POISONED, EVADED}),
        ("sweep", POISONED),
        ("ablation", {*POISONED, EVADED}),
    ],
)
def test_each_kind_has_its_rows_once_in_any_order_of_the_records(records, kind, attacks):
    found = rows(records, kind)
    seen = {(row["perturbation"], row["mode"], row["budget"]) for row in found}
    assert seen == {("none", "", "0"), *attacks}
    variants = {"aspect", "aspect-global", "aspect-no-policy"}
    methods = variants if kind == "ablation" else {"aspect", "raw"}
    assert {row["method"] for row in found} == methods
    identities = [tuple(row[name] for name in HEADER.split(",")[:9]) for row in found]
    assert len(set(identities)) == len(identities)
    shuffled = [records[place] for place in np.random.default_rng(0).permutation(len(records))]
    assert rows(shuffled, kind) == found


def test_rows_of_special_cases():
    records = [*make_records(["aspect"], ["cora"], [None, poison()]), *make_records(["low"])]
    assert {row["method"] for row in rows(records, "perturbed")} == {"aspect"}
    assert rows(records, "sweep") == []
    edges = make_records(["aspect"], ["cora"], [poison(), poison(features=False)])
    assert {row["perturbation"] for row in rows(edges, "perturbed")} == {"random", "random-edges"}
    failed = [lambda each: each.cell.entry == "low"]
    found = rows(make_records(["aspect", "low"], ["cora"], splits=1, failed=failed), "clean")
    assert {(row["method"], row["std"]) for row in found} == {("aspect", "")}
    found = rows(make_records(["=cmd()"], NASTY), "clean")
    assert {row["method"] for row in found} == {"'=cmd()"}  # no formula for a spreadsheet
    assert "'=cmd()" in {row["graph"] for row in found}
    with pytest.raises(UnknownNameError, match="Unknown kind of table 'cleen'"):
        tidy_csv(collect(records), "cleen")


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
    assert fill_blocks("a\n\nb\n", {}) == "a\n\nb\n"
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


def test_an_unknown_table_is_refused(docs):
    (docs / "docs" / "methods.md").write_text("<!-- table:other -->\n<!-- /table -->\n")
    with pytest.raises(SettingsError, match=r"docs/methods.md names the table 'other'"):
        differing(expected_docs(docs))
