"""transformers' plain PyTorch form of the gated delta rule on the shapes of bench/delta_rule_bench.cc, one thread, bf16.

    delta_rule.py [512,1024,4096,16384]    processor time; needs PyTorch and transformers
"""
import sys
import time

import torch
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

KEY_HEADS, HEADS, DIM = 4, 8, 128
plain = getattr(torch_chunk_gated_delta_rule, "__wrapped__", torch_chunk_gated_delta_rule)  # where fla is installed, that is for GPUs


def best_seconds(run, repeats):
    run()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def measure(length):
    torch.manual_seed(1)
    q, k = (torch.randn(1, length, KEY_HEADS, DIM).bfloat16().requires_grad_() for _ in range(2))
    v = torch.randn(1, length, HEADS, DIM).bfloat16().requires_grad_()
    g, beta = (-0.5 * torch.rand(1, length, HEADS)).requires_grad_(), torch.rand(1, length, HEADS).requires_grad_()
    d_o = torch.randn(1, length, HEADS, DIM).bfloat16()

    def forward():
        return plain(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]

    def inference():
        with torch.no_grad():
            forward()

    repeats = 3 if length > 4000 else 8
    alone = best_seconds(inference, repeats)
    both = best_seconds(lambda: forward().backward(d_o), repeats)
    kept = best_seconds(forward, repeats)
    print(f"S {length:5}, heads {KEY_HEADS}/{HEADS}, PyTorch     forward {1e6 * alone / length:6.2f}  "
          f"backward {1e6 * (both - kept) / length:6.2f} us/token  both {1e6 * both / length:.2f}", flush=True)


torch.set_num_threads(1)
for size in (sys.argv[1] if len(sys.argv) > 1 else "512,1024,4096,16384").split(","):
    measure(int(size))
