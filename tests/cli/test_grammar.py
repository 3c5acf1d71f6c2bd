"""One grammar for all options: several values with commas, or the option repeated."""

import inspect
import typing

import pytest
import typer

from aspect.cli.grammar import SEVERAL, _item_of, gather, options_of
from aspect.cli.main import app, commands, run
from aspect.cli.options import ProbeOptions, SeedOptions, SettingsOptions, SweepOptions
from aspect.cli.session import Session
from aspect.config import Config
from aspect.errors import SettingsError

GROUPS = {
    group: [name for name, hint in typing.get_type_hints(group).items() if _item_of(hint)]
    for group in Config.__subclasses__()
    if group.__module__.startswith("aspect.cli.") or group.__name__ == "Reading"
}
LISTED = [(group, name) for group, names in GROUPS.items() for name in names if names]
VALUES = {"settings": ["a=1", "b=2"], "formats": ["svg", "pdf"], "split": ["1", "2"]}
RATIOS = ("budget", "prune")


@pytest.mark.parametrize(("group", "name"), LISTED)
def test_commas_are_as_good_as_repeats(group, name):
    values = VALUES.get(name, ["0.1", "0.2"] if name in RATIOS else ["one", "two"])
    listed, repeated = (
        gather(group, {name: given}) for given in ([", ".join(values)], list(values))
    )
    assert getattr(listed, name) == getattr(repeated, name)
    assert len(getattr(listed, name)) == 2


def test_every_option_that_lists_is_looked_at():
    assert len(LISTED) > 12
    parameters = [one for function in commands for one in signature(function)]
    listing = {one.name for one in parameters if is_option(one) and _item_of(hint_of(one))}
    assert listing == {name for _, name in LISTED}


def signature(function):
    return inspect.signature(function).parameters.values()


def hint_of(parameter):
    return typing.get_args(parameter.annotation)[0]


def is_option(parameter):
    return isinstance(parameter.annotation.__metadata__[0], typer.models.OptionInfo)


def test_help_says_how_several_are_given():
    for group, name in LISTED:
        (option,) = [one for one in options_of(group) if one.name == name]
        assert SEVERAL in option.annotation.__metadata__[0].help


def test_a_comma_within_a_value_parts_nothing():
    given = gather(SettingsOptions, {"settings": ["sizes=[1,2],width=3", "note='a, b'"]})
    assert given.settings == ["sizes=[1,2]", "width=3", "note='a, b'"]


def test_a_file_whose_name_has_a_comma(tmp_path):
    whole = tmp_path / "a,b.npy"
    whole.touch()
    found = gather(SeedOptions, {"embeddings": [str(whole), "c.npy,d.npy"]})
    assert [path.name for path in found.embeddings] == ["a,b.npy", "c.npy", "d.npy"]


@pytest.mark.parametrize("text", ["", "0.1,", ",", "0.1,,0.2"])
def test_nothing_between_commas_is_refused(text):
    with pytest.raises(SettingsError, match=r"--budget takes values with commas between them. Got"):
        gather(SweepOptions, {"budget": [text]})


def test_bounds_hold_for_each():
    with pytest.raises(SettingsError, match=r"--prune must be less than 1. Got '1.5'"):
        gather(ProbeOptions, {"prune": ["0.1,1.5"]})


def test_help_shows_options_by_groups(capfd):
    assert run(["train", "--help"]) == 0
    told = capfd.readouterr().out
    titles = [line[:-1] for line in told.splitlines() if line and line[0] != " "][1:]
    assert titles[:3] == ["Arguments", "Options", "Which method is trained with which settings"]
    assert titles[-1] == "Options of every command"
    assert run([]) == 0
    assert "\nYour graph:\n  check " in capfd.readouterr().out


def test_every_option_of_a_group_has_its_section():
    for command in typer.main.get_command(app).commands.values():
        common = [param for param in command.params if param.name in Session.model_fields]
        assert {param.rich_help_panel for param in common} == {"Options of every command"}
