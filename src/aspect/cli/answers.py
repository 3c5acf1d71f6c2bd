"""What every command answers with `--json`: one model each, with a version.

An answer names its schema, such as `aspect/train/1`. A key that is added keeps the number; one that
is renamed, removed or changes its meaning raises it. Keys with the default None may be missing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from aspect.config import Config

Object = dict[str, Any]


class Answer(Config):
    """The answer of a command."""

    version: ClassVar[int] = 1


class OfMethod(Answer):
    """What is told of a method on a graph."""

    graph: str
    """Its name."""
    method: str
    """Its name."""


class Measured(OfMethod):
    """Numbers of it."""

    notices: list[str]
    """What to know of the numbers."""


class Example(Answer):
    """A study on graphs of aspect's own, with a page."""

    out: str
    """Folder of the page."""
    report: str
    """The page."""
    findings: list[str]
    """In sentences."""
    settings: Object
    """The method's settings in full."""
    device: str
    """`cpu` or the GPU's name."""
    seconds: float
    """Of all."""
    versions: dict[str, str]
    """Of aspect, Python and the libraries."""
    command: str
    """That gives the same again."""


class ErrorAnswer(Answer):
    """What any command answers in place of its own when it fails."""

    command: str | None
    """The command; null: there is none of that name."""
    error: dict[str, str]
    """`kind`, a class of `aspect.errors` or of Python, and `message`, one sentence."""
    exit_code: int
    """2: input that you can fix; 130: interrupted; 1: a fault of aspect."""


class CheckAnswer(Answer):
    """`aspect check`."""

    graph: str
    """Its name."""
    accepted: bool
    """Whether a training would be."""
    errors: list[str]
    """What must be fixed, a sentence each."""
    warnings: list[str]
    """What should not be overlooked."""
    notes: list[str]
    """What else was cleaned or noticed."""
    summary: Object | None
    """`nodes`, `edges`, `components`, `largest_component`, `isolated_nodes`, `features`, `classes`,
    `labelled_nodes`, `homophily`; null: the edges cannot be read."""
    columns: list[Object]
    """Of the node table: `name`, `kind`, `missing`, `encoding`, `features`."""


class TrainAnswer(Answer):
    """`aspect train`: the record of the run, as `record.json` has it."""

    run: str
    """The run's folder."""
    format: int
    """Of `record.json`."""
    method: str
    """Its name; `module:Class` of a method from outside."""
    source: str | None = None
    """SHA-256 of the source of a method from outside."""
    seed: int
    """Of first weights and of every draw."""
    settings: Object
    """The method's settings in full."""
    settings_from: str
    """Where they come from."""
    graph: Object
    """`name`, `path`, `data_dir`, `nodes`, `edges`, `features`, `classes`, `sha256`."""
    perturbation: Object | None = None
    """What was done to the graph before: file, kind, budget, flips, split and more."""
    prune: Object | None = None
    """What was pruned before the training: asked were `ratio`, `score`, `rounds` and `soft`; of the
    `edges`, `pruned` went, a ratio of `reached` (with `soft`: that weigh less), by `used_score`."""
    epochs: int
    """That were trained."""
    stopped_early: bool
    """Whether patience or a collapse ended it."""
    loss: dict[str, float]
    """The last of every term; the weighted sum is `loss`."""
    dim: int
    """Width of the embedding."""
    gate: dict[str, float] | None
    """`mean` and `std` of the low band's weight; null: no gate."""
    health: Object | None = None
    """Signs of collapse: `mean_cosine`, `effective_rank`, `variance_share`, norms."""
    warnings: list[str]
    """What is wrong with the model."""
    notices: list[str] | None = None
    """What was cleaned in the graph."""
    rows: Object | None = None
    """How it was trained on as rows; null: on the whole graph."""
    seconds: float
    """Of the training."""
    seconds_by_step: dict[str, float] | None = None
    """Of a store: `propagate`, `train`, `embed`."""
    device: str
    """`cpu` or the GPU's name."""
    versions: dict[str, str]
    """Of aspect, Python and the libraries."""


