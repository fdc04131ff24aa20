"""Captions by llama.cpp for ``tools.measure.engines``, through its Python binding."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from tools.measure.engine_files import IMAGES, SIDE

_VOCABULARY = 49_280
_IMAGE = 1
_Row = tuple[int, int, int, bool]
"""A token, its position, the caption that it belongs to, and whether the next one is asked for."""


class Llama:
    """SmolVLM in one thread. A step is one batch of all captions."""

    def __init__(self, folder: Path, how: str, given: Any) -> None:
        import llama_cpp as lib
        from llama_cpp import mtmd_cpp as eyes

        self._lib, self._eyes, self._given = lib, eyes, given
        lib.llama_backend_init()
        loading: Any = lib.llama_model_default_params()
        loading.use_extra_bufts = False  # weights laid out for AMX ended the process
        model = lib.llama_model_load_from_file(str(folder / f"{how}.gguf").encode(), loading)
        settings: Any = lib.llama_context_default_params()
        settings.n_ctx, settings.n_seq_max, settings.n_batch = IMAGES * 512, IMAGES, 512
        settings.n_threads = settings.n_threads_batch = 1
        seeing: Any = eyes.mtmd_context_params_default()
        seeing.use_gpu, seeing.n_threads, seeing.print_timings = False, 1, False
        if how == "float32":
            settings.type_k = settings.type_v = lib.GGML_TYPE_F32
            settings.flash_attn_type = seeing.flash_attn_type = 0
        self._context = lib.llama_init_from_model(model, settings)
        self._seer = eyes.mtmd_init_from_file(str(folder / "eyes.gguf").encode(), model, seeing)
        self._batch: Any = lib.llama_batch_init(512, 0, 1)
        ids = given["input_ids"][0]
        self._places = np.flatnonzero(ids == given["image_token"])

    def write(self, some: slice, tokens: int) -> list[list[int]]:
        """The ids of a caption of each image."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), True)
        ids, images = self._given["input_ids"][some], self._given["images"][some]
        first, last, found = int(self._places[0]), ids.shape[1] - 1, []
        after = range(int(self._places[-1]) + 1, ids.shape[1])
        for caption, (row, image) in enumerate(zip(ids, images, strict=True)):
            self._decode([(row[at], at, caption, False) for at in range(first)])
            self._see(image, caption)
            self._decode([(row[at], at, caption, at == last) for at in after])
            found.append([self._best(len(after) - 1)])
        for step in range(1, tokens):
            self._decode([(each[-1], last + step, at, True) for at, each in enumerate(found)])
            for at, each in enumerate(found):
                each.append(self._best(at))
        return found

    def _decode(self, rows: list[_Row]) -> None:
        batch = self._batch
        batch.n_tokens = len(rows)
        for at, (token, position, caption, asked) in enumerate(rows):
            batch.token[at], batch.pos[at], batch.logits[at] = token, position, asked
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, caption
        assert self._lib.llama_decode(self._context, batch) == 0

    def _best(self, at: int) -> int:
        logits: Any = self._lib.llama_get_logits_ith(self._context, at)
        return int(np.ctypeslib.as_array(logits, (_VOCABULARY,)).argmax())

    def _see(self, image: Any, caption: int) -> None:
        """The picture as a whole; llama.cpp would also add a tile that shows the same."""
        eyes, seer = self._eyes, self._seer
        values: Any = np.ascontiguousarray(image).ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        picture: Any = eyes.mtmd_bitmap_init(SIDE, SIDE, values)
        chunks: Any = eyes.mtmd_input_chunks_init()
        marker = eyes.mtmd_default_marker()
        text = ctypes.byref(eyes.mtmd_input_text(marker, len(marker), False, True))
        pictures = (eyes.mtmd_bitmap_p_ctypes * 1)(picture)
        assert eyes.mtmd_tokenize(seer, chunks, text, pictures, 1) == 0
        number = eyes.mtmd_input_chunks_size(chunks)
        every: list[Any] = [eyes.mtmd_input_chunks_get(chunks, at) for at in range(number)]
        whole = [each for each in every if eyes.mtmd_input_chunk_get_type(each) == _IMAGE][-1]
        assert eyes.mtmd_encode_chunk(seer, whole) == 0
        failed = eyes.mtmd_helper_decode_image_chunk(
            seer, self._context, whole, eyes.mtmd_get_output_embd(seer), int(self._places[0]),
            caption, 512, ctypes.byref(ctypes.c_int32()),
            eyes.mtmd_helper_post_decode_callback(), None,
        )  # fmt: skip
        assert failed == 0
        eyes.mtmd_input_chunks_free(chunks)
        eyes.mtmd_bitmap_free(picture)
