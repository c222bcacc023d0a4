"""Single ops against PyTorch's and transformers' modules: `make parity`.

    python -m tests.parity.ops --tool build/src/ops/plimsoll_op_tool

Values and gradients, in fp32: attention as T5's encoder, decoder and cross-attention have it (T5Attention without its
projections), and attention of both sides (scaled_dot_product_attention); layer norm, gelu in both forms, tanh; the gated delta
rule and its gates as Qwen3.5 has them (its plain PyTorch form), and the gate of its attention.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule
from transformers.models.t5.modeling_t5 import T5Attention

LIMIT = 3e-6  # largest difference over the largest value
plain_delta_rule = getattr(torch_chunk_gated_delta_rule, "__wrapped__", torch_chunk_gated_delta_rule)  # without fla's kernels, for GPUs
HEADS, DIM = 3, 16
WIDTH = HEADS * DIM


class Program:
    """A graph in text with the values of its inputs, and the shapes of what it makes."""

    def __init__(self):
        self.lines, self.values, self.outputs = ["graph ops"], [], []

    def axis(self, name):
        self.lines.append(f"axis 1 {name}")

    def tensor(self, name, values, role="input"):
        values = numpy.ascontiguousarray(values)
        kind = {"float32": "f32", "float64": "f64", "int32": "i32"}[str(values.dtype)]
        self.lines.append(f"tensor {name} {kind}[{','.join(map(str, values.shape))}] {role}")
        self.values.append(values)

    def op(self, text, outputs):
        """`outputs`: name -> shape of what is made (f32), or None for a tensor that is there."""
        made = [name if shape is None else f"{name} f32[{','.join(map(str, shape))}]" for name, shape in outputs.items()]
        self.lines.append(f"{', '.join(made)} = {text}")
        for name, shape in outputs.items():
            self.outputs.append((name, shape or self.shape_of(name)))

    def shape_of(self, name):
        declared = [line.split() for line in self.lines if line.startswith("tensor ")]
        return self.values[[words[1] for words in declared].index(name)].shape

    def run(self, tool):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "graph.txt"
            path.write_text("\n".join(self.lines) + "\n")
            done = subprocess.run([tool, path], input=b"".join(v.tobytes() for v in self.values), capture_output=True)
        if done.returncode != 0:
            sys.exit(done.stderr.decode())
        results, at = {}, 0
        for name, shape in self.outputs:
            size = int(numpy.prod(shape)) * 4
            results[name] = torch.from_numpy(numpy.frombuffer(done.stdout[at:at + size], numpy.float32).copy().reshape(shape))
            at += size
        assert at == len(done.stdout)
        return results


def step_values(live, sequences, key_live=0):
    step = numpy.zeros(16)
    step[0] = 1                                       # the first micro-step
    step[6], step[7] = live, sequences
    step[9], step[10] = key_live, sequences           # of the second axis
    return step


def starts_of(lengths):
    return numpy.cumsum([0] + lengths).astype(numpy.int32)


def by_heads(flat):
    return flat.view(1, -1, HEADS, DIM).transpose(1, 2)


# ---- references: (q, k, v of one sequence, table) -> o

def t5(causal, max_distance):
    def attend(q, k, v, table):
        scores = by_heads(q) @ by_heads(k).transpose(2, 3)
        if table is not None:
            distance = torch.arange(k.shape[0])[None] - torch.arange(q.shape[0])[:, None]
            bucket = T5Attention._relative_position_bucket(distance, bidirectional=not causal, num_buckets=table.shape[0],
                                                           max_distance=max_distance)
            scores = scores + torch.nn.functional.embedding(bucket, table).permute(2, 0, 1)[None]
        if causal:
            scores = scores + torch.full(scores.shape[2:], float("-inf")).triu(1)
        return (scores.softmax(-1) @ by_heads(v)).transpose(1, 2).reshape(-1, WIDTH)
    return attend


def both_sides(q, k, v, table):
    o = torch.nn.functional.scaled_dot_product_attention(by_heads(q), by_heads(k), by_heads(v))
    return o.transpose(1, 2).reshape(-1, WIDTH)


def attention_case(tool, reference, attributes, lengths, key_lengths=None, buckets=0):
    """(largest error, of what) over outputs and gradients."""
    keys = key_lengths or lengths
    rows, key_rows = sum(lengths) + 3, sum(keys) + (2 if key_lengths else 3)
    torch.manual_seed(7)
    q, k, v, d_o = (torch.randn(n, WIDTH) * 0.7 for n in (rows, key_rows, key_rows, rows))
    table = torch.randn(buckets, HEADS) if buckets else None
    p = Program()
    if key_lengths:
        p.axis("source")
        attributes = attributes | {"keys_of": 1, "key_length": max(keys)}
    p.tensor("step", step_values(sum(lengths), len(lengths), sum(keys)))
    for name, values in (("q", q), ("k", k), ("v", v), ("d_o", d_o)):
        p.tensor(name, values.numpy())
    p.tensor("starts", starts_of(lengths))
    extra = ""
    if key_lengths:
        p.tensor("key_starts", starts_of(keys))
        extra = ", key_starts"
    if buckets:
        p.tensor("table", table.numpy(), "trainable")
        p.tensor("d_table", numpy.zeros((buckets, HEADS), numpy.float32), "gradient")
        extra += ", -, table"
    attributes = attributes | {"head_dim": DIM, "length": max(lengths), "window": 0}
    text = "{" + ", ".join(f"{key}={value}" for key, value in sorted(attributes.items())) + "}"
    p.op(f"attention(q, k, v, starts, step{extra}) {text} @a forward", {"o": (rows, WIDTH), "lse": (rows, HEADS)})
    outputs = {"d_q": (rows, WIDTH), "d_k": (key_rows, WIDTH), "d_v": (key_rows, WIDTH)}
    if buckets:
        outputs["d_table"] = None
        text = "{accumulate=0, " + text[1:]
    p.op(f"attention_grad(q, k, v, o, lse, d_o, starts, step{extra}) {text} @a backward", outputs)
    got = p.run(tool)

    inputs = [x.requires_grad_() for x in (q, k, v, table) if x is not None]
    parts, at, key_at = [], 0, 0
    for n, m in zip(lengths, keys):
        parts.append(reference(q[at:at + n], k[key_at:key_at + m], v[key_at:key_at + m], table))
        at, key_at = at + n, key_at + m
    o = torch.cat(parts + [torch.zeros(rows - at, WIDTH)])
    (o * d_o).sum().backward()
    wanted = dict(zip(["d_q", "d_k", "d_v", "d_table"], (x.grad for x in inputs))) | {"o": o.detach()}
    return worst(got, wanted)


def layer_norm_case(tool):
    rows, width = 70, 52
    torch.manual_seed(8)
    x, d_y = torch.randn(rows, width) * 3 + 5, torch.randn(rows, width)
    weight, bias = torch.randn(width), torch.randn(width)
    p = Program()
    p.tensor("step", step_values(rows, 1))
    for name, values, role in (("x", x, "input"), ("d_y", d_y, "input"), ("w", weight, "trainable"), ("b", bias, "trainable")):
        p.tensor(name, values.numpy(), role)
    for name in ("d_w", "d_b"):
        p.tensor(name, numpy.zeros(width, numpy.float32), "gradient")
    p.op("layer_norm(x, w, b) {eps=1e-12} @n forward", {"y": (rows, width), "stats": (rows, 2)})
    p.op("layer_norm_grad(x, w, stats, d_y, -, step) {accumulate=0} @n backward", {"d_x": (rows, width), "d_w": None})
    p.op("bias_grad(d_y, step) {accumulate=0} @n backward", {"d_b": None})
    got = p.run(tool)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    y = torch.nn.functional.layer_norm(x, (width,), weight, bias, 1e-12)
    (y * d_y).sum().backward()
    return worst(got, dict(zip(("d_x", "d_w", "d_b"), (t.grad for t in inputs))) | {"y": y.detach()})


def activation_case(tool, op, reference, attributes="", reads_output=False):
    torch.manual_seed(9)
    x, d_y = torch.randn(70, 52) * 4, torch.randn(70, 52)
    p = Program()
    p.tensor("step", step_values(70, 1))
    p.tensor("x", x.numpy())
    p.tensor("d_y", d_y.numpy())
    p.op(f"{op}(x){attributes} @a forward", {"y": (70, 52)})
    p.op(f"{op}_grad({'y' if reads_output else 'x'}, d_y){attributes} @a backward", {"d_x": (70, 52)})
    got = p.run(tool)
    y = reference(x.requires_grad_())
    (y * d_y).sum().backward()
    return worst(got, {"y": y.detach(), "d_x": x.grad})


def plain(q, k, v, g, beta):
    """transformers' form of one sequence: [T, heads, width] each, in fp32."""
    return plain_delta_rule(*(x[None].float() for x in (q, k, v)), g=g[None].float(), beta=beta[None].float(), use_qk_l2norm_in_kernel=True)[0][0]


