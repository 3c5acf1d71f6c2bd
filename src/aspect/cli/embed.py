"""`aspect embed`: embeddings of the run's own graph, or of one that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from aspect.attacks.pruning import DEFAULT, edge_score_text, reached_text
from aspect.cli.completion import graph_argument
from aspect.cli.options import Overwrite, check_target, is_of_store
from aspect.cli.session import Session, command
from aspect.config import Config, Share
from aspect.data.files import embedding_files, is_present
from aspect.data.source import NO_READING, GraphSource, Reading
from aspect.errors import RunError, SettingsError

if TYPE_CHECKING:
    from aspect.data.graph import Graph
    from aspect.estimator import Embedder


class EmbedOptions(Config):
    """Which nodes and edges are added or left out, and what is written."""

    add: Annotated[Path | None, typer.Option(metavar="FILE")] = None
    """Edge table of new nodes, which --nodes describes: they join the graph trained on, and they
    alone are written."""

    prune: Annotated[Share, typer.Option(metavar="RATIO")] = 0.0
    """Ratio of the edges to prune at most: those that fit their ends least. Protects against
    edges that were added to mislead."""
    normalise: Literal["none", "centre", "standard", "unit"] = "centre"
    """centre: subtract the mean, divide by one number; standard: by each column's std; unit:
    centred rows of length one; all as on the training graph. none: as computed."""
    gate: bool = False
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
        str | None, graph_argument("A graph with the same features.  [default: the one trained on]")
    ] = None,
) -> None:
    """Write one row per node, with its id; gate weights go into a file beside it."""
    if how.add is not None and graph is not None:
        raise SettingsError(f"--add extends the graph trained on. Got {graph!r} as well.")
    if graph is None and how.add is None and reading != NO_READING:
        raise SettingsError("Options of reading belong to a graph. Name it after the model.")
    source = None if graph is None else GraphSource.named(graph, reading)
    if how.add is not None:
        source = GraphSource(graph=str(how.add), reading=reading)
    files = embedding_files(out, gate_column=how.gate)
    for path in files.values():
        inputs = (model, graph, reading.nodes, how.add)
        check_target(path, overwrite=how.overwrite, inputs=inputs)
    if not is_present(Path(model)):
        raise RunError(
            f"There is no run and no saved model at {model!r}. Train one with: aspect train."
        )
    with session.screen.activity("Embedding"):
        content = _embed(session, model, source, files, how)
    session.screen.warn(*content["warnings"])
    session.screen.answer(content, lambda: session.screen.say(_sentence(content, how.prune)))


def _embed(
    session: Session,
    model: str,
    source: GraphSource | None,
    files: dict[str, Path],
    how: EmbedOptions,
) -> dict[str, Any]:
    from aspect.attacks.purification import prune_edges, used_score
    from aspect.data.tensors import write_embeddings
    from aspect.experiment.run import gate_summary

    if source is None and is_of_store(Path(model)):
        from aspect.experiment.trained import open_run
        from aspect.experiment.trained_store import embed_run

        if how.prune:
            raise SettingsError("--prune needs the graph in memory, and the run is of a store.")
        return embed_run(open_run(model), files["embeddings"], how.normalise)
    embedder, whole, known = _load(session, model, source, adds=how.add is not None)
    if source is not None:  # what is to be said of the graph trained on was said then
        session.screen.notices(dict.fromkeys(whole.notices))
    if embedder.prune is not None and how.prune:
        raise SettingsError(
            f"{model} prunes every graph by its own rule. Leave --prune {how.prune:g} out."
        )
    graph = prune_edges(whole, how.prune)
    embeddings = embedder.embed(graph, normalise=how.normalise)[known:]
    policy = embedder.policy(graph)
    policy = None if policy is None else policy[known:]
    health = embedder.health(graph)
    write_embeddings(
        files["embeddings"],
        embeddings,
        None if graph.ids is None else graph.ids[known:],
        policy,
        overwrite=how.overwrite,
        integer_ids=graph.integer_ids,
        gate_column=how.gate,
    )
    return {
        "out": str(files["embeddings"]),
        "gate_out": None if how.gate or policy is None else str(files["gate"]),
        "nodes": len(embeddings),
        "known_nodes": known,
        "dim": embeddings.shape[1],
        "normalise": how.normalise,
        "gate": gate_summary(policy),
        "pruned_edges": whole.num_edges - embedder.pruned(graph).num_edges,
        "edges": whole.num_edges,
        "prune_score": used_score(whole) if how.prune else None,
        "health": health.to_dict(),
        "warnings": health.warnings(),
    }


def _load(
    session: Session, model: str, source: GraphSource | None, *, adds: bool
) -> tuple[Embedder, Graph, int]:
    """The model, the graph to embed, and how many of its first nodes are not asked for."""
    from aspect.estimator import Embedder
    from aspect.experiment.trained import open_run

    if not Path(model).is_dir():
        embedder = Embedder.load(model, device=session.device)
        if source is None or adds:
            raise SettingsError(f"{model} has no graph of its own. Name the graph to embed.")
        return embedder, _read(session, embedder, source), 0
    run = open_run(model)
    embedder = run.load_model(session.device)
    if source is not None and source.is_tables:
        reading = run.experiment.reading.for_embedding(source.reading)
        source = GraphSource(graph=source.graph, reading=reading)
    if source is not None and not adds:
        return embedder, _read(session, embedder, source), 0
    if run.is_poisoned:
        session.screen.note(
            f"Note: {model} was trained on a perturbed graph, and that one is embedded. "
            "Name the graph after the run to embed it unperturbed."
        )
    trained = run.read_trained_graph(session.data_dir)
    if source is None:
        return embedder, trained, 0
    from aspect.data.tables import extend_graph

    extended = extend_graph(trained, source.graph, source.reading, embedder.encoder)
    return embedder, extended, trained.num_nodes


def _read(session: Session, embedder: Embedder, source: GraphSource) -> Graph:
    """A graph with features as in training; a model without an encoder took numbers as they are."""
    if embedder.encoder is None and source.reading.nodes is not None:
        source = source.unscaled()
    return source.read(session.data_dir, embedder.encoder).graph


def _sentence(content: dict[str, Any], asked: float) -> str:
    gate = content["gate"]
    policy = "" if gate is None else f" Mean gate weight of the low band: {gate['mean']:.2f}."
    if content["gate_out"]:
        policy += f" Gate weights: {content['gate_out']}."
    new = " of new nodes" if content["known_nodes"] else ""
    wrote = f"Wrote {content['nodes']} embeddings{new} of {content['dim']} dimensions"
    pruned, edges, told = content["pruned_edges"], content["edges"], ""
    if asked:
        score = edge_score_text(DEFAULT, content["prune_score"])
        told = f" Pruned: {reached_text(pruned, edges, asked)}. {score}"
    elif pruned:  # by the model's own rule
        told = f" Pruned: {pruned} of {edges} edges."
    return f"{wrote} to {content['out']}.{policy}{told}"
