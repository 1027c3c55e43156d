"""The public way to a model: built from its spec, with random weights or with those of a file."""

from __future__ import annotations

from pathlib import Path

import torch

from archlab.decoder import build as random
from archlab.decoder.module import Decoder
from archlab.decoder.spec import DecoderSpec, check_spec
from archlab.interop.weights import load_weights


def build(
    spec: DecoderSpec,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = torch.float32,
    weights: str | Path | None = None,
    seed: int = 0,
) -> Decoder:
    """The module of a spec, in training mode as torch builds modules.

    device: `meta` gives shapes without storage. dtype: a torch dtype or its name (`bf16`, `fp32`, ..). weights: a
    safetensors file, a sharded index or a folder (see `archlab.interop.weights`), on `meta` only checked; None draws
    random ones. seed: of the draw; torch's global random state is left as it was. Raises RequestError.
    """
    check_spec(spec)
    decoder = random.build(spec, device, dtype, seed if weights is None else None)
    if weights is not None:
        load_weights(decoder, weights)
    return decoder
