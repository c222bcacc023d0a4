#!/usr/bin/env python3
"""Prints a layout problem as CSV: the buffers of an invented fine-tuning step (forward, loss, backward).

  generate.py SEED [LAYERS] > problem.csv

The seed draws the model (decoder, encoder-decoder or gated linear attention), its widths, LoRA or full training,
what every layer recomputes and how the loss is cut into chunks. Same arguments, same text. The files beside this
script are the seeds, out of some hundreds, that the solver's tie-breaks find hardest (see README.md).
"""

import random
import sys


class Program:
    """Ops in order; a buffer lives from the op that writes it to the last op that reads it."""

    def __init__(self):
        self.num_ops = 0
        self.buffers = {}  # name -> [bytes, first op, last op]

    def op(self, reads, writes=(), scratch=0):
        for name in reads:
            self.buffers[name][2] = self.num_ops
        for name, size in writes:
            assert name not in self.buffers, name
            self.buffers[name] = [size, self.num_ops, self.num_ops]
        if scratch:
            self.buffers[f"scratch.{self.num_ops}"] = [scratch, self.num_ops, self.num_ops]
        self.num_ops += 1


class Step:
    def __init__(self, seed, num_layers=None):
        rng = self.rng = random.Random(seed)
        self.program = Program()
        self.layers = num_layers or rng.randint(4, 9)
        self.tokens = rng.choice([192, 512, 1000, 2048])
        self.hidden = 64 * rng.randint(4, 24)
        self.heads = rng.choice([4, 8, 16])
        self.kv = self.hidden // rng.choice([1, 2, 4])
        self.mlp = 32 * int(self.hidden * rng.uniform(2.0, 4.5) / 32)
        self.vocab = rng.choice([8000, 32000, 50257])
        self.lora_rank = rng.choice([0, 0, 8, 64])
        self.kind = rng.choice(["decoder", "decoder", "encoder_decoder", "linear_attention"])
        self.element = rng.choice([2, 4])

    def act(self, width):
        return self.tokens * width * self.element

    def recomputed(self):
        """What a layer drops in the forward pass and makes again in the backward pass."""
        return self.rng.choice([(), (), ("s",), ("n1", "n2", "s"), ("n1", "n2", "s", "qkv"), ("n1", "n2", "s", "gu")])

    def inner_ops(self, p, x, cross):
        """The ops of a layer as (reads, writes, scratch); names are local to the prefix p."""
        h, a = self.act(self.hidden), self.tokens * self.heads * 4
        ops = [([x], [(f"{p}.n1", h), (f"{p}.rstd1", self.tokens * 4)], 0),
               ([f"{p}.n1"], [(f"{p}.qkv", self.act(self.hidden + 2 * self.kv))], 0)]
        if self.kind == "linear_attention":
            states = self.tokens // 64 * self.hidden * self.hidden // self.heads * 4
            ops.append(([f"{p}.qkv"], [(f"{p}.o", h), (f"{p}.lse", states)], h))
        else:
            ops.append(([f"{p}.qkv"], [(f"{p}.o", h), (f"{p}.lse", a)], a * 16))
        ops.append(([x, f"{p}.o"], [(f"{p}.x2", h)], 0))
        if cross:
            ops += [([cross], [(f"{p}.ckv", self.act(2 * self.kv))], 0),
                    ([f"{p}.x2", f"{p}.ckv"], [(f"{p}.co", h), (f"{p}.clse", a)], a * 8)]
        ops += [([f"{p}.x2"], [(f"{p}.n2", h), (f"{p}.rstd2", self.tokens * 4)], 0),
                ([f"{p}.n2"], [(f"{p}.gu", self.act(2 * self.mlp))], 0),
                ([f"{p}.gu"], [(f"{p}.s", self.act(self.mlp))], 0)]
        if self.lora_rank:
            ops.insert(2, ([f"{p}.n1"], [(f"{p}.xa", self.tokens * self.lora_rank * 4)], 0))
        ops.append(([f"{p}.x2", f"{p}.s"], [(f"{p}.y", h)], 0))
        return ops

    def forward(self, p, x, cross):
        for op in self.inner_ops(p, x, cross):
            self.program.op(*op)
        return f"{p}.y"

    def backward(self, p, x, cross, d_y, dropped):
        """Every forward op reversed, after the dropped results were made again; returns the gradient of x."""
        renamed = {f"{p}.{name}": f"{p}.{name}.again" for name in dropped}
        again = lambda names: [renamed.get(n, n) for n in names]
        ops = self.inner_ops(p, x, cross)
        for reads, writes, scratch in ops:
            made = [(renamed[n], size) for n, size in writes if n in renamed]
            if made:
                self.program.op(again(reads), made, scratch)
        gradient = {f"{p}.y": d_y}
        for reads, writes, scratch in reversed(ops):
            d_out = [gradient[n] for n, _ in writes if n in gradient]
            made, extra = [], []
            for n in reads:
                if n == cross:
                    extra.append("d_encoder")
                elif n in gradient:
                    extra.append(gradient[n])  # a second use adds in place
                else:
                    gradient[n] = f"d.{n}.{p}"
                    made.append((gradient[n], self.program.buffers[n][0]))
            if not self.lora_rank and len(reads) == 1:  # weight gradient, consumed by the optimizer in backward
                made.append((f"d.{p}.w{self.program.num_ops}", self.hidden * self.hidden * self.element))
            saved = again(reads) + [again([n])[0] for n, _ in writes if n.split(".")[-1] in ("lse", "rstd1", "rstd2")]
            self.program.op(saved + d_out + extra, made, 2 * scratch)
        return gradient[x]

    def loss(self, x):
        chunk = self.rng.choice([64, 128, 512])
        chunk = min(chunk, self.tokens)
        self.program.op([x], [("d_final", self.act(self.hidden))])
        for c in range(min(8, -(-self.tokens // chunk))):
            logits, stats = f"logits.{c}", f"stats.{c}"
            self.program.op([x], [(logits, chunk * self.vocab * 2), (stats, chunk * 8)])
            self.program.op([logits, stats], [(f"loss.{c}", 4)])
            self.program.op([logits, x, "d_final"], [])
        return "d_final"

    def run(self):
        plan = []
        program = self.program
        program.op([], [("tokens", self.tokens * 4)])
        program.op(["tokens"], [("embedded", self.act(self.hidden))])
        x, cross = "embedded", None
        for i in range(self.layers):
            if self.kind == "encoder_decoder" and i == self.layers // 2:
                cross = x
                program.op(["tokens"], [("decoder_embedded", self.act(self.hidden))])
                x = "decoder_embedded"
            plan.append((f"l{i}", x, cross, self.recomputed()))
            x = self.forward(f"l{i}", x, cross)
        d_x = self.loss(x)
        if cross:
            program.op([], [("d_encoder", self.act(self.hidden))])
        in_decoder = cross is not None
        for p, x, layer_cross, dropped in reversed(plan):
            if in_decoder and layer_cross is None:  # the decoder is done; its cross attentions have summed d_encoder
                program.op([d_x, "tokens"], [])
                d_x, in_decoder = "d_encoder", False
            d_x = self.backward(p, x, layer_cross, d_x, dropped)
        program.op([d_x, "tokens"], [])
        return program


def main():
    seed = int(sys.argv[1])
    program = Step(seed, int(sys.argv[2]) if len(sys.argv) > 2 else None).run()
    print("id,lower,upper,size")
    for name, (size, first, last) in program.buffers.items():
        print(f"{name},{first},{last + 1},{size}")


if __name__ == "__main__":
    main()
