"""What the registry refuses in a sentence, and how a paper is cited."""

import re

import pytest

from aspect.methods import registry
from aspect.methods.base import MethodConfig
from aspect.methods.controls import RawFeatures
from aspect.methods.registry import Citation, find_method, method_names, register

TITLE = "On Graphs: A Study"


class Cubic(RawFeatures):
    cost = "cubic"


@pytest.mark.parametrize(
    ("method", "family", "sentence"),
    [
        (RawFeatures, "", r"Family of the method 'mine' must be a word or two\. Got none\."),
        (
            Cubic,
            "control",
            r"Cost of the method 'mine' must be one of linear, quadratic\. Got 'cubic'\.",
        ),
    ],
)
def test_what_cannot_be_right_is_refused(method, family, sentence):
    before = dict(registry._registry)
    with pytest.raises(ValueError, match=sentence):
        register("mine", config=MethodConfig, paper="", family=family)(method)
    assert registry._registry == before
    assert RawFeatures.name == "raw"


@pytest.mark.parametrize(
    ("authors", "short"),
    [
        ("A. One", "One, ICML 2020"),
        ("A. One, B. C. Two", "One and Two, ICML 2020"),
        ("A. One, B. Two, C. van der Three", "One, Two and van der Three, ICML 2020"),
        ("A. One, B. Two, C. Three, D. Four", "One et al., ICML 2020"),
    ],
)
def test_few_authors_are_named_and_of_many_the_first(authors, short):
    assert str(Citation(authors, TITLE, "ICML", 2020)) == short


def test_a_preprint_has_a_year_alone():
    paper = Citation("A. One, B. Two", TITLE, "", 2026)
    assert str(paper) == "One and Two, 2026"
    assert paper.reference == "A. One and B. Two: On Graphs: A Study. 2026."
    assert paper.bibtex.startswith("@misc{one2026graphs,\n")


@pytest.mark.parametrize(
    ("in_journal", "opening", "where"),
    [(False, "@inproceedings{", "booktitle"), (True, "@article{", "journal")],
)
def test_bibtex_tells_proceedings_from_journals(in_journal, opening, where):
    paper = Citation("P. Veličković, P. Liò", TITLE, "ICLR", 2019, in_journal=in_journal)
    assert paper.bibtex == (
        f"{opening}velickovic2019graphs,\n"
        "  author = {P. Veličković and P. Liò},\n"
        "  title = {{On Graphs: A Study}},\n"
        f"  {where} = {{ICLR}},\n"
        "  year = {2019},\n"
        "}"
    )


def test_keys_of_the_registry_are_plain_and_each_papers_own():
    papers = {find_method(name).paper for name in method_names()} - {""}
    keys = [re.match(r"@\w+\{([a-z0-9]+),\n", paper.bibtex)[1] for paper in papers]
    assert len(set(keys)) == len(keys)
    assert all(paper.bibtex.count("{") == paper.bibtex.count("}") for paper in papers)
