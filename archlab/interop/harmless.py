"""Fields of a config.json that cannot change the architecture, each with the reason.

Whatever is not here, and was not read by the family, stops an import: a wrong number that looks right is worse.
"""

from __future__ import annotations

from typing import Any

_REASONS = {
    "names, and where it came from": """
        model_type architectures auto_map transformers_version _name_or_path name_or_path _commit_hash
        custom_pipelines base_model_type""",
    "token ids and the tokenizer": """
        bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id
        decoder_start_token_id forced_bos_token_id forced_eos_token_id suppress_tokens begin_suppress_tokens
        tokenizer_class model_max_length""",
    "how weights are stored": "torch_dtype dtype quantization_config compression_config use_bfloat16 tf_legacy_loss",
    "how weights are drawn": "initializer_range init_std initializer_factor init_device embedding_fraction init_config",
    "training only": """
        router_aux_loss_coef aux_loss_alpha seq_aux router_jitter_noise layerdrop gradient_checkpointing
        classifier_dropout ep_size z_loss_coef""",
    "what a run returns, keeps or how it is split": """
        use_cache cache_implementation output_attentions output_hidden_states output_router_logits return_dict
        return_dict_in_generate torchscript keys_to_ignore_at_inference chunk_size_feed_forward pretraining_tp
        slow_but_exact use_flash_attn flash_attn attn_implementation _attn_implementation
        _attn_implementation_autoset _flash_attn_2_enabled reorder_and_upcast_attn""",
    "generation settings": """
        max_length min_length max_new_tokens min_new_tokens do_sample early_stopping num_beams num_beam_groups
        diversity_penalty temperature top_k top_p min_p typical_p repetition_penalty length_penalty
        no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
        remove_invalid_values exponential_decay_length_penalty task_specific_params prefix""",
    "heads for tasks other than language modelling": """
        problem_type id2label label2id num_labels finetuning_task summary_type summary_use_proj summary_activation
        summary_proj_to_labels summary_first_dropout""",
}

HARMLESS = {name: reason for reason, names in _REASONS.items() for name in names.split()}

OFF: dict[str, tuple[Any, ...]] = {
    "add_cross_attention": (False,),
    "cross_attention_hidden_size": (None,),
    "is_decoder": (False, True),
    "is_encoder_decoder": (False,),
    "tie_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
    "per_layer_config": (None, {}),
}
"""Fields that every family may carry, and the values that switch them off."""
