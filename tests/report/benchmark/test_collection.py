"""Records of several plans: the same work counts once, doubtful works are refused."""

import pytest

from aspect.errors import SettingsError
from aspect.experiment.plan import Entry
from aspect.report.benchmark.collection import collect
from aspect.report.benchmark.scores import Place
from report.benchmark_records import ABLATION, evade, fail, make_records, metattack, poison

CLEAN = Place("aspect", "cora", "class-balanced")


def test_graphs_come_in_the_papers_order_then_by_name():
    graphs = ["zoo.npz", "squirrel", "mixed", "texas", "cornell_old", "cornell", "cora"]
    found = collect(make_records(["aspect"], graphs))
    names = ["cora", "cornell", "cornell_old", "texas", "squirrel", "mixed", "zoo"]
    assert list(found.graphs.values()) == names


def test_files_of_one_name_keep_their_folders():
    found = collect(make_records(["aspect"], ["a/graph.npz", "b/graph.npz", "c/other.npz"]))
    assert list(found.graphs.values()) == ["a/graph.npz", "b/graph.npz", "other"]


def test_entries_keep_the_order_of_the_plan():
    assert list(collect(make_records(["raw", "aspect", "low"])).entries) == ["raw", "aspect", "low"]


def test_the_same_work_counts_once():
    records = make_records(["aspect"], ["cora"], seeds=2)
    again = make_records(["aspect"], ["cora"], seeds=3, plan="other")
    assert len(collect([*records, *again]).find(CLEAN).done) == 3


def test_a_work_that_went_well_replaces_one_that_failed_in_any_order():
    (record,) = make_records(["aspect"], ["cora"], seeds=1)
    for records in ([record, fail(record)], [fail(record), record]):
        scores = collect(records).find(CLEAN)
        assert (scores.done, scores.failed) == ((record,), ())


def test_the_same_training_on_fewer_splits_is_no_contradiction():
    records = [
        *make_records(["aspect"], ["cora"], seeds=1, splits=10),
        *make_records(["aspect"], ["cora"], seeds=1, splits=3, plan="sweep"),
    ]
    for given in (records, records[::-1]):
        scores = collect(given).find(CLEAN)
        assert scores.splits == list(range(10))
        assert scores.complaint == ""


def test_of_a_score_that_comes_twice_the_first_is_kept():
    first = make_records(["aspect"], ["cora"], seeds=1, splits=2, score=lambda **_: 70.0)
    again = make_records(["aspect"], ["cora"], seeds=1, splits=3, score=lambda **_: 71.0)
    scores = collect([*first, *again]).find(CLEAN)
    assert list(scores.by_split().values()) == [70.0, 70.0, 71.0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"settings": {"epochs": 31}}, "differ in epochs: 30 (plan clean, "),
        ({"version": "0.2.0"}, "differ in version: '0.1.0' (plan clean, "),
        ({"device": "cuda"}, "differ in device: 'cpu' (plan clean, "),
    ],
)
def test_other_works_in_the_same_place_are_refused_by_name(change, told):
    first = make_records(["aspect"], ["cora"], seeds=1, plan="clean")
    second = make_records(["aspect"], ["cora"], seeds=1, plan="other", **change)
    with pytest.raises(SettingsError) as caught:
        collect([*first, *second])
    sentence = str(caught.value)
    assert sentence.startswith("Records of 'aspect' on cora ")
    assert told in sentence
    assert first[0].key in sentence
    assert second[0].key in sentence
    assert "(plan other, " in sentence


def test_clean_and_perturbed_numbers_of_other_settings_are_refused():
    clean = make_records(["aspect"], ["cora"])
    other = make_records(["aspect"], ["cora"], [poison()], settings={"epochs": 5})
    with pytest.raises(SettingsError, match="differ in epochs"):
        collect([*clean, *other])


def test_a_failed_work_of_other_settings_refuses_nothing():
    records = make_records(["aspect"], ["cora"], seeds=1)
    (other,) = make_records(["aspect"], ["cora"], seeds=1, settings={"epochs": 5})
    scores = collect([*records, fail(other)]).find(CLEAN)
    assert (len(scores.done), scores.failed) == (1, ())


def test_kinds_of_splits_and_perturbations_are_told_apart():
    attacks = [evade(0.1), poison(0.2), poison(0.1)]
    found = collect(
        [
            *make_records(["aspect"], ["cora"], attacks),
            *make_records(["aspect"], ["cora"], split_kind="random"),
        ]
    )
    assert found.kinds == ["random", "class-balanced"]
    assert found.perturbations("class-balanced") == [poison(0.1), poison(0.2), evade(0.1)]
    assert found.perturbations("random") == []


def test_the_attack_as_published_comes_first():
    attacks = [poison(), metattack(solver="implicit"), metattack(mode="evade"), metattack()]
    found = collect(make_records(["aspect"], ["cora"], attacks))
    assert found.perturbations("class-balanced") == [
        metattack(),
        metattack(mode="evade"),
        metattack(solver="implicit"),
        poison(),
    ]


def attacked(entry, letter, **values):
    """Records of one split whose flips go by this letter."""
    given = {"perturbations": [metattack()], "seeds": 1, "splits": 1, **values}
    return make_records([entry], ["cora"], perturbation_sha256=(64 * letter,), **given)


@pytest.mark.parametrize("entry", ["aspect", "low"])
def test_records_that_met_other_flips_are_refused(entry):
    first, second = attacked("aspect", "a"), attacked(entry, "b", plan="other")
    with pytest.raises(SettingsError) as caught:
        collect([*first, *second])
    sentence = str(caught.value)
    assert "metattack (unrolled) 10% on cora met different flips for split 0" in sentence
    assert f"(plan other, {second[0].key})" in sentence


def test_other_solvers_budgets_and_splits_have_other_flips():
    others = [
        attacked("aspect", "b", perturbations=[metattack(solver="implicit")]),
        attacked("aspect", "c", perturbations=[metattack(0.2)]),
        attacked("aspect", "d", split_kind="random"),
    ]
    records = [*attacked("aspect", "a"), *(each for other in others for each in other)]
    assert len(collect(records).scores) == 4


def test_a_group_is_known_if_any_plan_knows_it():
    plain = make_records([Entry(name="aspect")], ["cora"])
    grouped = make_records(ABLATION, ["cora"])
    assert collect([*plain, *grouped]).entries["aspect"].group == "aspect"


def test_what_is_collected_stays_so():
    found = collect(make_records())
    assert collect(found) is found


@pytest.mark.parametrize(
    ("entries", "methods"),
    [
        ([*ABLATION, "raw"], ["aspect", "raw"]),
        (["raw", Entry(name="fused", method="aspect", group="fused"), "low"], ["raw", "low"]),
        (ABLATION[1:], ["aspect-global", "aspect-no-policy"]),  # variants of nothing
        (
            [Entry(name=name, method="aspect", group="fused") for name in ("fused", "half")],
            ["fused", "half"],  # nothing else is there
        ),
    ],
)
def test_methods_are_all_entries_but_variants(entries, methods):
    found = collect(make_records(entries, ["cora"]))
    assert found.methods == methods
    assert found.rows("class-balanced", None, ["cora"]) == methods


def test_budgets_of_one_perturbation_are_a_family():
    attacks = [poison(0.2), evade(0.1), poison(0.1), poison(0.1, features=False)]
    found = collect(make_records(["aspect"], ["cora"], attacks))
    assert found.families("class-balanced") == [
        [poison(0.1), poison(0.2)],
        [poison(0.1, features=False)],
        [evade(0.1)],
    ]
