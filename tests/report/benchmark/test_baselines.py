"""Baselines without an embedding: lines of every table of accuracies, where records tell them."""

from aspect.report.benchmark.accuracy import clean_tables, perturbed_tables
from aspect.report.benchmark.baselines import baseline_lines, majority_notes
from aspect.report.benchmark.collection import collect
from report.benchmark_records import make_records, poison

TWINS, MAJORITY = "Nearest neighbour by neighbour sets", "Majority class"


def told(records, **values):
    """The same records; each split has the values at its place."""
    return [
        record.model_copy(
            update={
                "scores": tuple(
                    scores.model_copy(
                        update={name: found[scores.split] for name, found in values.items()}
                    )
                    for scores in record.scores
                )
            }
        )
        for record in records
    ]


def clean_records(*graphs):
    return make_records(["aspect", "low"], graphs, splits=2, probe="neutral")


def line_of(table, title):
    (line,) = [line for line in table.lines if line.title == title]
    return line


def test_baselines_are_the_last_lines_where_any_record_tells_them():
    texas = clean_records("texas")
    texas = [*told(texas[:1], majority=[70.0, 81.0], twins=[60.0, 60.0]), *texas[1:]]
    (table, *others) = clean_tables([*texas, *clean_records("cora")])
    assert [line.title for line in table.lines] == ["aspect", "low", TWINS, MAJORITY]
    assert [cell.text for cell in line_of(table, MAJORITY).cells] == ["-", "75.50 ± 7.78"]
    assert [cell.text for cell in line_of(table, TWINS).cells] == ["-", "60.00 ± 0.00"]
    assert not any(MAJORITY in line.title for other in others for line in other.lines)


def test_a_baseline_that_is_best_is_marked_so():
    records = told(clean_records("chameleon"), twins=[99.5, 99.5])
    (table, *_) = clean_tables(records)
    assert line_of(table, TWINS).cells[0].mark == "best"


def test_without_numbers_there_is_no_line():
    collection = collect(clean_records("cora"))
    assert baseline_lines(collection, "class-balanced", None, ["cora"]) == []
    large = collect(told(clean_records("cora"), majority=[50.0, 52.0]))
    (line,) = baseline_lines(large, "class-balanced", None, ["cora"])
    assert line.title == MAJORITY


def test_on_perturbed_graphs_a_baseline_has_no_drop():
    records = make_records(["aspect"], ["cora"], [None, poison()], splits=2, probe="neutral")
    (table,) = perturbed_tables(told(records, majority=[50.0, 52.0]))
    first, drop = line_of(table, MAJORITY).cells
    assert (first.text, drop.text) == ("51.00 ± 1.41", "-")


def test_the_majority_class_of_the_first_version_stays_a_note():
    texas, cora = (make_records(["aspect", "low"], [name], splits=2) for name in ("texas", "cora"))
    collection = collect([*told(texas[:1], majority=[70.0, 81.0]), *texas[1:], *cora])
    (note,) = majority_notes(collection, "class-balanced", ["cora", "texas"])
    assert note == "One answer for every node, validation's most frequent class: texas 75.50."
    (table, *others) = clean_tables(collection)
    assert note in table.notes
    assert not any(note in other.notes for other in others)
    assert [line.title for line in table.lines] == ["aspect", "low"]
    assert majority_notes(collect(cora), "class-balanced", ["cora"]) == []
