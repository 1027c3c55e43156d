"""Attention on a tape: the way through module.py and attend.py, with what each step keeps for the backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from archlab.components.attention.backend import FLASH_WIDTH, flex_lacks
from archlab.components.tape import Activation, Tape
from archlab.frozen import Frozen, replace

if TYPE_CHECKING:
    from archlab.components.attention.latent import LatentAttention
    from archlab.components.attention.spec import GroupedAttention


class Pass(Frozen):
    """What one layer is told of a pass over all its tokens, and the rate at which weights are dropped.

    turned: features of a head that are rotated. masked: a window or chunk ends before the pass does. biased: the
    position adds to the scores; learned: numbers that are trained.
    """

    dropped: float
    turned: int
    masked: bool
    biased: bool
    learned: bool


class Core(Frozen):
    """What `attend` is given beside queries, keys and values, with qk and v features a head."""

    heads: int
    kv_heads: int
    qk: int
    v: int
    backend: str
    capped: bool = False
    sinks: bool = False

    @property
    def explicit(self) -> bool:
        """archlab's own softmax rather than torch's attention."""
        return self.backend == "math"


def grouped(spec: GroupedAttention, tape: Tape, x: Activation, step: Pass) -> Activation:
    """What the output projection of a GroupedAttention reads."""
    q, *own = _heads(spec, tape, x, step)
    k, v = tape.shared = own or tape.shared or [tape.new(spec.kv_width), tape.new(spec.kv_width)]
    return attend(spec.core, tape, q, k, v, step)


def _heads(spec: GroupedAttention, tape: Tape, x: Activation, step: Pass) -> list[Activation]:
    """Queries, then keys and values of its own, turned."""
    made = _projected(spec, tape, x)
    counts = (spec.n_heads, spec.n_kv_heads)[: len(made)]  # heads of what is normalised and turned
    if spec.qk_norm == "full":
        made[:2] = [spec.head_norm.on_tape(tape, t) for t in made[:2]]
    if spec.qkv_clip is not None:
        tape.keep("attention", *made)
        made = [tape.like(t) for t in made]
    if spec.qk_norm in ("head", "per_head"):
        made[:2] = [_normed(spec, tape, t, n) for t, n in zip(made, counts, strict=False)]
    if step.turned:
        made[:2] = [_turned(tape, t, n * step.turned) for t, n in zip(made, counts, strict=False)]
    return made


def _projected(spec: GroupedAttention, tape: Tape, x: Activation) -> list[Activation]:
    """Queries, keys and values: views of one tensor, unless their biases differ. Queries alone where it shares."""
    widths = spec.projected.values()
    if len({spec.q_bias, spec.k_bias, spec.v_bias}) == 1 and not spec.shares_kv:
        together = tape.linear(x, sum(widths))
        return [together.view(width) for width in widths]
    return [tape.linear(x, width) for width in widths]


def _normed(spec: GroupedAttention, tape: Tape, x: Activation, heads: int) -> Activation:
    """x, each head of it normalised."""
    rows = x.view(spec.head_dim, tape.tokens * heads)
    normed = spec.head_norm.on_tape(tape, rows, heads if spec.qk_norm == "per_head" else None)
    return normed.view(heads * spec.head_dim, tape.tokens)


def _turned(tape: Tape, x: Activation, features: int) -> Activation:
    """x with some features rotated, in the dtype of the tables, which are kept as they are."""
    tape.new(features, tape.wide)
    return tape.like(x)


def latent(spec: LatentAttention, tape: Tape, x: Activation, step: Pass) -> Activation:
    """What the output projection of a LatentAttention reads, keys and values expanded."""
    if spec.q_rank is None:
        q = tape.linear(x, spec.q_width)
    else:
        q = tape.linear(spec.latent_norm.on_tape(tape, tape.linear(x, spec.q_rank)), spec.q_width)
    down = tape.linear(x, spec.kv_rank + spec.rope_dim)
    spec.latent_norm.on_tape(tape, down.view(spec.kv_rank))
    joined = tape.like(down)  # the normalised latent and the key that all heads share
    if step.turned:
        joined, q = _turned(tape, joined, step.turned), _turned(tape, q, spec.n_heads * step.turned)
    up = tape.linear(joined, spec.n_heads * (spec.nope_dim + spec.v_dim))
    k, v = tape.new(spec.q_width), up.view(spec.n_heads * spec.v_dim)
    return attend(spec.core, tape, q, k, v, step)


def attend(core: Core, tape: Tape, q: Activation, k: Activation, v: Activation, step: Pass) -> Activation:
    """softmax(q k^T) v, the heads side by side as the output projection reads them."""
    core = _settled(core, tape, step)
    fused = is_fused(core, tape, step)
    if tape.recompute == "selective":
        tape.keep("attention", q, k, v)
    elif not fused:
        tape.keep("attention", *_factors(core, tape, q, v))
        _keep_scores(core, tape, step)
    if not fused:
        return tape.new(core.heads * core.v)
    one_more = core.sinks and tape.trained and core.backend == "sdpa"  # a key of zeros, whose score is the sink
    if one_more or _is_copied(core, tape, step):
        rows = tape.batch * core.heads * (tape.length + one_more)
        k, v = tape.new(core.qk, rows=rows), tape.new(core.v, rows=rows)
    y = tape.new(core.heads * (core.v if tape.cuda else max(core.qk, core.v)))
    if tape.recompute != "selective":
        tape.keep("attention", *_of_one_width(core, tape, q, k, v), y, tape.new(core.heads, tape.wide))
        y = _less_sinks(core, tape, y)
        _keep_mask(core, tape, step)
    return tape.new(core.heads * core.v) if _lies_apart(core, tape, step) else y


def _of_one_width(core: Core, tape: Tape, q: Activation, k: Activation, v: Activation) -> list[Activation]:
    """Queries, keys and values as the fused kernel reads them: the CPU's wants one width, and has zeros beside them."""
    if tape.cuda or core.qk == core.v:
        return [q, k, v]
    if core.qk > core.v:
        return [q, k, tape.new(core.kv_heads * core.qk)]
    return [tape.new(core.heads * core.v), tape.new(core.kv_heads * core.v), v]


