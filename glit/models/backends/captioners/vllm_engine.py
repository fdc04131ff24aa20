"""Caption with vLLM in this process: LLaVA-NeXT, or any other image-text model of vLLM.

The engine is kept full. Images are prepared (tiles, prompt tokens) by threads of their own, a
thread adds each to the engine as soon as it is ready and lets the engine take one step after the
other, and a caption is handed out when it is finished, whatever others are still being written. So
neither the preparation of images nor the longest caption of a batch is waited for.

What is computed beside an image moves its numbers by rounding, on some GPUs enough to change a
word; docs/decisions/continuous-captions.md says what follows.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, ClassVar, Literal

from PIL import Image

from glit.errors import RunError
from glit.images import Pixels
from glit.models.backends.base import Backend
from glit.models.backends.captioners.async_captioner import ContinuousBase, settle
from glit.models.backends.captioners.enlarging import limited_size
from glit.models.backends.captioners.finish import is_cut
from glit.models.backends.captioners.generation_keys import refuse_unfollowed_keys, sampling_keys
from glit.models.backends.captioners.kinds import refuse_no_captioner, refuse_no_chat_template
from glit.models.backends.captioners.token_probabilities import tokens_of_text
from glit.models.backends.protocols import RawCaption, WriterConfig
from glit.models.pretrained import as_weights_error
from glit.models.weights import Resolved
from glit.recipes.config import RecipeTable, require_value, speed_only
from glit.recipes.extras import require
from glit.text.answers import control_tokens
from glit.text.structured import CAPTION, json_pattern

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine lives and dies with its worker
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # workers share the cores, none is pinned
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_REGEX_COMPILATION_TIMEOUT_S": "120",  # 5 s are too few on a busy machine
}
_CPU_CACHE_BYTES = 256 << 20
_SEQUENCES = 256
"""Captions that the engine writes at a time, where its memory has room for them."""
_AHEAD = 64
"""Images prepared, or being prepared, while the engine is full."""
_LONGEST_STEP_S = 10.0
_LONGEST_REASON = 300
_PREPARED_GB = 1
"""Size in GB of the cache of prepared images that are asked about again, some hundred."""
_PREPARING = 2
"""Threads that prepare images; most of it is work outside of Python's lock."""
_UNPREPARED = 16
"""Images in memory as they were decoded: a photograph of 12 megapixels takes 36 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions(RecipeTable):
    """Keys that only vLLM has."""

    table: ClassVar[str] = "caption"

    quantization: Literal["", "fp8"] = ""
    """``fp8`` halves the memory of the weights and, on GPUs with fp8 arithmetic, their time; empty
    loads the weights unchanged."""
    tensor_parallel_size: int = speed_only(1, least=1)
    """GPUs that share one model, if it does not fit on one GPU."""


class VllmCaptioner(ContinuousBase):
    """vLLM's engine with the model's own chat template.

    Images are given as PIL images. Caches are off, since ingest drops duplicates and the image
    comes first in every prompt, unless an image is asked about for captions of several kinds.
    """

    def __init__(self, config: WriterConfig, model: Resolved, prompt: str, **engine: Any) -> None:
        """Start the engine; ``engine`` are further arguments of its own."""
        super().__init__(_SEQUENCES + _AHEAD, keys=CAPTION if config.structured else ())
        config = VLLM.settled(config)
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        require("vllm", needed_for=f"{config.table}.backend = 'vllm'")
        from vllm import LLM, SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        self._sampling = SamplingParams
        self._once_finished = RequestOutputKind.FINAL_ONLY
        self._structured = StructuredOutputsParams
        self._config = config
        self._prompt = prompt
        self._keys_of_sampling = sampling_keys(config, model)
        try:
            self._llm: Any = LLM(**engine_arguments(config, model) | engine)
        except (RuntimeError, ValueError, OSError) as error:
            said = " ".join(str(error).split())[:_LONGEST_REASON] or repr(error)
            raise RunError(f"vLLM cannot start with model {model.name!r}: {said}") from error
        self._control_tokens = control_tokens(self._llm.get_tokenizer())
        self._unprepared = threading.BoundedSemaphore(_UNPREPARED)
        self._threads = ThreadPoolExecutor(_PREPARING, thread_name_prefix="captions")
        self._steps = _Steps(self._llm.llm_engine)
        weakref.finalize(self, _stop, self._threads, self._steps)

    def _start(self, image: Pixels | None, seed: int, temperature: float) -> Future[RawCaption]:
        answer: Future[RawCaption] = Future()
        self._unprepared.acquire()
        preparing = self._threads.submit(self._prepare, image, seed, temperature, answer)
        preparing.add_done_callback(lambda _: self._unprepared.release())
        return answer

    def _prepare(
        self, image: Pixels | None, seed: int, temperature: float, answer: Future[RawCaption]
    ) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        prepared: Future[tuple[Any, Any]] = Future()
        settle(prepared, lambda: self._request(image, seed, temperature))
        written: Future[Any] = Future()
        written.add_done_callback(lambda done: self._read_later(done, answer))
        self._steps.add(prepared, written)

    def _request(self, image: Pixels | None, seed: int, temperature: float) -> tuple[Any, Any]:
        """The prompt with its image, and how to sample."""
        parameters = self._sampling(
            temperature=temperature,
            seed=seed if temperature > 0 else None,
            max_tokens=self._config.max_tokens,
            logprobs=0,  # of the chosen token alone
            structured_outputs=(
                self._structured(regex=json_pattern(self._keys)) if self._keys else None
            ),
            output_kind=self._once_finished,
            **self._keys_of_sampling,
        )
        [prompt] = self._llm._preprocess_chat(
            [[_message(image, self._prompt)]], chat_template_kwargs={"enable_thinking": False}
        )
        return prompt, parameters

    def _read_later(self, written: Future[Any], answer: Future[RawCaption]) -> None:
        try:
            self._threads.submit(self._hand_over, written, answer)
        except RuntimeError:  # closed: what comes now is the error that says so
            self._hand_over(written, answer)

    def _hand_over(self, written: Future[Any], answer: Future[RawCaption]) -> None:
        settle(answer, lambda: self._read(written.result()))

    def _read(self, output: Any) -> RawCaption:
        answer = output.outputs[0]
        at_limit = is_cut(answer.finish_reason, answer.text)
        ids = list(answer.token_ids)
        self.meter.add(tokens=len(output.prompt_token_ids or ()) + len(ids))
        logprobs = [step[token].logprob for token, step in zip(ids, answer.logprobs, strict=True)]
        tokens = tokens_of_text(self._llm.get_tokenizer(), ids, logprobs, answer.text)
        return RawCaption(
            text=answer.text, cut=at_limit, tokens=tokens, control_tokens=self._control_tokens
        )


_Coming = tuple[Future[tuple[Any, Any]], Future[Any]]
"""A prompt and its sampling parameters, once prepared; the output to come."""


class _Steps:
    """The thread that alone speaks with the engine.

    An error while a request is added is that request's; one of a step is of all that are at work,
    since nothing says which of them it came from.
    """

    def __init__(self, engine: Any) -> None:
        import torch

        self._engine = engine
        self._coming: queue.SimpleQueue[_Coming | None] = queue.SimpleQueue()
        self._at_work: dict[str, Future[Any]] = {}
        self._numbers = count()
        self._ending = False
        self._cpu_threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._run, name="vllm", daemon=True)
        self._thread.start()

    def add(self, prepared: Future[tuple[Any, Any]], written: Future[Any]) -> None:
        """Hand over what was prepared; ``written`` becomes vLLM's finished output, or an error."""
        self._coming.put((prepared, written))

    def stop(self) -> None:
        """End the thread after the step it is at; who still waits gets an error."""
        self._ending = True
        self._coming.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_LONGEST_STEP_S)

    def _run(self) -> None:
        import torch

        torch.set_num_threads(self._cpu_threads)  # OpenMP's number is each thread's own
        while self._take_all():
            step: Future[list[Any]] = Future()
            settle(step, self._engine.step)
            error = step.exception()
            if error is not None:
                self._fail(error)
                continue
            for output in step.result():
                if output.finished:
                    self._at_work.pop(output.request_id).set_result(output)
        while not self._coming.empty():
            item = self._coming.get()
            if item is not None:
                self._at_work[str(next(self._numbers))] = item[1]
        self._fail(RuntimeError("the captioner was closed"))

    def _take_all(self) -> bool:
        """Add what is prepared, wait where nothing is at work; whether to go on."""
        while not (self._at_work and self._coming.empty()):
            item = self._coming.get()
            if item is None:
                return False
            prepared, written = item
            name = str(next(self._numbers))
            added: Future[str] = Future()
            settle(added, partial(self._add, name, prepared))
            error = added.exception()
            if error is None:
                self._at_work[name] = written
            else:
                written.set_exception(error)
        return not self._ending

    def _add(self, name: str, prepared: Future[tuple[Any, Any]]) -> str:
        prompt, parameters = prepared.result()
        return self._engine.add_request(name, prompt, parameters)

    def _fail(self, error: BaseException) -> None:
        failed, self._at_work = self._at_work, {}
        forgotten: Future[None] = Future()
        settle(forgotten, lambda: self._engine.abort_request(list(failed)))
        second = forgotten.exception()
        if second is not None:  # nothing works any more; the first error says why
            error.add_note(f"and it could not be told to forget them: {second}")
        for written in failed.values():
            written.set_exception(error)


