"""Products of a few rows: every way gives the numbers of the explicit sum, and only what is measured changes."""

from __future__ import annotations

import pytest
import torch

import archlab
from archlab.components import thin
from archlab.components.thin import ThinProduct, ways
from archlab.decoder import tune as tuning
from archlab.decoder.module import Decoder


@pytest.fixture
def decoder() -> Decoder:
    small = ("model.d_model=32", "model.n_layers=2", "model.vocab_size=50", "model.ffn.d_ff=48")
    return archlab.build(archlab.load("gqa", *small, "model.attention.head_dim=8"), dtype="fp64")


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_every_way_is_the_sum_written_out(rows: int) -> None:
    x, weight = torch.randn(rows, 7, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    wanted = (x[:, None, :] * weight[None]).sum(-1)
    for way in ways(rows).values():
        got = way(x, weight)
        assert got.is_contiguous()
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", [thin.columns, thin.vector])
@pytest.mark.parametrize("bias", [False, True])
def test_a_layer_gives_the_same_by_any_way(way: thin.Way, bias: bool) -> None:
    module = ThinProduct()
    weight = torch.randn(5, 7, dtype=torch.float64)
    b = torch.randn(5, dtype=torch.float64) if bias else None
    x = torch.randn(1, 1, 7, dtype=torch.float64)
    wanted = module.product(x, weight, b)
    module.quickest = {1: way}
    with torch.no_grad():
        torch.testing.assert_close(module.product(x, weight, b), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 3])
def test_logits_are_the_same_whatever_is_quickest(decoder: Decoder, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.randint(50, (rows, 1), generator=torch.Generator().manual_seed(0))
    for name, way in ways(rows).items():
        monkeypatch.setattr(tuning, "_quickest", lambda weights, rows, chosen=(name, way): chosen)
        with torch.no_grad():
            wanted = decoder(ids)
            found = decoder.tune(rows)
            assert set(found.values()) == {name}
            kept = {rows: way} if name != "rows" else {}  # nothing is in the way of torch's own
            assert all(module.quickest == kept for module in decoder.modules() if isinstance(module, ThinProduct))
            assert "[50, 32] float64" in found  # the tied head, by the embedding's weight
            torch.testing.assert_close(decoder(ids), wanted, rtol=1e-12, atol=1e-12)


def test_the_quickest_is_taken_and_a_little_quicker_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {"rows": 100, "columns": 80, "vector": 95}
    spent = [0]

    def slow(name: str) -> thin.Way:
        def way(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            spent[0] += cost[name]
            return x

        return way

    monkeypatch.setattr(tuning, "ways", lambda rows: {name: slow(name) for name in cost})
    monkeypatch.setattr(tuning.time, "perf_counter", lambda: float(spent[0]))
    weights = [torch.randn(3, 3)] * 2
    assert tuning._quickest(weights, 1)[0] == "columns"
    cost["columns"] = 95
    assert tuning._quickest(weights, 1)[0] == "rows"


def test_gradients_other_rows_and_other_devices_go_the_usual_way(decoder: Decoder) -> None:
    def never(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        raise AssertionError

    for module in decoder.modules():
        if isinstance(module, ThinProduct):
            module.quickest = {1: never}
    decoder(torch.zeros(1, 1, dtype=torch.int64)).sum().backward()
    with torch.no_grad():
        decoder(torch.zeros(2, 1, dtype=torch.int64))
    assert decoder.tune(33) == {}
    assert archlab.build(decoder.spec, device="meta").tune(1) == {}