class EmbedAnswer(Answer):
    """`aspect embed`."""

    out: str
    """The file of embeddings."""
    gate_out: str | None
    """The file of gate weights."""
    nodes: int
    """Rows that were written."""
    known_nodes: int
    """Nodes of the training graph that new ones were added to."""
    dim: int
    """Width of the embedding."""
    normalise: str
    """As asked for."""
    gate: dict[str, float] | None
    """`mean` and `std` of the low band's weight."""
    pruned_edges: int
    """Edges left out by `--prune`, or by the model's own rule."""
    edges: int
    """Of the graph, those included."""
    prune_score: str | None
    """The score that they went by; null without `--prune`."""
    health: Object
    """Signs of collapse."""
    warnings: list[str]
    """What is wrong with the model's output."""


class EvaluateAnswer(Measured):
    """`aspect evaluate`; which keys there are depends on the task and on perturbations."""

    task: str
    """classify, cluster or link."""
    runs: list[str]
    """Folders of the runs, or files of embeddings."""
    rows: list[Object]
    """The table: `name`, and for every score its mean, std and interval; under perturbations
    `budget`, `clean`, `perturbed`, `drop`, `drop_interval` as well."""
    warnings: list[str]
    """What is wrong with the runs."""
    splits: str | None = None
    """Kind of splits."""
    probe: str | None = None
    """What scores the embeddings."""
    metric: str | None = None
    """What it chose by on validation nodes."""
    strict: Object | None = None
    """Test accuracy of the method: `mean`, `std`, `low`, `high`, `seeds`, `splits`, `std_seeds`."""
    optimistic: Object | None = None
    """The same where the test set chooses the step; `--probe paper` alone."""
    macro_f1: Object | None = None
    """The same, macro-F1."""
    roc_auc: Object | None = None
    """The same, one-vs-rest ROC AUC."""
    validation: Object | None = None
    """The metric on validation nodes."""
    knn: Object | None = None
    """Accuracy of nearest neighbours among the rows as `embeddings.npy` has them."""
    prune: Object | None = None
    """Ratios that validation chose, split by split; in the row of the pruned method."""
    pruned: Object | None = None
    """Ratios of the edges that went."""
    prune_score: str | None = None
    """The score that they went by."""
    at_path_end: float | None = None
    """Ratio of probes whose best penalty is the first or the last."""
    per_class: list[Object] | None = None
    """`label`, `name`, `recall`, `precision`, `f1`, `roc_auc`, `support`."""
    health: list[Object] | None = None
    """Signs of collapse, of each run."""
    mode: str | None = None
    """poison or evade."""
    kind: str | None = None
    """The attack."""
    solver: str | None = None
    """Its variant."""
    features: bool | None = None
    """Whether features were masked as well."""
    perturbations: list[Object] | None = None
    """Every perturbation of every file."""
    seeds: list[int] | None = None
    """Of the repeats of a task."""
    repeats: int | None = None
    """k-means of each run, or sets of held-out edges."""
    clusters: int | None = None
    """Of k-means."""
    classes: int | None = None
    """Of the graph."""
    edges: dict[str, int] | None = None
    """Of `--task link`: for `training`, `validation` and `test`."""
    negatives: Object | None = None
    """Of `--task link`: pairs that are no edges, and how they are drawn."""


class NeighboursAnswer(OfMethod):
    """`aspect neighbours`."""

    run: str
    """The run's folder."""
    node: str
    """The node asked for."""
    neighbours: list[Object]
    """`node` and `cosine`, the most similar first."""


class InspectAnswer(Measured):
    """`aspect inspect`."""

    runs: list[str]
    """Folders of the runs."""
    nodes: int
    """Of the graph."""
    splits: str
    """Kind of splits."""
    gate: dict[str, float] | None
    """`mean` and `std` of the low band's weight."""
    rows: list[Object]
    """Every fusion of the bands: `name`, `accuracy`, `gains`."""
    conclusion: str
    """Whether node-wise fusion can pay here."""


