"""`aspect report` as a user meets it: a page, tables and figures, or one line that says why not."""

import csv
import html
import json

import pytest

from report.benchmark_records import fail, make_records, poison


@pytest.fixture
def records(tmp_path):
    """A file of records, two of them failed."""
    made = make_records(perturbations=(None, poison(0.1), poison(0.2)))
    made[-2:] = map(fail, made[-2:])
    path = tmp_path / "records.jsonl"
    path.write_text("".join(f"{record.model_dump_json()}\n" for record in made), "utf-8")
    return path


@pytest.mark.usefixtures("records")
def test_a_page_is_written_beside_the_records_and_not_replaced_unasked(cli, tmp_path):
    outcome = cli("report", "records.jsonl")
    assert outcome.code == 0, outcome.err
    *_, failed, following = outcome.out.splitlines()
    assert outcome.out.startswith("Wrote report.html: 108 records, 0 models node by node.")
    assert failed == "2 runs failed; the page lists why."
    assert following == "Next: open report.html in a browser."
    page = tmp_path / "report.html"
    first = page.read_text("utf-8")
    assert "<!doctype html>" in first
    cli("report", "records.jsonl").refused("report.html", "exists", "--overwrite")
    assert page.read_text("utf-8") == first
    again = cli("report", "records.jsonl", "--overwrite", "--title", "Mine <b>")
    assert again.code == 0
    assert "<h1>Mine &lt;b&gt;</h1>" in page.read_text("utf-8")


@pytest.mark.usefixtures("records")
def test_tables_and_figures_are_written_for_a_paper(cli, tmp_path):
    wanted = ["--tables", "paper/tables", "--figures", "paper/figures", "--formats", "svg,png"]
    content = cli("report", "records.jsonl", "--out", "page.html", *wanted, "--json").json
    assert content["report"] == "page.html"
    assert (content["records"], content["failed"], content["models"]) == (108, 2, 0)
    assert all((tmp_path / path).stat().st_size > 0 for path in content["files"])
    tables = {path.name for path in (tmp_path / "paper" / "tables").iterdir()}
    assert {"clean.csv", "clean.md", "clean.tex", "runtime.csv", "scores.csv"} <= tables
    with (tmp_path / "paper" / "tables" / "clean.csv").open(encoding="utf-8") as file:
        assert [row["method"] for row in csv.DictReader(file)] == ["aspect", "low", "raw"]
    figures = {path.suffix for path in (tmp_path / "paper" / "figures").iterdir()}
    assert figures == {".svg", ".png"}


def test_no_name_is_a_formula_in_any_table(cli, tmp_path):
    made = make_records(["=cmd()"], ["=graph"], seeds=1, splits=2)
    lines = "".join(f"{record.model_dump_json()}\n" for record in made)
    (tmp_path / "formula.jsonl").write_text(lines, "utf-8")
    assert cli("report", "formula.jsonl", "--tables", "tables").code == 0
    for path in (tmp_path / "tables").glob("*.csv"):
        with path.open(encoding="utf-8") as file:
            names = {cell for row in csv.reader(file) for cell in row if "=" in cell}
        assert names <= {"'=cmd()", "'=graph", "'=graph std", ""}, path.name
    assert "'=cmd()" in (tmp_path / "tables" / "scores.csv").read_text("utf-8")


@pytest.mark.usefixtures("records")
def test_nothing_is_written_if_one_file_is_taken(cli, tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "runtime.md").write_text("mine")
    cli("report", "records.jsonl", "--tables", "tables").refused("runtime.md", "--overwrite")
    assert [path.name for path in (tmp_path / "tables").iterdir()] == ["runtime.md"]
    assert not (tmp_path / "report.html").exists()


def test_the_papers_figures_stand_below_ours_if_wanted(cli, records, tmp_path):
    assert cli("report", records, "--out", "ours.html").code == 0
    assert cli("report", records, "--out", "both.html", "--published").code == 0
    ours, both = ((tmp_path / f"{name}.html").read_text("utf-8") for name in ("ours", "both"))
    assert "2026, Table" in both
    assert "2026, Table" not in ours


def test_the_page_names_the_options_that_it_was_made_with(cli, records, tmp_path):
    options = ["--published", "--reference", "low", "--title", "My bench"]
    assert cli("report", records, *options, "--out", "x.html").code == 0
    text = html.unescape((tmp_path / "x.html").read_text("utf-8"))
    assert f"aspect report {records} --published --reference low --title 'My bench'" in text


def test_the_reference_must_be_a_variant_of_the_records(cli, records, tmp_path):
    refused = cli("report", records, "--reference", "lov", "--out", "x.html")
    refused.refused("Unknown variant 'lov'. Did you mean 'low'?")
    assert not (tmp_path / "x.html").exists()


def test_a_run_is_probed_and_shown_node_by_node(cli, trained, tmp_path):
    content = cli("report", trained, "--out", "run.html", "--device", "cpu", "--json").json
    assert (content["records"], content["models"]) == (1, 1)
    text = (tmp_path / "run.html").read_text("utf-8")
    assert "Node by node" in text
    assert 'id="table-clean"' in text
    start = text.index('id="explorer-data">') + len('id="explorer-data">')
    (model,) = json.loads(text[start : text.index("</script>", start)])
    assert len(model["gate"]) == model["count"]


def test_a_page_may_not_lie_in_a_run(cli, trained):
    before = {path.name for path in trained.iterdir()}
    cli("report", trained, "--out", trained / "report.html").refused("run's folder")
    assert {path.name for path in trained.iterdir()} == before


def test_a_run_of_another_kind_than_the_published_is_one_line(cli, raw_run):
    # Of another graph than the published; or none are published with this version.
    cli("report", raw_run, "--beside", "published", "--out", "x.html").refused("published")
