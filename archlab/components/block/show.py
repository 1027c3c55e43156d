"""How a block is laid out: its own pass, taken with stand-ins for norm, attention and FFN, and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from archlab.components.block.spec import Block
from archlab.document import Drawing
from archlab.errors import Unsaid
from archlab.frozen import Frozen
from archlab.meaning import Here, Part

NORM, BRANCHES = "norm", ("attention", "ffn")


class Step(Frozen):
    """One residual sum: what its branches share, then the parts of each, and the norm on the sum."""

    shared: tuple[str, ...]
    branches: tuple[tuple[str, ...], ...]
    after: tuple[str, ...] = ()


def layout(here: Here) -> Iterable[Part]:
    """The layer as a drawing; nothing of a block whose pass is made of more than these parts."""
    block: Block = here.axes["block"]
    try:
        found = steps(block)
    except (Unsaid, AttributeError, TypeError):
        return
    names = {axis: here.axes[axis].choice for axis in (NORM, *BRANCHES)}
    streams = ["x", *"yzuvw"[: len(found) - 1], "out"]
    drawn = [_drawn(step, *pair, block, names) for step, pair in zip(found, pairwise(streams), strict=False)]
    lines = [line for lines in drawn for line in lines]
    yield Drawing("Layout", lines, block.choice)
    yield Drawing("Around the layers", [_around(block, here)])


# --- the pass ---------------------------------------------------------------------------------------------------------

Called = tuple[str, int]
"""A part, and which of all calls it was: a norm that is called once and read twice is shared."""


class _Value:
    """A tensor's stand-in: the residual sum that it came from, and the parts that it went through since."""

    def __init__(self, origin: int, path: tuple[Called, ...] = ()) -> None:
        self.origin, self.path = origin, path


class _Pass:
    """A tape that takes down which parts each value went through. Its `like` is the residual sum."""

    def __init__(self) -> None:
        self.sums, self.made = 0, [_Value(0)]

    def part(self, name: str) -> Callable[[Any], Any]:
        def called(x: _Value) -> _Value:
            self.made.append(_Value(x.origin, (*x.path, (name, len(self.made)))))
            return self.made[-1]

        return called

    def like(self, x: _Value) -> _Value:
        self.sums += 1
        return _Value(self.sums)


def steps(block: Block) -> list[Step]:
    """The residual sums of one layer, in the order of the block's own pass."""
    tape: Any = _Pass()
    last: Any = block.on_tape(tape, tape.made[0], *(tape.part(name) for name in (NORM, *BRANCHES)))
    after = tuple(name for name, _ in last.path)  # a norm on the stream, which the next step begins with too
    found: dict[int, list[tuple[Called, ...]]] = {}
    for path, origin in _branches(tape.made):
        found.setdefault(origin, []).append(path[len(after) :] if origin else path)
    return [_step(paths, after) for paths in found.values()]


def _branches(made: Sequence[_Value]) -> Iterator[tuple[tuple[Called, ...], int]]:
    """The longest path through attention, and through the FFN, with the sum that it began at."""
    for branch in BRANCHES:
        through = [value for value in made if branch in dict(value.path)]
        longest = max(through, key=lambda value: len(value.path))
        yield longest.path, longest.origin


def _step(paths: Sequence[tuple[Called, ...]], after: tuple[str, ...]) -> Step:
    common = [calls[0] for calls in zip(*paths, strict=False) if len(paths) > 1 and len(set(calls)) == 1]
    branches = tuple(tuple(name for name, _ in path[len(common) :]) for path in paths)
    return Step(tuple(name for name, _ in common), branches, after)


# --- the drawing ------------------------------------------------------------------------------------------------------


def _drawn(step: Step, stream: str, to: str, block: Block, names: Mapping[str, str]) -> list[str]:
    """A residual sum: its branches from the stream, one below the other, and the skip path under them."""
    scale = () if block.branch_scale == 1 else (f"x {block.branch_scale:g}",)
    shared = "".join(f"{name} ─" for name in _named(step.shared, names))
    bodies = [" ─> ".join((*_named(parts, names), *scale)) for parts in step.branches]
    starts = _starts(stream, shared, len(bodies))
    width = max(map(len, bodies))
    lines = [f"{start}{body} {'─' * (width - len(body))}──" for start, body in zip(starts, bodies, strict=True)]
    skip = "" if block.residual_scale == 1 else f" x {block.residual_scale:g} "
    under = f"   └{skip.center(len(lines[0]) - 4, '─')}┘"
    after = "".join(f"─> {name} " for name in _named(step.after, names))
    return [f"{lines[0]}+ {after}─> {to}", *(f"{line}┤" for line in lines[1:]), under]


def _starts(stream: str, shared: str, branches: int) -> list[str]:
    """What stands before each branch; the parts that all share before the first."""
    if not shared:
        return [f"{stream} ─┬─> ", *["   ├─> "] * (branches - 1)]
    fork = "┬" if branches > 1 else "─"
    return [f"{stream} ─┬─> {shared}{fork}─> ", *[f"   │   {' ' * len(shared)}└─> "] * (branches - 1)]


def _named(parts: Iterable[str], names: Mapping[str, str]) -> list[str]:
    """The choices that stand for the parts; a norm that does nothing is none."""
    return [names[part] for part in parts if (part, names[part]) != (NORM, "none")]


def _around(block: Block, here: Here) -> str:
    """What is before the first layer and after the last."""
    norm = here.axes[NORM].choice
    pieces = ["tokens", "embedding"]
    pieces += [f"x {block.embedding_scale:.4g}"] if block.embedding_scale != 1 else []
    pieces += [norm] if block.embedding_norm and norm != "none" else []
    pieces += [f"{here.n_layers} layers"]
    pieces += [norm] if block.final_norm and norm != "none" else []
    return " ─> ".join([*pieces, f"{here.axes['head'].choice} head"])
