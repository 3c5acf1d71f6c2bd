"""Tables, sentences and page of a theory record, from one whose numbers are known."""

import csv
import io
import re
from collections import Counter

import pytest
from matplotlib.figure import Figure

from aspect.report.theory.figures import regret_drawings
from aspect.report.theory.findings import caveats, regret_findings, stability_findings
from aspect.report.theory.numbers import (
    find_row,
    grid_error,
    holds,
    regret_rows,
    regret_table,
    summary,
    trade_off_table,
)
from aspect.report.theory.page import theory_page
from report.test_html import HOSTILE, Page
from report.theory_records import REGIONS, case, make_theory_record, trade_off


@pytest.fixture(scope="module")
def record():
    return make_theory_record()


@pytest.fixture(scope="module")
def page_text(record):
    return theory_page(record)


def test_rows_are_means_over_the_seeds(record):
    assert len(regret_rows(record)) == len(regret_rows(record, "own")) == 6
    row = find_row(record, 0.9, 0.5)
    assert (row.regret, row.bound, row.ratio) == pytest.approx((0.2, 0.05, 0.25))
    assert row.regret_std == pytest.approx(0.01 / 2**0.5)
    assert row.best_mixes == pytest.approx({"homophilic": 0.9, "heterophilic": 0.2})
    assert find_row(record, 0.9, 0.0).ratio is None
    assert find_row(record, 0.9, 0.5, "own").regret == 0.05


def test_the_table_has_what_the_bound_is_made_of(record):
    table = regret_table(record)
    assert table.columns == (
        "separation",
        "regret",
        "bound",
        "bound / regret",
        "p-",
        "p+",
        "mu",
        "Delta",
    )
    (line,) = [line for line in table.lines if line.title == "0.5" and line.cells[0].value == 0.9]
    texts = [cell.text for cell in line.cells]
    assert texts == ["0.90", "0.2000 ± 0.0071", "0.0500", "0.25", "0.30", "0.40", "1.000", "1.00"]
    rows = list(csv.DictReader(io.StringIO(table.to_csv())))
    assert len(rows) == 6
    assert float(rows[4]["regret"]) == pytest.approx(0.2)


def test_the_rows_are_what_is_drawn(record):
    drawing = next(each for each in regret_drawings(record) if each.title.startswith("Separation"))
    axes = Figure().subplots()
    drawing.picture.paint(axes)
    lines = [line.get_ydata() for line in axes.lines]
    rows = [row for row in regret_rows(record) if row.purity == 0.9]
    for expected in ([row.regret for row in rows], [row.bound for row in rows]):
        assert any(list(line) == pytest.approx(expected) for line in lines)


def test_a_single_seed_has_no_spread(record):
    scope = record.scope.model_copy(update={"seeds": (0,)})
    one = tuple(each for each in record.cases if each.seed == 0)
    row = find_row(make_theory_record(cases=one, scope=scope), 0.9, 0.5)
    assert row.regret_std is None


def test_the_trade_off_table_says_how_much_of_the_bound_is_used(record):
    lines = trade_off_table(record).lines
    assert [line.title for line in lines] == [*REGIONS, *REGIONS]
    assert [cell.text for cell in lines[0].cells] == ["0.50", "0.150", "0.550", "20.0"]


def test_the_grid_s_error_falls_with_the_square_of_its_step(record):
    assert grid_error(record) == pytest.approx(0.5**2 / 2)
    fine = record.scope.model_copy(update={"mixes": 101})
    assert grid_error(make_theory_record(scope=fine)) == pytest.approx(5e-5)
    assert grid_error(make_theory_record(scope=fine, temperature=0.5)) == pytest.approx(2e-4)


def test_sentences_say_what_the_numbers_say(record):
    valid, share, separation, own = regret_findings(record)
    assert valid == (
        "In all 24 cases the measured regret is at least the bound, which is 25% to 25% of it, "
        "25% on average, in the 2 whose regret the grid can tell from 0."
    )
    assert "highest, 0.2000, where a share of 0.5" in share
    assert "0.0000 at 0, 0.0000 at 1. Where nearly all nodes are alike" in share
    assert (
        "0.0040 at 0.5, 0.2000 at 0.9; at 0.9 the mean best mix is 0.90 in the homo" in separation
    )
    assert "do not differ, 0.0040" in separation
    assert "a regret of 0.0500 with equal regions, whose mean best mixes are 0.70 apart" in own
    stable, bands, choice = stability_findings(record)
    assert "with L = 2 / tau = 2, held at all of 16 pairs" in stable
    assert "at most 30% of what the second allows" in stable
    assert bands.endswith("the band that suits a region is on average the steadier one there, too.")
    assert "25% at 0.5, 25% at 0.9" in choice


