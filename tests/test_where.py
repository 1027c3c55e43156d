"""Conditions on records: what they mean, and that bad ones are one message."""

import pytest

from archlab.errors import ConfigError, RequestError
from archlab.where import condition

UNITS = {
    "params": "parameters", "kv_bytes_per_token": "B/token", "weight_bytes": "B", "decode_tok_s": "tok/s",
    "context": "", "attention": "", "norm": "", "model/norm": "", "status": "", "params.layers.0-7": "parameters",
}  # fmt: skip
FACTS = {
    "params": 124_439_808, "kv_bytes_per_token": 36_864, "weight_bytes": 2**30, "context": 8192, "attention": "gqa",
    "norm": "none", "model/norm": "none", "status": "ok", "params.layers.0-7": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("params<200e6", True),
        ("params < 200M", True),
        ("params<0.1B", False),
        ("100M < params <= 124439808", True),
        ("params=124_439_808", True),
        ("weight_bytes=1GiB", True),
        ("weight_bytes<1GB", False),
        ("kv_bytes_per_token<=36KiB and params<200M", True),
        ("kv_bytes_per_token<36KiB or params<200M", True),
        ("not params<200M", False),
        ("not (params<200M and attention=mha)", True),
        ("params>200M or params<200M and attention=mha", False),  # and binds closer
        ("context>=8k", True),
        ("context<8k", False),
        ("200M > params", True),
        ("attention=GQA", True),
        ("attention!=mha", True),
        ("attention='gqa'", True),
        ('norm=none and model/norm="none"', True),
        ("params.layers.0-7=5", True),
        ("decode_tok_s>1", False),
        ("decode_tok_s=null", True),
        ("decode_tok_s!=3", True),
        ("attention<3", False),
        ("attention=3", False),
        ("params>-1 and params>=0", True),
        ("params != params", False),
    ],
)
def test_what_a_condition_means(text, holds):
    assert condition(text, UNITS)(FACTS) is holds


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "expected"),
        ("params", "stands alone"),
        ("params<", "the end"),
        ("params<200M and", "the end"),
        ("(params<200M", ") is missing"),
        ("params<200M)", "not expected"),
        ("params<200M attention=gqa", "'attention'"),
        ("prams<200M", "did you mean params?"),
        ("1<2", "no figure or option"),
        ("params<3Q", "power of ten"),
        ("weight_bytes<3G", "3,221,225,472"),
        ("weight_bytes<3MiB or weight_bytes<3 parrots", "expected"),
        ("params<2'", "cannot be read"),
        ("(" * 99 + "params<1" + ")" * 99, "nested"),
        ("__import__('os').system('true')<1", "expected"),
        ("params<<1", "expected"),
        ("params<abc", "params wants a number, not 'abc'"),
        ("params<nan", "params wants a number"),
        ("'2e8'>params", "params wants a number, not '2e8'"),
        ("decode_tok_s=fast", "decode_tok_s wants a number"),
        ("1M<params<many", "params wants a number, not 'many'"),
        ("attention>=gqa", "attention wants a number"),  # an option: equal to a word it may be
    ],
)
def test_a_bad_condition_is_one_message(text, says):
    with pytest.raises(RequestError) as error:
        condition(text, UNITS)
    assert says in str(error.value)


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(ConfigError) as error:
        condition("layers>3", UNITS)
    assert set(error.value.valid) == set(UNITS)
