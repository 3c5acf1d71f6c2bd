"""`aspect evaluate --task cluster|link`: what is trained, measured and shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aspect.cli.console import explain, score_text
from aspect.cli.options import ProbeOptions, SweepOptions
from aspect.cli.session import Session
from aspect.cli.train import PlannedRun, run_all
from aspect.errors import RunError, SettingsError, counted

METRICS = {
    "nmi": "NMI",
    "ari": "ARI",
    "silhouette": "silhouette",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "cosine_roc_auc": "ROC AUC, cosine",
    "cosine_average_precision": "average precision, cosine",
}


def evaluate_task(
    session: Session,
    how: ProbeOptions,
    sweep: SweepOptions,
    paths: Sequence[Path],
    plans: Sequence[PlannedRun],
    *,
    retrain: bool,
) -> dict[str, Any]:
    """Evaluate runs, or trainings on a graph where there are none."""
    if sweep.is_given:
        raise SettingsError(
            "--perturbation, --budget, --mode and --edges-only belong to --task classify. "
            f"Got --task {how.task}."
        )
    options: dict[str, Any] = {"device": session.device}
    if how.repeats is not None:
        options["repeats"] = how.repeats
    if how.task == "cluster":
        _check_clusters(session, how.clusters, plans)
        folders = paths or run_all(session, plans, retrain=retrain)
        from aspect.experiment.tasks import cluster_runs

        options |= {"clusters": how.clusters, "data_dir": session.data_dir}
        with session.screen.progress("Clustering") as advance:
            return cluster_runs(folders, on_step=advance, **options)
    if retrain:
        raise SettingsError("--task link trains anew every time, so that --retrain does nothing.")
    with session.screen.activity("Starting"):
        from aspect.experiment.evaluate import open_seeds
        from aspect.experiment.tasks import predict_links

        if paths:
            stored = open_seeds(paths)
            for run in stored:
                if run.is_poisoned:
                    raise RunError(
                        f"{run.path} was trained on a perturbed graph, whose added edges are no "
                        "links. Give a run on the clean graph."
                    )
            experiments = [run.experiment for run in stored]
            labelled = stored[0].read_graph(session.data_dir)
        else:
            experiments = [plan.experiment for plan in plans]
            labelled = plans[0].experiment.source.read(session.data_dir)
    session.screen.notices(labelled.graph.notices)
    with session.screen.progress("Training") as advance:
        runs = [str(path) for path in paths]
        return predict_links(experiments, labelled, runs=runs, on_step=advance, **options)


def _check_clusters(session: Session, clusters: int | None, plans: Sequence[PlannedRun]) -> None:
    """Refuse before the first training what the end would refuse."""
    from aspect.evaluation.clustering import num_clusters

    for plan in plans[:1]:  # none for runs
        with session.screen.activity("Starting"):
            labelled = plan.experiment.source.read(session.data_dir)
        num_clusters(clusters, labelled.labels, labelled.graph.num_nodes)


def show_task(session: Session, content: dict[str, Any]) -> None:
    """The table, and what its columns mean."""
    screen, graph, rows = session.screen, content["graph"], content["rows"]
    columns = {key: name for key, name in METRICS.items() if any(row.get(key) for row in rows)}
    cells = [[row["name"], *(score_text(row[key]) for key in columns)] for row in rows]
    seeds, repeats = counted(len(content["seeds"]), "seed"), content["repeats"]
    if content["task"] == "cluster":
        title = f"{graph}: {content['clusters']} clusters, over {seeds} and {repeats} k-means each"
        legend = (
            "NMI, ARI: agreement with the classes, in percent; an ARI of 0 is chance. silhouette: "
            "from -1 to 1, how clear the clusters are, whatever the classes."
        )
    else:
        sets = f"{counted(repeats, 'set')} of held-out edges"
        title = f"{graph}: percent over {seeds} and {sets}"
        legend = (
            "ROC AUC, average precision: of a logistic regression on products of both ends' "
            "embeddings; 50 is chance. cosine: of their cosine, nothing fitted."
        )
    screen.table(["method", *columns.values()], cells, title=title)
    screen.say(legend)
    explain(screen, rows)
    screen.say(*content["notices"])
    screen.warn(*content["warnings"])
