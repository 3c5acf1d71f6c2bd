"""The pages in a real browser: they load, sort, search and print, and no name runs as a script."""

import csv
import io
import re

import pytest

from aspect.examples.demo import demo_files
from aspect.examples.theory import theory_files
from aspect.experiment.plan import Entry
from aspect.report.page import render_page
from aspect.report.results import collect
from aspect.report.sources import Material
from examples.pages import FACTS, small_demo, small_theory
from report.benchmark_records import ABLATION, make_records, poison
from report.node_details import NASTY, make_details, plain_details

pytestmark = pytest.mark.browser

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SMALL = {"width": 320, "height": 568}
ATTACKS = (None, poison(0.1), poison(0.2))
GRAPHS = ("cora", "citeseer", "pubmed", "texas", "wisconsin", "actor")


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """One file per kind of page, made once."""
    folder = tmp_path_factory.mktemp("pages")
    entries = (*ABLATION, "low", "high", Entry(name="raw", note="no training", seeds=1))
    records = make_records(entries, GRAPHS, (None,)) + make_records(
        entries, ("cora", "texas"), ATTACKS[1:], failed=(_is_unlucky,)
    )
    material = Material(
        collect(records),
        (make_details(), plain_details()),
        ("aspect bench plan", "aspect report x"),
    )
    nasty = Material(
        collect(make_records((Entry(name="aspect", title=NASTY, note=NASTY), NASTY), (NASTY,))),
        (make_details(title=NASTY, graph=NASTY, ids=(NASTY,) * 24, class_names=(NASTY,) * 3),),
        (NASTY,),
    )
    texts = {
        "benchmark": render_page(material),
        "nasty": render_page(nasty, title=NASTY),
        "demo": demo_files(small_demo(), FACTS)["report.html"],
        "theory": theory_files(small_theory(), FACTS)["report.html"],
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def _is_unlucky(record):
    """One run of an entry; all of another on one graph, which leaves a gap."""
    cell = record.cell
    one = cell.entry == "low" and cell.spec.seed == 1 and cell.spec.split_numbers == (0,)
    return one or (cell.entry == "high" and cell.graph == "texas")


@pytest.mark.parametrize("viewport", [DESKTOP, SMALL], ids=["desktop", "small"])
@pytest.mark.parametrize("name", ["benchmark", "nasty", "demo", "theory"])
def test_a_page_loads_without_errors_and_fits_its_width(pages, opened, name, viewport):
    with opened(pages[name], viewport) as found:
        assert found.run("document.scrollingElement.scrollWidth <= innerWidth")
        assert found.run("document.querySelectorAll('main table').length") > 0
        assert found.run("document.querySelectorAll('main svg').length") > 0


def test_a_page_is_readable_without_scripts(pages, opened):
    with opened(pages["benchmark"], java_script_enabled=False) as found:
        assert found.page.locator("main table").count() > 3
        assert "need JavaScript" in found.page.locator("noscript").inner_text()
        assert not found.page.locator("#explorer").is_visible()


def column(found, table, index):
    """The numbers of a column from top to bottom, those that are there."""
    cells = found.page.locator(f"{table} tbody:first-of-type tr > :nth-child({index})")
    texts = [text.strip() for text in cells.all_inner_texts()]
    return [float(re.match(r"-?[\d.]+", text)[0]) for text in texts if text[:1].isdigit()]


def test_a_click_on_a_column_sorts_it_and_a_second_one_turns_it_round(pages, opened):
    with opened(pages["benchmark"]) as found:
        table = "#" + found.page.locator("main table").first.get_attribute("id")
        button = found.page.locator(f"{table} thead th:nth-child(2) button")
        button.click()
        first = column(found, table, 2)
        assert len(first) > 3
        assert first == sorted(first, reverse=True)
        button.focus()
        found.page.keyboard.press("Enter")
        assert column(found, table, 2) == sorted(first)
        head = found.page.locator(f"{table} thead th:nth-child(2)")
        assert head.get_attribute("aria-sort") == "ascending"


def test_a_gap_stays_below_whichever_way_a_column_is_sorted(pages, opened):
    with opened(pages["benchmark"]) as found:
        table = found.page.locator("#perturbed table").first
        button = table.locator("thead th", has_text="texas").locator("button")
        for direction in (-1, 1):
            button.click()
            texts = [
                text.strip() for text in table.locator("tbody tr td:nth-child(3)").all_inner_texts()
            ]
            assert texts[-1].startswith("- [")
            numbers = [float(text.split()[0]) for text in texts[:-1]]
            assert numbers == sorted(numbers, key=lambda number: direction * number)


TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def test_a_cell_explains_its_number_by_pointer_and_by_key(pages, opened):
    with opened(pages["benchmark"]) as found:
        cell = found.page.locator("td[data-tip]").first
        cell.scroll_into_view_if_needed()
        found.run(TWO_FRAMES)  # the event of the scroll itself hides a tip
        cell.hover()
        tip = found.page.locator("#tip")
        assert tip.is_visible()
        assert "2 seeds" in tip.inner_text()
        assert "4 splits" in tip.inner_text()
        cell.focus()
        before = tip.inner_text()
        found.page.keyboard.press("ArrowDown")
        assert tip.is_visible()
        assert tip.inner_text() != before
        found.page.keyboard.press("Escape")
        assert not tip.is_visible()


def test_a_table_can_be_saved_from_the_disk(pages, opened):
    with opened(pages["benchmark"], accept_downloads=True) as found:
        sheet = found.page.locator(".sheet").first
        saved = {}
        for title in ("CSV", "Markdown", "LaTeX"):
            with found.page.expect_download() as waited:
                sheet.get_by_role("link", name=title).click()
            path = waited.value.path()
            saved[waited.value.suggested_filename] = path.read_text("utf-8")
        found.requests = found.requests[:1]  # data URLs hold the files themselves
        suffixes = {name.rpartition(".")[2] for name in saved}
        assert suffixes == {"csv", "md", "tex"}
        table = next(text for name, text in saved.items() if name.endswith("csv"))
        rows = list(csv.reader(io.StringIO(table)))
        assert len(rows) - 1 == sheet.locator("tbody tr").count()


def card(found):
    return found.page.locator("[data-part=card]")


def test_the_search_finds_a_node_and_its_neighbours_lead_on(pages, opened):
    with opened(pages["benchmark"]) as found:
        found.page.locator("#node-search").fill("PAPER-1")
        options = found.page.locator("#node-matches [role=option]")
        assert options.count() == 11  # 1 and 10 to 19
        assert options.first.inner_text().startswith("paper-1")
        found.page.keyboard.press("ArrowDown")
        found.page.keyboard.press("ArrowDown")
        found.page.keyboard.press("ArrowUp")
        found.page.keyboard.press("Enter")
        assert not options.first.is_visible()
        text = card(found).inner_text()
        assert text.startswith("paper-10\n")
        assert "0.42 low, 0.58 high" in text  # 10 / 24
        assert "Practice" in text
        assert "1.583" in text  # the low band's loss
        assert "1.417" in text
        assert "Sensitivity, low\n0.583" in text
        assert "Sensitivity, high\n0.917" in text
        assert "Neighbours (2)" in text
        links = card(found).get_by_role("button")
        assert [line.split("\n")[0] for line in links.all_inner_texts()] == ["paper-9", "paper-11"]
        links.last.click()
        assert card(found).inner_text().startswith("paper-11\n")
        assert "0.46 low" in card(found).inner_text()


def test_a_search_for_nothing_known_says_so_and_escape_closes_it(pages, opened):
    with opened(pages["benchmark"], PHONE) as found:
        search = found.page.locator("#node-search")
        search.fill("nobody")
        matches = found.page.locator("#node-matches")
        assert "No node has that in its name." in matches.inner_text()
        search.press("Escape")
        assert not matches.is_visible()
        assert search.get_attribute("aria-expanded") == "false"


# How many pixels of the map have each colour, in steps of 32; read from a copy of it.
COLOURS = """canvas => {
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  const pen = copy.getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const data = pen.getImageData(0, 0, copy.width, copy.height).data;
  const seen = {};
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] < 100) continue;
    const colour = [0, 1, 2].map((channel) => data[at + channel] >> 5).join();
    seen[colour] = (seen[colour] || 0) + 1;
  }
  return seen;
}"""


def test_the_map_is_coloured_by_class_or_gate_and_names_what_is_pointed_at(pages, opened):
    with opened(pages["benchmark"]) as found:
        canvas = found.page.locator("canvas")
        canvas.scroll_into_view_if_needed()
        by_class = canvas.evaluate(COLOURS)
        assert len(by_class) >= 3
        found.page.get_by_role("radio", name="gate").check()
        assert canvas.evaluate(COLOURS).keys() != by_class.keys()
        assert "low band" in found.page.locator("[data-part=legend]").inner_text()
        label = found.page.locator("[data-part=label]")
        assert not label.is_visible()
        box = canvas.bounding_box()
        # Node 0 stands at the right end, half-way up.
        place = {"x": box["width"] - 13, "y": box["height"] / 2}
        canvas.hover(position=place)
        assert label.inner_text().split("\n") == ["paper-0", "class: Theory", "gate: 0.00"]
        canvas.click(position=place)
        assert card(found).inner_text().startswith("paper-0\n")
        assert "unknown" in card(found).inner_text()  # its local homophily


def test_another_model_can_be_chosen_and_shows_what_it_has(pages, opened):
    with opened(pages["benchmark"], PHONE) as found:
        chooser = found.page.get_by_role("combobox", name="Model")
        chooser.select_option(label="bare: Raw features")
        assert found.page.get_by_role("radio", name="gate").is_disabled()
        found.page.locator("#node-search").fill("7")
        found.page.keyboard.press("Enter")
        text = card(found).inner_text()
        assert text.startswith("7\n")
        assert "Gate" not in text
        assert "Loss" not in text
        assert "Sensitivity" not in text
        assert found.run("document.scrollingElement.scrollWidth <= innerWidth")


def test_a_class_of_the_legend_is_shown_alone(pages, opened):
    with opened(pages["benchmark"]) as found:
        key = found.page.get_by_role("button", name="Practice", exact=True)
        before = found.page.locator("canvas").evaluate(COLOURS)
        key.click()
        after = found.page.locator("canvas").evaluate(COLOURS)
        assert sum(after.values()) < 0.7 * sum(before.values())  # a third, and the chosen one
        key = found.page.get_by_role("button", name="Practice", exact=True)
        assert key.get_attribute("aria-pressed") == "true"


def test_names_run_nothing_and_are_shown_as_they_are(pages, opened):
    with opened(pages["nasty"], PHONE) as found:
        assert found.run("document.images.length") == 0
        assert found.page.title() == NASTY
        assert found.page.locator("h1").inner_text() == NASTY
        search = found.page.locator("#node-search")
        search.fill("img")
        assert found.page.locator("#node-matches li").first.inner_text().startswith(NASTY)
        search.press("Enter")
        assert card(found).locator("h3").inner_text() == NASTY
        card(found).get_by_role("button").first.click()
        found.page.locator("canvas").hover()
        assert found.page.locator("main th", has_text=NASTY).count() > 0
        assert found.run("document.images.length") == 0
        assert found.run("document.scrollingElement.scrollWidth <= innerWidth")


CONTRAST = """() => {
  const channel = (value) => {
    const share = value / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const texts = document.querySelectorAll("main td, main th, main p, main dd, main dt, nav a");
  return Math.min(...[...texts].map((element) => {
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(luminance);
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  }));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_background(pages, opened, scheme):
    with opened(pages["benchmark"], color_scheme=scheme) as found:
        background = found.run("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") == (scheme == "light")
        assert found.run(CONTRAST) >= 4.5


def test_a_page_prints_in_light_colours_with_whole_tables(pages, opened):
    with opened(pages["benchmark"], color_scheme="dark") as found:
        printed = found.page.pdf()
        assert printed.startswith(b"%PDF")
        assert len(printed) > 20_000
        found.page.emulate_media(media="print")
        paper = found.run("getComputedStyle(document.body).backgroundColor")
        assert paper == "rgb(255, 255, 255)"
        clipped = (
            "[...document.querySelectorAll('.scroll')].map(e => getComputedStyle(e).overflowX)"
        )
        assert set(found.run(clipped)) == {"visible"}


def test_the_first_column_stays_in_sight_on_a_phone(pages, opened):
    with opened(pages["benchmark"], PHONE) as found:
        box = found.page.locator(".scroll").first
        assert box.evaluate("each => each.scrollWidth > each.clientWidth")
        box.evaluate("each => { each.scrollLeft = 10000; }")
        name = box.locator("tbody th").first
        assert name.bounding_box()["x"] >= box.bounding_box()["x"] - 1
