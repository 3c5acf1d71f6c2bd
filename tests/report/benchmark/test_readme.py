"""Blocks of a README: what stands between the comments is replaced, all else is kept."""

import pytest

from aspect.errors import SettingsError
from aspect.report.benchmark.readme import block_names, fill_blocks

TEXT = """# Title

<!-- table:clean -->
old
| a |
<!-- /table -->
between
<!-- table:perturbed -->
<!-- /table -->
end without a newline"""

TABLES = {"clean": "| new |\n", "perturbed": "| other |\n", "unused": "x"}


def test_blocks_are_replaced_and_the_rest_is_kept():
    filled = fill_blocks(TEXT, TABLES)
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
    assert fill_blocks(filled, TABLES) == filled
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
            "README.md asks for the table 'cleen'. The records give: clean, perturbed, unused",
        ),
    ],
)
def test_broken_and_unknown_blocks_are_refused(text, sentence):
    with pytest.raises(SettingsError) as caught:
        fill_blocks(text, TABLES)
    assert str(caught.value).startswith(sentence)


def test_a_block_without_any_records_is_refused():
    with pytest.raises(SettingsError, match="none, since there are no records yet"):
        fill_blocks("<!-- table:clean -->\n<!-- /table -->\n", {})
