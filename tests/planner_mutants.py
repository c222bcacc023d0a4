#!/usr/bin/env python3
"""Faults planted in the planner's bounds and in the terms of its seconds, one at a time: each must be noticed by the planner's tests.

Usage: planner_mutants.py BUILD [NAME ...]   (from the repository's root; plan_test of BUILD is built)
       planner_mutants.py --texts           (only whether each fault's text is still there, once)

A fault is a text of a source and what stands in its place. The source is compiled anew, with the sources that are compiled as one with it
(whose calls may have its functions inlined), and linked before the library, and the tests of its row run until one fails. As many faults
at a time as there are CPUs.
"""
import os
import pathlib
import sys
import tempfile

import gpu_mutants

SEARCH, OFFLOAD, SPACE = "src/plan/search/search.cc", "src/plan/search/search_offload.cc", "src/plan/search/search_space.cc"
SPLITS, LEAST = "src/plan/search/search_splits.cc", "src/plan/search/search_least.cc"
DEPTH, NEEDS, COSTS = "src/plan/search/depth_model.cc", "src/plan/program/program_needs.cc", "src/plan/search/offload_costs.cc"
TIME, SHARES = "src/plan/program/time_model.cc", "src/plan/program/block_shares.cc"
# Tests: of the oracle those cases that say most (deep ones of several homes are asked where nothing else knows, for they take minutes); of
# estimates; of searches.
GETS = "*gets_the_best_variant_that_there_is/"
ORACLE = f"{GETS}full_with_disk:{GETS}full_on_a_card"
TARGETS_ORACLE = f"{GETS}homes_of_full_recomputed:{GETS}homes_of_lora"
DEEP_ORACLE = f"{GETS}deep_lora:{GETS}deep_gla_full_with_disk"
DEEP_TARGETS = f"{GETS}deep_homes_of_full"
LAUNCHES = f"{GETS}launches_*"
DEPTHS, SEARCHES = "DepthModel.*", "Search.*"
# name: (tests, file, text, what stands in its place). The text occurs once in the file.
MUTANTS = {
    # Bounds of seconds.
    "a capacity's seconds by its slowest rows of logits": (ORACLE, SPACE, "capacity.at_least = std::min(capacity.at_least,", "capacity.at_least = 1.1 * std::min(capacity.at_least,"),
    "transfers ahead that hide nothing": (ORACLE, OFFLOAD, ": std::max(base.seconds[i], base.io[i] + io[i]));", ": base.seconds[i] + base.io[i] + io[i]);"),
    "a point's seconds above its own": (ORACLE, SEARCH, "  return least.seconds >= limits.seconds;\n}\n\n// By what a frame takes when", "  return 1.2 * least.seconds >= limits.seconds;\n}\n\n// By what a frame takes when"),
    "splits slower than their faster end": ("Search.seconds_of_a_part*", SPLITS, "return std::min(few.seconds, all.seconds) >= limits.seconds ||", "return 1.1 * std::max(few.seconds, all.seconds) >= limits.seconds ||"),
    "seconds of a line by its slower end": ("Search.looks_between*", OFFLOAD, "    between.io[i] = std::min(one.io[i], other.io[i]);", "    between.io[i] = std::max(one.io[i], other.io[i]);"),
    "two layers ahead wait as long as one": ("DepthModel.two_layers*", DEPTH, "    usage.busy += program.count * std::max(program.compute[chunk].at(blocks), program.io.at(blocks));", "    usage.busy += program.count * seconds;"),
    # Bounds of bytes.
    "gradients of few layers that leave room": (f"{GETS}homes_of_t5", SEARCH, "std::ranges::min(depths_) > kCopiesOfGradients", "std::ranges::min(depths_) > 0 * kCopiesOfGradients"),
    "segments with more alive than there is": (f"{GETS}lora_without:{GETS}lora_on_two_devices", "src/plan/search/search_blocks.cc", "  return alive_in_segments(shares, spot.segment, !moves_activations(spot.frame)) + across_blocks(spot);", "  return 2 * alive_in_segments(shares, spot.segment, !moves_activations(spot.frame)) + across_blocks(spot);"),
    "a floor with all that is kept": (ORACLE, OFFLOAD, "base.floor = floor.device - base.persistent[index(Space::device)];", "base.floor = 2 * base.transient.front() + 0 * floor.device;"),
    "a floor of what moves, by its own program": ("Search.leaves_out_no_frame*", SEARCH, "  const bool moves = moves_activations(frame);\n", "  const bool moves = frame > frames_.size();\n"),
    "a floor that keeps what layers keep": (DEEP_ORACLE, DEPTH, "bytes = std::max(bytes, at.base - kept);", "bytes = std::max(bytes, at.base + 0 * kept);"),
    "a floor of an op with its workspace": (f"{ORACLE}:{DEEP_ORACLE}", NEEDS, "most = std::max(most, alive + touched[i] - workspace);", "most = std::max(most, 2 * (alive + touched[i]) - 0 * workspace);"),
    "copies counted with what stays": (f"{ORACLE}:{TARGETS_ORACLE}", OFFLOAD, "  return usage.of(Space::device) - usage.persistent[index(Space::device)];\n}\n\nSearch::Least", "  return usage.of(Space::device);\n}\n\nSearch::Least"),
    "bytes of a line with what more layers keep": ("DepthModel.mixtures*", DEPTH, "at.base + at.slope[0] * (layers - kSampledFirst));", "at.base + at.slope[0] * layers);"),
    "a line that keeps the most at both points": ("DepthModel.mixtures*", DEPTH, "at.base - kSampledFirst * at.slope[0] +", "at.base +"),
    "what a block two below keeps, twice": ("BlockShares.*", SHARES, "block = std::max<int64_t>(kNoBlock, place - 1);", "block = std::max<int64_t>(kNoBlock, place - 2);"),
    "a line with the most of its first layers": ("BlockShares.*", SHARES, "    amount += block < first_layers - 2 ? more : std::min(more, 0.0);", "    amount += 1.1 * more;"),
    "segments whose last block is repeated too": ("BlockShares.*", SHARES, "i < segment_end(begin, segment, blocks); ++i)", "i <= segment_end(begin, segment, blocks); ++i)"),
    "gradients beside all blocks that only the first one leaves": ("BlockShares.*", SHARES, "  std::vector<char> before(graph.tensors().size());", "  std::vector<char> before(graph.tensors().size(), 1);"),
    "a tie by the bytes of the whole process": ("Search.ties_are*", OFFLOAD, "  if (limits.of_ties) return variant;", "  if (limits.of_ties) return variant + request_.target.host.total();"),
    "what is too large for the host is so for the device": (f"{ORACLE}:{SEARCHES}", SEARCH, "if (exceeds(DepthModel::Floor{floor->device, 0}, limits)) excluded.on_device.push_back(frame);", "excluded.on_device.push_back(frame);"),
    "no less than what moves less": (ORACLE, SEARCH, "moves_all_of(moves, keeps) && has_no_less_capacity(larger, frame);", "has_no_less_capacity(larger, frame);"),
    "a capacity that is no smaller, by its rows": (f"{ORACLE}:*rows_of_many_lengths", SEARCH, "known_.no_less_capacity[frames_[larger].capacity][frames_[frame].capacity] != 0;", "true;"),
    "the least memory found at the first place": (f"{ORACLE}:{TARGETS_ORACLE}", SEARCH, "if (frames_[frame].whole && fits_easily(least, limits)) known_.done", "known_.done"),
    "a tight host counts as free": (f"{ORACLE}:{TARGETS_ORACLE}", SEARCH, "return keeps(host + host / kSpare, limits.budget.host_bytes) &&", "return keeps(host / kSpare, limits.budget.host_bytes) &&"),
    "parts in part are never the least": (TARGETS_ORACLE, SPLITS, "    return fits_easily(least_of(capacity, choice_with(frame, split, target)), limits);", "    return target != Space::device || fits_easily({}, limits);"),
    "all layers of a split move": (f"{TARGETS_ORACLE}:{DEEP_TARGETS}", SPLITS, "    return device + freed - costs.of_first(split.part, target, count).freed <= *limits.budget.device_bytes;", "    return count < 0 && device + freed < 0;"),
    "all layers of a split move, at each point": (f"{TARGETS_ORACLE}:{DEEP_TARGETS}", SPLITS, "      return device - costs.of_first(split.part, target, count).freed <= *limits.budget.device_bytes;", "      return count < 0 && device < 0;"),
    "all layers of a split of activations move": (f"{TARGETS_ORACLE}:{DEEP_TARGETS}:{DEEP_ORACLE}", SPLITS, "  const double share = std::min(1.0, (stays - most) / (stays - moves));", "  const double share = 1 + 0 * most;"),
    "what a split has on disk, on the host": ("PartsInPart.*", SPLITS, "  if (split.disk) least.host = std::min(least.host, of_few.host);", "  if (split.disk) least.host = std::max(least.host, of_few.host);"),
    "blocks of segments that are not counted": (DEPTHS, NEEDS, "      amount.base += of_block * static_cast<Amount>(more);", "      amount.base += of_block * static_cast<Amount>(more - 1);"),
    "splits too large with the most rows of logits": (f"{GETS}homes_of_full", SPLITS, "small.chunk = frames_[frame].chunks.size() - 1;", "small.chunk = 0;"),
    "a part's bytes on the wrong offload target": (f"{ORACLE}:{TARGETS_ORACLE}", OFFLOAD, "(target == Space::disk ? least.disk : least.host) += amount.taken;", "(target == Space::host ? least.disk : least.host) += amount.taken;"),
    "what a part frees counted twice": (f"{ORACLE}:{TARGETS_ORACLE}", OFFLOAD, "least.device -= amount.freed;", "least.device -= amount.freed / 2;"),
    "the traffic of a part counted twice": (ORACLE, OFFLOAD, "disk[i] += amount.disk[i];", "disk[i] += 2 * amount.disk[i];"),
    # What is looked at, and what is taken.
    "no place between the ends of a line": (f"{ORACLE}:{DEEP_ORACLE}", SEARCH, "  for (const int64_t place : places) offer(at(place), limits, visit);\n}\n\n// Recomputation", "  for (const int64_t place : places)\n    if (place == end) offer(at(place), limits, visit);\n}\n\n// Recomputation"),
    "the most layers of a split in place of the fewest": (f"{TARGETS_ORACLE}:{DEEP_ORACLE}", SPLITS, "  if (is_out(low)) return;\n  spot.target = place(low);", "  if (is_out(low)) return;\n  spot.target = place(most);"),
    "the least memory in the smallest micro-steps alone": ("Search.the_least_memory_is*", LEAST, "  add_larger_capacities(spots, limits, least);\n", ""),
    "nothing behind a layout that misses the host": ("LeastMemory.*", LEAST, "  constexpr int kRounds = 4;", "  constexpr int kRounds = 1;"),
    "copies of a split as of what is outside of the layers": ("LeastMemory.*", SPLITS, "bytes *= copied_share_;", "bytes *= 1;"),
    "no second layer of prefetch": ("Search.starts_transfers_two*recomputed*", OFFLOAD, "if (choice.prefetch < 2 || request_.choices.prefetch) return true;", "if (choice.prefetch < 2 || request_.choices.prefetch) return true;\n  if (choice.prefetch == 2) return false;"),
    "the first that fits is the fastest": (f"{ORACLE}:{SEARCHES}", SEARCH, "    left.seconds = worth * best->usage.seconds;", "    left.seconds = 0.5 * worth * best->usage.seconds;"),
    "a tie that is twice as wide": (f"{ORACLE}:{SEARCHES}", SEARCH, "limits.seconds = best.usage.seconds * (1 + std::max(tie, kSameSeconds));", "limits.seconds = best.usage.seconds * (1 + std::max(4 * tie, kSameSeconds));"),
    "a layout above its bound is taken": (f"{SEARCHES}:{ORACLE}", SEARCH, "  const int64_t device = usage.of(Space::device) + slack;", "  const int64_t device = usage.of(Space::device) - usage.of(Space::device) / 16 + slack;"),
    # Terms of seconds.
    "launches without seconds": (LAUNCHES, SEARCH, "  usage.seconds += cost.seconds;", "  usage.seconds += 0 * cost.seconds;"),
    "graphs without bytes": (LAUNCHES, SEARCH, "    usage.bytes[index(Space::device)] += cost.graph_bytes;", "    usage.bytes[index(Space::device)] += 0 * cost.graph_bytes;"),
    "a wait for the transfer before the last": (DEPTHS, NEEDS, "waits[i] = count - number + 1;", "waits[i] = count - number + 2;"),
    "the queue takes nothing from computing": (DEPTHS, NEEDS, "compute_ += ops[i].contention;", "compute_ += 0 * ops[i].contention;"),
    "no op waits for its transfer": (DEPTHS, NEEDS, "compute_ = std::max(compute_, complete_[complete_.size() - waits[i]]);", "compute_ = std::max(compute_, 0 * complete_[complete_.size() - waits[i]]);"),
    "stretches that are not repeated": (f"{DEPTHS}:{SEARCHES}", NEEDS, "seconds.slope[stretch.slot] += queues.compute() - before;", "seconds.slope[stretch.slot] += 0.5 * (queues.compute() - before);"),
    "one rate for all rows of logits": (DEPTHS, NEEDS, "for (const LossOp& loss : losses_) ops[loss.at].seconds = loss.seconds[chunk];", "for (const LossOp& loss : losses_) ops[loss.at].seconds = loss.seconds[0];"),
    "a program that runs once": (f"{DEPTHS}:{ORACLE}", DEPTH, "usage.seconds += program.count * seconds;", "usage.seconds += std::min(1.0, program.count) * seconds;"),
    "the disk read as fast as it writes": (DEPTHS, NEEDS, "op.on_disk ? (op.fetches ? disk_read_ : disk_write_)", "op.on_disk ? disk_write_"),
    "activations that stay where they were": (DEPTHS, NEEDS, "    std::swap(on_host, on_disk);", "    on_host.swap(on_host);"),
    "traffic of a twin's offload targets": (DEPTHS, NEEDS, "  needs.disk_traffic = {};\n  needs.moves_disk = false;", "  needs.moves_disk = false;"),
    "seconds of a split by one of its offload targets": ("Search.seconds_of_a_part*", SPLITS, "      usage.seconds += shares[i] * end.seconds;", "      usage.seconds = std::max(usage.seconds, end.seconds);"),
    "a late line that is not remembered": (f"{SEARCHES}:{DEEP_ORACLE}", SEARCH, "usage.seconds *= found->second;", "usage.seconds *= 1;"),
    "what is outside of layers, moved twice": ("OffloadCosts.*", COSTS, "if (where.on_disk > 0) amount.add(of_first(part, target, where.on_disk), -1);", "if (where.on_disk > 0) amount.add(of_first(part, target, where.on_disk), 0);"),
    "transfers as fast as the memory": ("TimeModel.*:DepthModel.*", TIME, "return cost_of(graph, op).bytes / (target == Space::disk ? file_rate : rates.host_copy);", "return cost_of(graph, op).bytes / (target == Space::disk ? file_rate : rates.bandwidth);"),
}