class AttackAnswer(Answer):
    """`aspect attack`."""

    out: str
    """The file, or the folder of files."""
    flips: int
    """Of all files."""
    files: list[Object]
    """Each file: `out`, `graph`, `kind`, `solver`, `settings`, `splits`, `split`, `seed`, `flips`,
    `reached`, `complete`, `seconds`, `device`, and `kept`: flips that were there before."""
    seconds: float | None = None
    """Of the attacks."""
    peak_memory_bytes: int | None = None
    """Most memory of the process."""
    added: int | None = None
    """Edges added, of an import."""
    removed: int | None = None
    """Edges removed, of an import."""


class StabilityAnswer(Measured):
    """`aspect stability`."""

    run: str
    """The run's folder."""
    nodes: int
    """Of the graph."""
    edges: int
    """Of the graph."""
    feature_entries: int
    """That are not zero."""
    seed: int
    """Of every draw."""
    splits: str | None
    """Kind of splits."""
    split_numbers: list[int]
    """Of the splits that the probe was trained on."""
    clean: Object | None
    """Test accuracy on the clean graph."""
    clean_scores: list[Object]
    """The same, split by split."""
    rows: list[Object]
    """Every perturbation: `kind`, `title`, `budget`, `flips`, `masked_entries`, `shift`,
    `relative_shift`, `band_shift`, `gate_shift`, `clean`, `perturbed`, `drop`, `measurements`."""
    perturbations: list[str]
    """Files that were used."""
    warnings: list[str]
    """What is wrong with the run."""


class BenchAnswer(Answer):
    """`aspect bench`."""

    plan: str
    """Its name."""
    out: str
    """Folder of the records."""
    cells: int
    """Runs of the plan."""
    done: int
    """Of these."""
    failed: int
    """Of these."""
    left: int | None = None
    """Of these; more than none after `--seconds`."""
    kept: int | None = None
    """Runs that were done before."""
    collapsed: int | None = None
    """Runs whose embedding collapsed."""
    first_error: str | None = None
    """Of the runs that failed."""
    seconds: float | None = None
    """Of this call."""
    perturbations: dict[str, int]
    """Files `found`, and `made` and `failed`; with `--list`, those `missing`."""
    rows: list[Object] | None = None
    """With `--list`: `entry`, `graph`, `done`, `failed`, `left`."""


class TuneAnswer(Answer):
    """`aspect tune`."""

    searches: list[Object]
    """Every search: `graph`, `method`, `trials` and their states, `validation` and `trial` of the
    best, `start`, `changed`, `folder`, `settings`, `report` and how trials were scored."""


class ReportAnswer(Answer):
    """`aspect report`."""

    report: str
    """The page."""
    files: list[str]
    """All that was written."""
    records: int | None = None
    """Shown on it."""
    failed: int | None = None
    """Of these."""
    models: int | None = None
    """Shown node by node."""


class DatasetsAnswer(Answer):
    """`aspect datasets`: a list, or the one that was added."""

    datasets: list[Object] | None = None
    """Each with the keys below."""
    name: str | None = None
    """What commands take."""
    nodes: int | None = None
    """Number."""
    edges: int | None = None
    """Number, each counted once."""
    features: int | None = None
    """Number."""
    classes: int | None = None
    """Number."""
    splits: int | None = None
    """Published ones."""
    path: str | None = None
    """Where its file is."""
    downloadable: bool | None = None
    """Whether its source is known."""
    made_by: str | None = None
    """`module:function` of a data set from outside."""
    source: str | None = None
    """Who publishes it."""
    licence: str | None = None
    """As stated there."""
    note: str | None = None
    """What to beware of."""


