"""Records as one long table: the same work counts once, works that do not fit are refused."""

import pytest

from aspect.errors import SettingsError, UnknownNameError
from aspect.experiment.plan import Entry
from aspect.report.results import CLEAN, METRICS, collect
from report.benchmark_records import ABLATION, evade, fail, make_records, metattack, poison


def strict(results, **equal):
    return results.select(metric="strict", **equal)


def test_the_long_table_has_one_row_per_score():
    records = make_records(["aspect"], ["cora"], [None, poison(0.2)], seeds=2, splits=3)
    results = collect(records)
    scores = strict(results)
    assert len(scores) == 2 * 2 * 3
    row = scores[(scores["perturbation"] == "random-poison-20") & (scores["seed"] == 1)].iloc[0]
    expected = {
        "variant": "aspect",
        "graph": "cora",
        "mode": "poison",
        "budget": 0.2,
        "split_kind": "class-balanced",
    }
    assert {name: row[name] for name in expected} == expected
    values = {
        (record.cell.spec.seed, score.split): score.strict
        for record in records
        if record.cell.spec.perturbation is None
        for score in record.scores
    }
    clean = scores[scores["perturbation"] == CLEAN].set_index(["seed", "split"])["value"]
    assert clean.to_dict() == values
    assert set(METRICS) <= set(results.scores["metric"])


def test_the_table_of_runs_has_runtime_memory_and_health():
    (record,) = make_records(["aspect"], ["cora"], seeds=1)
    health = {"mean_cosine": 0.1, "variance_share": 0.2, "effective_rank": 3.0, "dim": 8.0}
    (run,) = collect([record.model_copy(update={"health": health})]).runs.to_dict("records")
    assert (run["seconds"], run["memory"], run["parameters"]) == (2.0, 300.0, 12_345)
    assert (run["gate_mean"], run["gate_std"], run["effective_rank"]) == (0.5, 0.1, 3.0)
    assert run["status"] == "done"


def test_graphs_and_variants_keep_the_order_of_the_plan():
    graphs = ["zoo.npz", "squirrel", "mixed", "cora"]
    results = collect(make_records(["raw", "aspect", "low"], graphs))
    assert list(results.graphs.values()) == ["zoo", "squirrel", "mixed", "cora"]
    assert list(results.variants) == ["raw", "aspect", "low"]
    results = collect(make_records(["aspect"], ["a/graph.npz", "b/graph.npz", "c/other.npz"]))
    assert list(results.graphs.values()) == ["a/graph.npz", "b/graph.npz", "other"]


def test_the_same_work_counts_once():
    records = make_records(["aspect"], ["cora"], seeds=2)
    again = make_records(["aspect"], ["cora"], seeds=3, plan="other")
    assert len(collect([*records, *again]).runs) == 3


def test_a_work_that_is_done_replaces_one_that_failed_in_any_order():
    (record,) = make_records(["aspect"], ["cora"], seeds=1)
    for records in ([record, fail(record)], [fail(record), record]):
        assert list(collect(records).runs["status"]) == ["done"]


def test_of_a_score_that_comes_twice_the_first_is_kept():
    first = make_records(["aspect"], ["cora"], seeds=1, splits=2, score=lambda **_: 70.0)
    again = make_records(["aspect"], ["cora"], seeds=1, splits=3, score=lambda **_: 71.0)
    assert list(strict(collect([*first, *again]))["value"]) == [70.0, 70.0, 71.0]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"settings": {"epochs": 31}}, "differ in epochs: 30 (plan clean, "),
        ({"version": "0.2.0"}, "differ in version: '0.1.0' (plan clean, "),
        ({"device": "cuda"}, "differ in device: 'cpu' (plan clean, "),
        ({"perturbations": [evade()], "settings": {"epochs": 5}}, "differ in epochs: 30 (plan "),
    ],
)
def test_other_works_in_the_same_place_are_refused_by_name(change, told):
    first = make_records(["aspect"], ["cora"], seeds=1, plan="clean")
    second = make_records(["aspect"], ["cora"], seeds=1, plan="other", **change)
    with pytest.raises(SettingsError) as caught:
        collect([*first, *second])
    sentence = str(caught.value)
    assert sentence.startswith("Records of 'aspect' on cora ")
    for words in (told, first[0].key, second[0].key, "(plan other, "):
        assert words in sentence


def test_a_failed_work_of_other_settings_refuses_nothing():
    records = make_records(["aspect"], ["cora"], seeds=1)
    (other,) = make_records(["aspect"], ["cora"], seeds=1, settings={"epochs": 5})
    results = collect([*records, fail(other)])
    assert not results.runs["is_gap"].any()  # the other record fills its splits


def attacked(entry, letter, **values):
    """Records of one split whose flips have this digest."""
    given = {"perturbations": [metattack()], "seeds": 1, "splits": 1, **values}
    return make_records([entry], ["cora"], perturbation_sha256=(64 * letter,), **given)


