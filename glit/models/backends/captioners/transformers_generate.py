"""Caption with transformers' ``generate`` and any image-text-to-text model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image

from glit.errors import WeightsError, first_line
from glit.images import Pixels
from glit.models.backends.base import Backend
from glit.models.backends.captioners.enlarging import limited_size
from glit.models.backends.captioners.generation_keys import refuse_unfollowed_keys, set_by_recipe
from glit.models.backends.captioners.kinds import refuse_no_captioner, refuse_no_chat_template
from glit.models.backends.captioners.token_probabilities import ChosenLogprobs, tokens_of_text
from glit.models.backends.protocols import CaptionerConfig, Meter, RawCaption
from glit.models.device import pick_device, torch_dtype
from glit.models.pretrained import as_weights_error, load_whole
from glit.models.weights import Resolved
from glit.recipes.extras import require
from glit.text.answers import control_tokens


class TransformersCaptioner:
    """Batches only inputs of equal shape: padding would change captions."""

    def __init__(
        self,
        config: CaptionerConfig,
        model: Resolved,
        prompt: str,
        *,
        weights: Callable[..., Any] | None = None,
    ) -> None:
        """Load the model; ``weights(kind, path, dtype=, device=)`` may make it in another way."""
        config = TRANSFORMERS.settled(config)
        require("models", needed_for="caption.backend = 'transformers'")
        import torch
        from transformers import AutoModelForImageTextToText, AutoProcessor

        from glit.models.int8 import use_int8
        from glit.models.onednn import use_onednn

        self._torch = torch
        self._name = model.name
        self._config = config
        self._device = pick_device(config.device)
        self._dtype = torch_dtype(config.precision)
        with as_weights_error(f"model {model.name!r}: cannot be loaded as an image-to-text model"):
            self._processor: Any = AutoProcessor.from_pretrained(
                str(model.path), local_files_only=True
            )
            kind = AutoModelForImageTextToText
            loaded = (
                weights(kind, model.path, dtype=self._dtype, device=self._device)
                if weights
                else load_whole(kind, model.path, local_files_only=True, dtype=self._dtype)
            )
        self._model = loaded.to(self._device).eval()
        (use_int8 if config.precision == "int8" else use_onednn)(self._model)
        self._size = limited_size(model, config.max_image_side)
        self._sampling = set_by_recipe(config)  # generate reads the model's own by itself
        self._text = self._asked(prompt)
        self._control_tokens = control_tokens(self._processor.tokenizer)
        self.meter = Meter()

    def asking(self, prompt: str) -> TransformersCaptioner:
        """The same model with another prompt."""
        other = copy.copy(self)
        other._text = self._asked(prompt)
        return other

    def _asked(self, prompt: str) -> str:
        """The prompt as the chat template puts it.

        Raises:
            WeightsError: there is no template, or it is not made for images.
        """
        from jinja2 import TemplateError

        content = [{"type": "image"}, {"type": "text", "text": prompt}]
        # a template that does not know the word would have transformers print a warning
        thinks = "enable_thinking" in str(self._processor.chat_template)
        try:
            return self._processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True,
                **({"enable_thinking": False} if thinks else {}),
            )  # fmt: skip
        except (TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise WeightsError(
                f"model {self._name!r}: its chat template makes no prompt of an image and a text "
                f"({first_line(error)}); add the model's own chat_template.jinja to its folder"
            ) from error

    def caption(
        self, images: Sequence[Pixels], *, seeds: Sequence[int], temperature: float
    ) -> list[RawCaption]:
        inputs = [self.prepare(image) for image in images]
        shapes: dict[tuple, list[int]] = {}
        for index, item in enumerate(inputs):
            key = tuple(sorted((name, tuple(value.shape)) for name, value in item.items()))
            if temperature > 0:
                key = (*key, seeds[index], index)  # sampling: a batch of its own for each seed
            shapes.setdefault(key, []).append(index)
        result: dict[int, RawCaption] = {}
        for group in shapes.values():
            batch = self.joined([inputs[index] for index in group])
            answers = self.generate(batch, seed=seeds[group[0]], temperature=temperature)
            result.update(zip(group, answers, strict=True))
        return [result[index] for index in range(len(images))]

    def prepare(self, image: Pixels) -> dict[str, Any]:
        """The model's input for the prompt and one image, with a batch dimension of 1.

        Where the chat template writes the start token, the tokenizer adds no second one.
        """
        start = self._processor.tokenizer.bos_token
        return self._processor(
            images=Image.fromarray(image), text=self._text, return_tensors="pt", **self._size,
            **({"add_special_tokens": False} if start and self._text.startswith(start) else {}),
        )  # fmt: skip

    def joined(self, inputs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """A batch of inputs of equal shapes."""
        return {name: self._torch.cat([item[name] for item in inputs]) for name in inputs[0]}

    def generate(self, batch: dict[str, Any], *, seed: int, temperature: float) -> list[RawCaption]:
        """Captions of a batch of inputs."""
        moved = {
            name: value.to(self._device, self._dtype if value.is_floating_point() else None)
            for name, value in batch.items()
        }
        sampling = {"do_sample": True, "temperature": temperature, **self._sampling}
        greedy = {"do_sample": False, **_penalties(self._sampling)}
        with self._torch.inference_mode():
            self._torch.manual_seed(seed)
            watch = ChosenLogprobs()
            tokens = self._model.generate(
                **moved,
                max_new_tokens=self._config.max_tokens,
                logits_processor=[watch],
                **(sampling if temperature > 0 else greedy),
            )
            logprobs = watch.finish(tokens[:, -1])
        asked = moved["input_ids"].numel()
        new = tokens[:, moved["input_ids"].shape[1] :].tolist()
        self.meter.add(tokens=asked + sum(min(self._length(ids) + 1, len(ids)) for ids in new))
        return [self._read(*row) for row in zip(new, logprobs, strict=True)]

    def _length(self, ids: list[int]) -> int:
        """Number of tokens before the first end token; what follows it is padding."""
        ends = self._model.generation_config.eos_token_id
        stop = set(ends if isinstance(ends, list) else [ends])
        return next((at for at, token in enumerate(ids) if token in stop), len(ids))

    def _read(self, ids: list[int], logprobs: list[float]) -> RawCaption:
        length = self._length(ids)
        text = self._processor.tokenizer.decode(ids, skip_special_tokens=True)
        tokens = tokens_of_text(self._processor.tokenizer, ids[:length], logprobs[:length], text)
        return RawCaption(
            text=text, cut=length == len(ids), tokens=tokens, control_tokens=self._control_tokens
        )


def _check(config: CaptionerConfig, model: Resolved | None) -> None:
    refuse_no_captioner(model, backend="transformers")
    refuse_no_chat_template(model)
    refuse_unfollowed_keys(model)


def _penalties(sampling: dict[str, Any]) -> dict[str, Any]:
    """Return the values that matter without sampling too; transformers warns of the rest."""
    return {key: value for key, value in sampling.items() if key == "repetition_penalty"}


TRANSFORMERS = Backend(
    make=TransformersCaptioner,
    tells_logprobs=True,
    counts_tokens=True,
    has_int8=True,
    extras=("models",),
    check=_check,
)
