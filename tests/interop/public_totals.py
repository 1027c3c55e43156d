"""What transformers, on the meta device, counts for each config of tests/data/public, written into the same files.

PYTHONPATH=tests python tests/interop/public_totals.py
"""

from __future__ import annotations

import json
from typing import Any

import torch
import transformers
from imported import DATA, PUBLIC, public


def total(config: dict[str, Any]) -> int:
    """Parameters of the language model that the config describes, under the head that it names."""
    # transformers 5.24 does not read Phi-3's first name of longrope any more
    given = json.loads(json.dumps(config).replace('"su"', '"longrope"'))
    named = given.get("architectures", [""])[0]
    auto = "SequenceClassification" if named.endswith("SequenceClassification") else "CausalLM"
    found = transformers.AutoConfig.for_model(**given).get_text_config()
    with torch.device("meta"):
        model = getattr(transformers, f"AutoModelFor{auto}").from_config(found)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    for name in PUBLIC:
        known = public(name)
        if "refused" not in known:
            known["params_total"] = total(known["hf_config"])
        (DATA / "public" / f"{name}.json").write_text(json.dumps(known, indent=1) + "\n")
