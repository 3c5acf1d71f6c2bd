"""`aspect neighbours`: the nodes that a run embeds most like a node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aspect.cli.session import Session, command
from aspect.training.files import check_run


@command(without=("seed", "device", "data_dir"))
def neighbours(
    session: Session,
    run: Annotated[Path, typer.Argument(help="A run's folder.", metavar="RUN")],
    node: Annotated[
        str,
        typer.Argument(
            help="Id of a node as the graph has it; without ids, its row from 0 on.", metavar="NODE"
        ),
    ],
    k: Annotated[int, typer.Option("--k", help="How many.", metavar="N", min=1)] = 10,
) -> None:
    """List the nodes with the most similar embeddings, by cosine: exact, over all nodes.

    The embeddings are those that the training left in the run's folder, centred.
    """
    check_run(run)
    with session.screen.activity("Searching"):
        from aspect.evaluation.nearest import nearest_nodes, row_of
        from aspect.experiment.trained import open_run

        stored = open_run(run)
        embeddings, ids = stored.read_embeddings()
        nearest = nearest_nodes(embeddings, row_of(node, ids, len(embeddings)), k)
    rows, cosines = nearest.rows.tolist(), nearest.cosines.tolist()
    names = [str(row) if ids is None else ids[row] for row in rows]
    content = {
        "run": str(run),
        "graph": stored.record["graph"]["name"],
        "method": stored.record["method"],
        "node": node,
        "neighbours": [
            {"node": name, "cosine": cosine} for name, cosine in zip(names, cosines, strict=True)
        ],
    }
    session.screen.answer(content, lambda: _show(session, content))


def _show(session: Session, content: dict[str, Any]) -> None:
    found, node = content["neighbours"], content["node"]
    session.screen.say(
        f"{content['graph']}: the {len(found)} nodes most similar to {node}, by {content['method']}"
    )
    cells = [[entry["node"], f"{entry['cosine']:.4f}"] for entry in found]
    session.screen.table(["node", "cosine"], cells)
