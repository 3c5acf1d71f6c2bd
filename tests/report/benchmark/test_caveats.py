"""What a reader must know beside the numbers."""

from aspect.report.benchmark.caveats import missing_class_notes, notices
from aspect.report.benchmark.collection import collect
from report.benchmark_records import evade, make_records, poison


def test_one_sentence_per_graph_names_the_classes_that_test_sets_lack():
    records = [
        *make_records(["aspect"], ["cora"]),
        *make_records(["aspect"], ["texas"], [None, poison(), evade()], missing_in_test=(1, 3)),
    ]
    assert missing_class_notes(records, "class-balanced") == [
        "Class-balanced test sets of texas lack classes 1, 3 (of 5)."
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
        "Class-balanced test sets of texas lack class 1 and class 3 in some splits (of 5).",
        "Class-balanced training sets of texas lack class 0 in some splits (of 5).",
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
