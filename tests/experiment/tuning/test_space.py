"""The space is read from the settings' class, and from nowhere else."""

from typing import Annotated

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import Field

from aspect.config import Choice, Range, make_config
from aspect.errors import SettingsError
from aspect.experiment.tuning.space import Space
from aspect.methods.base import MethodConfig
from aspect.methods.registry import find_method, method_names


class ToyConfig(MethodConfig):
    plain: float = 1.0
    rate: Annotated[float, Field(gt=0), Range(1e-4, 1e-2, log=True)] = 1e-3
    share: Annotated[float, Range(0.0, 0.5)] = 0.1
    order: Annotated[int, Range(2, 10)] = 5
    drawn: Annotated[int | None, Range(1, 4)] = None
    kind: Annotated[str, Choice(("low", "high"))] = "low"


def tunable():
    for name in method_names():
        hints = [
            hint
            for each in find_method(name).config.model_fields.values()
            for hint in each.metadata
        ]
        if any(isinstance(hint, Range | Choice) for hint in hints):
            yield name


def test_every_range_and_choice_is_drawn_and_nothing_else():
    space = Space.around("toy", ToyConfig())
    assert dict(space.distributions) == {
        "rate": FloatDistribution(1e-4, 1e-2, log=True),
        "share": FloatDistribution(0.0, 0.5),
        "order": IntDistribution(2, 10),
        "drawn": IntDistribution(1, 4),
        "kind": CategoricalDistribution(("low", "high")),
    }


def test_what_is_fixed_is_not_drawn():
    space = Space.around("toy", ToyConfig(), fixed=["rate", "plain", "epochs"])
    assert set(space.distributions) == {"share", "order", "drawn", "kind"}


def test_a_start_outside_goes_to_the_nearest_point():
    base = ToyConfig(rate=1.0, share=0.25, order=1, kind="other")
    start = Space.around("toy", base).start()
    assert start == {"rate": 1e-2, "share": 0.25, "order": 2, "drawn": 1, "kind": "low"}
    space = Space.around("toy", base)
    for name, drawn in space.distributions.items():
        assert drawn._contains(drawn.to_internal_repr(start[name]))


def test_a_point_changes_what_is_drawn_alone():
    space = Space.around("toy", ToyConfig(plain=2.0, epochs=7), fixed=["share"])
    settings = space.settings({"rate": 0.00123456789, "order": 3, "kind": "high", "drawn": 2})
    assert settings == {
        "epochs": 7,
        "patience": None,
        "stop_on_collapse": False,
        "plain": 2.0,
        "rate": 0.001235,
        "share": 0.1,
        "order": 3,
        "drawn": 2,
        "kind": "high",
    }


@pytest.mark.parametrize("name", list(tunable()))
def test_every_corner_and_draw_of_a_method_is_a_valid_setting(name):
    config = find_method(name).config
    space = Space.around(name, config())
    random = np.random.default_rng(0)
    shares = [0.0, 1.0, *random.random(10)]
    for share in shares:
        point = {key: at(drawn, share) for key, drawn in space.distributions.items()}
        settings = space.settings(point)
        assert make_config(config, settings, owner=name).model_dump(mode="json") == settings
        for key, drawn in space.distributions.items():
            assert drawn._contains(drawn.to_internal_repr(settings[key]))


def at(drawn, share):
    if isinstance(drawn, CategoricalDistribution):
        return drawn.choices[round(share * (len(drawn.choices) - 1))]
    if drawn.log:
        value = drawn.low * (drawn.high / drawn.low) ** share if share < 1 else drawn.high
    else:
        value = drawn.low + share * (drawn.high - drawn.low)
    return round(value) if isinstance(drawn, IntDistribution) else value


def test_nothing_to_tune_is_refused():
    with pytest.raises(SettingsError, match="No setting of 'raw' has a search range"):
        Space.of("raw", {})
    with pytest.raises(SettingsError, match=r"are fixed.*Leave one of these open: rate, share"):
        Space.around("toy", ToyConfig(), fixed=["rate", "share", "order", "drawn", "kind"])


def test_wrong_settings_are_refused():
    with pytest.raises(SettingsError, match="Unknown setting 'widht' of aspect"):
        Space.of("aspect", {"widht": 3})
