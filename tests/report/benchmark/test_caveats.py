"""What a reader must know beside the numbers."""

from aspect.report.benchmark.caveats import missing_class_notes, notices, repeated_works
from aspect.report.benchmark.collection import collect
from report.benchmark_records import evade, make_records, poison


def test_one_sentence_names_the_classes_that_test_sets_lack():
    records = [
        *make_records(["aspect"], ["cora"]),
        *make_records(["aspect"], ["texas"], [None, poison(), evade()], missing_in_test=(1, 3)),
        *make_records(["aspect"], ["actor"], missing_in_test=(0,)),
    ]
    assert missing_class_notes(records, "class-balanced") == [
        "Class-balanced test sets lack classes: texas 1, 3; actor 0."
    ]
    assert missing_class_notes(records, "random") == []


def test_classes_that_some_splits_lack_are_told_apart():
    (record,) = make_records(["aspect"], ["texas"], seeds=1, splits=2)
    first, second = record.scores
    record = record.model_copy(
        update={
            "scores": (
                first.model_copy(update={"missing_in_test": (1, 3), "missing_in_train": (0,)}),
                second.model_copy(update={"missing_in_test": (1,)}),
            )
        }
    )
    assert missing_class_notes([record], "class-balanced", ["texas"]) == [
        "Class-balanced test sets lack classes: texas 1 and in some splits 3.",
        "Class-balanced training sets lack classes: texas in some splits 0.",
    ]


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
    assert notices(collect(records)) == [
        "cora: 15 guessed labels. (2 times)",
        "low on cora: the gate has collapsed.",
    ]


def test_works_that_came_out_differently_are_counted():
    first = make_records(["aspect", "low"], ["cora"], seeds=1, score=lambda **_: 70.0)
    again = make_records(["aspect", "low"], ["cora"], seeds=1, score=lambda **_: 70.0)
    assert repeated_works([*first, *again]) == []
    luck = {"aspect": 1.5, "low": 0.0}
    other = make_records(
        ["aspect", "low"], ["cora"], seeds=1, score=lambda entry, **_: 70.0 - luck[entry]
    )
    assert repeated_works([*first, *other, *again]) == [
        "1 cell came more than once and not the same each time, by up to 1.50 points of accuracy "
        "on a split; the first one counts."
    ]
