"""`aspect embed`: embeddings of the run's own graph, or of one that it has not seen."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aspect.cli.options import Overwrite, check_target, with_old_name
from aspect.cli.session import Session, command
from aspect.config import Config, Share
from aspect.data.files import embedding_files
from aspect.data.source import NO_READING, GraphSource, Reading
from aspect.errors import FileError, SettingsError

if TYPE_CHECKING:
    from aspect.data.graph import Graph
    from aspect.estimator import Embedder

__all__ = ["embed"]


class EmbedOptions(Config):
    """Which edges are left out, and what is written."""

    prune: Annotated[Share, typer.Option(metavar="RATIO")] = 0.0
    """Ratio of the edges to prune: those that fit the neighbourhoods at their ends least. Protects
    against edges that were added to mislead."""
    doubt: Annotated[Share, typer.Option(hidden=True)] = 0.0
    normalise: Literal["none", "centre", "standard", "unit"] = "centre"
    """centre: subtract the mean, divide by one number; standard: by each column's std; unit:
    centred rows of length one; all as on the training graph. none: as computed."""
    gate: Annotated[bool, typer.Option("--gate")] = False
    """Write gate weights as a column of the table, not into a file of their own."""
    overwrite: Overwrite = False


@command(without=("seed",))
def embed(
    session: Session,
    model: Annotated[
        str, typer.Argument(help="A run's folder or a saved model.", metavar="RUN|MODEL")
    ],
    reading: Reading,
    how: EmbedOptions,
    out: Annotated[
        Path,
        typer.Option(
            help="File to write: .parquet, .csv, .npy, or word2vec text as .vec or .txt.",
            metavar="FILE",
        ),
    ],
    graph: Annotated[
        str | None,
        typer.Argument(
            help="A graph with the same features.  [default: the one trained on]", metavar="GRAPH"
        ),
    ] = None,
) -> None:
    """Write one row per node, with its id; gate weights go into a file beside it."""
    source = None if graph is None else GraphSource.named(graph, reading)
    if graph is None and reading != NO_READING:
        raise SettingsError("Options of reading belong to a graph. Name it after the model.")
    prune = with_old_name(session.screen, how.prune, how.doubt)
    how = how.model_copy(update={"prune": prune, "doubt": 0.0})
    files = _check_out(out, how, inputs=[model, graph, reading.nodes])
    with session.screen.activity("Embedding"):
        content = _embed(session, model, source, files, how)
    for warning in content["warnings"]:
        session.screen.warn(warning)
    session.screen.answer(content, lambda: session.screen.say(_sentence(content)))


def _check_out(
    out: Path, how: EmbedOptions, inputs: Iterable[str | Path | None]
) -> dict[str, Path]:
    """The files to write; what would be refused, or regretted, after all the work is so now."""
    files = embedding_files(out, gate_column=how.gate)
    for given in inputs:
        if given is not None and Path(given).exists() and out.exists() and out.samefile(given):
            raise FileError(f"{out} is one of the inputs. Choose another --out.")
    for path in files.values():
        check_target(path, overwrite=how.overwrite)
    return files


def _embed(
    session: Session,
    model: str,
    source: GraphSource | None,
    files: dict[str, Path],
    how: EmbedOptions,
) -> dict[str, Any]:
    from aspect.data.tensors import write_embeddings
    from aspect.evaluation.pruning import prune_edges
    from aspect.experiment.run import gate_summary

    embedder, whole = _load(session, model, source)
    for notice in whole.notices:
        session.screen.note(f"Note: {notice}")
    graph = prune_edges(whole, how.prune)
    embeddings, policy = embedder.embed(graph, normalise=how.normalise), embedder.policy(graph)
    health = embedder.health(graph)
    write_embeddings(
        files["embeddings"],
        embeddings,
        graph.ids,
        policy,
        overwrite=how.overwrite,
        integer_ids=graph.integer_ids,
        gate_column=how.gate,
    )
    return {
        "out": str(files["embeddings"]),
        "gate_out": None if how.gate or policy is None else str(files["gate"]),
        "nodes": len(embeddings),
        "dim": embeddings.shape[1],
        "normalise": how.normalise,
        "gate": gate_summary(policy),
        "pruned_edges": whole.num_edges - graph.num_edges,
        "health": health.to_dict(),
        "warnings": health.warnings(),
    }


def _load(session: Session, model: str, source: GraphSource | None) -> tuple[Embedder, Graph]:
    from aspect.estimator import Embedder
    from aspect.experiment.trained import open_run

    if Path(model).is_dir():
        run = open_run(model)
        embedder = run.load_model(session.device)
        if embedder.is_stale:
            embedder.calibrate(run.read_trained_graph(session.data_dir))
            session.screen.note("Note: the statistics were recomputed on the training graph.")
        if source is not None:
            return embedder, source.read(session.data_dir).graph
        if run.is_poisoned:
            session.screen.note(
                f"Note: {model} was trained on a perturbed graph, and that one is embedded. "
                "Name the graph after the run to embed it unperturbed."
            )
        return embedder, run.read_trained_graph(session.data_dir)
    embedder = Embedder.load(model, device=session.device)
    if source is None:
        raise SettingsError(f"{model} has no graph of its own. Name the graph to embed.")
    return embedder, source.read(session.data_dir).graph


def _sentence(content: dict[str, Any]) -> str:
    gate = content["gate"]
    policy = "" if gate is None else f" Mean gate weight of the low band: {gate['mean']:.2f}."
    if content["gate_out"]:
        policy += f" Gate weights: {content['gate_out']}."
    wrote = f"Wrote {content['nodes']} embeddings of {content['dim']} dimensions"
    pruned = content["pruned_edges"]
    told = f" {pruned} edges with little support were pruned." if pruned else ""
    return f"{wrote} to {content['out']}.{policy}{told}"