def step_by_step(q, k, v, g, beta):
    """The same by its definition, in the type of what it is given."""
    group = v.shape[1] // k.shape[1]
    q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    q, k = (x.repeat_interleave(group, 1) for x in (q * q.shape[-1] ** -0.5, k))
    state, rows = torch.zeros(v.shape[1], k.shape[-1], v.shape[-1], dtype=v.dtype), []
    for t in range(len(v)):
        state = g[t].exp()[:, None, None] * state
        u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + torch.einsum("hk,hv->hkv", k[t], u)
        rows.append(torch.einsum("hkv,hk->hv", state, q[t]))
    return torch.stack(rows)


def chunk_by_chunk(q, k, v, g, beta, rows=64):
    """The same by chunks, one head of unit rows: q, k, v [T, width], g, beta [T]."""
    state, parts = torch.zeros(k.shape[1], v.shape[1], dtype=v.dtype), []
    for at in range(0, len(v), rows):
        a, b, c, d, e = (x[at:at + rows] for x in (q, k, v, g, beta))
        sums, n = d.cumsum(0), len(c)
        decays = (sums[:, None] - sums).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf")).exp()
        lower = (e[:, None] * decays * (b @ b.T)).tril(-1)
        right = e[:, None] * (c - sums.exp()[:, None] * (b @ state))
        u = torch.linalg.solve_triangular(torch.eye(n, dtype=v.dtype) + lower, right, upper=False, unitriangular=True)
        parts.append(sums.exp()[:, None] * (a @ state) + decays * (a @ b.T) @ u)
        state = sums[-1].exp() * state + ((sums[-1] - sums).exp()[:, None] * b).T @ u
    return torch.cat(parts)


