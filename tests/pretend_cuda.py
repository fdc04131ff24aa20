"""CUDA without a GPU: tensors that say ``cuda:0`` and hold the values of a CPU.

    with pretend_cuda():
        matcher = ClipMatcher(ScoreConfig(device="cuda", precision="float32"), resolve("mini-matcher"))
        with counting() as counts:
            matcher.embed_regions(images, boxes)
    assert counts.num_syncs <= 1, counts

What a GPU would refuse raises :class:`NotOnCuda`: tensors of two devices in one operator, a CPU
tensor indexed by a CUDA one, a generator of the other device, operators and dtypes without a
kernel there. Forward and backward run, autocast is CUDA's. Counted are *synchronisations*: the
moments at which the CPU waits for the GPU, because a number or a shape is wanted from it.

Out of reach: kernels' own rounding, memory, streams, NCCL, torch.compile.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)


class NotOnCuda(RuntimeError):
    """A GPU would not do this."""


class OnCuda(torch.Tensor):
    """A tensor that says it is on the GPU; ``held`` has its values."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnCuda:
        # "meta" to C++, whose autograd would ask a real GPU for its streams
        with torch._C._DisableTorchDispatch():
            shape = torch.empty_strided(held.size(), held.stride(), dtype=held.dtype, device="meta")
            made = torch.Tensor._make_subclass(cls, shape, False, device_for_backend_keys=CUDA)
        made.held = held
        return made

    @property
    def device(self) -> torch.device:
        return CUDA

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def is_meta(self) -> bool:
        return False

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:
        return f"OnCuda({self.held})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _call(func, args, kwargs or {})


@dataclass
class Counts:
    """Synchronisations, by the operator and the line of glit that asked."""

    syncs: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    """Every operator on the GPU, by name."""

    @property
    def num_syncs(self) -> int:
        return self.syncs.total()

    @property
    def num_late(self) -> int:
        """How often one copy was waited for, and not the GPU."""
        return self.calls["Event.synchronize"]

    def __str__(self) -> str:
        return "\n".join(f"{number} x {what}" for what, number in self.syncs.most_common())


_counts: list[Counts] = []


@contextlib.contextmanager
def counting() -> Iterator[Counts]:
    """Count what happens in the block."""
    _counts.append(Counts())
    try:
        yield _counts[-1]
    finally:
        _counts.pop()


@contextlib.contextmanager
def pretend_cuda() -> Iterator[None]:
    """There is one GPU that knows bfloat16."""
    with contextlib.ExitStack() as stack:
        for name, answer in {
            "is_available": True,
            "is_bf16_supported": True,
            "_lazy_init": None,
            "current_device": 0,
            "device_count": 1,
            "set_device": None,
            "get_device_capability": (9, 0),
            "get_device_properties": SimpleNamespace(name="pretended", total_memory=1 << 34),
            "synchronize": None,
            "get_rng_state": torch.zeros(16, dtype=torch.uint8),  # the CPU's generator draws
            "set_rng_state": None,
            "manual_seed_all": None,
        }.items():
            stack.enter_context(mock.patch(f"torch.cuda.{name}", lambda *_, _a=answer, **__: _a))
        for name in ("_accelerator_graph_capture_health_check", "_cuda_graph_capture_health_check"):
            if hasattr(torch.optim.Optimizer, name):
                patch = mock.patch.object(torch.optim.Optimizer, name, lambda _: None)
                stack.enter_context(patch)
        stack.enter_context(mock.patch("torch.cuda.Event", _Event))
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, False)
        stack.enter_context(_Factories())
        stack.enter_context(_CallsOfPython())
        yield


_under_way: list[tuple[torch.Tensor, torch.Tensor]] = []
"""Copies to the CPU that were not waited for: the CPU reads nonsense until an event is."""


class _Event:
    """Copies that were under way when it was recorded have arrived when it was waited for."""

    def record(self) -> None:
        self._copies = list(_under_way)

    def synchronize(self) -> None:
        for counts in _counts:
            counts.calls["Event.synchronize"] += 1
        with torch.inference_mode():
            for target, source in self._copies:
                target.copy_(source)
        _under_way[:] = [each for each in _under_way if all(each is not x for x in self._copies)]


