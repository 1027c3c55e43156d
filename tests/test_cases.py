"""Public questions about counting parameters and sizing FFNs, each with its right answer."""

import pytest

import archlab

BARE = (
    "model/norm=none",
    "model/position=none",
    "model.ffn.bias=false",
    *(f"model.attention.{projection}_bias=false" for projection in "qkvo"),
)


def total(preset, *overrides):
    return archlab.parameters(archlab.load(preset, *overrides)).total


def test_a04_the_untied_definition_not_the_prose_beside_it():
    assert total("gpt2", *BARE, "model/head=untied") == 12 * 768**2 * 12 + 2 * 50257 * 768 == 162_129_408
    assert total("gpt2", *BARE) == 123_532_032


def test_a05_a_gated_72b_is_not_56b():
    shape = ("n_layers=80", "d_model=8192", "vocab_size=152064")
    heads = ("n_heads=64", "head_dim=128", *(f"{projection}_bias=true" for projection in "qkv"))
    overrides = [f"model.{item}" for item in shape] + [f"model.attention.{item}" for item in heads]
    assert total("llama-2-7b", *overrides, "model.ffn.d_ff=24576") == 72_287_920_128


def test_a07_totals_of_two_model_cards():
    qwen3_4b = ("model.n_layers=36", "model.d_model=2560", "model.attention.n_heads=32", "model.ffn.d_ff=9728")
    assert total("qwen3-0.6b", *qwen3_4b) == 4_022_468_096
    qwen25_72b = ("model.n_layers=80", "model.d_model=8192", "model.vocab_size=152064", "model.ffn.d_ff=29568")
    heads = ("model.attention.n_heads=64", "model.attention.n_kv_heads=8", "model.attention.head_dim=128")
    assert total("qwen2.5-7b", *qwen25_72b, *heads) == 72_706_203_648


@pytest.mark.parametrize(("head", "times"), [("tied", 1), ("untied", 2)])
def test_a14_a_padded_vocabulary_costs_its_rows(head, times):
    spec = archlab.load("gpt2", f"model/head={head}", "model.vocab_multiple=128")
    assert (spec.tokenizer_vocab, spec.vocab_size, spec.unused_rows) == (50_257, 50_304, 47)
    assert archlab.parameters(spec).total - total("gpt2", f"model/head={head}") == times * 36_096
    assert spec.unused_params == times * 36_096


def test_a14_a_bias_a_token_is_padded_too():
    spec = archlab.load("phi-2", "model.vocab_multiple=4096")
    assert spec.vocab_size == 53_248
    assert spec.unused_params == archlab.parameters(spec).total - total("phi-2") == 2_048 * (2 * 2_560 + 1)


@pytest.mark.parametrize(("multiple", "padded"), [(1024, 250_880), (128, 250_752), (1, 250_680), ("null", 250_680)])
def test_a14_bloom_pads_to_1024(multiple, padded):
    spec = archlab.load("bloom-560m", "model.vocab_size=250680", f"model.vocab_multiple={multiple}")
    assert (spec.tokenizer_vocab, spec.vocab_size) == (250_680, padded)
    assert archlab.build(spec, device="meta").embedding.weight.shape == (padded, 1024)


def test_a17_71_heads_and_one_kv_head():
    spec = archlab.load("falcon-7b")
    tensors = spec.layers[0].attention.params()
    assert tensors["q"] + tensors["k"] + tensors["v"] == 4672 * 4544
    assert archlab.parameters(spec).total == 6_921_720_704


@pytest.mark.parametrize(
    ("shape", "none", "one", "both"),
    [
        (("model.d_model=512", "model.n_layers=6", "model.attention.n_heads=8"), 18_915_328, 44_670_976, 70_426_624),
        (
            ("model.d_model=1024", "model.n_layers=24", "model.attention.n_heads=16"),
            302_311_424,
            353_822_720,
            405_334_016,
        ),
    ],
)
def test_a19_names_that_count_no_table_one_or_both(shape, none, one, both):
    gpt = ("gpt2", "model/position=rope", "model.vocab_size=50304", *shape)
    counts = archlab.parameters(archlab.load(*gpt, "model/head=untied"))
    assert counts.total == both
    assert counts.non_embedding == one
    assert counts.non_embedding - counts.by_part["lm_head"] == none
    assert total(*gpt) == one


def test_e04_ratio_4_before_the_two_thirds():
    gated = archlab.load("mha", "model.d_model=768", "model/ffn=swiglu", "model.ffn.rule=8/3").layers[0].ffn
    assert gated.d_ff == 2048
    assert sum(gated.params().values()) == 3 * 768 * 2048 == 2 * 768 * 3072


@pytest.mark.parametrize("choice", ["gelu", "swiglu"])
def test_e05_a_width_that_is_set_is_used(choice):
    spec = archlab.load("gpt2", f"model/ffn={choice}", "model.ffn.d_ff=1000", "model.ffn.bias=false")
    assert archlab.parameters(spec).by_part["ffn"] == 12 * (3 if choice == "swiglu" else 2) * 768 * 1000