def _stop(threads: ThreadPoolExecutor, steps: _Steps) -> None:
    threads.shutdown(wait=False, cancel_futures=True)
    steps.stop()


def _message(image: Pixels | None, prompt: str) -> dict[str, Any]:
    if image is None:
        return {"role": "user", "content": prompt}
    picture = {"type": "image_pil", "image_pil": Image.fromarray(image)}
    return {"role": "user", "content": [picture, {"type": "text", "text": prompt}]}


def engine_arguments(config: WriterConfig, model: Resolved) -> dict[str, Any]:
    """Return the arguments that vLLM's engine is started with."""
    from transformers import AutoConfig

    with as_weights_error(f"model {model.name!r}: its config.json cannot be read"):
        loaded = AutoConfig.from_pretrained(str(model.path), local_files_only=True)
        text = loaded.get_text_config()
    longest = getattr(text, "max_position_embeddings", None) or config.max_model_len
    options = _options(config)
    arguments: dict[str, Any] = {
        "model": str(model.path),
        "max_model_len": min(config.max_model_len, longest),
        "max_num_seqs": _SEQUENCES,
        "limit_mm_per_prompt": {"image": 1},
        **_caches(config),
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "seed": 0,
        "dtype": config.precision,
    }
    if size := limited_size(model, getattr(config, "max_image_side", 0)):
        arguments["mm_processor_kwargs"] = size
    if options.quantization:
        arguments["quantization"] = options.quantization
    if config.device == "cuda":
        arguments |= {
            "gpu_memory_utilization": config.gpu_memory_utilization,
            "tensor_parallel_size": options.tensor_parallel_size,
            "performance_mode": "throughput",
        }
    else:
        arguments |= {"enforce_eager": True, "kv_cache_memory_bytes": _CPU_CACHE_BYTES}
    return arguments


