"""What fits: the search against a scan, memory against what others measured, and the public cases."""

import collections
import functools
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import CONTEXT, specs

import archlab
from archlab import presets
from archlab.cost.fit import Fit, Serving, largest
from archlab.cost.kv import Engine, kv_cache
from archlab.cost.roofline import Setting
from archlab.cost.shards import valid_split
from archlab.cost.storage import weight_bytes, weight_storage
from archlab.cost.working import engine_elements
from archlab.errors import ConfigError
from archlab.frozen import values_of
from archlab.hardware import Hardware, hardware, names

GIB = 2**30
MOST = 400
"""Tokens and sequences that a scan tries."""


def fit(spec, memory, **serving):
    """A model on a device with so many bytes to use."""
    return Fit(spec, Serving(**{"utilisation": 1.0, "reserve": 0, **serving}), Hardware("card", memory=memory))


def scan(holds, most=MOST):
    """The last number in a row for which it holds, by trying each."""
    return next((number - 1 for number in range(1, most + 1) if not holds(number)), most)


def test_search_agrees_with_a_scan_for_500_models_devices_and_batches():
    draw = random.Random(4)
    loaded = {name: archlab.load(name) for name in presets.names()}
    for _ in range(500):
        spec, batch, context = loaded[draw.choice(sorted(loaded))], draw.randint(1, 6), draw.randint(1, 64)
        serving = {
            "setting": Setting(
                weights=draw.choice(["bf16", "fp8", "int8", "int4"]), cache=draw.choice(["bf16", "fp8", "int4"])
            ),
            "engine": Engine(draw.choice(["paged", "full_pages", "llama_cpp"]), draw.choice([1, 16, 64])),
            "chunk": draw.choice([None, 64, 8192]),
        }
        needed = fit(spec, 2**60, **serving).need(draw.randint(1, 120), batch).total
        check_search(fit(spec, needed + draw.randint(-(10**6), 10**6), **serving), batch, context)


def test_search_agrees_with_a_scan_on_500_real_devices():
    """Across the whole range, where windows are full, blocks begin and prefill goes by steps: sums by hand, scanned.

    Of the millions of tokens around an answer some dozens are tried, those next to it and to each window among them.
    """
    draw = random.Random(7)
    loaded = {name: archlab.load(name) for name in presets.names()}
    devices = [device for device in map(hardware, names()) if device.memory]
    for _ in range(500):
        spec, device = loaded[draw.choice(sorted(loaded))], draw.choice(devices)
        serving = Serving(Setting(cache=draw.choice(["bf16", "fp8"])), chunk=draw.choice([None, 2048, 8192]))
        found = Fit(spec, serving, device)
        batch, context = draw.randint(1, 64), draw.randint(1, spec.max_length or spec.context)
        budget = int(0.9 * device.memory) - GIB
        limit = spec.max_length or 2**40
        most = found.largest_context(batch)
        near = {1, 128, 129, 512, 513, 4096, 4097, *range((most or 0) - 20, (most or 0) + 20), limit}
        tried = near | {draw.randint(1, 3 * (most or 2**20)) for _ in range(20)}
        for tokens in sorted(tried):
            if 1 <= tokens <= limit:
                held = needed(spec, serving, batch, tokens) <= budget
                assert held == (most is None or tokens <= most), (spec.name, device.name, batch, tokens)
        many = found.largest_batch(context)
        for sequences in {many - 1, many, many + 1, 2 * many + 1} - {0, -1}:
            held = needed(spec, serving, sequences, context) <= budget
            assert held == (sequences <= many), (spec.name, device.name, sequences, context)


@functools.cache
def standing(spec):
    """Parameters, elements of a prefill step, and by how far layers see what these keep of a token."""
    kept = collections.Counter()
    for layer in spec.layers:
        kept[layer.attention.locality.limit] += sum(tensor.heads * tensor.width for tensor in layer.attention.cached())
    return archlab.parameters(spec).total, engine_elements(spec), kept