def forms_case(decay):
    """Both forms in f64, with their gradients: what the kernels compute is what the definition says."""
    torch.manual_seed(12)
    q, k, v, d_o = (torch.randn(200, 1, 8, dtype=torch.float64) for _ in range(4))
    gates = [-decay * torch.rand(200, 1, dtype=torch.float64), torch.rand(200, 1, dtype=torch.float64)]
    inputs = [x.requires_grad_() for x in (q, k, v, *gates)]
    steps = step_by_step(*inputs)
    unit = [x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k)]
    chunks = chunk_by_chunk(unit[0][:, 0] * 8 ** -0.5, unit[1][:, 0], v[:, 0], *(x[:, 0] for x in inputs[3:]))[:, None]
    wanted, got = (torch.autograd.grad((o * d_o).sum(), inputs) for o in (steps, chunks))
    names = ("d_q", "d_k", "d_v", "d_g", "d_beta")
    return worst(dict(zip(names, got)) | {"o": chunks}, dict(zip(names, wanted)) | {"o": steps})


def delta_rule_case(tool, reference, lengths, decay):
    """Its gates too; sequences run one by one in the reference (transformers' rows leak into one another on a CPU)."""
    key_heads, heads, dim = 2, 4, 32
    rows = sum(lengths) + 2
    torch.manual_seed(10)
    q, k = (torch.randn(rows, key_heads * dim) for _ in range(2))
    v, d_o = (torch.randn(rows, heads * dim) for _ in range(2))
    a, b = (torch.randn(rows, heads) for _ in range(2))
    a_log, dt_bias = decay + torch.rand(heads), torch.rand(heads)
    p = Program()
    p.tensor("step", step_values(sum(lengths), len(lengths)))
    for name, values in (("q", q), ("k", k), ("v", v), ("d_o", d_o), ("a", a), ("b", b)):
        p.tensor(name, values.numpy())
    for name, values in (("a_log", a_log), ("dt_bias", dt_bias)):
        p.tensor(name, values.numpy(), "trainable")
        p.tensor(f"d_{name}", numpy.zeros(heads, numpy.float32), "gradient")
    p.tensor("starts", starts_of(lengths))
    text = f"{{eps=1e-06, heads={heads}, key_heads={key_heads}}}"
    gates = (rows, heads)
    p.op("delta_gate(a, b, a_log, dt_bias) @g forward", {"g": gates, "beta": gates})
    p.op(f"delta_rule(q, k, v, g, beta, starts, step) {text} @d forward", {"o": (rows, heads * dim)})
    p.op(f"delta_rule_grad(q, k, v, g, beta, d_o, starts, step) {text} @d backward",
         {"d_q": q.shape, "d_k": k.shape, "d_v": v.shape, "d_g": gates, "d_beta": gates})
    p.op("delta_gate_grad(a, b, a_log, dt_bias, d_g, d_beta, step) {accumulate=0, accumulate_bias=0} @g backward",
         {"d_a": gates, "d_b": gates, "d_a_log": None, "d_dt_bias": None})
    got = p.run(tool)

    inputs = {name: x.double().requires_grad_() for name, x in dict(q=q, k=k, v=v, a=a, b=b, a_log=a_log, dt_bias=dt_bias).items()}
    x = inputs
    beta, g = x["b"].sigmoid(), -x["a_log"].exp() * torch.nn.functional.softplus(x["a"] + x["dt_bias"])
    parts, at = [], 0
    for n in lengths:
        own = slice(at, at + n)
        parts.append(reference(*(x[name][own].view(n, -1, dim) for name in "qkv"), g[own], beta[own]).reshape(n, -1))
        at += n
    o = torch.cat(parts + [torch.zeros(rows - at, heads * dim)])
    (o * d_o).sum().backward()
    return worst(got, {f"d_{name}": x.grad for name, x in inputs.items()} | {"o": o.detach(), "g": g.detach(), "beta": beta.detach()})