def place_of(name):
    _, path, old, _ = MUTANTS[name]
    text = pathlib.Path(path).read_text()
    if text.count(old) != 1:
        sys.exit(f"error: planner_mutants.py: {name}: its text occurs {text.count(old)} times in {path}")
    return path, text


def unit_of(files, path, folder):
    """What is compiled for the copy of `path` that lies in `folder`, and how: the copy, or the unit of several sources that has it."""
    for name, way in files.items():
        unit = pathlib.Path(way[1][-1])
        original = str(pathlib.Path(path).resolve())
        if name.startswith("unity_") and f'"{original}"' in (text := unit.read_text()):
            (pathlib.Path(folder) / name).write_text(text.replace(original, f"{folder}/{path}"))
            return name, way
    return path, files[pathlib.Path(path).name]


def plant(name, build, compiling):
    chosen, path, old, new = MUTANTS[name]
    text = place_of(name)[1]
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(text.replace(old, new))
        unit, way = unit_of(compiling["plimsoll_plan"], path, folder)
        said = gpu_mutants.notices(folder, unit, chosen, "src/plan/plan_test", build, way)
    print(f"{name:57} {said or 'nothing'}", flush=True)
    return bool(said)


if __name__ == "__main__":
    os.environ["PLIMSOLL_ORACLE_TIMES"] = "3"  # budgets as often, and cases of `make oracle` alone
    gpu_mutants.run("planner_mutants.py", [*MUTANTS], place_of, plant)
