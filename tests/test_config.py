from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, Field, ValidationError

from aspect.config import (
    Choice,
    Config,
    Positive,
    Range,
    Share,
    Weight,
    load_yaml,
    make_config,
    parse_overrides,
    to_yaml,
)
from aspect.errors import FileError, SettingsError
from aspect.methods.aspect import AspectConfig
from aspect.methods.bgrl import BGRLConfig


class ToyConfig(Config):
    order: Annotated[int, Field(ge=1), Range(2, 10)] = 5
    """Order of the filter."""
    rate: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Share dropped."""
    kind: Annotated[Literal["low", "high"], Choice(("low", "high"))] = "low"
    """Which band."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Epochs to wait."""


def make(**values) -> ToyConfig:
    return make_config(ToyConfig, values, owner="toy")


# Settings


def test_what_is_left_out_keeps_its_default():
    assert make(order=3) == ToyConfig(order=3, rate=0.5, kind="low", patience=None)


def test_settings_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        make().order = 4


def test_docstrings_explain_the_fields():
    assert ToyConfig.model_fields["order"].description == "Order of the filter."


class BoundedConfig(Config):
    drop: Annotated[Share, Range(0.0, 0.6)] = 0.2
    temperature: Positive = 0.5
    weight_decay: Weight = 0.0


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("drop", (0.0, 0.999), (-0.001, 1.0)),
        ("temperature", (1e-9, 1e9), (0.0, -1.0)),
        ("weight_decay", (0.0, 1e9), (-1e-9,)),
    ],
)
def test_bounds_by_name(name, allowed, refused):
    for value in allowed:
        assert getattr(BoundedConfig(**{name: value}), name) == value
    for value in (*refused, float("nan"), float("inf")):
        with pytest.raises(ValidationError, match=name):
            BoundedConfig(**{name: value})


def test_a_bound_by_name_leaves_room_for_a_range():
    assert BoundedConfig.model_fields["drop"].metadata[-1] == Range(0.0, 0.6)


def test_search_ranges_are_kept_with_the_field():
    assert Range(2, 10) in ToyConfig.model_fields["order"].metadata
    assert Choice(("low", "high")) in ToyConfig.model_fields["kind"].metadata


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"ordre": 3},
            "Unknown setting 'ordre' of toy. Did you mean 'order'? "
            "Known: order, rate, kind, patience.",
        ),
        ({"xyz": 3}, "Unknown setting 'xyz' of toy. Known: order, rate, kind, patience."),
        ({"order": 0}, "Setting 'order' of toy must be greater than or equal to 1. Got 0."),
        ({"rate": 1}, "Setting 'rate' of toy must be less than 1. Got 1."),
        ({"kind": "mid"}, "Setting 'kind' of toy must be 'low' or 'high'. Got 'mid'."),
        ({"rate": float("nan")}, "Setting 'rate' of toy must be a finite number. Got nan."),
        ({"patience": 0}, "Setting 'patience' of toy must be greater than or equal to 1. Got 0."),
    ],
)
def test_what_is_wrong_is_one_sentence(values, sentence):
    with pytest.raises(SettingsError) as caught:
        make(**values)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("value", ["three", 2.5, None, [3], {"a": 1}])
def test_a_value_of_the_wrong_type_is_one_sentence(value):
    with pytest.raises(
        SettingsError, match=r"^Setting 'order' of toy must be a valid integer.*Got "
    ) as caught:
        make(order=value)
    assert "\n" not in str(caught.value)


# The command line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        ("-2.e+3", -2000.0),
        (".5e1", 5.0),
        ("true", True),
        ("null", None),
        ("", None),
        ("fused", "fused"),
        ("'1e-3'", "1e-3"),
        ("2026-01-01", "2026-01-01"),
        ("2026-99-99", "2026-99-99"),
        ("[1, 1e2]", [1, 100.0]),
        ("a=b", "a=b"),
        ("1e", "1e"),
        ("e5", "e5"),
        ("infinity", "infinity"),
        ("-12", -12),
        ("010", "010"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
    ],
)
def test_overrides_are_read_as_yaml(text, value):
    assert parse_overrides([f"key={text}"]) == {"key": value}
    assert type(parse_overrides([f"key={text}"])["key"]) is type(value)


def test_spaces_around_a_key_do_not_matter_and_the_last_counts():
    assert parse_overrides([" order =3", "order= 4"]) == {"order": 4}


@pytest.mark.parametrize("pair", ["order", "=3", " =3", ""])
def test_a_pair_needs_key_and_value(pair):
    with pytest.raises(SettingsError, match=r"A setting is given as key=value\. Got "):
        parse_overrides([pair])


@pytest.mark.parametrize("text", ["[1", "{a", "a: b: c", "!!python/object:os.system x", "[" * 5000])
def test_a_value_that_is_no_yaml_is_refused(text):
    with pytest.raises(SettingsError, match="The value of 'order' is not readable as YAML"):
        parse_overrides([f"order={text}"])


# Files