def _keep_mask(core: Core, tape: Tape, step: Pass) -> None:
    """What a fused kernel adds to the scores, where it is not the position's own."""
    if core.backend == "flex":
        return
    if core.sinks and tape.trained:  # on CUDA, one key more
        tape.keep("masks", tape.new(tape.length + 1, rows=core.heads * tape.length))
    elif step.biased and not keeps_bias(core, tape, step):
        tape.keep("masks", tape.new(tape.length, rows=core.heads * tape.length))
    elif step.masked and not step.biased:  # the bools as numbers
        tape.keep("masks", tape.new(tape.length, rows=tape.length))


def _lies_apart(core: Core, tape: Tape, step: Pass) -> bool:
    """Whether what a fused kernel gives must be copied for the heads to lie side by side: y lies as the queries do.

    Those that are turned in part are joined, and those with zeros beside them new: both lie head by head. A single
    number a head is a view of y wherever the rows of sequences follow each other.
    """
    cut, filled = (not tape.cuda and more > less for more, less in ((core.qk, core.v), (core.v, core.qk)))
    by_head = (0 < step.turned < core.qk or filled) and tape.length > 1
    return core.heads > 1 and ((cut or by_head) if core.v > 1 else by_head and tape.batch > 1)


def ran(core: Core, tape: Tape, dropped: float) -> str:
    """The backend whose tensors such a pass makes: flex attention off CUDA is explicit too, by torch or by archlab."""
    if core.backend != "flex":
        return core.backend
    able = tape.cuda and flex_lacks("cuda", (core.qk, core.v), tape.width, dropped=dropped > 0) is None
    return "flex" if able else "math"