class _CallsOfPython(TorchFunctionMode):
    """``cuda`` is ``cuda:0``, because torch would ask the driver which one it is; and autocast, for
    which torch looks whether a tensor is on a real GPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__deepcopy__:  # its memo holds everything copied so far
            return func(*args)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            args = (args[0], _as_tensors(args[1]), *args[2:])
        args, kwargs = _mapped(_numbered, (args, kwargs or {}))
        if func is torch.Tensor.pin_memory:
            return args[0].clone()
        if torch.is_autocast_enabled("cuda"):
            name = getattr(func, "__name__", "")
            wanted = torch.float32 if name in _IN_FLOAT32 else None
            wanted = torch.get_autocast_dtype("cuda") if name in _IN_HALF else wanted
            if wanted is not None:
                args, kwargs = _mapped(lambda x: _cast(x, wanted), (args, kwargs))
        return func(*args, **kwargs)


_IN_HALF = {
    "linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "conv1d", "conv2d",
    "conv_transpose2d", "scaled_dot_product_attention", "multi_head_attention_forward",
}  # fmt: skip
_IN_FLOAT32 = {
    "layer_norm", "group_norm", "softmax", "log_softmax", "nll_loss", "cross_entropy_loss", "exp",
    "log", "pow", "rsqrt", "sum", "cumsum", "norm", "logsumexp", "cosine_similarity",
}  # fmt: skip
"""CUDA's autocast, as far as models here call it."""


def _as_tensors(index):
    """Lists in an index as tensors: torch would make them on the device of the wrapper, which is
    ``meta``, and lose their numbers."""
    if isinstance(index, tuple):
        return tuple(map(_as_tensors, index))
    return torch.tensor(index) if isinstance(index, list) else index


def _mapped(change, value):
    """``torch.utils._pytree.tree_map`` over what operators take, several times faster."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind([_mapped(change, each) for each in value])
    if kind is dict:
        return {name: _mapped(change, each) for name, each in value.items()}
    return change(value)


def _numbered(value):
    return CUDA if isinstance(value, _DEVICES) and str(value) == "cuda" else value


_DEVICES = (str, torch.device)


def _cast(value, dtype):
    floating = isinstance(value, OnCuda) and value.is_floating_point()
    return value.to(dtype) if floating and value.dtype != torch.float64 else value


class _Factories(TorchDispatchMode):
    """Sees the operators that make a tensor of nothing, or of a CPU's."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _call(func, args, kwargs or {})

    def __enter__(self):
        self._before = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(self._before)
        return super().__exit__(*error)


_MOVES = {"copy_", "_to_copy", "to", "set_", "lift", "lift_fresh", "type_as"}
_INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
_WAITS = {
    "_local_scalar_dense", "nonzero", "masked_select", "unique_consecutive", "unique_dim", "_unique2",
    "equal", "repeat_interleave", "bincount", "nms", "is_nonzero", "item",
}  # fmt: skip
"""Their result is a number for Python, or has a shape that depends on values."""
_NO_KERNEL = {
    "_upsample_bicubic2d_aa": {torch.uint8},
    "_upsample_bilinear2d_aa": {torch.uint8},
    "upsample_bicubic2d": {torch.uint8},
    "nll_loss_forward": {torch.uint8},
}
_ANTIALIASED = {"_upsample_bicubic2d_aa": 2.0, "_upsample_bilinear2d_aa": 1.0}
"""Half the width of each kernel, in pixels of the smaller image."""


def _call(func, args, kwargs):
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    here = any(isinstance(tensor, OnCuda) for tensor in tensors)
    args, kwargs, asked = _on_cpu(func, args, kwargs)
    if func is aten._pin_memory.default:
        return args[0].clone()
    if not here and asked != "cuda":
        return func(*args, **kwargs)
    name = func._schema.name.split("::")[1]
    _refuse(func, name, args, kwargs, tensors)
    for counts in _counts:
        counts.calls[name] += 1
    if here:
        _count(name, args, kwargs, asked)
    if func is aten.copy_.default and args[2:] == [True] and not isinstance(args[0], OnCuda):
        with torch.inference_mode():
            _under_way.append((args[0], args[1].held.clone()))
            return args[0].fill_(77)
    with torch.inference_mode(False), torch.no_grad():  # or views of both kinds of tensors mix
        result = _computed(func, name, *_mapped(_held, (args, kwargs)))
        written = _written(func, args, kwargs)
        if written:
            return written[0] if len(func._schema.returns) == 1 else tuple(written)
        return result if asked == "cpu" else _mapped(_wrapped, result)


def _computed(func, name, args, kwargs):
    if name == "_fused_sdp_choice":
        return 0  # plain matrix products: the fused kernels are a GPU's own
    if name == "cudnn_batch_norm":
        return (*aten.native_batch_norm.default(*args), torch.empty(0, dtype=torch.uint8))
    if func is aten.mm.dtype:
        return args[0].to(args[2]) @ args[1].to(args[2])
    return func(*args, **kwargs)


def _held(value):
    return value.held if isinstance(value, OnCuda) else value


