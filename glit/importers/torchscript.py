"""Read the tensors of a TorchScript archive, as OpenAI publishes CLIP, without running it.

An archive is a zip of code, of ``data.pkl``, which holds the module as objects of classes that the
code defines, and of the tensors' bytes. Here every such object is a plain holder of attributes.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from glit.published.files import check_memo

_REPEATED = 1 << 20
"""Numbers that a tensor may have of fewer stored ones, as PyTorch's ``expand`` makes it."""
_DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
}


def is_torchscript(path: Path) -> bool:
    """Return whether a file is a TorchScript archive."""
    return _data_file(path) is not None


def check_stored(path: Path) -> None:
    """Refuse an archive of compressed parts, which PyTorch never writes: a small one fills memory.

    Raises:
        ValueError: it is one.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
        if unpacked > 2 * path.stat().st_size:
            raise ValueError(f"an archive that unpacks to {unpacked >> 20} MB")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The module's parameters and buffers by name; no code in the archive runs.

    Raises:
        ValueError: the archive holds something else than tensors and plain values.
    """
    name = _data_file(path)
    if name is None:
        raise ValueError("no TorchScript archive")
    with zipfile.ZipFile(path) as archive:
        reader = _Reader(archive, name.removesuffix("data.pkl") + "data/")
        try:
            module = reader.load()
        except (pickle.UnpicklingError, KeyError, TypeError, EOFError, RuntimeError) as error:
            raise ValueError(f"damaged ({error})") from error
    return dict(_tensors("", module))


def _data_file(path: Path) -> str | None:
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    is_code = any("/code/" in name for name in names)
    return next((name for name in names if is_code and name.endswith("/data.pkl")), None)


class _Held:
    """An object of a class of the archive."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Reader(pickle.Unpickler):
    """Knows tensors, ordered dictionaries and held objects, and nothing else."""

    def __init__(self, archive: zipfile.ZipFile, data: str) -> None:
        pickled = archive.read(data.removesuffix("data/") + "data.pkl")
        check_memo(pickled)
        super().__init__(io.BytesIO(pickled))
        self._archive, self._data = archive, data

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return the class or function that stands for a name of the pickle.

        Raises UnpicklingError: it is none of those above.
        """
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
            ("torch.jit._pickle", "restore_type_tag"): lambda value, _: value,
        }
        if module_name.startswith("__torch__"):
            return _Held
        if module_name == "torch" and global_name in _DTYPES:
            return _DTYPES[global_name]
        if (module_name, global_name) not in known:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} is not a tensor's")
        return known[module_name, global_name]

    def persistent_load(self, pid: Any) -> Tensor:
        """The numbers of a storage."""
        _, dtype, key, *_ = pid
        return torch.frombuffer(bytearray(self._archive.read(f"{self._data}{key}")), dtype=dtype)


def _tensor(numbers: Tensor, offset: int, size: tuple, stride: tuple, *_: Any) -> Tensor:
    if math.prod(size) > max(numbers.numel(), _REPEATED):
        raise ValueError(f"a tensor of the shape {size} of {numbers.numel()} numbers")
    return torch.as_strided(numbers, size, stride, offset).clone()


def check_strides(value: Any) -> None:
    """Refuse tensors, in dictionaries, of many more numbers than are stored, as ``expand`` makes.

    Raises:
        ValueError: one is.
    """
    if isinstance(value, dict):
        for each in value.values():
            check_strides(each)
    elif isinstance(value, Tensor) and value.layout == torch.strided:
        stored = value.untyped_storage().nbytes() // value.element_size()
        if value.numel() > max(stored, _REPEATED):
            raise ValueError(f"a tensor of the shape {tuple(value.shape)} of {stored} numbers")


def _tensors(prefix: str, held: Any) -> Iterator[tuple[str, Tensor]]:
    state = held.state if isinstance(held, _Held) else held
    if not isinstance(state, dict):
        return
    for name, value in state.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{name}", value
        elif isinstance(value, _Held):
            yield from _tensors(f"{prefix}{name}.", value)