def needed(spec, serving, batch, context):
    """Weights, whole blocks of 16, one prefill step, logits: summed here anew, not as the search sums them."""
    params, live, kept = standing(spec)
    width = 2 if serving.setting.cache == "bf16" else 1
    whole = -(-context // 16)
    blocks = {limit: whole if limit is None else min(whole, -(-limit // 16) + 1) for limit in kept}
    cache = sum(16 * blocks[limit] * width * elements for limit, elements in kept.items())
    tokens = batch * context if serving.chunk is None else min(batch * context, serving.chunk)
    return 2 * params + batch * cache + 2 * tokens * live + batch * spec.vocab_size * (2 + 4)


def check_search(found, batch, context):
    """Hold the largest context for a batch, and the largest batch for a context, against a scan."""
    what = (found.spec.name, batch, context, found.serving, found.device)
    scanned = scan(lambda tokens: found.left(tokens, batch) >= 0)
    answer = found.largest_context(batch)
    assert answer == scanned if scanned < MOST else answer is None or answer >= MOST, what
    scanned = scan(lambda sequences: found.left(context, sequences) >= 0)
    answer = found.largest_batch(context)
    assert answer == scanned if scanned < MOST else answer >= MOST, what


@settings(max_examples=100)
@given(
    specs(task_heads=False), st.integers(1, 3), st.integers(0, 3000), st.sampled_from([None, 1, 5]), st.integers(1, 4)
)
def test_search_agrees_with_a_scan_for_whatever_is_composed(spec, batch, more, chunk, block):
    serving = {"chunk": chunk, "engine": Engine("paged", block)}
    found = fit(spec, fit(spec, 2**60, **serving).need(1, batch).total + more - 100, **serving)
    scanned = scan(lambda tokens: found.left(tokens, batch) >= 0, most=min(MOST, spec.max_length or MOST))
    answer = found.largest_context(batch)
    assert answer is None or answer >= scanned if scanned == MOST else answer == scanned


@given(specs(), st.integers(1, CONTEXT), st.integers(1, 5), st.sampled_from([None, 3, 100]))
def test_need_never_falls_with_context_or_batch(spec, context, batch, chunk):
    found = fit(spec, 2**60, chunk=chunk)
    context = min(context, (spec.max_length or CONTEXT + 1) - 1)
    assert found.need(context, batch).total <= found.need(context + 1, batch).total
    assert found.need(context, batch).total < found.need(context, batch + 1).total


@pytest.mark.parametrize(("most", "answer"), [(1, 0), (2, 1), (7, 6), (8, 7), (1000, 999)])
def test_the_largest_below_a_limit(most, answer):
    assert largest(lambda number: number < most, 10**6) == answer
    assert largest(lambda number: True, most) == most


def test_b15_which_lengths_a_24_gb_card_takes():
    """vLLM starts Llama-3.1-8B with 20 k and 35 k tokens but not with 29 k: from 32 k on it prefills in steps.

    Its log, vllm-project/vllm#10517: peaks of 17.06 GiB (20 k) and 17.98 GiB (29 k) before the cache, pools of 3.81
    and 2.89 GiB.
    """
    spec = archlab.load("llama-3.1-8b")
    card = int((17.06 + 3.81) * GIB)
    whole, stepped = fit(spec, card, chunk=None), fit(spec, card, chunk=2048)
    for context, peak in ((20_000, 17.06), (29_000, 17.98)):
        need = whole.need(context, 1)
        assert (need.total - need.cache) / GIB == pytest.approx(peak, abs=0.05)
    assert whole.left(20_000, 1) >= 0 > whole.left(29_000, 1)
    assert stepped.left(35_000, 1) >= 0
    assert whole.need(20_000, 1).cache == 20_000 * 131_072


@pytest.mark.parametrize(
    ("blocks", "tokens", "asked", "times"), [(1952, 31_232, 20_000, 1.56), (1478, 23_648, 29_000, 0.82)]
)
def test_b15_a_pool_of_blocks(blocks, tokens, asked, times):
    spec = archlab.load("llama-3.1-8b")
    pool = blocks * 16 * 131_072
    without = fit(spec, 2**60, chunk=1).need(1, 1)
    found = fit(spec, without.total - without.cache + pool, chunk=1).largest_context(1)
    assert found == tokens
    assert found / asked == pytest.approx(times, abs=0.005)


def test_b15_bytes_a_token_of_a_prefill_are_those_that_were_profiled():
    profiled = (17.98 - 17.06) * GIB / 9000
    assert 2 * engine_elements(archlab.load("llama-3.1-8b")) == pytest.approx(profiled, rel=0.012)


def test_j01_memory_holds_all_experts():
    """A 125.1 B model of which a token uses 10 B takes 72.6 GB at 0.58 B a parameter, not 5.8."""
    spec = archlab.load("mixtral-8x7b")
    counts = archlab.parameters(spec)
    for name in ("bf16", "fp8", "int4"):
        need = fit(spec, 2**60, setting=Setting(weights=name)).need(1, 1)
        assert need.weights == weight_bytes(spec, weight_storage(name))
    assert fit(spec, 2**60).need(1, 1).weights == 2 * counts.total > 3 * 2 * counts.active


def test_j06_the_same_inputs_give_the_same_number_and_each_one_matters():
    spec, card = archlab.load("llama-3.1-8b"), hardware("a100-sxm-40gb")

    def tokens(utilisation, cache):
        return Fit(spec, Serving(Setting(cache=cache), utilisation=utilisation), card).largest_context(1)

    found = {pair: tokens(*pair) for pair in itertools.product((0.9, 0.95), ("bf16", "fp8"))}
    assert found == {pair: tokens(*pair) for pair in found}
    assert len(set(found.values())) == 4
    # 0.05 x 40 GiB more, at 131,072 B a token in bf16 and half of it in fp8
    assert found[0.95, "bf16"] - found[0.9, "bf16"] == pytest.approx(2 * GIB / 131_072, abs=16)
    assert found[0.95, "fp8"] - found[0.9, "fp8"] == pytest.approx(2 * GIB / 65_536, abs=16)
    assert found[0.9, "fp8"] == pytest.approx(2 * found[0.9, "bf16"], abs=32)


@pytest.mark.parametrize("preset", ["llama-3-8b", "gemma-2-2b", "gpt-oss-20b", "deepseek-v3", "mixtral-8x7b"])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_need_is_the_sum_of_what_the_other_costs_say(preset, tp):
    spec = archlab.load(preset)
    tp = max(choice for choice in valid_split(spec) if choice <= tp)
    serving = Serving(Setting("bf16", "int8", "fp8", tp), Engine("full_pages", 32))
    need = Fit(spec, serving, hardware("h200")).need(4000, 3)
    assert need.cache == kv_cache(spec, 3, 4000, "fp8", tp=tp, engine=Engine("full_pages", 32)).engine
    assert need.logits == 3 * spec.vocab_size * 6
    assert need.total == sum(values_of(need).values())
    if tp == 1:
        assert need.weights == weight_bytes(spec, weight_storage("int8"))


def test_the_fewest_devices_are_the_first_that_share_the_heads_and_hold_it():
    spec, card = archlab.load("llama-3.1-70b"), hardware("h100-sxm")
    found = Fit(spec, Serving(), card)
    fewest = found.smallest_tp(131_072, 1)
    assert fewest == next(tp for tp in valid_split(spec) if found.at(tp).left(131_072, 1) >= 0) == 4
    assert Fit(spec, Serving(), hardware("t4")).smallest_tp(131_072, 64) is None


def test_a_cache_that_stops_growing_sets_no_end():
    """Every layer of Mistral-7B-v0.1 sees 4,096 tokens."""
    assert Fit(archlab.load("mistral-7b-v0.1"), Serving(), hardware("h200")).largest_context(1) is None


def test_learned_positions_end_before_memory_does():
    assert Fit(archlab.load("gpt2"), Serving(), hardware("h200")).largest_context(1) == 1024


def test_weights_alone_may_be_too_much():
    found = Fit(archlab.load("deepseek-v3"), Serving(), hardware("h200"))
    assert (found.largest_context(1), found.largest_batch(1)) == (0, 0)
    assert found.left(1, 1) < 0


@pytest.mark.parametrize("utilisation", [0, -0.1, 1.01, 90, float("nan")])
def test_a_share_that_is_none_is_refused(utilisation):
    with pytest.raises(ConfigError, match="utilisation"):
        Serving(utilisation=utilisation)


def test_a_device_without_known_memory_is_refused_with_what_to_set():
    with pytest.raises(ConfigError, match=r"hardware\.memory=80GiB"):
        Fit(archlab.load("gpt2"), Serving(), hardware("epyc-9654"))
