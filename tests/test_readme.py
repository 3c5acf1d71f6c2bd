"""What the README shows works as it stands there."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from aspect.cli.main import app, commands

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102 - our own text
    assert re.fullmatch(r"\d+\.\d+ ± \d+\.\d+\n", capsys.readouterr().out)


LINES = [
    line.partition("#")[0].strip()
    for block in blocks("console")
    for line in block.splitlines()
    if line.startswith("aspect ") and not line.startswith("aspect --")
]


@pytest.mark.parametrize("line", LINES)
def test_every_command_shown_has_the_options_shown(line):
    _, name, *words = shlex.split(line)
    (function,) = [each for each in commands if each.__name__ == name]
    known = set(inspect.signature(function).parameters)
    names = {"set": "settings", "json": "as_json"}
    used = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    assert {names.get(option, option) for option in used} <= known
    assert len(LINES) > 5


def test_completion_can_be_installed_as_shown():
    (line,) = [
        line for block in blocks("console") for line in block.splitlines() if "-completion" in line
    ]
    options = [option for param in get_command(app).params for option in param.opts]
    assert line.split()[1] in options


def test_make_targets_shown_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text(encoding="utf-8")
    shown = set(re.findall(r"^make ([a-z-]+)", README, flags=re.MULTILINE))
    assert shown == {"demo", "test"}
    for target in shown:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)
