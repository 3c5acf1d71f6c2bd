"""The page of a search: Optuna's plots, every trial, nothing fetched."""

import re

import pytest

from aspect.experiment import trial as trial_module
from aspect.experiment.tuning import load_search
from aspect.report.study import study_page
from aspect.training.health import Health
from experiment.tuning.searches import search_for, small_search, write_graph


def health(cosine):
    return Health(cosine, 0.5, 4.0, 1.0, 2.0, 60, 8)


@pytest.fixture
def search_folder(tmp_path, monkeypatch):
    """Trials with invented scores: a failed one, an unhealthy one, and complete ones."""
    numbers = iter(range(100))

    def score(_problem, _search, settings, report):
        number = next(numbers)
        if number == 1:
            raise ValueError("<script>alert(1)</script>")
        found = trial_module.RungScore(60 + number, health(0.99 if number == 2 else 0.2))
        report(settings["epochs"], found)
        return {settings["epochs"]: found}

    monkeypatch.setattr(trial_module, "score_settings", score)

    def make(trials):
        search = small_search(write_graph(tmp_path), max_cosine=0.9)
        search_for(search, tmp_path / "search", trials)
        return tmp_path / "search"

    return make


def test_the_page_shows_history_importances_slices_and_every_trial(search_folder):
    result, study = load_search(search_folder(8))
    page = study_page(result, study)
    assert "Trial 7 of 8 is the best" in page
    assert "67.00%" in page
    assert "the start has 60.00%" in page
    assert "6 complete, 1 unhealthy, 1 failed" in page
    assert "by setting, the most important first. Later" in page
    for title in ("History", "During training", "Importances"):
        assert f"<h3>{title}</h3>" in page
    slices = set(re.findall(r"<h3>(\w+)</h3>", page)) & result.search.space.keys()
    assert len(slices) == 12
    assert page.count('<svg role="img"') == 3 + 12  # the most important settings alone
    rows = re.findall(r'<th scope="row" data-value="(\d+)">', page)
    assert rows == [str(number) for number in range(8)]
    assert "above the maximum of 0.9" in page


def test_the_page_is_self_contained_and_escaped(search_folder):
    result, study = load_search(search_folder(6))
    page = study_page(result, study)
    assert "&lt;script&gt;alert(1)" in page
    assert page.count("<script") == 1
    assert not re.search(r'(src|href)="(?!#)', page.replace('xlink:href="#', ""))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    used = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', page)
    assert {first or second for first, second in used} <= set(ids)
    assert study_page(result, study) == page


def test_a_search_of_few_trials_says_so(search_folder):
    folder = search_folder(1)
    page = study_page(*load_search(folder))
    assert "Too few complete trials for importances." in page
    assert "The start is the best." in page


def test_without_importances_no_setting_is_the_most_important(search_folder):
    page = study_page(*load_search(search_folder(5)))
    assert "Too few complete trials for importances." in page
    assert "of the complete trials by setting. Later trials are bluer." in page


def test_trials_are_counted_in_whole_numbers(search_folder):
    page = study_page(*load_search(search_folder(5)))
    history = page[page.index("<h3>History</h3>") : page.index("<h3>During training</h3>")]
    numbers = re.findall(r"<text[^>]*>([^<]*)</text>", history)
    assert {"0", "2", "4"} <= set(numbers)
    assert not {"0.5", "2.5"} & set(numbers)
