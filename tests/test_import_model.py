"""Published checkpoints as folders: layouts of OpenAI's code, Long-CLIP's and transformers'."""

from __future__ import annotations

import argparse
import shutil
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from building import tiny_clip
from safetensors.torch import save_file
from torch import nn

from glit.errors import GlitError, InputError, WeightsError
from glit.evaluation.config import EvaluateConfig
from glit.evaluation.encode import load_embedder
from glit.models.clip.image_processor import read_preprocessing
from glit.models.clip.kinds import open_model
from glit.models.importers import model as model_importer
from glit.models.importers.model import import_model
from glit.models.tokenizer import TextTokenizer


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    """A residual block with the names of OpenAI's code."""

    def __init__(self, width: int, heads: int, act: nn.Module) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        wide = {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
        self.mlp, self.act = nn.ModuleDict(wide), act

    def forward(self, x, mask):
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False, attn_mask=mask)[0]
        return x + self.mlp["c_proj"](self.act(self.mlp["c_fc"](self.ln_2(x))))


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, act: nn.Module) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads, act) for _ in range(layers))

    def forward(self, x, mask):
        for block in self.resblocks:
            x = block(x, mask)
        return x


class LongClip(nn.Module):
    """Long-CLIP's text tower as its paper describes it (section 3.1), at a tiny CLIP's sizes: two
    tables of positions, of which the first counts up to position 20 and the second from there."""

    def __init__(self, like, context: int) -> None:
        super().__init__()
        text = like.config.text_config
        width, heads = text.hidden_size, text.num_attention_heads
        act = {"quick_gelu": QuickGelu, "gelu": nn.GELU}[text.hidden_act]()
        self.transformer = Transformer(width, text.num_hidden_layers, heads, act)
        self.token_embedding = nn.Embedding(text.vocab_size, width)
        self.positional_embedding = nn.Parameter(torch.randn(context, width) * 0.1)
        self.positional_embedding_res = nn.Parameter(torch.randn(context, width) * 0.1)
        self.ln_final = nn.LayerNorm(width)
        self.text_projection = nn.Parameter(torch.randn(width, like.config.projection_dim))

    def forward(self, ids):
        first = torch.arange(len(self.positional_embedding))[:, None] < 20
        positions = torch.where(first, self.positional_embedding, self.positional_embedding_res)
        mask = torch.full((ids.shape[1], ids.shape[1]), -torch.inf).triu(1)
        x = self.transformer(self.token_embedding(ids) + positions[: ids.shape[1]], mask)
        return self.ln_final(x)[torch.arange(len(ids)), ids.argmax(dim=1)] @ self.text_projection


def blocks(model, tower: str, there: str) -> dict[str, torch.Tensor]:
    """The layers of a tower of a CLIPModel under the names of OpenAI's code."""
    own, found = model.state_dict(), {}
    for n in range(getattr(model.config, f"{tower}_config").num_hidden_layers):
        layer, block = f"{tower}_model.encoder.layers.{n}.", f"{there}.resblocks.{n}."
        for kind in ("weight", "bias"):
            found[f"{block}attn.in_proj_{kind}"] = torch.cat(
                [own[f"{layer}self_attn.{each}_proj.{kind}"] for each in "qkv"]
            )
            for theirs, ours in (
                ("attn.out_proj", "self_attn.out_proj"), ("ln_1", "layer_norm1"),
                ("ln_2", "layer_norm2"), ("mlp.c_fc", "mlp.fc1"), ("mlp.c_proj", "mlp.fc2"),
            ):  # fmt: skip
                found[f"{block}{theirs}.{kind}"] = own[f"{layer}{ours}.{kind}"]
    return found


