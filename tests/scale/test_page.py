"""What the page on large graphs shows works as it stands there."""

import inspect
import re
import shlex
from pathlib import Path

import pytest

from aspect.cli.main import commands

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
LINES = [line for line in PAGE.splitlines() if line.startswith("aspect ")]


def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(code, "scale.md", "exec"), scope)  # noqa: S102 - our own text
    assert scope["bases"].rows(slice(0, 10)).shape == (6, 10, 16)


@pytest.mark.parametrize("line", LINES)
def test_every_command_has_the_options_shown(line):
    _, name, *words = shlex.split(line)
    (function,) = [each for each in commands if each.__name__ == name]
    used = {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    names = {"set": "settings", "json": "as_json"}
    known = set(inspect.signature(function).parameters)
    assert {names.get(option, option) for option in used} <= known
