"""archlab explain: an axis, a choice or a figure in words, with the numbers of a model."""

from __future__ import annotations

from archlab.document import Document
from archlab.paper.explain.asked import Asked
from archlab.subjects import AXIS, CHOICE, subject


def document(what: str, asked: Asked) -> Document:
    """What an axis, a choice or a figure means, and what it comes to in the model.

    Raises ConfigError, with the nearest spelling, for a name that nothing has or that several have.
    """
    about = subject(what)
    if about.kind == AXIS:
        from archlab.paper.explain.axis import document as of_axis

        return of_axis(about.axis, asked)
    if about.kind == CHOICE:
        from archlab.paper.explain.choice import document as of_choice

        return of_choice(about.axis, about.name, asked)
    from archlab.paper.explain.figure import document as of_figure

    return of_figure(about.name, asked)
