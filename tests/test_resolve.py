"""From a plain config to a spec: swaps that do not bleed, patterns of layers, and every way to be wrong."""

import copy

import pytest

import archlab
from archlab.compose import preset
from archlab.decoder.describe import composition
from archlab.decoder.resolve import resolve
from archlab.errors import ConfigError
from archlab.registry import AXES, choices


def changed(name="minimind", **blocks):
    model = copy.deepcopy(preset(name))
    for key, value in blocks.items():
        model[key] = {**model[key], **value} if isinstance(value, dict) else value
    return model


@pytest.mark.parametrize(("attention", "kv_heads"), [("mha", 8), ("gqa", 4), ("mqa", 1)])
def test_swapping_attention_never_bleeds(attention, kv_heads):
    spec = archlab.load("minimind", f"model/attention={attention}")
    assert spec.layers[0].attention.n_kv_heads == kv_heads
    assert spec.layers[0].attention.head_dim == 96


def test_a_dropped_option_is_reported():
    resolved = resolve(changed(position={"choice": "learned"}))
    assert resolved.notes == ["dropped model.position.base = 1000000.0: learned has no such option"]


def test_a_typed_option_that_the_choice_lacks_is_an_error():
    with pytest.raises(ConfigError, match=r"model\.attention\.n_kv_heads: mha fixes it") as caught:
        archlab.load("minimind", "model/attention=mha", "model.attention.n_kv_heads=4")
    assert "gqa" in str(caught.value)


def test_a_typed_width_replaces_the_presets_rule():
    assert archlab.load("minimind", "model.ffn.d_ff=2000").layers[0].ffn.d_ff == 2000
    assert archlab.load("llama-2-7b", "model.ffn.rule=8/3").layers[0].ffn.d_ff == 10944


@pytest.mark.parametrize(
    ("d_model", "rule", "multiple", "d_ff"),
    [
        (768, "4x", 64, 3072),
        (768, "8/3", 64, 2048),
        (768, "pi", 64, 2432),
        (512, "4x", 64, 2048),
        (512, "8/3", 64, 1408),
        (512, "pi", 64, 1664),
        (5120, "8/3", 256, 13824),  # Llama 2 13B
        (4096, "8/3", 256, 11008),  # Llama 2 7B
    ],
)
def test_e01_width_rules(d_model, rule, multiple, d_ff):
    ffn = (
        archlab.load("mha", f"model.d_model={d_model}", f"model.ffn.rule={rule}", f"model.ffn.multiple={multiple}")
        .layers[0]
        .ffn
    )
    assert ffn.d_ff == d_ff


def test_e08_gated_at_8_thirds_equals_plain_at_4x():
    gated = archlab.load("mha", "model.d_model=768", "model.ffn.rule=8/3").layers[0].ffn
    plain = archlab.load("mha", "model.d_model=768", "model/ffn=gelu").layers[0].ffn
    assert sum(gated.params().values()) == sum(plain.params().values()) == 4_718_592


def test_d07_seven_heads_two_kv_heads_names_the_valid_ones():
    with pytest.raises(ConfigError) as caught:
        archlab.load("gqa", "model.d_model=224", "model.attention.n_heads=7", "model.attention.n_kv_heads=2")
    assert caught.value.valid == [1, 7]


@pytest.mark.parametrize("heads", [1, 2, 3, 7, 8, 12, 20, 25, 32, 64, 71])
def test_gqa_without_kv_heads_groups_about_four(heads):
    kv = archlab.load("mha", "model/attention=gqa", f"model.attention.n_heads={heads}", "model.attention.head_dim=8")
    assert heads % kv.layers[0].attention.n_kv_heads == 0


def test_a_pattern_repeats_and_equal_layers_are_one_object():
    pattern = [{"attention": {"n_kv_heads": 2}, "repeat": 3}, {"position": {"choice": "none"}}]
    spec = resolve(changed(layers=pattern, n_layers=9)).spec
    assert [layer.attention.n_kv_heads for layer in spec.layers] == [2, 2, 2, 4, 2, 2, 2, 4, 2]
    assert [layer.position.choice for layer in spec.layers][3:8:4] == ["none", "none"]
    assert [indices for _, indices in spec.layer_kinds] == [(0, 1, 2, 4, 5, 6, 8), (3, 7)]


