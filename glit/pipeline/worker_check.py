"""What a worker looks at before it begins: its machine has to see what the build began with."""

from __future__ import annotations

import socket

from glit.backends.model_files import weights_hash
from glit.errors import RunError, WeightsError
from glit.pipeline.state import STATE
from glit.pipeline.work import Work


def see_the_same(work: Work, stage: str) -> None:
    """See that the work folder and the stage's models are here, and are those of the build.

    Hashes of weights are remembered on each machine, so large ones are read once.

    Raises:
        RunError: the work folder is not the build's.
        WeightsError: a model is not here, or is another one.
    """
    host = socket.gethostname()
    if not work.store.exists(STATE):
        raise RunError(
            f"{host}: does not see {work.store.root} as the build does; put the dataset on a disk "
            "that all machines share under one path, or at an address"
        )
    for role in work.plan.flow.step(stage).models(work.plan.recipe):
        model = work.plan.models[role]
        if not model.path.exists():
            raise WeightsError(
                f"{host}: model {model.name!r} is not at {model.path}; every machine needs it there"
            )
        if (found := weights_hash(model.path)) != model.sha256:
            raise WeightsError(
                f"{host}: {model.path}: other weights than the build began with (SHA-256 {found}, "
                f"want {model.sha256}); put the same there, and run the same command again"
            )
