"""Gated linear attention against flash-linear-attention's own model on the CPU: `make parity`.

    python -m tests.parity.gla --plimsoll build/plimsoll [--only NAME] [--keep FOLDER]

The model, its configuration, its modules and the names of its parameters are fla's. Its kernels need a GPU, so each
call of one becomes the plain PyTorch form of the same: fla.ops.gla.naive for the recurrence, and for the norms and
SwiGLU their definitions in fp32. PEFT puts its adapters on that model. What is compared, and how, is as in run.py.
"""
import argparse
import pathlib
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F
from transformers.utils.logging import disable_progress_bar

warnings.filterwarnings("ignore")

import fla.layers.gla as layer  # noqa: E402
import fla.modules.mlp as mlp  # noqa: E402
from fla.models.gla import GLAConfig  # noqa: E402
from fla.modules import FusedRMSNormGated, RMSNorm, ShortConvolution  # noqa: E402
from fla.ops.gla.naive import naive_recurrent_gla  # noqa: E402

from tests.parity.cases import Case  # noqa: E402
from tests.parity.run import run_case  # noqa: E402
from tests.shard import is_mine  # noqa: E402


# ---- fla's kernels in plain PyTorch

def plain_norm(self, x):
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
    return wide * self.weight.float()


def norm(self, x, residual=None, prenorm=False, residual_in_fp32=False):
    if residual is not None:
        x = x + residual
    y = plain_norm(self, x).to(x.dtype)
    return (y, x) if prenorm else y


def gated_norm(self, x, g, residual=None, prenorm=False, residual_in_fp32=False):
    wide = g.float()
    return (plain_norm(self, x) * wide * torch.sigmoid(wide)).to(x.dtype)


def recurrence(q, k, v, gk=None, g=None, initial_state=None, output_final_state=False, **_):
    assert initial_state is None
    return naive_recurrent_gla(q, k, v, gk if gk is not None else g, None, output_final_state)


def short_conv(self, x, residual=None, mask=None, cache=None, output_final_state=False, cu_seqlens=None, **_):
    assert residual is None and mask is None and cache is None
    starts = [0, x.shape[1]] if cu_seqlens is None else cu_seqlens.tolist()
    pieces = [F.conv1d(F.pad(x[:, begin:end].transpose(1, 2), (self.kernel_size[0] - 1, 0)), self.weight, groups=self.groups)
              for begin, end in zip(starts, starts[1:])]
    return F.silu(torch.cat(pieces, -1).transpose(1, 2)), None


def swiglu(x, y):
    return F.silu(x) * y


def use_plain_forms():
    RMSNorm.forward = norm
    ShortConvolution.forward = short_conv
    FusedRMSNormGated.forward = gated_norm
    layer.chunk_gla = layer.fused_recurrent_gla = layer.fused_chunk_gla = recurrence
    layer.ACT2FN["swish"] = F.silu
    mlp.swiglu = swiglu
    mlp.swiglu_linear = lambda x, y, weight, bias: F.linear(swiglu(x, y), weight, bias)


# ---- the cases

SHAPE = dict(vocab_size=512, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_heads=2, norm_eps=1e-6,
             max_position_embeddings=256, initializer_range=0.2, bos_token_id=None, eos_token_id=None,
             pad_token_id=None, fuse_cross_entropy=False,
             fuse_swiglu=False)  # fused, fla multiplies by down_proj.weight: past an adapter of PEFT
# Longer than a chunk of 64, its parts and one more; short ones beside them in the same micro-batches.
LENGTHS = (70, 17, 33, 2)


def case(name, **changes):
    return Case(name, GLAConfig(**{**SHAPE, **changes}), lengths=LENGTHS, prompts=(5, 66))


CASES = (case("gla"),
         case("gla_tied_grouped", tie_word_embeddings=True, num_heads=4, num_kv_heads=2, expand_k=1.0, expand_v=2.0),
         case("gla_plain_norm", fuse_norm=False, clamp_min=-0.04),
         case("gla_no_output_gate", use_output_gate=False, intermediate_size=None),
         case("gla_short_conv", use_short_conv=True, num_heads=4, num_kv_heads=2, conv_size=3))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plimsoll", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--keep", type=pathlib.Path, help="write the case folders here and keep them")
    arguments = parser.parse_args()
    disable_progress_bar()
    use_plain_forms()
    torch.set_num_threads(1)
    ran = failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        # The recurrence in Python takes long: variants of the layer have one method, in turn.
        cells = [(one, method) for at, one in enumerate(CASES) if arguments.only in one.name
                 for method in (("full", "lora") if at == 0 or arguments.only else (("full", "lora")[at % 2],))]
        for index, (one, method) in enumerate(cells):
            if not arguments.only and not is_mine("gla", index):
                continue
            folder = (arguments.keep or pathlib.Path(scratch)) / one.name / method
            failed += run_case(arguments.plimsoll.resolve(), one, folder, method, bf16=False) > 0
            ran += 1
    print(f"{ran - failed} passed, {failed} failed")
    sys.exit(1 if failed or ran == 0 else 0)


if __name__ == "__main__":
    main()