def test_totals_of_a_pattern_are_sums_over_its_layers():
    pattern = [{"attention": {"n_kv_heads": 1}}, {"ffn": {"d_ff": 64, "rule": None}}]
    spec = resolve(changed(layers=pattern)).spec
    one = archlab.parameters(resolve(changed(layers=pattern[:1])).spec)
    two = archlab.parameters(resolve(changed(layers=pattern[1:])).spec)
    mixed = archlab.parameters(spec)
    assert mixed.by_part["attention"] * 2 == one.by_part["attention"] + two.by_part["attention"]
    assert mixed.by_part["ffn"] * 2 == one.by_part["ffn"] + two.by_part["ffn"]


MOE = {"choice": "moe", "expert": {"d_ff": 10}}
WRONG = [
    ({"d_model": 0}, "model.d_model", "0 must be >= 1"),
    ({"d_model": -8}, "model.d_model", "-8 must be >= 1"),
    ({"d_model": 4.5}, "model.d_model", "not a whole number"),
    ({"d_model": True}, "model.d_model", "not a whole number"),
    ({"d_model": "768"}, "model.d_model", "not a whole number"),
    ({"d_model": None}, "model.d_model", "not a whole number"),
    ({"n_layers": 10**9}, "model.n_layers", "must be < 10001"),
    ({"vocab_size": 0}, "model.vocab_size", "must be >= 1"),
    ({"context": 0}, "model.context", "must be >= 1"),
    ({"d_modl": 3}, "model.d_modl", "did you mean model.d_model"),
    ({"norm": "layernorm"}, "model.norm", "model/norm=layernorm"),
    ({"norm": None}, "model.norm", "needs a choice"),
    ({"norm": {"choice": "rmsnrm"}}, "model/norm", "model/norm=rmsnorm"),
    ({"norm": {"eps": 0}}, "model.norm.eps", "must be > 0"),
    ({"norm": {"eps": float("nan")}}, "model.norm.eps", "not a finite number"),
    ({"attention": {"n_heads": 0}}, "model.attention.n_heads", "must be >= 1"),
    ({"attention": {"n_head": 8}}, "model.attention.n_head", "did you mean model.attention.n_heads"),
    ({"attention": {"n_kv_heads": 3}}, "model.attention.n_kv_heads", "valid: 1, 2, 4, 8"),
    ({"attention": {"head_dim": 95}}, "model.position.fraction", "even number"),
    ({"attention": {"backend": "flsh"}}, "model.attention.backend", "sdpa"),
    ({"position": {"fraction": 1.5}}, "model.position.fraction", "must be <= 1"),
    ({"position": {"base": -1}}, "model.position.base", "must be > 1"),
    ({"dropout": {"choice": "classic", "p": 1.0}}, "model.dropout.p", "must be < 1"),
    ({"dropout": {"choice": "classic", "ffn": -0.1}}, "model.dropout.ffn", "must be >= 0"),
    ({"ffn": {"d_ff": 100}}, "model.ffn.d_ff", "rule pi gives 2432"),
    ({"head": {"choice": "classification", "n_outputs": 0}}, "model.head.n_outputs", "must be >= 1"),
    ({"block": {"choice": "parallel", "n_norms": 3}}, "model.block.n_norms", "valid: 1, 2"),
    ({"ffn": MOE | {"n_experts": 0}}, "model.ffn.n_experts", "must be >= 1"),
    ({"ffn": MOE | {"experts_per_token": 9}}, "model.ffn.experts_per_token", "more than the 8 experts to choose from"),
    (
        {"ffn": MOE | {"n_groups": 4, "groups_per_token": 1, "experts_per_token": 3}},
        "model.ffn.experts_per_token",
        "more than the 2 experts to choose from",
    ),
    ({"ffn": MOE | {"n_groups": 3}}, "model.ffn.n_groups", "does not divide n_experts = 8; valid: 1, 2, 4, 8"),
    ({"ffn": MOE | {"n_groups": 2, "groups_per_token": 3}}, "model.ffn.groups_per_token", "more than the 2 groups"),
    (
        {"ffn": MOE | {"n_groups": 8, "groups_per_token": 2, "group_score": "top2"}},
        "model.ffn.group_score",
        "two experts or more",
    ),
    ({"ffn": MOE | {"scoring": "sigmod"}}, "model.ffn.scoring", "sigmoid"),
    ({"ffn": MOE | {"scaling": 0}}, "model.ffn.scaling", "must be > 0"),
    ({"ffn": MOE | {"shared_gate": True}}, "model.ffn.shared_gate", "no shared experts"),
    ({"ffn": MOE | {"n_shared": 2, "shared_d_ff": 9}}, "model.ffn.shared_d_ff", "n_shared = 2 gives 20"),
    ({"ffn": MOE | {"expert": 3}}, "model.ffn.expert", "3 is not a block of options"),
    ({"ffn": MOE | {"expert": "gelu"}}, "model.ffn.expert", "did you mean model.ffn.expert.choice=gelu"),
    ({"ffn": MOE | {"expert": {"choice": "glu"}}}, "model.ffn.expert.choice", "model.ffn.expert.choice=gelu"),
    ({"ffn": MOE | {"expert": {"choice": "moe"}}}, "model.ffn.expert.choice", "no choice 'moe'"),
    ({"ffn": MOE | {"expert": {"choice": ["gelu"]}}}, "model.ffn.expert.choice", "no choice"),
    ({"ffn": MOE | {"expert": {"d_ff": 0}}}, "model.ffn.expert.d_ff", "must be >= 1"),
    ({"ffn": MOE | {"expert": {"d_ff": 3.5}}}, "model.ffn.expert.d_ff", "not a whole number"),
    ({"ffn": MOE | {"expert": {"dff": 3}}}, "model.ffn.expert.dff", "did you mean model.ffn.expert.d_ff"),
    ({"ffn": MOE | {"expert": {"d_ff": 3, "rule": "4x"}}}, "model.ffn.expert.d_ff", "rule 4x gives 3072"),
    ({"layers": [{"ffn": MOE | {"expert": {"limit": 3}}}]}, "model.layers[0].ffn.expert.limit", "no such option"),
    ({"layers": [{"ffn": {"choice": "moe", "d_ff": 3}}]}, "model.layers[0].ffn.d_ff", "moe has no such option"),
    ({"layers": []}, "model.layers", "not a list of layers"),
    ({"layers": "all"}, "model.layers", "not a list of layers"),
    ({"layers": [{"repeat": 0}]}, "model.layers[0].repeat", "whole number"),
    ({"layers": [{"attn": {}}]}, "model.layers[0].attn", "no such setting"),
    ({"layers": [{"attention": 3}]}, "model.layers[0].attention", "mapping"),
    ({"layers": [{"attention": {"n_kv_heads": 5}}]}, "model.layers[0].attention.n_kv_heads", "valid: 1, 2, 4, 8"),
    ({"layers": [{"position": {"choice": "none", "base": 10}}]}, "model.layers[0].position.base", "no such option"),
    ({"layers": [{}, {"position": {"choice": "learned"}}]}, "model.layers[1].position", "added to the input once"),
]


