"""What the last hidden state becomes: logits over the vocabulary, classes, or numbers."""

from __future__ import annotations

from typing import Self

from archlab.components.tape import INDEX, Activation, Tape
from archlab.frozen import replace
from archlab.options import Spec, inherited, option
from archlab.registry import register


class Head(Spec):
    """A projection of the last hidden state, [.., d_model] -> [.., n_outputs]."""

    d_model: int = inherited()

    @property
    def width(self) -> int:
        """Outputs a position."""
        raise self.unsaid("width")

    @property
    def tied(self) -> bool:
        """Whether the weight is the token embedding's."""
        return False

    @property
    def last_token_only(self) -> bool:
        """Whether the output is one row a sequence, from its last token: [B, n_outputs]."""
        return False

    def params(self) -> dict[str, int]:
        """Own parameters by tensor; a tied weight is the embedding's and counts there."""
        raise self.unsaid("params")

    def flops(self, tokens: int) -> int:
        """Matmul FLOPs over `tokens` positions, 2 a multiply-add, tied or not."""
        return 2 * tokens * self.d_model * self.width

    def on_tape(self, tape: Tape, x: Activation) -> None:
        """The outputs for x, and their loss in float32 or wider: cross entropy, which keeps the log-softmax."""
        outputs = tape.cast(self.outputs(tape, x), tape.wide)
        tape.keep("loss", tape.like(outputs), tape.new(1, tape.wide, rows=1))
        if self.last_token_only or (tape.batch > 1 and tape.length > 1):  # else the targets are the ids, one further on
            tape.keep("loss", tape.new(1, INDEX, x.rows))

    def outputs(self, tape: Tape, x: Activation) -> Activation:
        """[.., d_model] -> [.., width]."""
        return tape.linear(x, self.width)

    def share(self, tp: int) -> Self:
        """What one of `tp` devices computes."""
        return self


class LanguageHead(Head):
    """Logits over the vocabulary. Press and Wolf 2017 for the tied weight."""

    vocab_size: int = inherited()
    tie: bool = option(False, "use the token embedding as the weight")
    bias: bool = option(False, "a bias a token")
    logit_scale: float = option(1.0, "multiplies the logits", gt=0)
    logit_cap: float | None = option(
        None, "scaled logits become cap tanh(logit / cap), as Gemma 2 has it; null: off", gt=0
    )

    @property
    def width(self) -> int:
        return self.vocab_size

    @property
    def tied(self) -> bool:
        return self.tie

    def params(self) -> dict[str, int]:
        weight = {} if self.tie else {"weight": self.d_model * self.vocab_size}
        return weight | ({"bias": self.vocab_size} if self.bias else {})

    def outputs(self, tape: Tape, x: Activation) -> Activation:
        logits = super().outputs(tape, x)
        if self.logit_cap is None:
            return logits
        tape.keep("loss", logits := tape.like(logits))
        return tape.like(logits)

    def share(self, tp: int) -> Self:
        """Each device has as many tokens, the vocabulary padded up to a multiple of `tp`."""
        return replace(self, vocab_size=-(-self.vocab_size // tp)) if tp > 1 else self


class TaskHead(Head):
    """One row of outputs a sequence, read off its last token."""

    n_outputs: int = option(2, "classes", ge=1)
    bias: bool = option(True, "a bias an output")

    @property
    def width(self) -> int:
        return self.n_outputs

    @property
    def last_token_only(self) -> bool:
        return True

    def params(self) -> dict[str, int]:
        return {"weight": self.d_model * self.n_outputs} | ({"bias": self.n_outputs} if self.bias else {})


class RegressionHead(TaskHead):
    """Numbers read off the last token."""

    n_outputs: int = option(1, "numbers", ge=1)

    def on_tape(self, tape: Tape, x: Activation) -> None:
        """The outputs, and the squared error, which keeps them and what they should be."""
        outputs = tape.cast(self.outputs(tape, x), tape.wide)
        tape.keep("loss", outputs, tape.like(outputs))


register(
    "head",
    "tied",
    LanguageHead,
    summary="logits through the token embedding",
    formula="0",
    fixed={"tie": True},
)
register(
    "head",
    "untied",
    LanguageHead,
    summary="logits through a weight of its own",
    formula="V d",
    fixed={"tie": False},
)
register("head", "classification", TaskHead, summary="class scores from the last token", formula="C d + C")
register("head", "regression", RegressionHead, summary="numbers from the last token", formula="C d + C")
