"""The script that times pruning runs on a small graph."""

from aspect.attacks.pruning import SCORES
from scripts import load_script

script = load_script("prune_speed")


def test_every_score_has_its_lines(capsys):
    assert script.main(["--nodes", "40", "--edges", "100", "--features", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 2 * (len(SCORES) + 1)
    assert all(" edges left" in line for line in lines[1:])