@pytest.mark.parametrize(("change", "key", "text"), WRONG, ids=[f"{key}-{i}" for i, (_, key, _) in enumerate(WRONG)])
def test_a_wrong_setting_is_one_clear_error(change, key, text):
    with pytest.raises(ConfigError) as caught:
        resolve(changed(**change))
    assert caught.value.key == key
    assert text in str(caught.value)


def experts(*overrides, name="mixtral-8x7b"):
    return archlab.load(name, *overrides).layers[0].ffn.expert


def test_the_options_of_an_experts_ffn():
    assert (experts().choice, experts().d_ff) == ("swiglu", 14336)
    assert experts("model.ffn.expert.d_ff=512").d_ff == 512
    assert experts("model.ffn.expert.rule=8/3").d_ff == 10944  # what the user sets replaces the preset's width
    assert experts("model.ffn.expert.d_ff=100", name="minimind-moe").rule is None
    assert experts("model/ffn=moe", name="gpt2").d_ff == 2048
    chosen = experts("model.ffn.expert.choice=gelu")
    assert (chosen.choice, chosen.gated, chosen.d_ff) == ("gelu", False, 14336)
    whole = experts("model.ffn.expert={choice: relu2, d_ff: 7, bias: true}")
    assert (whole.choice, whole.d_ff, whole.bias) == ("relu2", 7, True)