def write(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "config.yaml"
    path.write_bytes(text.encode(encoding))
    return path


def test_a_file_holds_names_and_values(tmp_path):
    path = write(tmp_path, "rate: 1e-3\nnested: {1: 2e0, deep: [1e1, x]}\nname: é # why\n")
    assert load_yaml(path) == {
        "rate": 0.001,
        "nested": {"1": 2.0, "deep": [10.0, "x"]},
        "name": "é",
    }


@pytest.mark.parametrize("text", ["", "- 1\n", "text", "3"])
def test_a_file_without_names_is_refused(tmp_path, text):
    with pytest.raises(SettingsError, match=r"config\.yaml must hold names and values\. Got "):
        load_yaml(write(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("order: 3\nrate: [1\n", " near line 3"),
        ("order: 3\norder: 4\n", " near line 2: 'order' comes twice"),
        ("a: {b: 1, b: 2}\n", "'b' comes twice"),
        ("order: !!python/name:os.system\n", " near line 1"),
        ("a: \0", ""),
        ("[" * 5000, ""),
    ],
)
def test_a_file_that_is_no_yaml_is_refused(tmp_path, text, place):
    with pytest.raises(SettingsError, match=rf"config\.yaml is not valid YAML.*{place}"):
        load_yaml(write(tmp_path, text))


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"Cannot read settings from .*: it is not UTF-8"):
        load_yaml(write(tmp_path, "name: é", encoding="latin-1"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing.yaml", "there is no such file or folder"),
        ("", "it is a folder"),
        ("nul\0", "the system says"),
    ],
)
def test_a_file_that_is_not_there_is_said_so(tmp_path, name, why):
    with pytest.raises(FileError, match=rf"Cannot read settings from .*: {why}"):
        load_yaml(tmp_path / name)


plain = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12)
)
looks_like = st.sampled_from(
    ["1e-3", "1e5", "yes", "null", "~", "", "inf", ".inf", "0x1", "2026-01-01"]
)
values = st.recursive(
    plain | looks_like,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(content=st.dictionaries(st.text(min_size=1, max_size=6) | looks_like, values, max_size=4))
def test_whatever_is_written_is_read_back(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("yaml") / "config.yaml"
    path.write_bytes(to_yaml(content).encode())
    assert load_yaml(path) == content


ALIAS_BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
MERGE_BOMB = "base: &base {x: 1}\nmore:\n  <<: *base\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ALIAS_BOMB, "line 2: aliases are not read"),
        (MERGE_BOMB, "aliases are not read"),
        ("a: " + 60 * "[" + 60 * "]", "more than 20000 values or 50 levels"),
        ("".join(f"k{number}: 1\n" for number in range(100_000)), "at most|more than 20000 values"),
        ("a: [" + "1," * 20_001 + "1]", "more than 20000 values"),
        ("a: 1\n'a': 2\n", "'a' comes twice"),
        ("1: 1\n'1': 2\n", "'1' comes twice"),
    ],
    ids=["aliases", "merge", "levels", "keys", "values", "twice", "as text"],
)
def test_bombs_of_yaml_are_refused_at_once(tmp_path, text, words):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    started = time.monotonic()
    with pytest.raises((SettingsError, FileError), match=words):
        load_yaml(path)
    assert time.monotonic() - started < 10


def test_a_number_with_leading_zeros_is_that_number():
    """YAML 1.1 takes it for an octal one: 010 was 8."""
    given = parse_overrides(["epochs=010", "dropout=00.5"])
    config = make_config(AspectConfig, given, "aspect")
    assert (config.epochs, config.dropout) == (10, 0.5)


def test_a_bomb_in_an_override_is_refused():
    with pytest.raises(SettingsError, match="not readable as YAML"):
        parse_overrides(["x=" + 1000 * "[" + 1000 * "]"])
    with pytest.raises(SettingsError, match="not readable as YAML"):
        parse_overrides(["x=[&a 1, *a]"])


def test_only_regular_files_of_a_sensible_size_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large.yaml").write_bytes(b"a: 1\n" + b"#" * 2**20)
    for path, words in (
        (tmp_path / "pipe", "it is a pipe or device"),
        (Path("/dev/zero"), "it is a pipe or device"),
        (tmp_path, "it is a folder"),
        (tmp_path / "large.yaml", "at most 1048576 bytes"),
    ):
        with pytest.raises(FileError, match=words):
            load_yaml(path)


def test_a_truth_value_is_no_number():
    for name in ("epochs", "learning_rate"):
        with pytest.raises(SettingsError, match=f"'{name}' of bgrl must be a number. Got True"):
            make_config(BGRLConfig, {name: True}, owner="bgrl")
    with pytest.raises(SettingsError, match="less than or equal to 1000000000"):
        make_config(BGRLConfig, {"learning_rate": 1e300}, owner="bgrl")


def test_what_a_sentence_quotes_is_cut():
    with pytest.raises(SettingsError) as caught:
        make_config(BGRLConfig, {"epochs": "x" * 50_000}, owner="bgrl")
    assert len(str(caught.value)) < 500


def test_what_a_sentence_quotes_already_is_not_quoted_again():
    def refuse(value: str) -> str:
        raise ValueError(f"Unknown colour {value!r}.")

    class Colour(Config):
        colour: Annotated[str, AfterValidator(refuse)]

    with pytest.raises(SettingsError, match=r"^--colour: Unknown colour 'x'\.$"):
        make_config(Colour, {"colour": "x"}, owner=None)
