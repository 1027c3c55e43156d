"""Every experiment on compositions that have little in common, printed at 80 columns in plain ASCII."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from asked import conducted
from imported import DATA
from rich.console import Console

from archlab.errors import RequestError
from archlab.lab import cache, flash, heads
from archlab.lab.catalog import EXPERIMENTS
from archlab.report.document import print_document

pytestmark = pytest.mark.slow

SIZES = ("model.d_model=64", "model.vocab_size=97", "model.context=128")
COMPOSITIONS = {
    "windows": ("model=gemma-3-1b", *SIZES, "model.attention.head_dim=16", "model.ffn.d_ff=96", "model.n_layers=7"),
    "latent, experts": (
        "model=deepseek-v3",
        *SIZES,
        "model.n_layers=4",
        "model.attention.n_heads=4",
        *(f"model.attention.{name}=16" for name in ("q_rank", "kv_rank", "nope_dim", "v_dim", "rope_dim")),
        "model.ffn.expert.d_ff=32",
        "model.ffn.n_experts=8",
        "model.ffn.experts_per_token=2",
        "model.ffn.n_groups=2",
        "model.ffn.groups_per_token=1",
    ),
    "2017": (
        "model=gpt2",
        *SIZES,
        "model.attention.n_heads=4",
        "model.n_layers=3",
        "model/block=post_norm",
        "model/position=sinusoidal",
    ),
}
QUICK = {
    "order": ("tokens=4", "layers=1"),
    "residual": ("tokens=4",),
    "norm": ("layers=2", "tokens=4"),
    "activation": ("steps=1",),
    "cache": ("new=3", "contexts=4,8"),
    "heads": ("context=8", "batch=1"),
    "flash": ("lengths=16,32", "keys=32"),
    "width": ("tokens=2", "seconds=0.01"),
    "softmax": ("samples=64",),
    "extrapolation": ("trained=32", "lengths=64,128"),
}
NOTHING_TO_SEE = {("rope", "2017")}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cache, flash, heads):
        monkeypatch.setattr(module, "SECONDS", 0.02)


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_runs_and_can_be_read(name: str, composition: str) -> None:
    words = [*COMPOSITIONS[composition], *QUICK.get(name, ())]
    if (name, composition) in NOTHING_TO_SEE:
        with pytest.raises(RequestError):
            conducted(name, *words)
        return
    made = conducted(name, *words)
    assert made.verdict.isascii()
    assert made.charts
    assert all(table.rows for table in made.tables)
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    print_document(made, "table", Console(file=written, width=80, color_system=None, height=25))
    written.seek(0)
    lines = written.read().splitlines()
    assert max(map(len, lines)) <= 80
    assert any(made.verdict[:20] in line for line in lines[:3])


def test_weights_of_a_trained_model_are_those_that_transformers_has() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder: Path = DATA / "references" / "llama"
    ids = [5, 17, 3, 60, 2, 9]
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        wanted = model(torch.tensor([ids]), output_attentions=True).attentions
    text = ",".join(map(str, ids))
    made = conducted("attention", f"model={folder}", f"weights={folder}", f"ids={text}", "layer=1", "head=2")
    (drawn,) = made.charts
    found = [[weight or 0.0 for weight in row] for row in drawn.rows]
    assert torch.allclose(torch.tensor(found), wanted[1][0, 2], atol=1e-5)
    assert made.assumptions["tried"].startswith("all layers, weights of ")
