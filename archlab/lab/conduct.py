"""Conduct an experiment on a model."""

from __future__ import annotations

import importlib
from typing import Any

from archlab import host
from archlab.bench.device import environment
from archlab.document import Document
from archlab.frozen import replace
from archlab.lab.catalog import TIMED, Experiment
from archlab.lab.setup import Setup
from archlab.request import Request


def conduct(experiment: Experiment, request: Request, settings: Any) -> Document:
    """What the experiment sees in the model, with the notes of the request, and of the machine where it timed there.

    Raises RequestError for what cannot be.
    """
    setup, busy = Setup(request, settings), host.Busy()
    made: Document = importlib.import_module(f"archlab.lab.{experiment.name}").run(setup)
    warned = _warning(setup, busy) if experiment.of_the_run is TIMED else []
    return replace(made, notes=[*request.notes, *made.notes, *warned])


def _warning(setup: Setup, busy: host.Busy) -> list[str]:
    """Why not to trust the times, where there is a reason."""
    warning = environment(setup.device, setup.device.native_dtype, busy)["warning"]
    return [warning] if warning else []
