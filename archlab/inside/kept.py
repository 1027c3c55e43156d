"""What autograd really keeps of a training pass: torch's own saved-tensor hooks, asked."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor

from archlab.bench.phases import loss_of
from archlab.components.counted.probe import Saved
from archlab.decoder.module import Decoder


def kept_by_autograd(decoder: Decoder, batch: int, length: int) -> int:
    """Bytes of the distinct storages that are kept after a training pass, parameters and fixed tables apart."""
    ids = torch.randint(decoder.spec.vocab_size, (batch, length + 1), generator=torch.Generator().manual_seed(0))
    ids = ids.to(decoder.embedding.weight.device)
    found: list[weakref.ref[Saved]] = []

    def pack(tensor: Tensor) -> Saved:
        found.append(weakref.ref(saved := Saved(tensor)))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
        loss = loss_of(decoder.train()(ids[:, :-1]), ids[:, 1:], decoder)
    tables = [table for position in decoder.positions for table in getattr(position, "tables", ())]
    own = {tensor.untyped_storage().data_ptr() for tensor in (*decoder.parameters(), *decoder.buffers(), *tables)}
    storages = [saved.tensor.untyped_storage() for ref in found if (saved := ref()) is not None]
    kept = {storage.data_ptr(): storage.nbytes() for storage in storages if storage.data_ptr() not in own}
    return sum(kept.values()) if loss.requires_grad else 0  # the loss holds the graph until here
