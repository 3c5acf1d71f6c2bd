"""Tables of a repository follow from its records, and a difference is noticed."""

import pytest

from aspect.errors import AspectError, SettingsError
from aspect.report.benchmark.results import differing_files, expected_files, write_files
from aspect.report.benchmark.tidy import tidy_csv
from report.benchmark_records import ABLATION, make_records, poison
from scripts import load_script

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
    assert names(root, differing_files(root)) == [*MADE, "README.md"]
    assert names(root, write_files(root)) == [*MADE, "README.md"]
    assert differing_files(root) == []
    assert write_files(root) == []
    tables = root / "results" / "tables"
    assert (tables / "clean.csv").read_text(encoding="utf-8") == tidy_csv(CLEAN, "clean")
    assert r"\toprule" in (tables / "ablation.tex").read_text(encoding="utf-8")
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert readme.count("| method | cora | texas |") == 2
    assert readme.count("| variant |") == 2
    assert "old" not in readme


def test_a_changed_number_is_noticed_where_it_stands(root):
    write_files(root)
    for path in (root / "README.md", root / "results" / "tables" / "clean.csv"):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("cora", "corb", 1), encoding="utf-8")
        assert differing_files(root) == [path]
        assert write_files(root) == [path]
        assert path.read_text(encoding="utf-8") == text


def test_tables_without_records_are_removed(root):
    write_files(root)
    (root / "results" / "records" / "ablation.jsonl").unlink()
    with pytest.raises(SettingsError, match="asks for the table 'ablation'"):
        expected_files(root)
    (root / "README.md").unlink()
    assert names(root, write_files(root)) == MADE[3:]
    assert not (root / "results" / "tables" / "ablation.csv").exists()


def test_an_empty_repository_is_in_order(tmp_path):
    assert differing_files(tmp_path) == []
    (tmp_path / "README.md").write_text("# Title\n", encoding="utf-8")
    assert differing_files(tmp_path) == []


def test_records_that_do_not_parse_are_refused(root):
    path = root / "results" / "records" / "clean.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-100], encoding="utf-8")
    with pytest.raises(AspectError):
        expected_files(root)


def test_the_script_says_what_differs_and_how_to_mend_it(root, capsys):
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


def test_leads_on_clean_graphs_come_with_their_tests(root):
    write_records(root, "clean", make_records(splits=8))
    write_files(root)
    text = (root / "results" / "tables" / "clean.md").read_text(encoding="utf-8")
    assert "won / tied / lost" in text
