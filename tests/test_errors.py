from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from aspect import errors
from aspect.errors import AspectError, UnknownNameError, shown

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, AspectError) and kind is not AspectError
]


def test_every_error_is_an_aspect_error_and_public():
    assert len(KINDS) >= 8
    raised = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__
        and issubclass(kind, Exception)
        and not issubclass(kind, Warning)
    }
    assert raised == {AspectError, *KINDS}
    assert not any(kind.__name__.startswith("_") for kind in raised)
    assert all(kind.__doc__ for kind in KINDS)


def test_errors_of_values_are_value_errors():
    assert issubclass(errors.GraphError, ValueError)
    assert issubclass(errors.SettingsError, ValueError)
    assert issubclass(errors.UnknownNameError, KeyError)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not UnknownNameError])
def test_an_error_shows_its_sentence(kind):
    assert str(kind("Something is wrong. Got 3.")) == "Something is wrong. Got 3."


def test_an_unknown_name_offers_the_nearest_and_lists_all():
    error = UnknownNameError("method", "bgrll", ["grace", "bgrl", "dgi"])
    assert str(error) == "Unknown method 'bgrll'. Did you mean 'bgrl'? Known: bgrl, dgi, grace."


def test_an_unknown_name_near_to_none_offers_none():
    error = UnknownNameError("data set", "xyzzy", ["cora"])
    assert str(error) == "Unknown data set 'xyzzy'. Known: cora."


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])  # noqa: S301 - our own
def test_an_unknown_name_survives_a_journey(again):
    """Worker processes send their errors home as pickles."""
    error = UnknownNameError("method", "bgrll", ["bgrl"])
    assert str(again(error)) == str(error)
    assert type(again(error)) is UnknownNameError


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], " (0 in all)"),
        ([3], "3 (1 in all)"),
        (range(5), "0, 1, 2, 3, 4 (5 in all)"),
        (range(6), "0, 1, 2, 3, 4, ... (6 in all)"),
        ((letter for letter in "ab"), "a, b (2 in all)"),
    ],
)
def test_offenders_are_shown_with_their_count(items, text):
    assert shown(items) == text