def _caches(config: Any) -> dict[str, Any]:
    """Return the settings of vLLM's caches: none if every image is asked about once.

    If captions of several kinds are written, that of prepared images is on, and that of prefixes
    for the models for which vLLM turns it on.
    """
    if len(getattr(config, "kinds", ())) > 1:
        return {"mm_processor_cache_gb": _PREPARED_GB}
    return {"mm_processor_cache_gb": 0, "enable_prefix_caching": False}


def _options(config: Any) -> VllmOptions:
    return getattr(config, "options", None) or VllmOptions()


def _check(config: WriterConfig, model: Resolved | None) -> None:
    refuse_no_captioner(model, backend="vllm")
    check_any(config, model)


def check_any(config: WriterConfig, model: Resolved | None) -> None:
    """Refuse ``tensor_parallel_size`` above 1 on a CPU, and models that vLLM cannot ask as they
    want it, captioners and language models alike.

    Raises:
        RecipeError: names the key.
        WeightsError: no chat template, or a key for generating that is not followed.
    """
    refuse_unfollowed_keys(model)
    refuse_no_chat_template(model, unless=_brings_template)
    found = _options(config).tensor_parallel_size
    require_value(
        found == 1 or config.device == "cuda",
        f"[{config.table}] tensor_parallel_size: found {found}, but device is {config.device!r}; "
        "only GPUs hold a model together",
    )


def _brings_template(kind: str, path: str) -> bool:
    """Return whether vLLM has a chat template of its own for a kind of model."""
    try:
        from vllm.transformers_utils.chat_templates import get_chat_template_fallback_path
    except ImportError:
        return True  # vLLM itself will say
    return get_chat_template_fallback_path(model_type=kind, tokenizer_name_or_path=path) is not None


VLLM = Backend(
    make=VllmCaptioner,
    continuous=True,
    tells_logprobs=True,
    counts_tokens=True,
    keeps_process=False,
    extras=("vllm",),
    check=_check,
    options=VllmOptions,
    gpus=lambda config: _options(config).tensor_parallel_size,
)