def _settled(core: Core, tape: Tape, step: Pass) -> Core:
    """With the backend that ran."""
    return core if core.backend != "flex" else replace(core, backend=ran(core, tape, step.dropped))


def _less_sinks(core: Core, tape: Tape, y: Activation) -> Activation:
    """What a kernel gives, times what sinks leave of it; torch's own, in training, has read them as one more key."""
    if not core.sinks or (core.backend == "sdpa" and tape.trained):
        return y
    if core.backend == "sdpa":
        tape.new(core.heads * core.v, tape.wide)  # before it is rounded
    tape.keep("attention", tape.new(core.heads, tape.wide))
    return tape.like(y)


def is_fused(core: Core, tape: Tape, step: Pass) -> bool:
    """Whether one kernel runs, which never holds the scores; a core that is settled on flex attention is so.

    The CPU's takes no dropout and no mask that wants a gradient. Of CUDA's, the memory-efficient one takes all that
    flash attention does not, but float64 (aten/src/ATen/native/transformers/cuda).
    """
    if core.backend != "sdpa":
        return core.backend == "flex"
    if tape.cuda:
        return tape.width <= 4
    learned = tape.trained and (step.learned or core.sinks)
    return (core.qk == core.v or tape.length > 1) and not step.dropped and not learned


def _is_copied(core: Core, tape: Tape, step: Pass) -> bool:
    """Whether KV heads are copied for each query head: the log-sums that sinks ask for are of as many heads, and so is
    CUDA's memory-efficient kernel, which runs where flash attention cannot: for a mask, and for more than 16 bits.
    """
    if core.backend != "sdpa" or core.kv_heads == core.heads or tape.length == 1:
        return False
    flash = tape.width == 2 and core.qk == core.v <= FLASH_WIDTH and not (step.masked or step.biased or core.sinks)
    return not flash if tape.cuda else core.sinks


def keeps_bias(core: Core, tape: Tape, step: Pass) -> bool:
    """Whether a fused kernel keeps the mask that the position makes for all layers, and not one in its own dtype."""
    core = _settled(core, tape, step)
    return step.biased and is_fused(core, tape, step) and (core.backend == "flex" or tape.width == tape.wide)


def _factors(core: Core, tape: Tape, q: Activation, v: Activation) -> list[Activation]:
    """The queries, keys and values of the explicit products: float32 or wider, copied by head.

    torch's own attention reads a sink as one more key. A single head, or the heads of one sequence, are not copied
    where nothing else changes them; nor are the values of single tokens.
    """
    tokens = tape.length + (core.sinks and not core.explicit)
    rows = tape.batch * core.heads
    wide, alone = tape.width == tape.wide, 1 in (core.heads, tape.batch)
    keys = tape.new(core.qk, tape.wide, rows * tokens)
    queries = q if wide and alone and core.explicit else tape.new(core.qk, tape.wide, rows * tape.length)
    own_values = wide and (alone or tape.length == 1) and core.kv_heads == core.heads
    own_values = own_values and not (core.explicit or core.sinks)
    return [queries, keys, v if own_values else tape.new(core.v, tape.wide, rows * tokens)]


def _keep_scores(core: Core, tape: Tape, step: Pass) -> None:
    """What becomes of the scores [B, h, n, n], and of a sink's beside them."""
    rows = tape.batch * core.heads * tape.length
    scores = tape.new(tape.length, tape.wide, rows)
    if core.capped:
        tape.keep("scores", tape.like(scores))
    if core.explicit and not step.biased:
        tape.keep("masks", tape.new(tape.length, 1, tape.length))
    weights = tape.new(tape.length + core.sinks, tape.wide, rows)
    tape.keep("scores", weights)
    read = weights.view(tape.length) if core.explicit else weights
    tape.keep("scores", tape.dropout(read, step.dropped, "scores"))