def sigmoid_gate_case(tool):
    torch.manual_seed(11)
    x, gate, d_y = torch.randn(70, 52), torch.randn(70, 52), torch.randn(70, 52)
    p = Program()
    p.tensor("step", step_values(70, 1))
    for name, values in (("x", x), ("gate", gate), ("d_y", d_y)):
        p.tensor(name, values.numpy())
    p.op("sigmoid_gate(x, gate) @a forward", {"y": (70, 52)})
    p.op("sigmoid_gate_grad(x, gate, d_y) @a backward", {"d_x": (70, 52), "d_gate": (70, 52)})
    got = p.run(tool)
    y = x.requires_grad_() * gate.requires_grad_().sigmoid()
    (y * d_y).sum().backward()
    return worst(got, {"y": y.detach(), "d_x": x.grad, "d_gate": gate.grad})


def worst(got, wanted):
    return max(((got[name] - want).abs().max().item() / want.abs().max().item(), name) for name, want in wanted.items())


def cases(tool):
    long, short = [130, 1, 61], [5, 200, 17]
    yield "attention of T5's encoder", attention_case(tool, t5(False, 128), {"causal": 0, "max_distance": 128, "scale": 1.0},
                                                      long, buckets=32)
    yield "attention of T5's decoder", attention_case(tool, t5(True, 128), {"max_distance": 128, "scale": 1.0}, long, buckets=32)
    yield "cross-attention of T5", attention_case(tool, t5(False, 128), {"causal": 0, "scale": 1.0}, long, short)
    yield "attention of both sides", attention_case(tool, both_sides, {"causal": 0}, long)
    yield "layer norm", layer_norm_case(tool)
    yield "gelu", activation_case(tool, "gelu", torch.nn.functional.gelu, " {approximate='none'}")
    yield "gelu by tanh", activation_case(tool, "gelu", lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
                                          " {approximate='tanh'}")
    yield "tanh", activation_case(tool, "tanh", torch.tanh, reads_output=True)
    yield "delta rule, both forms", forms_case(1), 1e-12
    yield "the same, steep", forms_case(60), 1e-12
    yield "gated delta rule", delta_rule_case(tool, step_by_step, [1, 63, 64, 65, 130], -2)
    yield "the same, fast to forget", delta_rule_case(tool, step_by_step, [300, 17], 2)
    # Its sums of decays are in fp32, and so are the gradients that it takes of them.
    yield "the same of transformers", delta_rule_case(tool, plain, [1, 63, 64, 65, 130], -2), 1e-5
    yield "sigmoid gate", sigmoid_gate_case(tool)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    failed = False
    for name, (error, of), *limit in cases(parser.parse_args().tool):
        passes = error < (limit[0] if limit else LIMIT)
        failed |= not passes
        print(f"  {name:28} {'ok  ' if passes else 'FAIL'} largest error {error:.1e} ({of})")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