@pytest.mark.parametrize(
    ("override", "key", "text"),
    [
        ("model.ffn.expert.dff=3", "model.ffn.expert.dff", "did you mean model.ffn.expert.d_ff"),
        ("model.ffn.expert.n_experts=3", "model.ffn.expert.n_experts", "no such setting"),
        ("model.ffn.expert.d_ff.x=3", "model.ffn.expert.d_ff", "nothing below it"),
        ("model.ffn.expert=gelu", "model.ffn.expert", "did you mean model.ffn.expert.choice=gelu"),
        ("model.ffn.expert.choice=glu", "model.ffn.expert.choice", "did you mean model.ffn.expert.choice=gelu"),
        ("model.ffn.expert.limit=3", "model.ffn.expert.limit", "it is an option of swiglu_clamped"),
        ("model.ffn.d_ff=3", "model.ffn.d_ff", "moe has no such option"),
    ],
)
def test_a_wrong_option_of_an_experts_ffn(override, key, text):
    with pytest.raises(ConfigError) as caught:
        experts(override)
    assert caught.value.key == key
    assert text in str(caught.value)


def test_experts_are_dropped_with_their_mixture():
    model = copy.deepcopy(preset("mixtral-8x7b"))
    model["ffn"]["choice"] = "swiglu"
    assert [note.split(" = ")[0] for note in resolve(model).notes] == [
        "dropped model.ffn.n_experts",
        "dropped model.ffn.experts_per_token",
        "dropped model.ffn.expert",
    ]
    with pytest.raises(ConfigError, match=r"model\.ffn\.expert: swiglu has no such option; it is an option of moe"):
        archlab.load("minimind", "model.ffn.expert.d_ff=3")


def test_a_layer_changes_one_option_of_its_experts():
    layers = [{"ffn": {"expert": {"d_ff": 5}}}, {}]
    spec = resolve(changed("mixtral-8x7b", layers=layers)).spec
    assert [(layer.ffn.expert.d_ff, layer.ffn.expert.choice) for layer in spec.layers[:3]] == [
        (5, "swiglu"),
        (14336, "swiglu"),
        (5, "swiglu"),
    ]


def test_what_is_typed_reaches_the_mixtures_and_not_the_dense_layers():
    spec = archlab.load("deepseek-moe-16b", "model.ffn.expert.d_ff=100", "model.ffn.n_experts=32")
    assert [layer.ffn.choice for layer in spec.layers[:3]] == ["swiglu", "moe", "moe"]
    assert (spec.layers[0].ffn.d_ff, spec.layers[1].ffn.n_experts, spec.layers[1].ffn.expert.d_ff) == (10944, 32, 100)
    assert spec.layers[1].ffn.shared_d_ff == 200


def test_a_composition_describes_the_experts_and_the_usual_layer():
    described = composition(archlab.load("deepseek-moe-16b"))
    assert described["axes"]["ffn"]["expert"] == {
        "choice": "swiglu",
        "d_ff": 1408,
        "rule": None,
        "multiple": 64,
        "bias": False,
    }
    assert described["layer_kinds"][0] == {"layers": [0], "axes": {"ffn": described["layer_kinds"][0]["axes"]["ffn"]}}
    assert described["layer_kinds"][0]["axes"]["ffn"]["d_ff"] == 10944


@pytest.mark.slow
@pytest.mark.parametrize("axis", AXES)
def test_every_choice_composes_by_itself_on_every_starting_preset(axis):
    for name in ("gqa", "gpt2", "minimind"):
        for choice in choices(axis):
            spec = archlab.load(name, f"model/{axis}={choice}")
            part = spec.head if axis == "head" else getattr(spec.layers[0], axis)
            assert part.choice == choice


