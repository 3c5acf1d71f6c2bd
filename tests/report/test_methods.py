"""What is told of a method is what it declares."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from aspect.config import Choice, Config, Range
from aspect.methods.registry import find_method, method_names
from aspect.report.methods import (
    describe_settings,
    epoch_cost,
    paragraphs,
    shipped_settings,
)
from aspect.settings import FOLDER
from scripts import load_script

Share = Annotated[float, Field(ge=0, lt=1)]


class Example(Config):
    """One field of every kind."""

    share: Annotated[Share, Range(0.1, 0.8)] = 0.5
    """Share of
    something."""
    rate: Annotated[float, Field(gt=0), Range(1e-5, 1e-2, log=True)] = 1e-3
    """Rate."""
    count: Annotated[int, Field(ge=1, le=9)] = 3
    """Count."""
    patience: Annotated[Annotated[int, Field(ge=1)] | None, Choice((20, 50))] = None
    """Patience."""
    kind: Annotated[Literal["one", "other"], Choice(("one", "other"))] = "one"
    """Kind."""
    switch: bool = True
    """Switch."""


def test_settings_are_told_as_they_are_declared():
    facts = describe_settings(Example)
    assert [tuple(setting.values())[:4] for setting in facts] == [
        ("share", "0.5", "float, >= 0, < 1", "0.1 to 0.8"),
        ("rate", "0.001", "float, > 0", "1e-05 to 0.01, log"),
        ("count", "3", "int, >= 1, <= 9", ""),
        ("patience", "null", "int, >= 1 | null", "20 | 50"),
        ("kind", "one", "one | other", "one | other"),
        ("switch", "true", "true | false", ""),
    ]
    assert facts[0]["explanation"] == "Share of something."


@pytest.mark.parametrize("name", ["aspect-s", "grace", "raw"])
def test_all_that_is_declared_is_told(name):
    entry = find_method(name)
    told = paragraphs(entry)
    assert told[0].endswith(".")
    assert " ".join(told).split() == entry.method.__doc__.split()
    settings = describe_settings(entry.config)
    assert [setting["name"] for setting in settings] == list(entry.config.model_fields)
    assert all(setting["allowed"] and setting["explanation"] for setting in settings)
    assert epoch_cost(entry) == ("not trained" if name == "raw" else "quadratic")


def test_every_settings_file_is_told_once():
    for name in method_names():
        shipped = shipped_settings(name)
        assert len(shipped) == len(list((FOLDER / name).glob("*.yaml")))
        places = [(each.graph, each.choice) for each in shipped]
        assert len(set(places)) == len(places)


def test_official_settings_are_told_from_ours():
    kinds = {(each.graph, each.choice): each.official for each in shipped_settings("aspect")}
    assert kinds["cora", None] is False
    assert kinds["cora", "published"] is True
    assert kinds[None, "paper"] is True
    grace = {
        each.choice: each.official for each in shipped_settings("grace") if each.graph == "cora"
    }
    assert grace == {None: False, "published": True}


def test_who_calls_settings_official_is_believed_and_nobody_else():
    """The word that a file's origin opens with decides, so every file must choose it well."""
    for name in method_names():
        for shipped in shipped_settings(name):
            if shipped.choice is None:
                opening = shipped.origin[:60].lower()
                assert shipped.official == ("official" in opening or "settings of the" in opening)
                assert not (shipped.official and "validation accuracy" in shipped.origin)


def test_the_table_has_a_row_for_every_method_and_the_controls_last():
    head, rule, *rows = load_script("tables").methods_table().splitlines()
    names = [row.split("`")[1] for row in rows]
    assert sorted(names) == method_names()
    controls = [name for name in method_names() if find_method(name).family == "control"]
    assert names[-len(controls) :] == controls
    assert {row.count(" | ") for row in (head, rule, *rows)} == {6}
    grace = rows[names.index("grace")]
    assert "| node contrast | Zhu et al., ICML Workshop GRL+ 2020 | quadratic | yes | no |" in grace
    assert "| control | - | not trained | yes | no |" in rows[names.index("raw")]
