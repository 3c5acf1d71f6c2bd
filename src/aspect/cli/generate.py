"""`aspect generate`: a large mixed graph to try scale with, written as a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aspect.cli.session import Session, command
from aspect.cli.store import StoreOptions, show_store
from aspect.scale.options import MixedModel


@command(without=("device", "data_dir"))
def generate(
    session: Session,
    model: MixedModel,
    options: StoreOptions,
    out: Annotated[Path, typer.Option(help="Folder of the store.", metavar="DIR")],
) -> None:
    """Draw a large mixed graph, a homophilic region beside a heterophilic one, into a store.

    `aspect train STORE` trains on it. The same command goes on after an interrupt.
    """
    with session.screen.activity("Drawing the graph"):
        from aspect.scale.generate import generate_store

        store = generate_store(model, out, seed=session.seed or 0, **options.layout)
    show_store(session, store)
