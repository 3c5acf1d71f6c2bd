"""A declaration that cannot be right is refused when it is made, in a sentence."""

import pytest

from aspect.methods import registry
from aspect.methods.controls import RawConfig, RawFeatures
from aspect.methods.registry import register


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
        register("mine", config=RawConfig, paper="", family=family)(method)
    assert registry._registry == before
    assert RawFeatures.name == "raw"