def image_tower(model) -> dict[str, torch.Tensor]:
    """The image tower of a CLIPModel under the names of OpenAI's code."""
    own = model.state_dict()
    at = "vision_model.embeddings."
    found = {
        "visual.class_embedding": own[f"{at}class_embedding"],
        "visual.positional_embedding": own[f"{at}position_embedding.weight"],
        "visual.conv1.weight": own[f"{at}patch_embedding.weight"],
        "visual.proj": own["visual_projection.weight"].T,
        "logit_scale": own["logit_scale"],
    }
    for theirs, ours in (("ln_pre", "pre_layrnorm"), ("ln_post", "post_layernorm")):
        for kind in ("weight", "bias"):
            found[f"visual.{theirs}.{kind}"] = own[f"vision_model.{ours}.{kind}"]
    return found | blocks(model, "vision", "visual.transformer")


@pytest.fixture
def start():
    return open_model(tiny_clip())


def pooled(features):
    return getattr(features, "pooler_output", features)


@pytest.mark.parametrize(("prefix", "wrapper"), [("", None), ("module.", "state_dict")])
def test_long_clip_answers_as_its_own_forward_pass(start, tmp_path, prefix, wrapper):
    torch.manual_seed(0)
    theirs = LongClip(start, 248).eval()
    weights = {**theirs.state_dict(), **image_tower(start)}
    weights = {f"{prefix}{name}": value.half() for name, value in weights.items()}
    torch.save({wrapper: weights} if wrapper else weights, tmp_path / "long.pt")
    made = import_model(tmp_path / "long.pt", tmp_path / "model", like=str(tiny_clip()))
    assert made.context == 248
    for model in (theirs, start):  # as they were saved
        model.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})

    ours = open_model(tmp_path / "model").eval()
    end = start.config.text_config.eos_token_id
    ids = torch.randint(0, end - 1, (3, 248))
    for row, length in zip(ids, (5, 60, 248), strict=True):
        row[length - 1], row[length:] = end, 0
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        wanted = theirs(ids)
        assert torch.allclose(pooled(ours.get_text_features(input_ids=ids)), wanted, atol=1e-5)
        assert wanted.std() > 0.1
        images = [pooled(each.get_image_features(pixel_values=pixels)) for each in (ours, start)]
        assert torch.equal(*images)
    assert TextTokenizer(tmp_path / "model").end_id == TextTokenizer(tiny_clip()).end_id
    assert load_embedder(str(tmp_path / "model"), EvaluateConfig()).encoder.width > 0


def test_weights_under_the_names_of_transformers(start, tmp_path):
    """As GOAL saves them, with a stretched window and the buffers of older versions."""
    weights = dict(start.state_dict())
    name = "text_model.embeddings.position_embedding.weight"
    weights[name] = torch.randn(248, weights[name].shape[1])
    older = {**weights, "text_model.embeddings.position_ids": torch.arange(248)[None]}
    torch.save(older, tmp_path / "goal.pth")
    save_file({k: v.contiguous() for k, v in weights.items()}, tmp_path / "goal.safetensors")
    for suffix in ("pth", "safetensors"):
        made = import_model(tmp_path / f"goal.{suffix}", tmp_path / suffix, like=str(tiny_clip()))
        found = open_model(tmp_path / suffix).state_dict()
        assert made.context == 248
        assert all(torch.equal(found[key], weights[key]) for key in found)


def their_names(model) -> dict[str, torch.Tensor]:
    """A CLIPModel's weights under the names of OpenAI's code."""
    own = model.state_dict()
    found = image_tower(model) | blocks(model, "text", "transformer")
    at = "text_model.embeddings."
    return found | {
        "token_embedding.weight": own[f"{at}token_embedding.weight"],
        "positional_embedding": own[f"{at}position_embedding.weight"],
        "text_projection": own["text_projection.weight"].T,
        "ln_final.weight": own["text_model.final_layer_norm.weight"],
        "ln_final.bias": own["text_model.final_layer_norm.bias"],
    }


