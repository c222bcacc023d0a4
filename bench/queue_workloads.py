#!/usr/bin/env python3
"""Workloads for `plimsoll queue simulate`, always the same ones: bench/queue_workloads.py NAME > workload.json

    a        60 jobs on 4 devices of 40,000 MiB, all at once
    b        the same, arriving over four hours
    c        1,000 jobs of 10 to 20 % of a device, 5 to 30 minutes, memory that grows for 60 s, on 16 devices; headroom 5 %
    d        c with estimates that are off by a factor (lognormal, sigma 0.2), 1 % of jobs that leak, and a margin of 25 %
    d0       d without a margin
"""
import json
import math
import random
import sys

SEED = 19
MIB = 1 << 20
DEVICE = 40_000 * MIB


def machine(devices, headroom=0.0, margin=0.0):
    return {"headroom": headroom, "margin": margin,
            "devices": [{"name": f"gpu{i}", "bytes": DEVICE} for i in range(devices)]}


def mixed_jobs(draw, arriving):
    """Small, middle and whole-device jobs of 10 minutes to 2 hours; every tenth takes two devices."""
    jobs = []
    for number in range(60):
        share = draw.choice((0.15, 0.25, 0.4, 0.6, 0.9)) * draw.uniform(0.9, 1.1)
        jobs.append({"name": f"job {number + 1}", "arrives": round(draw.uniform(0, 4 * 3600)) if arriving else 0,
                     "seconds": round(draw.uniform(600, 7200)), "bytes": int(share * DEVICE),
                     "devices": 2 if number % 10 == 9 else 1, "ramp_seconds": 60})
    return sorted(jobs, key=lambda job: job["arrives"])


def small_jobs(draw, sigma=0.0, leaking=0.0):
    jobs = []
    for number in range(1000):
        estimate = draw.uniform(0.10, 0.20) * DEVICE
        seconds = round(draw.uniform(300, 1800))
        peak = estimate * math.exp(sigma * draw.gauss(0, 1))
        job = {"name": f"job {number + 1}", "seconds": seconds, "bytes": int(estimate), "peak_bytes": int(peak),
               "ramp_seconds": 60}
        if draw.random() < leaking:  # three times its peak by its end
            job["leak_bytes_per_second"] = int(2 * peak / seconds)
        jobs.append(job)
    return jobs


def workload(name):
    draw = random.Random(SEED)
    if name in ("a", "b"):
        return {"machine": machine(4), "jobs": mixed_jobs(draw, name == "b")}
    if name == "c":
        return {"machine": machine(16, headroom=0.05), "jobs": small_jobs(draw)}
    return {"machine": machine(16, headroom=0.05, margin=0.25 if name == "d" else 0.0),
            "jobs": small_jobs(draw, sigma=0.2, leaking=0.01)}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in ("a", "b", "c", "d", "d0"):
        sys.exit(__doc__)
    print(json.dumps(workload(sys.argv[1])))


if __name__ == "__main__":
    main()
