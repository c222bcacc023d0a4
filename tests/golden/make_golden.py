"""Writes the golden folders beside this file: what `make test` compares with, without PyTorch.

Same layout as the parity cases (tests/parity/oracle.py), for one model small enough to be committed.
"""
import pathlib

import torch
from bitsandbytes.functional import dequantize_4bit, quantize_4bit
from safetensors.torch import save_file
from transformers import LlamaConfig

from tests.parity.cases import SHAPE, Case
from tests.parity.oracle import LONG_STEPS, write_case

CASE = Case("golden", LlamaConfig(**{**SHAPE, "vocab_size": 128, "hidden_size": 32, "intermediate_size": 48}))


def write_nf4(folder):
    """A weight as bitsandbytes quantises it, with and without double quantisation, and what it makes of the codes.

    320 blocks: more than one of the 256 that share a scale.
    """
    folder.mkdir(exist_ok=True)
    torch.manual_seed(7)
    weight = (torch.randn(160, 128) * torch.rand(160, 1) * 0.1).to(torch.bfloat16)
    plain_codes, plain = quantize_4bit(weight, quant_type="nf4", compress_statistics=False)
    codes, nested = quantize_4bit(weight, quant_type="nf4", compress_statistics=True)
    save_file({"w.weight": weight}, folder / "weight.safetensors")
    for name, packed, state in (("plain", plain_codes, plain), ("nested", codes, nested)):
        parts = {f"w.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        save_file({"w.weight": packed, **parts}, folder / f"{name}.safetensors")
        save_file({"w.weight": dequantize_4bit(packed, state)}, folder / f"{name}_dequantized.safetensors")


def main():
    here = pathlib.Path(__file__).parent
    for method in ("full", "lora"):
        write_case(CASE, here / f"llama_{method}", method, steps=LONG_STEPS)
    write_nf4(here / "nf4")


if __name__ == "__main__":
    main()