WRAPPED = {
    "compiled": lambda w: {"state_dict": {f"_orig_mod.{k}": v for k, v in w.items()}},
    "compiled ddp": lambda w: {"state_dict": {f"_orig_mod.module.{k}": v for k, v in w.items()}},
    "ddp compiled": lambda w: {"state_dict": {f"module._orig_mod.{k}": v for k, v in w.items()}},
    "lightning": lambda w: {
        "state_dict": {f"model.{k}": v for k, v in w.items()}, "pytorch-lightning_version": "2.4",
    },
    "a part of a module": lambda w: {f"net.clip.{k}": v for k, v in w.items()},
    "numpy": lambda w: {"epoch": 5, "best": np.float64(0.61), "n": np.int64(3), "state_dict": w},
    "namespace": lambda w: {"args": argparse.Namespace(lr=1e-5), "model_state_dict": w},
    "deepspeed": lambda w: {"module": w, "optimizer": None, "ds_config": {"train_batch_size": 8},
                            "mp_world_size": 1},
}  # fmt: skip


@pytest.mark.parametrize("layout", WRAPPED)
def test_what_trainers_put_around_weights(start, tmp_path, layout):
    torch.save(WRAPPED[layout](their_names(start)), tmp_path / "saved.pt")
    made = import_model(
        tmp_path / "saved.pt", tmp_path / "out", like=str(tiny_clip()), activation="gelu"
    )
    assert made.activation == "gelu"
    found = open_model(tmp_path / "out")
    assert found.config.vision_config.hidden_act == found.config.text_config.hidden_act == "gelu"
    for name, value in start.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name


def test_an_archive_of_torchscript_is_refused(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "clip.pt")
    with pytest.raises(InputError, match="a TorchScript archive, .* give the model's state dict"):
        import_model(tmp_path / "clip.pt", tmp_path / "out", like=str(tiny_clip()))


@pytest.mark.parametrize("fault", ["a tensor of the shape", "an archive that unpacks to"])
def test_a_checkpoint_that_fills_memory_is_refused(tmp_path, fault):
    few = torch.zeros(1).expand(4096, 4096) if "tensor" in fault else torch.zeros(1 << 20)
    torch.save({"a": few}, tmp_path / "stored.pt")
    with (
        zipfile.ZipFile(tmp_path / "stored.pt") as stored,
        zipfile.ZipFile(tmp_path / "x.pt", "w") as archive,
    ):
        for each in stored.infolist():
            how = zipfile.ZIP_STORED if "tensor" in fault else zipfile.ZIP_DEFLATED
            archive.writestr(each.filename, stored.read(each), how)
    assert (tmp_path / "x.pt").stat().st_size < 20_000
    with pytest.raises(InputError, match=fault):
        import_model(tmp_path / "x.pt", tmp_path / "out", like=str(tiny_clip()))


def test_openclips_names_without_an_activation_are_warned_of(start, tmp_path, monkeypatch):
    torch.save(their_names(start), tmp_path / "saved.pt")
    start.config.text_config.hidden_act = start.config.vision_config.hidden_act = "quick_gelu"
    monkeypatch.setattr(model_importer, "clip_config", lambda folder: start.config)
    with pytest.warns(UserWarning, match="quick_gelu of .*use gelu unless .*--activation"):
        made = import_model(tmp_path / "saved.pt", tmp_path / "out", like=str(tiny_clip()))
    assert made.activation == "quick_gelu"


@pytest.fixture
def fg_clip(start, tmp_path):
    """A folder of FG-CLIP's layout: the weights of short texts differ from those of long ones."""
    folder = Path(shutil.copytree(tiny_clip(), tmp_path / "fg-clip"))
    torch.manual_seed(0)
    weights = {name: each.clone() for name, each in start.state_dict().items()}
    width = start.config.text_config.hidden_size
    at = "text_model.embeddings.position_embedding"
    weights[f"{at}_ori.weight"], weights[f"{at}_res.weight"] = torch.randn(2, 248, width).unbind()
    weights["text_filip_projection.weight"] = torch.randn_like(weights["text_projection.weight"])
    weights |= {f"logit_scale_{each}": torch.tensor(1.0) for each in ("finegraind", "hardneg")}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder, weights


