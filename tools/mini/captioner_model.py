"""The mini captioner: a small LLaVA-NeXT on the matcher's vision tower, and its processor."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    PreTrainedTokenizerFast,
)

from glit.scenes import canonical_caption, draw_scene
from tools.mini.pool import IMAGE_PX, PATCH_PX, POOL_SEED
from tools.mini.save import NORMALISATION, SQUARE, edit_json, save_model

BOS, EOS, IMAGE, CAPTION = "<s>", "</s>", "<image>", "<caption>"
CONTEXT = 1024
GRID = IMAGE_PX // PATCH_PX

_VOCABULARY = 560

CHAT_TEMPLATE = (
    "{{ '<s>' }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{% if message['content'] is string %}"
    "{% for _ in range(message['content'].count('<image>')) %}{{ '<image>' }}{% endfor %}"
    "{% else %}{% for part in message['content'] %}"
    "{% if part['type'] in ['image', 'image_url'] %}{{ '<image>' }}{% endif %}"
    "{% endfor %}{% endif %}{% endif %}"
    "{% if message['role'] == 'assistant' %}{{ '<caption>' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% endif %}{% endfor %}{% endif %}{{ '</s>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<caption>' }}{% endif %}"
)
"""The model describes; it does not converse. The words of the request are dropped."""


def caption_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE trained on the captioner's own wording over training scenes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        special_tokens=[BOS, EOS, IMAGE, CAPTION],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (
        canonical_caption(draw_scene(POOL_SEED, index, level=level))
        for index in range(3000)
        for level in ("easy", "normal", "hard")
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=EOS,
        additional_special_tokens=[IMAGE, CAPTION],
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def captioner_config(
    vision: CLIPVisionConfig, tokenizer: PreTrainedTokenizerFast
) -> LlavaNextConfig:
    """The vision tower's shape is given; the language model is a Llama, 192 wide, 3 layers."""
    text = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=CONTEXT,
        bos_token_id=tokenizer.get_vocab()[BOS],
        eos_token_id=tokenizer.get_vocab()[EOS],
        pad_token_id=tokenizer.get_vocab()[EOS],
        tie_word_embeddings=False,
    )
    return LlavaNextConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=tokenizer.get_vocab()[IMAGE],
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
        image_grid_pinpoints=[[IMAGE_PX, IMAGE_PX]],
        image_seq_length=GRID * GRID,
        tie_word_embeddings=False,
    )


def caption_processor(tokenizer: PreTrainedTokenizerFast) -> LlavaNextProcessor:
    """Image processor, tokenizer and chat template as one."""
    return LlavaNextProcessor(
        image_processor=LlavaNextImageProcessor(
            size={"shortest_edge": IMAGE_PX},
            crop_size=SQUARE,
            image_grid_pinpoints=[[IMAGE_PX, IMAGE_PX]],
            **NORMALISATION,
        ),
        tokenizer=tokenizer,
        patch_size=PATCH_PX,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )


def new_captioner(
    vision: CLIPVisionConfig, tokenizer: PreTrainedTokenizerFast
) -> LlavaNextForConditionalGeneration:
    """An untrained captioner that ends a caption by itself."""
    model: LlavaNextForConditionalGeneration = AutoModelForImageTextToText.from_config(
        captioner_config(vision, tokenizer),
        attn_implementation={"text_config": "sdpa", "vision_config": "eager"},
    )
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.bos_token_id = tokenizer.bos_token_id
    model.generation_config.pad_token_id = tokenizer.eos_token_id
    return model


def save_captioner(
    model: LlavaNextForConditionalGeneration, processor: LlavaNextProcessor, folder: Path
) -> None:
    """``LlavaNextForConditionalGeneration`` and ``LlavaNextProcessor`` files in one folder.

    transformers 5 leaves ``vision_model`` out of the tower's key names, vLLM loads only names that
    have it, transformers reads both: so the names of the hub's checkpoints are written.
    """
    save_model(model, folder)
    path = folder / "model.safetensors"
    renamed = {hub_name(name): value for name, value in load_file(path).items()}
    save_file(renamed, path, metadata={"format": "pt"})
    path.chmod(0o644)
    processor.save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")


def hub_name(name: str) -> str:
    """The name a weight has in checkpoints on the hub.

    >>> hub_name("vision_tower.embeddings.class_embedding")
    'vision_tower.vision_model.embeddings.class_embedding'
    """
    prefix = "vision_tower."
    if name.startswith(prefix) and not name.startswith(prefix + "vision_model."):
        return prefix + "vision_model." + name.removeprefix(prefix)
    return name
