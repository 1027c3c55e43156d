"""Fields of a config.json that cannot change the architecture, each with the reason.

Whatever is not here, and was not read by the family, stops an import: a wrong number that looks right is worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_REASONS = {
    "names, and where it came from": """
        model_type architectures auto_map transformers_version _name_or_path name_or_path _commit_hash _from_auto
        custom_pipelines base_model_type is_llama_config unsloth_version unsloth_fixed transformers.js_config""",
    "token ids and the tokenizer": """
        bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id
        decoder_start_token_id forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens
        tokenizer_class model_max_length predict_special_tokens""",
    "tokens that stand for images": "image_token_index image_token_id mm_tokens_per_image",
    "how weights are stored": """
        torch_dtype dtype quantization_config quantization compression_config use_bfloat16 tf_legacy_loss""",
    "how weights are drawn": "initializer_range init_std initializer_factor init_device embedding_fraction init_config",
    "training only": """
        router_aux_loss_coef aux_loss_alpha seq_aux router_jitter_noise layerdrop gradient_checkpointing
        classifier_dropout ep_size z_loss_coef num_steps""",
    "a dropout that the family does not have, in training only": """
        attention_dropout attn_pdrop attention_probs_dropout_prob residual_dropout resid_pdrop hidden_dropout
        hidden_dropout_prob dropout embedding_dropout embd_pdrop emb_pdrop activation_dropout""",
    "what a run returns, keeps or how it is split": """
        use_cache cache_implementation output_attentions output_hidden_states output_router_logits return_dict
        return_dict_in_generate torchscript keys_to_ignore_at_inference chunk_size_feed_forward pretraining_tp
        slow_but_exact output_past tie_last_hidden_states xla_device""",
    "which kernel runs, and how precisely": """
        use_flash_attn flash_attn attn_implementation experts_implementation _attn_implementation
        _attn_implementation_autoset _attn_implementation_internal _experts_implementation_internal
        _flash_attn_2_enabled reorder_and_upcast_attn attention_softmax_in_fp32 scale_attention_softmax_in_fp32""",
    "generation settings": """
        max_length min_length max_new_tokens min_new_tokens do_sample early_stopping num_beams num_beam_groups
        diversity_penalty temperature top_k top_p min_p typical_p repetition_penalty length_penalty
        encoder_repetition_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids
        num_return_sequences output_scores remove_invalid_values exponential_decay_length_penalty epsilon_cutoff
        eta_cutoff target_lookbehind assistant_lookbehind assistant_confidence_threshold num_assistant_tokens
        num_assistant_tokens_schedule task_specific_params prefix""",
    "heads for tasks other than language modelling": """
        problem_type id2label label2id num_labels _num_labels finetuning_task summary_type summary_use_proj
        summary_activation summary_proj_to_labels summary_first_dropout""",
    "a setting of Qwen's windows, which no other family reads": "max_window_layers",
}

HARMLESS = {name: reason for reason, names in _REASONS.items() for name in names.split()}

_NEUTRAL: tuple[tuple[tuple[Any, ...], str], ...] = (
    (
        (False,),
        """
        add_cross_attention is_encoder_decoder tie_encoder_decoder use_mrope use_sliding_window rope_interleaved
        apply_residual_connection_post_layernorm lm_head_bias use_dynamic_ntk use_logn_attn scale_embeddings
        use_bidirectional_attention""",
    ),
    ((True,), "scale_attn_weights learned_embeddings"),
    ((False, True), "is_decoder"),
    ((0, 0.0), "shared_expert_intermediate_size"),
    (
        (1, 1.0),
        """
        full_attn_mod interpolate_factor rotary_scaling_factor partial_rotary_factor logit_scale logits_scaling
        residual_multiplier embedding_multiplier""",
    ),
    (({},), "per_layer_config pruned_heads"),
)
OFF = {name: values for values, names in _NEUTRAL for name in names.split()}
"""Settings that only some families have, and the values by which a file of another says that it has them not."""


def _biased(model: Mapping[str, Any]) -> bool:
    return any(model["attention"].get(name, False) for name in ("q_bias", "bias"))


def _normed(model: Mapping[str, Any]) -> bool:
    return "qk_norm" in model["attention"]


STATED: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    **dict.fromkeys(("attention_bias", "qkv_bias", "use_qkv_bias"), _biased),
    **dict.fromkeys(("use_qk_norm", "qk_layernorm"), _normed),
    "mlp_bias": lambda model: model["ffn"].get("bias", False),
    "alibi": lambda model: model["position"]["choice"] == "alibi",
    "head_dim": lambda model: model["d_model"] / model["attention"]["n_heads"],
    "ff_factor": lambda model: model["ffn"].get("d_ff", 0) / model["d_model"],
}
"""Settings that some families read and others have one way or the other: what an archlab model config has of them."""


def changes_nothing(name: str, config: Mapping[str, Any], model: Mapping[str, Any] | None) -> bool:
    """Whether a field that the family does not read says what is so without it."""
    value = config[name]
    if value is None or any(value == off and type(value) is type(off) for off in OFF.get(name, ())):
        return True
    if name == "layer_types":
        return isinstance(value, list) and all(kind == "full_attention" for kind in value)
    if name == "sliding_window":
        return config.get("use_sliding_window") is False
    return bool(model is not None and name in STATED and value == STATED[name](model))
