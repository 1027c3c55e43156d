"""Conduct an experiment on a model."""

from __future__ import annotations

import importlib
from typing import Any

from archlab.document import Document
from archlab.frozen import replace
from archlab.lab.catalog import Experiment
from archlab.lab.setup import Setup
from archlab.request import Request


def conduct(experiment: Experiment, request: Request, settings: Any) -> Document:
    """What the experiment sees in the model, with the notes of the request. Raises RequestError for what cannot be."""
    made: Document = importlib.import_module(f"archlab.lab.{experiment.name}").run(Setup(request, settings))
    return replace(made, notes=[*request.notes, *made.notes])
