"""What all commands share: optional packages are asked for before any work."""

import pytest

from aspect.cli import session
from aspect.cli.main import run


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (["report", "runs/mine"], "matplotlib", "report"),
        (["report", "runs/mine"], "jinja2", "report"),
        (["tune", "mixed"], "optuna", "tune"),
    ],
)
def test_a_missing_extra_is_named_at_once(words, missing, extra, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == missing else name)
    assert run(words) == 2
    told = capfd.readouterr()
    assert told.err == (
        f"Error: {missing} is not installed. Install it with: pip install 'aspect-gcl[{extra}]'.\n"
    )
    assert list(tmp_path.iterdir()) == []
