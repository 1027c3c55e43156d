"""Dtype names as torch knows them."""

from __future__ import annotations

import torch

from archlab.units import dtype_name

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}


def torch_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """The torch dtype of a name (`bf16`, `bfloat16`) or of itself. Raises ConfigError for any other."""
    return TORCH_DTYPES[dtype_name(str(dtype))]
