"""Amounts as people write them: what each unit means, and what is refused because it could mean two things."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archlab.errors import ConfigError
from archlab.units import first_few, read_bandwidth, read_bytes, read_count, read_flop_rate, read_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8k", 8192), ("128k", 131_072), ("2K", 2048), ("4096", 4096), (100_000, 100_000), ("1_024", 1024)],
)
def test_tokens(text, tokens):
    assert read_tokens(text, "context") == tokens


@pytest.mark.parametrize(
    ("text", "both"),
    [("100k", ("100,000", "102,400")), ("1M", ("1,000,000", "1,048,576")), ("1.5k", ("1,500", "1,536"))],
)
def test_tokens_that_could_be_either_are_refused_with_both(text, both):
    with pytest.raises(ConfigError) as caught:
        read_tokens(text, "context")
    assert all(reading in str(caught.value) for reading in both)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("80GB", 80 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("24 GiB", 24 * 2**30),
        ("4096", 4096),
        ("512MiB", 2**29),
        ("1TB", 10**12),
    ],
)
def test_bytes(text, count):
    assert read_bytes(text, "memory") == count


@pytest.mark.parametrize("text", ["80G", "80g", "80Gi", "80gb", "80Gb", "80gib"])
def test_memory_that_could_be_either_is_refused_with_both(text):
    with pytest.raises(ConfigError) as caught:
        read_bytes(text, "memory")
    assert "80,000,000,000" in str(caught.value)
    assert "85,899,345,920" in str(caught.value)


@pytest.mark.parametrize(("text", "count"), [("124M", 124_000_000), ("1.3B", 1_300_000_000), ("7k", 7000), ("5", 5)])
def test_counts(text, count):
    assert read_count(text, "params") == count


@pytest.mark.parametrize("read", [read_tokens, read_bytes, read_count])
@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "k", "1e9", "8x", "0x10", "inf", "nan", "1,000", "8 k k", "1.5", "²", True, None, "9" * 9999],
)
def test_what_is_no_amount(read, text):
    with pytest.raises(ConfigError, match=r"^amount: "):
        read(text, "amount")


@given(st.text(max_size=12), st.sampled_from([read_tokens, read_bytes, read_count]))
def test_any_text_is_an_amount_or_a_message(text, read):
    with contextlib.suppress(ConfigError):
        assert read(text, "amount") > 0


@pytest.mark.parametrize(("text", "rate"), [("3.35TB/s", 3350 * 10**9), ("900GB/s", 9 * 10**11), ("1GiB/s", 2**30)])
def test_bandwidths(text, rate):
    assert read_bandwidth(text, "bandwidth") == rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [("989.4TFLOP/s", 9894 * 10**11), ("1979TOPS", 1979 * 10**12), ("312T", 312 * 10**12), ("2 PFLOP/s", 2 * 10**15)],
)
def test_rates_of_arithmetic(text, rate):
    assert read_flop_rate(text, "peak") == rate


@pytest.mark.parametrize("text", ["989TB/s", "989TFLOP", "989t", "fast", "-1TFLOP/s", "0", "1e15", "", "BFLOP/s"])
def test_what_is_no_rate_of_arithmetic_is_refused(text):
    with pytest.raises(ConfigError, match="peak"):
        read_flop_rate(text, "peak")


@pytest.mark.parametrize(("names", "said"), [("a", "a"), ("abc", "a, b, c"), ("abcd", "a, b, c, ...")])
def test_a_line_names_three_and_says_that_there_are_more(names, said):
    assert first_few(names) == said