def test_sentences_admit_what_does_not_hold(record):
    wrong = case(0.9, 0.5, 0, "class", bound=1.0)
    assert not holds(wrong)
    cases = (wrong, *record.cases[1:])
    assert next(regret_findings(make_theory_record(cases=cases))).startswith(
        "In 1 of 24 cases the measured regret lies below the bound"
    )
    assert summary(make_theory_record(cases=cases))["holds"] is False
    assert summary(record)["holds"] is True
    broken = (trade_off(0.5), trade_off(0.9, broken=3))
    stable, *_ = stability_findings(make_theory_record(trade_offs=broken))
    assert "held at all but 3 of 16 pairs" in stable


def test_regret_that_stays_at_the_ends_is_not_called_little():
    flat = make_theory_record(
        cases=tuple(
            each.model_copy(update={"regret": 0.2, "bound": 0.1})
            for each in make_theory_record().cases
        )
    )
    _, share, *_ = regret_findings(flat)
    assert "one mix costs little" not in share


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (
            (0.1, 0.1),
            (0.5, 0.5),
            "on average one band is the steadier in both, whichever suits the region",
        ),
        (
            (0.5, 0.1),
            (0.1, 0.5),
            "the band that suits a region is on average the less steady one there",
        ),
    ],
)
def test_the_verdict_on_the_bands_follows_their_moves(low, high, verdict):
    base = trade_off(0.9)
    moves = tuple(
        each.model_copy(update={"low": a, "high": b})
        for each, a, b in zip(base.sensitivities, low, high, strict=True)
    )
    turned = base.model_copy(update={"sensitivities": moves})
    _, bands, _ = stability_findings(make_theory_record(trade_offs=(trade_off(0.5), turned)))
    assert verdict in bands


def test_caveats_name_keys_grid_growth_and_perturbations(record):
    text = " ".join(caveats(record))
    for words in (
        "The positive of a node is drawn from the keys of its class",
        "on a grid of 3 mixes",
        "by at most 0.12500",
        "the proof needs growth from these nodes only",
        "75% at separation 0.9",
        "24 random draws a graph",
    ):
        assert words in text


def test_the_page_shows_what_was_found(page_text):
    page = Page(page_text)
    assert "0.2000 ± 0.0071" in page.text
    assert "on 12 graphs with such regions" in page.text
    assert "aspect theory --seed 0" in page.text
    kinds = Counter(tag for tag, _ in page.tags)
    assert kinds["table"] == 2
    assert kinds["svg"] == kinds["figure"] == 2 + 2 + 4 + 3
    labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    # Of the regrets here only the highest exceed what so coarse a grid may be off by.
    assert "Bound against regret: 2 of 2 dots lie on or below the diagonal." in labels


def test_nothing_comes_from_outside_and_ids_are_unique(page_text):
    page = Page(page_text)
    assert not re.search(r"https?:|//[a-z]|@import|src=", page_text)
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert {name for name, count in ids.items() if count > 1} == set()


def test_the_same_record_gives_the_same_bytes(page_text):
    assert theory_page(make_theory_record(seconds=99.0)) == page_text


def test_letters_of_pictures_are_plain(page_text):
    """Powers of ten on logarithmic scales would be written in a mathematical language."""
    assert "mathdefault" not in page_text


@pytest.mark.filterwarnings("error")
def test_hostile_names_stay_text():
    hostile = make_theory_record(
        command=HOSTILE,
        settings={HOSTILE: HOSTILE, "list": [HOSTILE]},
        settings_from=HOSTILE,
        versions={HOSTILE: HOSTILE},
        device=HOSTILE,
    )
    page = Page(theory_page(hostile))
    kinds = Counter(tag for tag, _ in page.tags)
    assert kinds["img"] == 0
    assert kinds["script"] == kinds["title"] == 1
    assert " ".join(HOSTILE.split()) in page.text


@pytest.mark.filterwarnings("error")
def test_a_record_without_any_regret_is_drawn():
    cases = tuple(
        each.model_copy(update={"regret": 0.0, "bound": 0.0}) for each in make_theory_record().cases
    )
    page = Page(theory_page(make_theory_record(cases=cases)))
    assert "there is no regret in any of them that the grid could tell from 0" in page.text


def test_the_sentence_on_shares_names_where_the_bound_is_tight():
    cases = tuple(
        each.model_copy(update={"share": share, "regret": 0.2, "bound": bound})
        for each in make_theory_record().cases
        if (each.purity, each.share, each.keys) == (0.9, 0.5, "class")
        for share, bound in ((0.1, 0.1), (0.5, 0.05), (0.9, 0.08))
    )
    scope = make_theory_record().scope.model_copy(update={"shares": (0.1, 0.5, 0.9)})
    found = regret_findings(make_theory_record(cases=cases, scope=scope))
    next(found)
    assert next(found).endswith(
        "tightest at a share of 0.1 (50% of the regret) and loosest at 0.5 (25%)."
    )
