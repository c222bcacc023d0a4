"""PyTorch's scaled_dot_product_attention on the shapes of bench/attention_bench.cc, two threads, bf16."""

import time

import torch


def best_and_median_ms(run, repeats):
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    return times[0], times[len(times) // 2]


def measure(length, heads, kv_heads, head_dim):
    def tensor(n):
        return torch.randn(1, length, n, head_dim).bfloat16().transpose(1, 2)

    q, k, v = (tensor(n).requires_grad_() for n in (heads, kv_heads, kv_heads))
    d_o = tensor(heads)

    def forward():
        # Repeats the key-value heads, as transformers does.
        repeat = lambda x: x.repeat_interleave(heads // kv_heads, 1)
        return torch.nn.functional.scaled_dot_product_attention(q, repeat(k), repeat(v), is_causal=True)

    repeats = 2 if length > 4000 else 5 if length > 1000 else 15
    with torch.no_grad():
        forward_ms = best_and_median_ms(forward, repeats)
    o = forward()
    backward_ms = best_and_median_ms(lambda: o.backward(d_o, retain_graph=True), repeats)
    print(f"S {length}, heads {heads}/{kv_heads}, D {head_dim}, bf16")
    print("  forward  best %.2f  median %.2f ms" % forward_ms)
    print("  backward best %.2f  median %.2f ms" % backward_ms)


torch.set_num_threads(2)
for length in (512, 2048, 8192):
    measure(length, 14, 2, 64)
    measure(length, 16, 8, 128)