def _wrapped(value):
    plain = isinstance(value, torch.Tensor) and not isinstance(value, OnCuda)
    return OnCuda(value) if plain else value


def _on_cpu(func, args, kwargs):
    """The arguments with the CPU in the place of a device, and the kind of the device."""
    args, kwargs, asked = list(args), dict(kwargs), ""
    for index in _places_of_device(func):
        if index < len(args) and args[index] is not None:
            asked, args[index] = torch.device(args[index]).type, torch.device("cpu")
        elif kwargs.get("device") is not None:
            asked, kwargs["device"] = torch.device(kwargs["device"]).type, torch.device("cpu")
    if func is aten.type_as.default:
        asked = args[1].device.type
    asked = "cuda" if asked == "meta" else asked
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False
    return args, kwargs, asked


@cache
def _places_of_device(func) -> list[int]:
    return [at for at, each in enumerate(func._schema.arguments) if each.name == "device"]


def _refuse(func, name, args, kwargs, tensors) -> None:
    if func.namespace == "mkldnn":
        raise NotOnCuda(f"{func} is the CPU's own")
    if any(tensor.dtype in _NO_KERNEL.get(name, ()) for tensor in tensors):
        raise NotOnCuda(f"{func} has no kernel for {[tensor.dtype for tensor in tensors]}")
    if name in _ANTIALIASED:
        _refuse_large_scale(func, name, args)
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu":
        raise NotOnCuda(f"{func} with a generator of the CPU")
    if name in _MOVES:
        return
    if name in _INDEXES:
        indices = [x for x in tree_leaves(args[1]) if isinstance(x, torch.Tensor)]
        if any(x.device.type == "meta" for x in indices):
            raise NotOnCuda(f"{func}: an index whose numbers were lost")
        if not isinstance(args[0], OnCuda) and any(isinstance(x, OnCuda) for x in indices):
            raise NotOnCuda(f"{func}: a tensor of the CPU indexed by one of the GPU")
        tensors = [args[0], *(x for x in args[2:] if isinstance(x, torch.Tensor))]
    elsewhere = [x for x in tensors if not isinstance(x, OnCuda) and x.dim() > 0]
    here = [x for x in tensors if isinstance(x, OnCuda)]
    written = _written(func, args, kwargs)
    if (here and elsewhere) or any(here and not isinstance(x, OnCuda) for x in written):
        raise NotOnCuda(f"{func}: tensors {[tuple(x.shape) for x in elsewhere]} are on the CPU")


def _refuse_large_scale(func, name, args) -> None:
    """The kernel keeps the weights of 32 columns and of a row in 48 KiB of shared memory."""
    (height, width), size = args[0].shape[-2:], args[1]
    widths = [
        2 * -(-_ANTIALIASED[name] * max(1.0, before / after) // 1) + 1
        for before, after in zip((height, width), size, strict=True)
    ]
    if sum(widths) * 32 * 4 > 48 << 10:
        raise NotOnCuda(f"{func}: Provided interpolation parameters can not be handled")


def _written(func, args, kwargs) -> list[Any]:
    """The arguments that an operator writes to and returns."""
    return [args[at] if at < len(args) else kwargs[name] for at, name in _places_of_written(func)]


@cache
def _places_of_written(func) -> list[tuple[int, str]]:
    found = []
    for returned in func._schema.returns:
        if returned.alias_info is None or not returned.alias_info.is_write:
            continue
        for index, argument in enumerate(func._schema.arguments):
            alias = argument.alias_info
            if alias is not None and alias.before_set == returned.alias_info.before_set:
                found.append((index, argument.name))
    return found


def _count(name, args, kwargs, asked) -> None:
    waits = name in _WAITS or (asked == "cpu" and name in _MOVES)
    if name == "copy_":
        waits = isinstance(args[1], OnCuda) and not isinstance(args[0], OnCuda)
        waits = waits and args[2:] != [True]
    if name in _INDEXES:
        masks = [x for x in tree_leaves(args[1]) if getattr(x, "dtype", None) == torch.bool]
        waits = bool(masks)
        if name != "index" and len(args) > 2 and args[2].numel() == 1:
            waits = False  # becomes masked_fill
    if name == "repeat_interleave" and kwargs.get("output_size") is not None:
        waits = False
    if waits:
        for counts in _counts:
            counts.syncs[f"{name} at {_place()}"] += 1


def _place() -> str:
    for frame in reversed(traceback.extract_stack()):
        if "/glit/" in frame.filename:
            return f"glit/{frame.filename.rsplit('/glit/', 1)[1]}:{frame.lineno}"
    return "elsewhere"
