"""One layer: attention and FFN in the residual layout of the block's spec. The layouts are drawn in spec.py."""

from __future__ import annotations

from torch import Tensor, nn

from archlab.components.attention.module import Step
from archlab.components.block import spec as specs
from archlab.components.norm.module import make_norm
from archlab.components.norm.spec import Norm
from archlab.registry import Place, implements


def scaled(x: Tensor, factor: float) -> Tensor:
    """x * factor, without a launch where the factor is 1."""
    return x if factor == 1.0 else x * factor


class Block(nn.Module):
    """Base of the layouts: owns attention, FFN and the norms that the spec names, each over `width` features."""

    attention_norm: nn.Module
    attention_post_norm: nn.Module
    ffn_norm: nn.Module
    ffn_post_norm: nn.Module

    def __init__(self, spec: specs.Block, norm: Norm, width: int, attention: nn.Module, ffn: nn.Module) -> None:
        super().__init__()
        self.residual_scale, self.branch_scale = spec.residual_scale, spec.branch_scale
        self.attention, self.ffn = attention, ffn
        self.places: list[Place] = []
        self.norm_names = spec.norm_names
        for name in spec.norm_names:
            self.add_module(name, make_norm(norm, width))

    def put(self, place: Place, module: nn.Module) -> None:
        """Have a module stand before or after attention or FFN."""
        self.add_module(place.name, module)
        self.places.append(place)

    def attend(self, x: Tensor, step: Step) -> Tensor:
        """Attention, with what stands before and after it."""
        y = self.attention(self._through("attention", True, x, step), step)
        return self._through("attention", False, y, step)

    def feed(self, x: Tensor, step: Step) -> Tensor:
        """The FFN, with what stands before and after it."""
        return self._through("ffn", False, self.ffn(self._through("ffn", True, x, step)), step)

    def _through(self, part: str, before: bool, x: Tensor, step: Step) -> Tensor:
        for place in self.places:
            if (place.part, place.before) == (part, before):
                x = getattr(self, place.name)(x, step.of(place.name))
        return x

    def add(self, x: Tensor, branch: Tensor) -> Tensor:
        """The residual sum, r x + b branch."""
        return scaled(x, self.residual_scale) + scaled(branch, self.branch_scale)

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x [B, n, d_model] -> [B, n, d_model]."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(x, step)")


@implements(specs.PreNorm)
class PreNorm(Block):
    """x <- r x + b f(norm(x)). Xiong et al. 2020, fig. 1b."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        x = self.add(x, self.attend(self.attention_norm(x), step))
        return self.add(x, self.feed(self.ffn_norm(x), step))


@implements(specs.PostNorm)
class PostNorm(Block):
    """x <- norm(r x + b f(x)). Vaswani et al. 2017, section 3.1."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        x = self.attention_norm(self.add(x, self.attend(x, step)))
        return self.ffn_norm(self.add(x, self.feed(x, step)))


@implements(specs.Sandwich)
class Sandwich(Block):
    """x <- r x + b norm(f(norm(x))). Ding et al. 2021 (CogView), section 2.4."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        x = self.add(x, self.attention_post_norm(self.attend(self.attention_norm(x), step)))
        return self.add(x, self.ffn_post_norm(self.feed(self.ffn_norm(x), step)))


@implements(specs.ResPostNorm)
class ResPostNorm(Block):
    """x <- r x + b norm(f(x)). Liu et al. 2021 (Swin V2), section 3.2; OLMo 2 (Walsh et al. 2024)."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        x = self.add(x, self.attention_post_norm(self.attend(x, step)))
        return self.add(x, self.ffn_post_norm(self.feed(x, step)))


@implements(specs.Parallel)
class Parallel(Block):
    """x <- r x + b (attention(norm(x)) + ffn(norm(x))), the norms shared or not. Wang and Komatsuzaki 2021."""

    def __init__(self, spec: specs.Parallel, norm: Norm, width: int, attention: nn.Module, ffn: nn.Module) -> None:
        super().__init__(spec, norm, width, attention, ffn)
        self.shared = spec.n_norms == 1

    def forward(self, x: Tensor, step: Step) -> Tensor:
        normed = self.attention_norm(x)
        branches = self.attend(normed, step) + self.feed(normed if self.shared else self.ffn_norm(x), step)
        return self.add(x, branches)
