"""The pages of `docs/` are what the code says."""

from pathlib import Path

import pytest

from aspect.errors import SettingsError
from aspect.report.docs import differing_pages, write_pages
from scripts import load_script

ROOT = Path(__file__).parents[2]


def test_the_table_of_methods_is_up_to_date():
    stale = [str(path.relative_to(ROOT)) for path in differing_pages(ROOT)]
    assert not stale, f"{', '.join(stale)} differs from the registry. Run: make tables"


def test_the_methods_that_are_left_out_are_named():
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert "<!-- table:methods -->" in page
    after = page.partition("## Methods that are not here")[2]
    assert "LOHA" in after
    assert "DPGCL" in after


@pytest.fixture
def root(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "methods.md").write_text(
        "# Mine\n\n<!-- table:methods -->\nstale\n<!-- /table -->\nrest\n", encoding="utf-8"
    )
    return tmp_path


def test_a_stale_table_is_noticed_and_renewed(root, capsys):
    page, main = root / "docs" / "methods.md", load_script("tables").main
    assert differing_pages(root) == [page]
    assert main(["--check", "--root", str(root)]) == 1
    expected = "docs/methods.md is not what the registry says. Run: make tables\n"
    assert capsys.readouterr().out == expected
    assert main(["--root", str(root)]) == 0
    assert capsys.readouterr().out == "Wrote docs/methods.md.\n"
    text = page.read_text(encoding="utf-8")
    assert "| `grace` |" in text
    assert "stale" not in text
    assert text.endswith("<!-- /table -->\nrest\n")
    assert write_pages(root) == []
    assert main(["--check", "--root", str(root)]) == 0


def test_a_folder_without_pages_has_nothing_to_renew(tmp_path):
    assert differing_pages(tmp_path) == []
    assert write_pages(tmp_path) == []


def test_an_unknown_table_is_refused(root):
    (root / "docs" / "methods.md").write_text("<!-- table:other -->\n<!-- /table -->\n")
    with pytest.raises(SettingsError, match=r"docs/methods.md asks for the table 'other'"):
        differing_pages(root)
