"""Which runs on poisoned graphs may be judged together."""

import shutil

import pytest

from aspect.errors import RunError, SettingsError
from aspect.experiment.robustness.grouping import group_poisoned
from aspect.experiment.runs import open_run
from experiment.robustness.poisoned import Place, changed


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return Place.make(tmp_path_factory.mktemp("place"))


@pytest.fixture
def runs(place):
    """Runs that learn nothing, which takes no time; each is trained once."""

    def make(*wanted):
        folders = []
        for split, budget, seed, *features in wanted:
            name = f"raw-{split}-{budget}-{seed}-{features}"
            if not (place.folder / name).exists():
                masked = {"features": features[0]} if features else {}
                place.train(name, split=split, budget=budget, seed=seed, method="raw", **masked)
            folders.append(place.folder / name)
        return [open_run(folder) for folder in folders]

    return make


def test_groups_come_by_budget_and_split_with_seeds_in_order(runs):
    groups = group_poisoned(runs((1, 0.1, 1), (0, 0.1, 0), (1, 0.1, 0), (0, 0.1, 1), (1, 0.05, 0)))
    facts = [(each.perturbation.budget, each.perturbation.facts.split) for each in groups]
    assert facts == [(0.05, 1), (0.1, 0), (0.1, 1)]
    assert [each.seeds for each in groups] == [(0,), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([(0, 0.1, 0), (0, 0.1, 0)], "split 0 at a budget of 0.1 must differ in the seed.*have 0"),
        (
            [(0, 0.1, 0), (0, 0.1, 1), (1, 0.1, 1)],
            "same seeds. There are seeds 0, 1 on split 0 .*, seed 1 on split 1 at a budget of 0.1",
        ),
        ([(0, 0.1, 0), (1, 0.1, 0, False)], "perturbed alike.* flipped edges alone"),
        ([], "None of these runs"),
    ],
)
def test_what_makes_no_whole(runs, wanted, words):
    with pytest.raises(RunError, match=words):
        group_poisoned(runs(*wanted))


def test_seeds_that_met_different_flips(tmp_path):
    own = Place.make(tmp_path)
    first = own.train("first", split=0, method="raw")
    second = own.train("second", split=0, seed=1, method="raw")
    other = tmp_path / "other.safetensors"
    shutil.copy(own.flips(0), other)
    changed(other, mask_seed=7)
    text = (second / "config.yaml").read_text()
    sha256 = open_run(second).record["perturbation"]["sha256"]
    lines = [line for line in text.splitlines() if sha256 not in line]
    (second / "config.yaml").write_text("\n".join(lines).replace(str(own.flips(0)), str(other)))
    with pytest.raises(RunError, match="must have met the same flips"):
        group_poisoned([open_run(first), open_run(second)])
    changed(other, kind="dice", mask_seed=7)
    third = own.train("third", split=1, method="raw")
    with pytest.raises(SettingsError, match="must be of one attack"):
        group_poisoned([open_run(third), open_run(second)])