@pytest.mark.parametrize("entry", ["aspect", "low"])
def test_records_with_other_flips_are_refused(entry):
    first, second = attacked("aspect", "a"), attacked(entry, "b", plan="other")
    with pytest.raises(SettingsError) as caught:
        collect([*first, *second])
    assert "metattack (unrolled) 10% on cora have different flips for split 0" in str(caught.value)
    assert f"(plan other, {second[0].key})" in str(caught.value)


def test_other_solvers_budgets_and_splits_have_other_flips():
    others = [
        attacked("aspect", "b", perturbations=[metattack(solver="implicit")]),
        attacked("aspect", "c", perturbations=[metattack(0.2)]),
        attacked("aspect", "d", split_kind="random"),
    ]
    records = [*attacked("aspect", "a"), *(each for other in others for each in other)]
    assert len(collect(records).places) == 4


def test_perturbations_come_as_published_first_and_by_families():
    attacks = [
        poison(0.2),
        evade(0.1),
        poison(0.1),
        poison(0.1, features=False),
        metattack(solver="implicit"),
        metattack(mode="evade"),
        metattack(),
    ]
    results = collect(
        [
            *make_records(["aspect"], ["cora"], attacks),
            *make_records(["aspect"], ["cora"], split_kind="random"),
        ]
    )
    assert results.kinds == ["random", "class-balanced"]
    assert results.perturbations_of("random") == []
    assert results.families("class-balanced") == [
        ["metattack-unrolled-poison-10"],
        ["metattack-unrolled-evade-10"],
        ["metattack-implicit-poison-10"],
        ["random-poison-10", "random-poison-20"],
        ["random-poison-edges-10"],
        ["random-evade-10"],
    ]


@pytest.mark.parametrize(
    ("entries", "methods"),
    [
        ([*ABLATION, "raw"], ["aspect", "raw"]),
        (ABLATION[1:], ["aspect-global", "aspect-no-policy"]),  # variants of nothing
        (
            [Entry(name=name, method="aspect", group="fused") for name in ("fused", "half")],
            ["fused", "half"],  # nothing else is there
        ),
    ],
)
def test_methods_are_all_entries_but_variants(entries, methods):
    results = collect(make_records(entries, ["cora"]))
    assert results.methods == methods
    assert results.rows("class-balanced", CLEAN, ["cora"]) == methods
    records = [*make_records([Entry(name="aspect")], ["cora"]), *make_records(ABLATION, ["cora"])]
    assert collect(records).variants["aspect"].group == "aspect"  # known if any plan knows it


@pytest.mark.parametrize(
    ("entries", "reference"),
    [
        (["low", "aspect"], "aspect"),
        (["raw", Entry(name="low", group="low"), "random"], "low"),
        (["raw", "low"], "raw"),
        (ABLATION[::-1], "aspect"),
    ],
)
def test_the_reference_is_the_users_or_aspect_or_a_groups_or_the_first(entries, reference):
    results = collect(make_records(entries))
    assert results.reference() == reference
    last = list(results.variants)[-1]
    assert results.reference(last) == last
    with pytest.raises(UnknownNameError, match="Unknown variant 'aspct'"):
        results.reference("aspct")


def test_notices_are_said_once_with_their_number():
    records = [
        record.model_copy(
            update={
                "notices": ("4 of 4 test sets lack a class (of 5): 1.", "15 guessed labels."),
                "warnings": ("the gate has collapsed.",) if record.cell.entry == "low" else (),
            }
        )
        for record in make_records(["aspect", "low"], ["cora"], seeds=1)
    ]
    assert collect(records).notices == (
        "cora: 15 guessed labels. (2 times)",
        "low on cora: the gate has collapsed.",
    )


def test_works_with_different_results_are_counted():
    first = make_records(["aspect", "low"], ["cora"], seeds=1, score=lambda **_: 70.0)
    assert collect([*first, *first]).notices == ()
    luck = {"aspect": 1.5, "low": 0.0}
    other = make_records(
        ["aspect", "low"], ["cora"], seeds=1, score=lambda entry, **_: 70.0 - luck[entry]
    )
    assert collect([*first, *other]).notices == (
        "1 run came more than once with different scores, by up to 1.50 points of accuracy on a "
        "split; the first one counts.",
    )


def test_settings_stand_under_their_graphs():
    entries = ("aspect", Entry(name="mine", method="aspect", set={"fusion": "global"}))
    first = make_records(entries, ("cora",), settings={"epochs": 30, "order": 5})
    second = make_records(entries, ("folder/texas.npz",), settings={"epochs": 40})
    results = collect([*first, *second])
    values = results.settings["aspect"]
    assert values.loc["epochs"].tolist() == ["30", "40"]
    assert values.loc["order"].tolist() == ["5", "-"]
    assert results.settings["mine"].loc["fusion"].tolist() == ['"global"', '"global"']
    assert results.devices == ("a processor",)
    assert results.versions == ("aspect 0.1.0", "torch 2.11")


def test_no_records_are_empty_tables():
    results = collect([])
    assert len(results.scores) == len(results.runs) == 0
    assert (results.methods, results.kinds, results.places) == ([], [], set())