class MethodsAnswer(Answer):
    """`aspect methods`: a list, or one method in full."""

    methods: list[Object] | None = None
    """Each with the keys below, up to `summary`."""
    name: str | None = None
    """What commands take."""
    class_: str | None = Field(default=None, alias="class")
    """`module:Class` of a method from outside."""
    family: str | None = None
    """Kind of method."""
    paper: str | None = None
    """Short citation."""
    cost: str | None = None
    """How the time of an epoch grows with the nodes."""
    inductive: bool | None = None
    """Whether it embeds graphs that it was not trained on."""
    mini_batch: bool | None = None
    """Whether it trains on parts of the graph."""
    needs_quadratic_time: bool | None = None
    """Whether an epoch compares all pairs of nodes."""
    trainable: bool | None = None
    """False of controls that learn nothing."""
    summary: str | None = None
    """One sentence."""
    citation: Object | None = None
    """Authors, title, venue, year, reference."""
    bibtex: str | None = None
    """The same for a bibliography."""
    remarks: list[str] | None = None
    """Differences from the paper and more."""
    settings: list[Object] | None = None
    """`name`, `default`, `allowed`, `searched`, `explanation`."""
    shipped: list[Object] | None = None
    """Settings that are shipped: `graph`, `choice`, `official`, `origin`."""


class DemoAnswer(Example):
    """`aspect demo`."""

    graph: Object
    """`name`, `nodes`, `edges`, `features`, `classes`."""
    seeds: list[int]
    """Of the trainings."""
    splits: int
    """Number."""
    rows: list[Object]
    """The table: `name`, `title`, `role`, `strict`."""
    gate: list[Object]
    """Gate weights of each region."""
    tests: list[Object]
    """Significance: `name`, `test`, `p_value`."""
    gap: Object
    """How much of the way to the oracle is won."""


class TheoryAnswer(Example):
    """`aspect theory`."""

    rows: list[Object]
    """The table."""
    holds: bool
    """Whether every bound holds."""
    trade_offs: list[Object]
    """What one mix for all nodes costs."""
    scope: Object
    """What was measured."""
    temperature: float
    """Of the loss."""
    caveats: list[str]
    """What they do not say."""


class StoreAnswer(Answer):
    """`aspect store`: what the store holds."""

    path: str
    """Its folder."""
    nodes: int
    """Of the graph."""
    edges: int
    """Undirected, each counted once."""
    features: int
    """Columns."""
    classes: int
    """Of the labels."""
    weighted: bool
    """Whether edges have weights."""
    blocks: int
    """That it is cut into."""
    bytes: int
    """On the disk."""
    notices: list[str]
    """What was cleaned."""


class GenerateAnswer(StoreAnswer):
    """`aspect generate`: the same of the graph that was drawn."""


class PlanAnswer(Answer):
    """`aspect plan`."""

    nodes: int
    """Of the graph."""
    edges: int
    """Undirected."""
    features: int
    """Columns."""
    workers: int
    """That share the work."""
    modes: Object
    """`full` and `rows`: time, memory and disk of every step."""
    advice: str
    """Which to take, a sentence."""


class ClusterAnswer(Answer):
    """`aspect cluster`."""

    address: str | None
    """`$RAY_ADDRESS`; null: it is not set."""
    how: list[str]
    """To start a cluster and to join it, a line each."""
    cpus: int | None = None
    """Of the cluster at the address."""
    gpus: int | None = None
    """Of the cluster at the address."""


ANSWERS: dict[str, type[Answer]] = {
    name.removesuffix("Answer").lower(): kind
    for name, kind in list(globals().items())
    if name.endswith("Answer") and kind is not Answer
}


def schema_of(command: str) -> str:
    """The name of a command's schema, with its version.

    >>> schema_of("train")
    'aspect/train/1'
    """
    return f"aspect/{command}/{ANSWERS[command].version}"


def json_schema(command: str) -> dict[str, Any]:
    """The JSON schema of a command's answer."""
    name, schema = schema_of(command), ANSWERS[command].model_json_schema()
    schema["properties"] = {"schema": {"const": name}, **schema["properties"]}
    return {"$id": name, **schema, "required": ["schema", *schema.get("required", [])]}