@pytest.mark.parametrize("key", ["d_ff", "multiple"])
def test_values_that_are_equal_but_not_of_the_type_stay_apart_however_often_they_are_read(key):
    for _ in range(2):
        assert getattr(resolve(changed("mha", ffn={key: 1, "rule": None})).spec.layers[0].ffn, key) == 1
        for wrong in (True, 1.0, "1"):
            with pytest.raises(ConfigError, match=rf"model\.ffn\.{key}: {wrong!r} is not a whole number"):
                resolve(changed("mha", ffn={key: wrong, "rule": None}))


def test_a_block_that_was_read_before_is_read_for_its_own_model_and_its_own_typed_keys():
    block = {"n_heads": 8}
    assert resolve(changed("mha", attention=block)).spec.layers[0].attention.head_dim == 64
    assert resolve(changed("mha", attention=block, d_model=1024)).spec.layers[0].attention.head_dim == 128
    swapped = changed("gqa", attention={"choice": "mha", "n_kv_heads": 2})
    for _ in range(2):
        assert resolve(swapped).notes == ["dropped model.attention.n_kv_heads = 2: mha fixes it"]
        with pytest.raises(ConfigError, match="mha fixes it"):
            resolve(swapped, ["model.attention.n_kv_heads"])


def test_choices_say_what_might_not_be_expected_of_them_once():
    differing = [{"block": {"branch_scale": 2.0}}, {}]
    capped = resolve(changed(attention={"logit_cap": 50.0}, layers=differing)).spec
    assert len(capped.layer_kinds) == 2
    [remark] = capped.remarks
    assert remark == "attention: logit_cap 50 runs the explicit softmax (math): torch's fused attention cannot cap"
    assert resolve(changed(attention={"logit_cap": 50.0, "backend": "math"})).spec.remarks == ()


@pytest.mark.parametrize(
    ("name", "axis", "other"),
    [
        ("deepseek-v3", "ffn", "gelu"),
        ("deepseek-moe-16b", "ffn", "gelu"),
        ("smollm3-3b", "position", "alibi"),
        ("gemma-3-1b", "position", "none"),
        ("gemma-3-1b", "attention", "mla"),
        ("gpt-oss-20b", "attention", "mla"),
    ],
)
def test_a_swap_reaches_every_layer_that_has_the_models_own_choice(name, axis, other):
    body = preset(name)
    own = [entry.get(axis, {}).get("choice") for entry in body["layers"] for _ in range(entry.get("repeat", 1))]
    swapped = archlab.load(name, f"model/{axis}={other}")
    found = [getattr(layer, axis).choice for layer in swapped.layers[: len(own)]]
    assert found == [choice or other for choice in own]
    assert other in found


def test_a_pattern_that_was_typed_is_not_dropped_and_a_presets_is():
    swap, pattern = "model/attention=mla", [{"attention": {"window": 4}}]
    with pytest.raises(ConfigError, match=r"model\.layers\[0\]\.attention\.window: mla has no such option"):
        archlab.load("gemma-2-2b", swap, "model.layers=[{attention: {window: 4}}]")
    changes = changed("gemma-2-2b", layers=pattern) | {"attention": preset("deepseek-v3")["attention"]}
    assert "dropped model.layers[0].attention.window = 4: mla has no such option" in resolve(changes).notes


@pytest.mark.parametrize(
    ("name", "override", "key"),
    [
        ("gemma-2-2b", "model.attention.window=8", "model.attention.window"),
        ("gpt-oss-20b", "model.attention.window=null", "model.attention.window"),
    ],
)
def test_what_no_layer_would_take_from_the_model_is_not_ignored(name, override, key):
    with pytest.raises(ConfigError, match=r"each entry of model\.layers says otherwise") as caught:
        archlab.load(name, override)
    assert caught.value.key == key


def test_what_some_layer_takes_from_the_model_is_set_there():
    bases = [layer.position.base for layer in archlab.load("gemma-3-1b", "model.position.base=7e5").layers[:6]]
    assert bases == [1e4] * 5 + [7e5]


def test_what_the_model_lost_is_told_once():
    notes = resolve(changed("deepseek-moe-16b", ffn={"choice": "gelu"})).notes
    assert len({note.partition("ffn.")[2] for note in notes}) == len(notes) > 3
