"""Writes the golden folders beside this file: what `make test` compares with, without PyTorch.

Same layout as the parity cases (tests/parity/oracle.py), for one model small enough to be committed.
"""
import pathlib

from transformers import LlamaConfig

from tests.parity.cases import SHAPE, Case
from tests.parity.oracle import write_case

CASE = Case("golden", LlamaConfig(**{**SHAPE, "vocab_size": 128, "hidden_size": 32, "intermediate_size": 48}))


def main():
    for method in ("full", "lora"):
        write_case(CASE, pathlib.Path(__file__).parent / f"llama_{method}", lora=method == "lora")


if __name__ == "__main__":
    main()