def test_fg_clip_answers_as_its_own_forward_pass_on_long_texts(fg_clip, start, tmp_path):
    folder, weights = fg_clip
    with pytest.raises(WeightsError, match="no place for 5 weights .*glit import-model"):
        open_model(folder)
    made = import_model(folder, tmp_path / "out")
    assert made.context == 248
    ours = open_model(tmp_path / "out").eval()
    ids = torch.randint(0, 50, (2, 60))
    at = "text_model.embeddings.position_embedding"
    first = torch.arange(60)[:, None] < 20
    positions = torch.where(
        first, weights[f"{at}_ori.weight"][:60], weights[f"{at}_res.weight"][:60]
    )
    embedded = start.text_model.embeddings.token_embedding(ids) + positions
    start.eval()
    mask = torch.full((60, 60), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        hidden = start.text_model.encoder(inputs_embeds=embedded, attention_mask=mask)
        last = start.text_model.final_layer_norm(hidden.last_hidden_state)
        wanted = last @ weights["text_filip_projection.weight"].T
        tokens = ours.text_model(input_ids=ids).last_hidden_state
        found = tokens @ ours.text_projection.weight.T
    assert torch.allclose(found, wanted, atol=1e-4) and wanted.std() > 0.1
    assert read_preprocessing(tmp_path / "out").fit == "resize"


def test_what_stands_beside_the_model_is_left_out_aloud(start, tmp_path):
    weights = {f"clip.{k}": v.contiguous() for k, v in start.state_dict().items()}
    save_file({**weights, "head.weight": torch.zeros(2, 3)}, tmp_path / "saved.safetensors")
    with pytest.warns(UserWarning, match="1 weights beside 'clip.' are left out, such as 'head.w"):
        import_model(tmp_path / "saved.safetensors", tmp_path / "out", like=str(tiny_clip()))
    found = open_model(tmp_path / "out").state_dict()
    assert all(torch.equal(found[name], value) for name, value in start.state_dict().items())


def test_two_models_in_one_file(start, tmp_path):
    weights = start.state_dict()
    torch.save({**weights, **{f"ema.{k}": v for k, v in weights.items()}}, tmp_path / "two.pt")
    with pytest.raises(InputError, match="holds 2 models, under '', 'ema.'"):
        import_model(tmp_path / "two.pt", tmp_path / "out", like=str(tiny_clip()))


class Runs:
    def __reduce__(self):
        return print, ("this must not run",)


def test_what_is_no_such_checkpoint(start, tmp_path, run_glit):
    weights = dict(start.state_dict())
    table = torch.zeros(248, 8)
    two = {"positional_embedding": table, "positional_embedding_res": table[:77]}
    cases: tuple[tuple[object, type[GlitError], str], ...] = (
        ({**weights, "more": torch.ones(1)}, WeightsError, "more is of shape .* says missing"),
        ({**weights, "logit_scale": torch.tensor(np.nan)}, WeightsError, "logit_scale is not fini"),
        ({k: v for k, v in weights.items() if "norm" in k}, WeightsError, "is missing, .*--like"),
        ([1, 2], InputError, "holds no state dict"),
        ({"epoch": 3}, InputError, "holds no state dict"),
        (two, InputError, "two tables of text positions are not alike"),
        ({"x": Runs()}, InputError, "no file of tensors"),
        ({1: torch.ones(1)}, InputError, "holds no state dict"),
    )
    for value, error, said in cases:
        torch.save(value, tmp_path / "bad.pt")
        with pytest.raises(error, match=said):
            import_model(tmp_path / "bad.pt", tmp_path / "out", like=str(tiny_clip()))
        assert not (tmp_path / "out").exists()
    (tmp_path / "page.pt").write_text("\n<!DOCTYPE html>\n<html>404</html>")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "bad.pt").read_bytes()[:50])
    for name, said in (
        ("cut.pt", "cut short"), ("none.pt", "no such file"), ("page.pt", "a web page"),
    ):  # fmt: skip
        done = run_glit(
            "import-model", tmp_path / name, "-o", tmp_path / "out", "--like", tiny_clip()
        )
        assert done.code == 2 and said in done.errors and not (tmp_path / "out").exists()
