#!/usr/bin/env python3
"""Writes tests/doctor/snapshots and the fuzz corpus from it: small memory snapshots in the structure that PyTorch's
torch.cuda.memory._dump_snapshot writes (segments with blocks, device_traces, allocator_settings), and files that only
look like them. PyTorch records none without a device."""
import io
import os
import pickle
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
MIB = 1 << 20


def frames(name, line, file="/home/me/project/train.py"):
    inner = [{"name": "at::empty_cuda(c10::IntArrayRef)", "filename": "??", "line": 0},
             {"name": "linear", "filename": "/usr/lib/python3/site-packages/torch/nn/functional.py", "line": 125}]
    return inner + [{"name": name, "filename": file, "line": line}, {"name": "<module>", "filename": file, "line": 200}]


WEIGHTS, FORWARD, OPTIMIZER = frames("load", 20), frames("forward", 31), frames("step", 77)


def block(size, state, where=None, requested=None):
    made = {"size": size, "requested_size": requested if requested is not None else size, "state": state}
    if where is not None:
        made["frames"] = where
    return made


def segment(address, blocks, device=0):
    at = address
    for made in blocks:
        made["address"] = at
        at += made["size"]
    return {"device": device, "address": address, "total_size": at - address, "stream": 0, "segment_type": "large",
            "allocated_size": sum(b["size"] for b in blocks if b["state"] != "inactive"), "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": [], "blocks": blocks}


def entry(action, address, size, where, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1, "frames": where, **more}


BASE = 0x7F0000000000


def fragmented():
    """1,536 MiB reserved, 1,024 in use, 512 idle in four pieces; 320 asked for in one piece, 64 free."""
    blocks = []
    for _ in range(4):
        blocks += [block(256 * MIB, "active_allocated", WEIGHTS, 250 * MIB), block(128 * MIB, "inactive")]
    traces = [entry("alloc", BASE, 256 * MIB, WEIGHTS), entry("oom", 0, 320 * MIB, FORWARD, device_free=64 * MIB)]
    traces[1].pop("addr")
    return {"segments": [segment(BASE + i * 384 * MIB, blocks[2 * i:2 * i + 2]) for i in range(4)],
            "device_traces": [traces], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}}


def peaked():
    """512 MiB of weights at the end; before, 768 MiB of activations were there too, and 256 of them went first."""
    activation = BASE + 512 * MIB
    traces = [entry("alloc", BASE, 512 * MIB, WEIGHTS), entry("alloc", activation, 512 * MIB, FORWARD),
              entry("alloc", activation + 512 * MIB, 256 * MIB, OPTIMIZER),
              entry("free_requested", activation + 512 * MIB, 256 * MIB, OPTIMIZER),
              entry("free_completed", activation + 512 * MIB, 256 * MIB, OPTIMIZER),
              entry("free_completed", activation, 512 * MIB, FORWARD)]
    return {"segments": [segment(BASE, [block(512 * MIB, "active_allocated", WEIGHTS), block(768 * MIB, "inactive")], 1)],
            "device_traces": [[], traces], "allocator_settings": {}}


def old():
    """Before 2.1: a list of segments, frames in a block's history."""
    made = segment(BASE, [{"size": 2 * MIB, "state": "active_allocated", "history": [
        {"addr": BASE, "real_size": MIB, "frames": WEIGHTS}]}, {"size": 18 * MIB, "state": "inactive"}])
    return [made]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


def main():
    out, corpus = TESTS / "doctor/snapshots", TESTS / "fuzz/corpus/snapshot"
    for folder in (out, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    for name, value in (("fragmented", fragmented()), ("peaked", peaked()), ("old", old()), ("evil", {"segments": [Evil()]}),
                        ("no-snapshot", {"model": [1, 2.5, None, True]})):
        (out / f"{name}.pickle").write_bytes(pickle.dumps(value, 4))
        (corpus / name).write_bytes(pickle.dumps(value, 4))
    for protocol in (0, 1, 2, 5):
        (corpus / f"peaked-{protocol}").write_bytes(pickle.dumps(peaked(), protocol))
    text = io.BytesIO()
    pickle.Pickler(text, 2, fix_imports=False).dump(old())
    (corpus / "old-2").write_bytes(text.getvalue())


if __name__ == "__main__":
    main()
