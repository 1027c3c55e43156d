"""What training keeps of each parameter: recipes of weights, gradients and optimizer state, in bytes."""

from __future__ import annotations

from collections.abc import Mapping

from archlab.errors import ConfigError, nearest
from archlab.frozen import Frozen
from archlab.units import DTYPE_BYTES, dtype_bytes

OWN = None
"""As many bytes as the dtype of the arithmetic has."""

EIGHT_BIT = 1 + 4 / 256
"""A moment in 8 bits: a byte, and a float32 scale for each block of 256 (bitsandbytes)."""

Bytes = float | None
HALF = ("bf16", "fp16")


class Rates(Frozen):
    """Bytes a parameter: weight, gradient, and the optimizer's, a master copy among them, by what the parameter is.

    matrices: in the layers. tables: token and position embeddings, and the head. vectors: norms, biases, sinks.
    """

    weights: float
    gradients: float
    matrices: float
    tables: float
    vectors: float

    def of_optimizer(self, role: str) -> float:
        """By what the parameter is."""
        return {"matrices": self.matrices, "tables": self.tables, "vectors": self.vectors}[role]

    @property
    def total(self) -> float:
        """Of a matrix, all together."""
        return self.weights + self.gradients + self.matrices


class Recipe(Frozen):
    """What one way to train keeps, in bytes a parameter; `OWN` for those of the dtype.

    master: float32 copies that the optimizer works on, where weights are 16 bits. moments: what it remembers of a
    matrix; tables, vectors: of those, where that is something else. dtypes: of the arithmetic that it is for.
    """

    name: str
    about: str
    source: str
    weights: Bytes = OWN
    gradients: Bytes = OWN
    master: int = 0
    moments: tuple[Bytes, ...] = ()
    tables: tuple[Bytes, ...] | None = None
    vectors: tuple[Bytes, ...] | None = None
    dtypes: tuple[str, ...] = tuple(DTYPE_BYTES)

    def rates(self, dtype: str) -> Rates:
        """The recipe in numbers. Raises ConfigError where it is not for the dtype."""
        if dtype not in self.dtypes:
            raise ConfigError("dtype", f"{self.name} is not for {dtype}: {self.about}", value=dtype, valid=self.dtypes)
        own = dtype_bytes(dtype)
        weights, gradients = (own if size is None else size for size in (self.weights, self.gradients))
        moments = [self.moments if sizes is None else sizes for sizes in (None, self.tables, self.vectors)]
        sums = [self.master + sum(own if size is None else size for size in sizes) for sizes in moments]
        return Rates(weights, gradients, *sums)


MEGATRON = "Megatron Core user guide, distributed optimizer"
MUON = "Jordan et al. 2024; Liu et al. 2025 (Moonlight)"
RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("fp32", "AdamW, all in float32", "Kingma and Ba 2015", 4, 4, 0, (4, 4), dtypes=("fp32",)),
        Recipe("fp32-12", "AdamW in float32, gradients used up as they come", "MaxText, issue 606", 4, 0, 0, (4, 4)),
        Recipe("mixed-16", "AdamW on float32 copies", "Rajbhandari et al. 2020, 3.1", 2, 2, 4, (4, 4), dtypes=HALF),
        Recipe("mixed-18", "the same, gradients in float32", MEGATRON, 2, 4, 4, (4, 4), dtypes=HALF),
        Recipe("mixed-20", "the same, gradients twice", f"Smith et al. 2022; {MEGATRON}", 2, 2, 8, (4, 4), dtypes=HALF),
        Recipe("adamw", "AdamW, all in the dtype, as build times it", "torch.optim.AdamW", moments=(OWN, OWN)),
        Recipe(
            "adam-8bit",
            "moments in 8 bits, those of vectors in float32",
            "Dettmers et al. 2022; bitsandbytes",
            moments=(EIGHT_BIT, EIGHT_BIT),
            vectors=(4, 4),
        ),
        Recipe("sgd", "nothing remembered", "torch.optim.SGD"),
        Recipe("sgd-momentum", "momentum in the dtype", "torch.optim.SGD", moments=(OWN,)),
        Recipe("muon", "momentum of matrices, AdamW for the rest", MUON, 2, 2, 4, (4,), (4, 4), (4, 4), HALF),
    )
}


def recipe_of(name: str | None, dtype: str) -> Recipe:
    """The recipe of that name; without one, mixed precision for 16 bits, else AdamW all in the dtype."""
    if name is None:
        return RECIPES["mixed-16" if dtype in HALF else "fp32" if dtype == "fp32" else "adamw"]
    if name not in RECIPES:
        near = nearest(str(name), RECIPES)
        raise ConfigError("optimizer", f"no recipe {name!r}", value=name, valid=RECIPES, nearest=near)
    return RECIPES[name]
