"""Bringing a choice: what becomes an option, what is handed over, and what is refused, each in one message."""

from __future__ import annotations

import pickle
from typing import Annotated, Any, Literal

import pytest
import torch
from torch import Tensor, nn

import archlab
from archlab.components.norm.spec import LayerNorm, Norm
from archlab.components.own import RESERVED
from archlab.cost.params import PARTS
from archlab.decoder.resolve import ModelOptions, resolve
from archlab.decoder.spec import DecoderSpec
from archlab.errors import ConfigError
from archlab.frozen import MISSING, fields_of
from archlab.inside.contract import BASE
from archlab.registry import AXES, choice, choices, places

pytestmark = pytest.mark.usefixtures("own_choices")


class Plain(nn.Module):
    """Each feature as it is. gain: what it is multiplied by."""

    def __init__(self, features: int, *, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((features,), gain))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def bring(module: Any = Plain, axis: str = "norm", name: str = "mine", **more: Any) -> Any:
    return archlab.component(axis, name, summary="for a test", **more)(module)


def spec_of(**blocks: Any) -> DecoderSpec:
    return resolve(BASE | {axis: BASE.get(axis, {}) | block for axis, block in blocks.items()}).spec


# --- options ----------------------------------------------------------------------------------------------------------


class Optioned(nn.Module):
    """All kinds of options. shift: what is added. Others are annotated."""

    def __init__(
        self,
        features: int,
        *,
        shift: float = 1,
        times: Annotated[int, archlab.option(help="how often", ge=1)],
        mode: Annotated[Literal["soft", "hard"], "which way"] = "soft",
        most: Annotated[float | None, "null: no limit"] = None,
        sizes: tuple[int, ...] = (),
        on: bool = True,
        word="a",
    ) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_options_are_the_keyword_only_arguments() -> None:
    bring(Optioned)
    options = choice("norm", "mine").options
    assert list(options) == ["shift", "times", "mode", "most", "sizes", "on", "word"]
    assert {name: opt.types for name, opt in options.items()} == {
        "shift": (float,), "times": (int,), "mode": (str,), "most": (float, type(None)), "sizes": (tuple,),
        "on": (bool,), "word": (str,),
    }  # fmt: skip
    helps = {name: opt.help for name, opt in options.items() if opt.help}
    assert helps == {
        "shift": "what is added",
        "times": "how often",
        "mode": "which way",
        "most": "null: no limit",
    }
    assert options["times"].default is MISSING
    assert options["times"].ge == 1
    assert options["mode"].valid == ("soft", "hard")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({}, "model.norm.times: is required (how often)"),
        ({"times": 0}, "0 must be >= 1"),
        ({"times": 1, "mode": "loud"}, "valid: soft, hard"),
        ({"times": 1, "shift": "x"}, "'x' is not a finite number"),
        ({"times": 1, "shfit": 2.0}, "did you mean model.norm.shift"),
    ],
)
def test_options_are_checked_as_archlabs_own_are(block: dict[str, Any], said: str) -> None:
    bring(Optioned)
    with pytest.raises(ConfigError) as error:
        spec_of(norm={"choice": "mine", **block})
    assert said in str(error.value)


def test_a_value_reaches_the_constructor() -> None:
    bring(name="gained")
    decoder = archlab.build(spec_of(norm={"choice": "gained", "gain": 3}))
    assert torch.equal(decoder.layers[1].ffn_norm.weight, torch.full((12,), 3.0))
    assert choice("norm", "gained").options["gain"].help == "what it is multiplied by"


def test_what_a_preset_sets_and_the_choice_lacks_is_dropped_with_a_note() -> None:
    bring()
    notes = resolve(BASE | {"norm": {"choice": "mine", "eps": 1e-5}}).notes
    assert "dropped model.norm.eps = 1e-05: mine has no such option" in notes


# --- a spec of one's own ----------------------------------------------------------------------------------------------


class Stated(Norm):
    """Says its parameters, and nothing else."""

    gain: float = archlab.option(1.0, "what it is multiplied by", gt=0)

    def params(self, width: int) -> dict[str, int]:
        return {"weight": width}


class OfSpec(nn.Module):
    def __init__(self, spec: Stated, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((features,), spec.gain))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


def test_a_spec_says_some_and_the_rest_is_counted() -> None:
    bring(OfSpec, spec=Stated, formula="w")
    spec = spec_of(norm={"choice": "mine", "gain": 2.0})
    assert spec.counted == (("norm", "mine", ("what training keeps",)),)
    assert spec.norm.params(7) == {"weight": 7}
    assert archlab.build(spec).final_norm.weight[0] == 2


