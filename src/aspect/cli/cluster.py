"""`aspect cluster`: how a Ray cluster is started and joined, and what the present one has."""

from __future__ import annotations

import os
from typing import Any

from aspect.cli.session import Session, command

HOW = (
    "On one machine nothing has to be started: --engine ray starts a cluster and ends it.",
    "To keep one running here:       ray start --head --port=6379",
    "On every further machine:       ray start --address=HEAD:6379",
    "To use it, on any of them:      export RAY_ADDRESS=HEAD:6379",
    "To end it, on each of them:     ray stop",
    "All machines need aspect, Ray and torch of the same versions, and a folder that all of them "
    "see, for stores, bases and runs.",
    "Then: aspect train STORE --scale rows --engine ray --workers 8, aspect bench PLAN --engine "
    "ray, aspect tune GRAPH --engine ray.",
)


@command(without=("seed", "device", "data_dir"))
def cluster(session: Session) -> None:
    """Say how to start a Ray cluster and how to connect; with $RAY_ADDRESS, what it has."""
    content: dict[str, Any] = {"address": os.environ.get("RAY_ADDRESS"), "how": list(HOW)}
    if content["address"]:
        from aspect.scale.ray_engine import connect, num_gpus

        with session.screen.activity("Connecting"):
            content |= {"cpus": connect(), "gpus": num_gpus()}

    def show() -> None:
        if content["address"]:
            session.screen.say(
                f"The cluster at {content['address']} has {content['cpus']} CPUs and "
                f"{content['gpus']} GPUs."
            )
        session.screen.say(*HOW)

    session.screen.answer(content, show)
