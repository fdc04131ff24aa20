"""The keys of a model's ``generation_config.json``: followed, refused, or without effect here."""

from __future__ import annotations

import json
from typing import Any

from glit.errors import WeightsError, cut
from glit.models.backends.protocols import SAMPLING, WriterConfig
from glit.models.weights import Resolved

_FILE = "generation_config.json"
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "num_beams": (1,), "num_beam_groups": (1,), "num_return_sequences": (1,), "min_length": (0,),
    "min_new_tokens": (0,), "no_repeat_ngram_size": (0,), "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,), "length_penalty": (1,), "diversity_penalty": (0,),
    "penalty_alpha": (0,), "guidance_scale": (1,), "typical_p": (1,), "epsilon_cutoff": (0,),
    "eta_cutoff": (0,), "presence_penalty": (0,), "frequency_penalty": (0,), "early_stopping": (),
    "bad_words_ids": ([],), "suppress_tokens": ([],), "begin_suppress_tokens": ([],),
    "stop_strings": ([], ""), "remove_invalid_values": (),
}  # fmt: skip
"""The values of keys with which they do nothing, besides false and null."""
_NO_MATTER = {
    "temperature", "do_sample", "max_length", "max_new_tokens", "transformers_version",
    "_from_model_config", "use_cache", "cache_implementation", "cache_config", "max_cache_len",
    "return_legacy_cache", "output_attentions", "output_hidden_states", "output_scores",
    "output_logits", "return_dict_in_generate", "renormalize_logits", "low_memory",
    "trust_remote_code",
    "compile_config", "disable_compile", "continuous_batching_config", "prefill_chunk_size",
    "chat_format", "max_window_size", "_name_or_path", "torch_dtype", "dtype",
    "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold",
    "assistant_early_exit", "assistant_lookbehind", "target_lookbehind",
    "assistant_ensemble_weight",
    "is_assistant", "max_matching_ngram_size",
}  # fmt: skip
"""Said by the recipe, about speed, or about what is put out beside the tokens."""
_TOKENS = ("_token_id", "_token_ids")
_FORCED = ("forced_",)


def refuse_unfollowed_keys(model: Resolved | None) -> None:
    """Refuse a model whose generation_config.json asks for what glit does not do.

    Raises:
        WeightsError: names the key, and what to do.
    """
    for key, value in _read(model).items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        follows = (key in SAMPLING and is_number) or key in _NO_MATTER
        is_token = key.endswith(_TOKENS) and not key.startswith(_FORCED)
        if follows or is_token or value is None or value is False:
            continue
        if any(value == neutral for neutral in _NEUTRAL.get(key, ())):
            continue
        assert model is not None
        raise WeightsError(
            f"model {model.name!r}: its {_FILE} has {key} = {cut(json.dumps(value))}, which glit "
            f"does not follow; take the key out of a copy of the model's folder if captions "
            "without it are what you want, or caption with a server (backend = 'endpoint')"
        )


def sampling_keys(config: WriterConfig, model: Resolved) -> dict[str, Any]:
    """Penalty and limits of sampling: of the recipe, else of the model, where one sets it."""
    found = {key: value for key, value in _read(model).items() if key in SAMPLING}
    return {k: v for k, v in found.items() if v is not None} | set_by_recipe(config)


def set_by_recipe(config: WriterConfig) -> dict[str, Any]:
    """Return the sampling values that the recipe sets."""
    values = {key: getattr(config, key) for key in SAMPLING}
    return {key: value for key, value in values.items() if value >= 0}


def _read(model: Resolved | None) -> dict[str, Any]:
    if model is None or not (path := model.path / _FILE).is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"model {model.name!r}: its {_FILE} cannot be read ({error})") from error
    if not isinstance(found, dict):
        raise WeightsError(f"model {model.name!r}: its {_FILE} is no JSON object")
    return found