def test_a_spec_is_pickled_by_where_its_module_is() -> None:
    bring(OfSpec, spec=Stated)
    norm = spec_of(norm={"choice": "mine"}).norm
    assert pickle.loads(pickle.dumps(norm)) == norm


# --- refusals ---------------------------------------------------------------------------------------------------------


class NoModule:
    """Not of torch."""


class Positional(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()


class Odd(nn.Module):
    def __init__(self, features: int, *, table: Annotated[dict[str, int], "a table"]) -> None:
        super().__init__()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"axis": "nrom"}, "nrom/mine: nrom is no axis; did you mean norm?"),
        ({"axis": "dropout"}, "dropout has no modules"),
        ({"name": "My norm"}, "is no name of a choice"),
        ({"name": "rmsnorm"}, "norm/rmsnorm is registered already, by archlab itself"),
        ({"module": NoModule}, "NoModule is no subclass of torch.nn.modules.module.Module"),
        ({"axis": "position"}, "Plain is no subclass of archlab.components.position.module.NoPosition"),
        ({"axis": "block"}, "Plain is no subclass of archlab.components.block.module.Block"),
        ({"module": Positional}, "Positional asks for 'width', which nothing offers; options stand after a *"),
        ({"module": Odd}, "table is annotated dict[str, int], which is no type of options; valid: int, float"),
        ({"spec": ModelOptions}, "is no subclass of archlab.components.norm.spec.Norm"),
        ({"spec": LayerNorm}, "Plain asks for gain, which LayerNorm lacks"),
    ],
)
def test_what_cannot_be_a_choice_is_said_in_one_message(given: dict[str, Any], said: str) -> None:
    before = {axis: list(choices(axis)) for axis in AXES}
    with pytest.raises(ConfigError) as error:
        bring(**given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).count(f"{given.get('axis', 'norm')}/{given.get('name', 'mine')}") == 1
    assert {axis: list(choices(axis)) for axis in AXES} == before


def test_a_name_that_another_file_took() -> None:
    bring()
    choice("norm", "mine").__dict__["origin"] = "/elsewhere/other.py"
    with pytest.raises(ConfigError, match=r"^norm/mine is registered already, by /elsewhere/other\.py"):
        bring()


def test_the_same_file_may_bring_it_again_and_what_was_read_is_forgotten() -> None:
    bring()
    assert spec_of(norm={"choice": "mine"}).norm.options() == {"gain": 1.0}

    class Again(Plain):
        def __init__(self, features: int, *, gain: float = 5.0) -> None:
            super().__init__(features, gain=gain)

    bring(Again)
    assert spec_of(norm={"choice": "mine"}).norm.options() == {"gain": 5.0}


class Breaks(Plain):
    def __init__(self, features: int) -> None:
        raise ZeroDivisionError("on purpose")


def test_a_constructor_that_fails_is_named() -> None:
    bring(Breaks)
    with pytest.raises(ConfigError, match="model/norm: mine: Breaks cannot be made: ZeroDivisionError: on purpose"):
        archlab.parameters(spec_of(norm={"choice": "mine"}))


# --- places -----------------------------------------------------------------------------------------------------------


def test_a_place_is_an_axis_with_nothing_on_it() -> None:
    without = spec_of()
    archlab.place("extra", after="ffn")
    assert places()["extra"].words == "after ffn"
    spec = spec_of()
    assert spec.layers[0].axes()["extra"].choice == "none"
    assert archlab.parameters(spec).total == archlab.parameters(without).total
    assert list(choices("extra")) == ["none"]


@pytest.mark.parametrize(
    ("name", "where", "said"),
    [
        ("extra", {}, "say before=PART or after=PART"),
        ("extra", {"before": "ffn", "after": "ffn"}, "say before=PART or after=PART"),
        ("extra", {"before": "attentoin"}, "did you mean attention"),
        ("norm", {"before": "ffn"}, "the axis norm is registered already, by archlab itself"),
        ("n_layers", {"before": "ffn"}, "a part or a setting of every model is called so"),
        ("attend", {"before": "ffn"}, "a part or a setting of every model is called so"),
        ("Extra", {"before": "ffn"}, "is no name of a place"),
    ],
)
def test_what_cannot_be_a_place(name: str, where: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        archlab.place(name, **where)
    assert said in str(error.value)
    assert not places()


def test_names_that_places_cannot_have() -> None:
    norms = {name for chosen in choices("block").values() for name in _norms(chosen.spec)}
    assert {*fields_of(ModelOptions), *PARTS, *norms} - {"attention", "ffn"} <= {*RESERVED}


def _norms(kind: Any) -> tuple[str, ...]:
    return tuple(kind(axis="block", choice="pre_norm", d_model=1, final_norm=True).norm_names)
