#!/usr/bin/env python3
"""Faults planted in kernels for GPUs and in what runs them, one at a time: each must be noticed by the emulated card's tests.

Usage: gpu_mutants.py BUILD [NAME ...]   (from the repository's root; the tests of BUILD are built)
       gpu_mutants.py --texts           (only whether each fault's text is still there, once)

A fault is a text of a kernel and what stands in its place. The kernel is compiled anew and runs its cases in the test that compares results in three
orders of threads, until one fails; where none does, in the one that watches every access. A fault of what runs kernels is looked for by
runtime_gpu_test. As many faults at a time as there are CPUs.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

# Kernels that a fault of a header is shown in, and cases that the faults of a kernel, or of a header where it has some of its own, are looked for in.
UNIT = {"src/gpu/device.h": "rms_norm_gpu.cu", "src/ops/optimizer/gpu_optimizer.h": "adamw_gpu.cu",
        "src/ops/scan/gpu_gla.h": "gla_gpu.cu", "src/ops/scan/gpu_gla_decay.h": "gla_cached_gpu.cu", "src/ops/scan/gpu_gla_products.h": "gla_gpu.cu",
        "src/ops/scan/gpu_gla_forward.h": "gla_gpu.cu", "src/ops/scan/gpu_gla_backward.h": "gla_gpu.cu",
        "src/ops/delta/gpu_delta_rule.h": "delta_rule_gpu.cu", "src/ops/delta/gpu_delta_rule_forward.h": "delta_rule_gpu.cu",
        "src/ops/delta/gpu_delta_rule_backward.h": "delta_rule_gpu.cu",
        "src/ops/scan/gpu_gla_tree.h": "gla_gpu.cu", "src/ops/segments.h": "gla_gpu.cu",
        "src/ops/attention/gpu_attention_slots.h": "attention_gpu.cu",
        "src/ops/attention/gpu_attention_tiles.h": "attention_gpu.cu", "src/ops/attention/gpu_attention_extras.h": "attention_gpu.cu",
        "src/ops/attention/gpu_attention_panels.h": "attention_gpu.cu", "src/ops/attention/gpu_attention_plain.h": "attention_gpu.cu",
        "src/ops/attention/gpu_attention_plain_grad.h": "attention_gpu.cu", "src/ops/attention/gpu_attention_trees.h": "attention_trees_gpu.cu",
        "src/ops/gpu_rows.h": "embedding_gpu.cu", "src/ops/gpu_norm_rows.h": "rms_norm_gpu.cu",
        "src/ops/gpu_step.h": "rope_gpu.cu", "src/ops/loss/sequence_loss_math.h": "sequence_losses_gpu.cu"}
PLAIN = ":".join(f"attention_grad_{name}" for name in ("with_bias", "with_a_cap", "of_several_tiles_in_a_window",
                                                       "of_several_tiles_of_160_values_with_bias_and_dropout"))
CASES = {"activations": "relu*:geglu*:gelu*:tanh*", "dora": "dora*",
         "gla": "gla_short:gla_heads_of_64:gla_chunks:gla_grad_chunks:gla_grad_grouped:gla_grad_clamped:gla_over_trees:gla_grad_over_trees", "layer_norm": "layer_norm*",
         "linear_cross_entropy": "log_prob*:cross_entropy*shared*:cross_entropy_grad_of_*logits*", "noise": "*noise*", "sequence_losses": "pair_loss*:class_loss*:preference*",
         "word_scores": "word_scores*", "adamw": "adamw_*", "attention": "attention*", "attention_cached": "attention_cached*",
         "delta_rule": "delta_rule_short:delta_rule_chunks:delta_rule_hard_gates:delta_rule_over_trees:delta_rule_odd:delta_rule_grad_short:"
                       "delta_rule_grad_chunks:delta_rule_grad_grouped:delta_rule_grad_over_trees:delta_rule_grad_in_pieces",
         "delta_rule_cached": "delta_rule_cached*", "delta_gate": "delta_gate*", "sigmoid_gate": "sigmoid_gate*",
         "gla_cached": "gla_cached*", "dropout": "dropout*", "elementwise": "add*:*scale*:*_rows*", "embedding": "embedding*",
         "grad_norm": "grad_*", "matmul": "linear*", "rms_norm": "rms_norm*", "rope": "rope*", "short_conv": "short_conv*",
         "swiglu": "swiglu*",
         "gpu_gla_tree": "gla*_trees",
         "gpu_attention_trees": "attention_grad_over_trees:attention_grad_over_trees_in_a_window:attention_grad_of_trees_of_72_values_in_a_window",
         "gpu_attention_slots": "attention_grad_of_many_sequences:attention_grad_of_several_tiles",
         **dict.fromkeys(("gpu_attention_panels", "gpu_attention_plain", "gpu_attention_plain_grad"), PLAIN)}
# name: (file, text, what stands in its place). The text occurs once in the file.
MUTANTS = {
    "sum of a block without its barrier": ("src/gpu/device.h", "  __syncthreads();\n  T sum = parts[0];", "  T sum = parts[0];"),
    "sum of a warp without its last step": ("src/gpu/device.h", "d > 0; d /= 2) x += __shfl", "d > 1; d /= 2) x += __shfl"),
    "tail of a row not masked": ("elementwise", "gpu::load8(left, a + own.at, own.count, own.whole());", "gpu::load8(left, a + own.at, 8, true);"),
    "tail of a row written": ("elementwise", "gpu::store8(y + own.at, left, own.count, own.whole());", "gpu::store8(y + own.at, left, 8, false);"),
    "rows of one name added by each of them": ("elementwise", "if (Rows::is_repeated(first, id)) return;", "Rows::is_repeated(first, id);"),
    "dead row scattered": ("elementwise", "  if (blockIdx.x >= live_tokens(step, axis)) return;\n", ""),
    "packs at odd addresses": ("rope", "const bool packed = half % gpu::kEight == 0 && a.head_dim % gpu::kEight == 0;", "const bool packed = true;"),
    "rotation the other way": ("rope", "a.inverse ? -1.0F : 1.0F", "a.inverse ? 1.0F : -1.0F"),
    "sequence after the right one": ("src/ops/gpu_step.h", "  return low;", "  return low + 1 < live ? low + 1 : low;"),
    "end of the sequences forgotten": ("src/ops/gpu_step.h", " || token >= starts[high]", ""),
    "one block too few": ("swiglu", "blocks_of(count, kSwigluPerBlock)}, {kSwigluThreads}, swiglu<T>", "blocks_of(count / 2, kSwigluPerBlock)}, {kSwigluThreads}, swiglu<T>"),
    "gradients in each other's place": ("swiglu", "    g = d * u * sigmoid", "    u = d_value;\n    g = d * u * sigmoid"),
    "rows of padding not cleared": ("embedding", "to[i] = W{};\n    return;", "(void)i;\n    return;"),
    "rows beyond the live ones added": ("embedding", "static_cast<int>(live_tokens(step, axis))", "static_cast<int>(gridDim.x)"),
    "a repeated id added twice": ("embedding", "if (id(first) == padding || Rows::is_repeated(first, id)) return;", "Rows::is_repeated(first, id);"),
    "the padding row learnt": ("embedding", "id(first) == padding || ", ""),
    "a gradient never cleared": ("embedding", "  if (!overwrites_gradient(accumulate, step)) return;", "  return;"),
    "a gradient always cleared": ("embedding", "  if (!overwrites_gradient(accumulate, step)) return;", ""),
    "ids looked up in half": ("src/ops/gpu_rows.h", "i < own; i += kThreads", "i < own / 2; i += kThreads"),
    "last row left out": ("rms_norm", "  if (row >= a.rows) return;", "  if (row + 1 >= a.rows) return;"),
    "mean over another width": ("rms_norm", "squares) / static_cast<float>(a.width)", "squares) / static_cast<float>(a.width + 1)"),
    "normalised value not rounded": ("rms_norm", "a.rounds_first ? gpu::to_float(gpu::rounded<T>(n)) : n, sum);", "1.01F * n, sum);"),
    "one more than the weight left out": ("rms_norm", "mean, d_y[i] * (w[i] + a.added))", "mean, d_y[i] * w[i])"),
    "slope of a capped logit left out": ("linear_cross_entropy", "-scale : 0.0F) * slope_of(y, map);", "-scale : 0.0F);"),
    "slope of a capped score left out": ("src/ops/attention/gpu_attention_plain_grad.h", "(kept * d_p - delta) * slope;", "(kept * d_p - delta);"),
    "parts of another block": ("rms_norm", "a.partials[blockIdx.y * a.width + column] = sum;", "a.partials[(blockIdx.y + 1) * a.width + column] = sum;"),
    "parts beyond the last": ("src/ops/gpu_norm_rows.h", "b < blocks; ++b) sum", "b <= blocks; ++b) sum"),
    "gradient added where it is overwritten": ("src/ops/gpu_norm_rows.h", "if (!overwrites_gradient(live.accumulate, live.step)) sum", "sum"),
    "what is added left out": ("rms_norm", "* rstd + before[i];", "* rstd;"),
    "mask of another counter": ("dropout", "static_cast<uint32_t>(counter), words", "static_cast<uint32_t>(counter + 1), words"),
    "not scaled up": ("dropout", "gpu::to_float(a.x[at]) * factor", "gpu::to_float(a.x[at])"),
    "one block's sum lost": ("grad_norm", "block = 0; block < blocks; ++block) total", "block = 1; block < blocks; ++block) total"),
    "all threads write a sum": ("grad_norm", "if (threadIdx.x == 0) partials", "partials"),
    "squares of what is beside": ("grad_norm", "gpu::load8(value, x + at, own, own == gpu::kEight);", "gpu::load8(value, x + at, 8, false);"),
    "coefficients read before they are there": ("src/ops/optimizer/gpu_optimizer.h", "  __syncthreads();\n", ""),
    "the second round of a grid left out": ("src/ops/optimizer/gpu_optimizer.h", "i += int64_t{gridDim.x} * kUpdateThreads)", "i += counters)"),
    "the same bits for two states": ("adamw", "RandomFor::v, own", "RandomFor::m, own"),
    "second moment not corrected": ("adamw", "static_cast<float>(1.0 / sqrt(correction2))", "static_cast<float>(1.0 + 0 * correction2)"),
    "tile read before its copy is there": ("matmul", "    gpu::wait_copies<kStages - 2>();\n    __syncthreads();", "    __syncthreads();"),
    "tile read before all have waited": ("matmul", "    gpu::wait_copies<kStages - 2>();\n    __syncthreads();", "    gpu::wait_copies<kStages - 2>();"),
    "one buffer too few": ("matmul", "tiles + step % kStages", "tiles + step % (kStages - 1)"),
    "a fused adapter scaled as the product is": ("matmul", "if (kRides && step == riding) scale(sums, g.adapter_scale);", ""),
    "a rider's columns of another step": ("matmul", "B::fetch(b_tile(step), g.adapter_b, column0, step * kDepth);", "B::fetch(b_tile(step), g.adapter_b, column0, 0);"),
    "keys replaced while they are read": ("src/ops/attention/gpu_attention_tiles.h", "    __syncthreads();  // the values are there, and everybody has read the keys\n", ""),
    "values replaced while they are read": ("src/ops/attention/gpu_attention_tiles.h", "    __syncthreads();  // the keys are there, and everybody has read the values before\n", ""),
    "keys read before they are there": ("src/ops/attention/gpu_attention_tiles.h", "    gpu::wait_copies<0>();\n    __syncthreads();  // the keys are there, and everybody has read the values before\n", "    __syncthreads();\n"),
    "values read before they are there": ("src/ops/attention/gpu_attention_tiles.h", "    gpu::wait_copies<0>();\n    __syncthreads();  // the values are", "    __syncthreads();  // the values are"),
    "a bias of the distance the other way": ("src/ops/attention/gpu_attention_extras.h", "kSign = kRows == TileRowsAre::queries ? 1 : -1", "kSign = kRows == TileRowsAre::queries ? 1 : 1"),
    "far keys without their bias": ("src/ops/attention/gpu_attention_extras.h", "by_distance[near + last]", "(near == distance ? by_distance[near + last] : 0.0F)"),
    "draws of half the keys": ("src/ops/attention/gpu_attention_extras.h", "kCount == 32 && upper ? words[w + 2] : words[w]", "words[w]"),
    "draws of another warp's keys": ("src/ops/attention/gpu_attention_extras.h", "* 16 + key] >> warp & 1", "* 16 + key] & 1"),
    "draws for keys in one buffer": ("src/ops/attention/gpu_attention_extras.h", "query0, k0, drawn + buffer * kDrawnBytes);", "query0, k0, drawn);"),
    "logits' gradients read before all are there": ("src/ops/attention/gpu_attention_extras.h", "    __syncwarp();\n    float ends[2] = {};", "    float ends[2] = {};"),
    "a bias's sums of far keys left out": ("src/ops/attention/gpu_attention_extras.h", "      sums[0] += behind;\n", ""),
    "a bias's sums of one warp": ("src/ops/attention/gpu_attention_extras.h", "for (int w = 0; w < kWarps; ++w) sum +=", "for (int w = 0; w < 1; ++w) sum +="),
    "a tile read before it is found": ("src/ops/attention/gpu_attention_slots.h", "  __syncthreads();\n  const GpuTile tile = *found;", "  const GpuTile tile = *found;"),
    "a tile replaced while it is read": ("src/ops/attention/gpu_attention_slots.h", "  const GpuTile tile = *found;\n  __syncthreads();\n", "  const GpuTile tile = *found;\n"),
    "tiles of the sequences before looked for again": ("src/ops/attention/gpu_attention_slots.h", "      sought -= all;\n", ""),
    "tiles of a lane's first sequence in the next one's": ("src/ops/attention/gpu_attention_slots.h", "      tile.index -= tiles[i];\n", ""),
    "panels replaced while they are read": ("src/ops/attention/gpu_attention_panels.h", "    gpu::wait_copies<0>();\n    __syncthreads();\n", "    gpu::wait_copies<0>();\n"),
    "panels read before they are there": ("src/ops/attention/gpu_attention_panels.h", "    gpu::wait_copies<0>();\n    __syncthreads();\n", "    __syncthreads();\n"),
    "one buffer for all panels": ("src/ops/attention/gpu_attention_panels.h", "    odd_ = !odd_;\n", ""),
    "values of the next head in a panel": ("src/ops/attention/gpu_attention_panels.h", "row < rows.count && value + at < dim", "row < rows.count"),
    "a bias of the distance the other way, plainly": ("src/ops/attention/gpu_attention_plain.h", "kSign = kRows == TileRowsAre::queries ? 1 : -1", "kSign = kRows == TileRowsAre::queries ? 1 : 1"),
    "sums that do not shrink": ("src/ops/attention/gpu_attention_plain.h", "sums[block][i][v] *= shrink;", "sums[block][i][v] *= shrink > 2 ? 0.0F : 1.0F;"),
    "a key that is not seen": ("src/ops/attention/gpu_attention_plain.h", "columns.has(column0 + plain_column(j))", "columns.has(column0 + plain_column(j) - 1)"),
    "the second part of a head in the first one's place": ("src/ops/attention/gpu_attention_plain.h", "return part * kColumns;", "return 0 * part;"),
    "draws of another row's keys": ("src/ops/attention/gpu_attention_plain.h", "kept.keep(half + 2 * w, j)", "kept.keep(half * 4 + w, j)"),
    "scores replaced while the warp reads them": ("src/ops/attention/gpu_attention_plain_grad.h", "    __syncwarp();  // the warp's rows of scores are free\n", ""),
    "diagonals read before all are summed": ("src/ops/attention/gpu_attention_plain_grad.h", "    __syncthreads();\n    const int here", "    const int here"),
    "far keys left out of a bias's gradient": ("src/ops/attention/gpu_attention_plain_grad.h", "bias.borders[side + 1] : kFar;", "bias.borders[side + 1] : bias.last + 1;"),
    "gradients of dropped probabilities kept": ("src/ops/attention/gpu_attention_plain_grad.h", "d_p = p * (kept * d_p - delta) * slope;", "d_p = p * (d_p - delta) * slope;"),
    "keys of the segment before an ancestor": ("src/ops/attention/gpu_attention_trees.h", "      at = a.trees.parents[at];\n      begin -= length_of(at);", "      begin -= length_of(at);\n      at = a.trees.parents[at];"),
    "keys looked for in the first segment found": ("src/ops/attention/gpu_attention_trees.h", "if (key < near_begin || key >= near_end) find(key);", "if (near_end == 0) find(key);"),
    "queries of grandchildren left out": ("src/ops/attention/gpu_attention_trees.h", "a.trees.parents[own] >= segment", "a.trees.parents[own] == segment"),
    "a window of rows in place of a path's": ("src/ops/attention/gpu_attention_trees.h", "(end == 0 || at.number(query) < end)", "(end == 0 || query < end)"),
    "numbers within segments": ("src/ops/attention/gpu_attention_trees.h", "number += starts[up + 1] - starts[up];", "number += 0 * starts[up];"),
    "queries counted within their segment": ("src/ops/attention/gpu_attention_trees.h", "return before + query;", "return query;"),
    "slope of gelu left out": ("activations", "gpu::fma(x * half * (1.0F - half), slope, half)", "half"),
    "up and gate in each other's place": ("activations", "gate = d * up * curve.derivative;", "gate = d * gate * curve.derivative;"),
    "what is beyond a row in its variance": ("layer_norm", "      if (i < count) squares", "      squares"),
    "two sums in one place": ("layer_norm", "row_sum<kRowThreads, 1>(products)", "row_sum<kRowThreads>(products)"),
    "mean of the gradient left out": ("layer_norm", "d_y[i] * w[i] - mean_g)", "d_y[i] * w[i])"),
    "gradients of dead rows kept": ("src/ops/loss/sequence_loss_math.h", "int64_t i = live() * width; d_scores", "int64_t i = rows * width; d_scores"),
    "two threads add the same": ("sequence_losses", "{1}, {1}, pairs<T>", "{1}, {2}, pairs<T>"),
    "dead rows scored": ("word_scores", "  if (row < live_tokens(step, axis)) {", "  {"),
    "words' gradient never cleared": ("word_scores", "if (at < count && !accumulation.adds())", "if (at < 0 && !accumulation.adds())"),
    "a sequence's first row in the one before": ("linear_cross_entropy", "at >= starts[sequence + 1]) ++sequence", "at > starts[sequence + 1]) ++sequence"),
    "prompts counted as answers": ("linear_cross_entropy", "labels[at] >= 0 ? LogProbOf::answer : LogProbOf::prompt", "LogProbOf::answer"),
    "labels of one row added by each of them": ("linear_cross_entropy", "if (Rows::is_repeated(own, row)) return;", "Rows::is_repeated(own, row);"),
    "a label's weight left out of its gradient": ("linear_cross_entropy", "static_cast<float>(labels.weight(own))", "1.0F"),
    "a label's row that is its own": ("linear_cross_entropy", "labels.row(label) * width", "label * width"),
    "sums of a chunk before left out": ("linear_cross_entropy", "chunk.begin == 0 ? 0.0 : to.exact[place]", "0.0"),
    "a step read before all have brought it": ("src/ops/scan/gpu_gla_products.h", "      __syncthreads();  // the step is there", "      // the step is there"),
    "a step read before its copy is there": ("src/ops/scan/gpu_gla_products.h", "      gpu::wait_copies<kStages - 2>();\n", ""),
    "a chunk that reaches into the next sequence": ("src/ops/scan/gpu_gla.h", "left > 0 ? static_cast<int>(left) : 0;", "left > 0 ? kGlaRows : 0;"),
    "two sequences' chunks in one slot": ("src/ops/scan/gpu_gla.h", "starts[sequence] / kGlaRows + sequence", "starts[sequence] / kGlaRows"),
    "a row that decays by itself": ("src/ops/scan/gpu_gla.h", "    tile[r * kGlaKeyRow<T> + lane] = gpu::rounded<T>(k[r] * decay);\n    decay *= decays[r];", "    decay *= decays[r];\n    tile[r * kGlaKeyRow<T> + lane] = gpu::rounded<T>(k[r] * decay);"),
    "states that do not decay": ("src/ops/scan/gpu_gla_forward.h", "state[j][r] *= decays[r / 2];", "state[j][r] *= decays[r / 2] > 2 ? 0.0F : 1.0F;"),
    "keys replaced by the next 32 while they are read": ("src/ops/scan/gpu_gla_forward.h", "    add_own_scores(own, space, sub);\n    __syncthreads();", "    add_own_scores(own, space, sub);"),
    "a tile of keys read before it is there": ("src/ops/scan/gpu_gla_backward.h", "    put_keys(space.tile, k, decays_there, decay);\n    __syncwarp();", "    put_keys(space.tile, k, decays_there, decay);"),
    "gradients of scores of the rows behind a chunk": ("src/ops/scan/gpu_gla_backward.h", "live ? gpu::load_pack(row_of + j * kGlaSubRows) : gpu::Pack<float>{}", "live || !live ? gpu::load_pack(row_of + j * kGlaSubRows) : gpu::Pack<float>{}"),
    "scores written to the rows behind a chunk": ("src/ops/scan/gpu_gla_forward.h", "i % 2 && row + i < rows)", "i % 2)"),
    "queries replaced by the next head's while they are read": ("src/ops/scan/gpu_gla_backward.h", "  __syncthreads();  // everybody is done with q and d_scores\n", ""),
    "pairs of other sub-chunks left out of the gate": ("src/ops/scan/gpu_gla_backward.h", "sum += space.of_pair(i, j, lane);", "sum += 0.0F * space.of_pair(i, j, lane);"),
    "states before and behind a chunk left out of the gate": ("src/ops/scan/gpu_gla_backward.h", "    if (lane == 0) space.of_states[i] = sum;", "    if (lane == 0) space.of_states[i] = 0.0F * sum;"),
    "gate's gradient where it is clamped": ("src/ops/scan/gpu_gla_backward.h", "gate[r] = free ? ", "gate[r] = free || !free ? "),
    "a bias left out": ("dora", "if (a.bias != nullptr) y +=", "if (a.bias != nullptr) y += 0.0F *"),
    "magnitude's gradient not divided": ("dora", "  sum /= a.lengths[column];\n", ""),
    "lengths of half a row": ("dora", "i < a.in; i += kDoraThreads", "i < a.in / 2; i += kDoraThreads"),
    "noise by another row's length": ("noise", "a.lengths[token]", "a.lengths[0]"),
    "taps that reach the text before": ("short_conv", "parents[segment] < 0) return -1;", "parents[segment] < 0) return token - back < 0 ? -1 : token - back;"),
    "taps in their other order": ("short_conv", "weight[channel * taps + taps - 1 - j]", "weight[channel * taps + j]"),
    "gradient from the text behind": ("short_conv", "token + j < in.end; ++j", "token + j < a.where.tokens && in.end > 0; ++j"),
    "a gradient's first tokens without their far taps": ("short_conv", "    if (row < 0) continue;\n", "    if (row <= in.begin) continue;\n"),
    "keys not appended": ("attention_cached", "    a.k_cache[to * a.width + i] = a.k[row * a.width + i];\n", ""),
    "every sequence appended to the first": ("attention_cached", "a.apart ? row * a.capacity + behind", "a.apart ? behind"),
    "keys behind a chunk's token seen": ("attention_cached", "+ 1 : 0, position + 1}", "+ 1 : 0, position + 2}"),
    "a window one key too wide": ("attention_cached", "position - a.window + 1 : 0", "position - a.window : 0"),
    "the last part of the keys left out": ("attention_cached", "for (; parts < a.parts; ++parts)", "for (; parts + 1 < a.parts; ++parts)"),
    "parts of different tops added as they are": ("attention_cached", "gpu::exp(a.part_sums[own * 2] - top)", "gpu::exp(0.0F)"),
    "outputs before not shrunk": ("attention_cached", "o[r][i] *= shrink[r];", "o[r][i] *= shrink[r] > 0 ? 1.0F : 0.0F;"),
    "weights replaced while they are read": ("attention_cached", "    __syncthreads();  // everybody has read the weights\n", ""),
    "weights read before all are there": ("attention_cached", "    put_weights<R>(rows, logits);\n    __syncthreads();", "    put_weights<R>(rows, logits);"),
    "halves added before they are there": ("attention_cached", "      __syncthreads();\n      if (first < left - half) {", "      if (first < left - half) {"),
    "a state that begins with the last one's": ("gla_cached", "if (!fresh && part.has_column())", "if (part.has_column())"),
    "a state that is not kept": ("gla_cached", "if (i < own) a.state[part.state_at(first + i)] = state[i];", "if (i < own - 1) a.state[part.state_at(first + i)] = state[i];"),
    "a token's row in one buffer": ("gla_cached", "round % 2 * kStateKeys, token_buffer", "0 * kStateKeys, token_buffer"),
    "a round's sums of half the warps": ("gla_cached", "for (int w = 0; w < kStateWarps; ++w) sum +=", "for (int w = 0; w < kStateWarps / 2; ++w) sum +="),
    "a tile of keys left out": ("gla_cached", "for (int tile = 0; tile < tiles; ++tile)", "for (int tile = 1; tile < tiles; ++tile)"),
    "a parent's gradient without its first segment's": ("src/ops/scan/gpu_gla_tree.h", "[](float& kept, float& own) { own += kept; }", "[](float& kept, float& own) { own = kept; }"),
    "a parent's gradient of one segment": ("src/ops/scan/gpu_gla_tree.h", "[](float& kept, float& own) { kept += own; }", "[](float& kept, float& own) { kept = own; }"),
    "a segment that goes on where another ended": ("src/ops/scan/gpu_gla_tree.h", "if (!to.begins() || parent + 1 == to.segment) return;", "return;"),
    "a state kept without the later segments": ("src/ops/scan/gpu_gla_tree.h", "    if (in.parents[s] == from.segment) part.store", "    if (s == from.segment + 1) part.store"),
    "forks in one place": ("src/ops/segments.h", "    number += is_second_child(t, s) ? 1 : 0;", "    number += 0;"),
    "taps at the wrong row of a parent": ("short_conv", "back -= token - begin + 1;", "back -= token - begin;"),
    "rows kept of another place": ("short_conv", "a.kept[r * a.width + channel] = row(r + live);", "a.kept[r * a.width + channel] = row(r + live - 1);"),
    "angles of the tokens' places on the axis": ("rope", "static_cast<double>(a.positions[token]) * static_cast<double>(frequencies[i])", "static_cast<double>(token) * static_cast<double>(frequencies[i])"),
    "a convolution of the first sequence's rows": ("short_conv", "    own.kept += sequence * (taps - 1) * width;\n", ""),
    "a text that goes on from the last one": ("short_conv", "return fresh ? gpu::rounded<T>(0.0F) : a.kept", "return a.kept"),
    "a chunk that starts from another text's state": ("src/ops/delta/gpu_delta_rule_forward.h", "  if (!chunk.first)\n    found.template", "  if (chunk.before >= 0)\n    found.template"),
    "a triangle that begins a row late": ("src/ops/delta/gpu_delta_rule_forward.h", "i > j ? of.gate", "i > j + 1 ? of.gate"),
    "a step replaced while it is read": ("src/ops/delta/gpu_delta_rule.h", "      __syncthreads();  // everybody has done the step before\n", ""),
    "a decay from the chunk's start left out": ("src/ops/delta/gpu_delta_rule_forward.h", "of.gate(a.made.from_start, row) * of.q(row, d)", "of.q(row, d)"),
    "a state for the first segment alone": ("src/ops/delta/gpu_delta_rule_forward.h", "    if (w.in.parents[s] == segment)", "    if (s == segment + 1)"),
    "a gradient of the last segment alone": ("src/ops/delta/gpu_delta_rule_backward.h", "is_last_child(w.in, segment) ? value : sum + value", "is_last_child(w.in, segment) ? value : sum"),
    "a gradient that the text behind left": ("src/ops/delta/gpu_delta_rule_backward.h", "  if (!chunk.last)\n    d_u.template", "  if (chunk.behind >= 0)\n    d_u.template"),
    "sums of half of the tiles of keys": ("src/ops/delta/gpu_delta_rule_backward.h", "for (int d = 4; d > 0; d /= 2) x +=", "for (int d = 2; d > 0; d /= 2) x +="),
    "decays of the whole state left out": ("src/ops/delta/gpu_delta_rule_backward.h", "  sum *= of.whole();", "  sum *= 0.0F;"),
    "a head of the group left out": ("src/ops/delta/gpu_delta_rule_backward.h", "head = key_head * group; head <", "head = key_head * group + group / 2; head <"),
    "a step read before all have brought it": ("src/ops/delta/gpu_delta_rule.h", "      __syncthreads();  // the step is there\n", ""),
    "stretches of which each begins as the last one": ("src/ops/delta/gpu_delta_rule.h", "(next / stretch - 1) % states.between", "0 % states.between"),
    "strengths of padding": ("delta_gate", "    if (row >= live) continue;", "    if (row >= end) continue;"),
    "a state of the text before": ("delta_rule_cached", "if (!fresh && sequence < live", "if (sequence < live"),
    "one state for all sequences": ("delta_rule_cached", "(int64_t{sequence} * a.heads + head) * a.key_dim", "int64_t{head} * a.key_dim"),
    "a key's row read before it is there": ("delta_rule_cached", "    __syncthreads();\n    float found = 0;", "    float found = 0;"),
    "a value in the place of its gate": ("sigmoid_gate", "const float gate = gpu::to_float(a.gate[at])", "const float gate = gpu::to_float(a.x[at])"),
    "noise for padding": ("noise", "if (length > 0) {", "if (length >= 0) {"),
}


# The same of captured graphs (src/runtime/program_graphs.h), and which library holds the file.
CAPTURES = "GpuDevice.*:Spaces/*captured*"
RUNTIME_MUTANTS = {
    "a graph launched whatever was decided": ("plimsoll_runtime", "src/runtime/program_graphs.cc", "return captured.facts == now_;", "return captured.facts.size() == now_.size();"),
    "a graph of the decisions before": ("plimsoll_runtime", "src/runtime/program_graphs.cc", "kept_.push_back({now_, device_.end_capture()});", "kept_.push_back({seen_.front(), device_.end_capture()});"),
    "decisions looked at once": ("plimsoll_runtime", "src/runtime/program_graphs.cc", "  look();\n", "  if (seen_.empty()) look();\n"),
    "captured at once": ("plimsoll_runtime", "src/runtime/program_graphs.cc", "return std::ranges::find(seen_, now_) != seen_.end();", "return true;"),
    "never captured": ("plimsoll_runtime", "src/runtime/program_graphs.cc", "return std::ranges::find(seen_, now_) != seen_.end();", "return false;"),
    "launched, and made one by one as well": ("plimsoll_runtime", "src/runtime/program_graphs.cc", "return device_.launch(*found->graph);", "device_.launch(*found->graph);"),
    "inputs sent within the capture": ("plimsoll_runtime", "src/runtime/executor.cc", "graphs_->run([this, first_job] { run_calls(first_job); });", "graphs_->run([this, first_job] { send_inputs(); run_calls(first_job); });"),
    "the number of live rows no decision": ("plimsoll_ops_gpu", "src/ops/linear/linear_gpu.cu", "return 2 * LiveRows{.step = values, .which = which}.of(planned) +", "return"),
    "whether a gradient is overwritten no decision": ("plimsoll_ops_gpu", "src/ops/linear/linear_gpu.cu", "(Accumulation{accumulate, values}.adds() ? 1 : 0)", "(Accumulation{accumulate, values}.adds() ? 1 : 1)"),
}

TESTS = {"ops_gpu_emulated_test": "plimsoll_ops_gpu", "ops_gpu_checked_test": "plimsoll_ops_gpu_checked"}


def compile_commands(build):
    """{library: {file's name: (folder, words)}}: how its files are compiled. Kernels are mostly compiled with others of their family."""
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        library = re.search(r"-o \S*CMakeFiles/(\w+)\.dir", entry["command"])[1]
        if "cmake_pch" not in entry["file"]:  # precompiled headers
            found.setdefault(library, {})[pathlib.Path(entry["file"]).name] = entry["directory"], shlex.split(entry["command"])
    return found


def way_of(files, name):
    """How one of a library's files is compiled where it is compiled with others: as any is."""
    return files.get(name) or next(iter(files.values()))


def link_words(build, test):
    """The words that link a test, which is named by its place in the build."""
    text = subprocess.run(["ninja", "-C", build, "-t", "commands", "-s", test], capture_output=True, text=True, check=True).stdout
    line = text.strip().splitlines()[-1]
    return shlex.split(line.split("&&")[1])


def compiled(words, place, seconds=None):
    """Runs a compiler or a linker to its end, for so many seconds at most with all that it has started."""
    seconds = seconds or float(os.environ.get("PLIMSOLL_COMPILE_SECONDS", "1800"))
    process = subprocess.Popen(words, cwd=place, start_new_session=True)
    try:
        code = process.wait(seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        sys.exit(f"error: {pathlib.Path(sys.argv[0]).name}: a compiler or linker ran for more than {seconds:g} s and was stopped; on a slow or busy machine "
                 f"set PLIMSOLL_COMPILE_SECONDS to more:\n  {shlex.join(map(str, words))}")
    if code != 0:
        raise subprocess.CalledProcessError(code, words)


def notices(folder, source, chosen, test, build, compiling):
    """What a test says in `chosen` cases of the fault that lies in `folder`; empty: nothing. `source`: what is compiled anew."""
    place, words = compiling
    words, program = [*words], f"{folder}/{pathlib.Path(test).name}"
    words[words.index("-o") + 1] = changed = f"{program}.o"
    copy = pathlib.Path(folder) / source
    words[-1] = str(copy if copy.exists() else pathlib.Path(source).resolve())
    words[words.index("-o"):words.index("-o")] = ["-w", "-x", "c++"]  # kernels are .cu
    compiled([words[0], f"-I{folder}/src", *words[1:]], place)
    # An object that is named comes before the library's, which has the kernels beside it in one object with what it takes the place of.
    linking = link_words(build, test)
    linking[linking.index("-o"):linking.index("-o") + 2] = [changed, "-Wl,--allow-multiple-definition", "-o", program]
    compiled(linking, build)
    try:
        done = subprocess.run([program, f"--gtest_filter={chosen}", "--gtest_fail_fast"], capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "no end"
    failed = re.search(r"^\[  FAILED  \] (?:[\w/]*/)?(\S+?),? ", done.stdout, re.MULTILINE)
    return "" if done.returncode == 0 else failed[1] if failed else "a crash"


def kernels_file(name):
    """Where a file of kernels is: in the folder of its family."""
    return next(pathlib.Path("src/ops").rglob(name))


def place_of(name):
    """The file of a fault, what is in it, and of that what the fault replaces."""
    path, old, _ = MUTANTS[name] if name in MUTANTS else RUNTIME_MUTANTS[name][1:]
    if "/" not in path:
        path = str(kernels_file(f"{path}_gpu.cu"))
    text = pathlib.Path(path).read_text()
    if text.count(old) != 1:
        sys.exit(f"error: gpu_mutants.py: {name}: its text occurs {text.count(old)} times in {path}")
    return path, text, old


def plant_in_runtime(name, build, compiling):
    """The same of a fault of what runs kernels."""
    path, text, old = place_of(name)
    library, new = RUNTIME_MUTANTS[name][0], RUNTIME_MUTANTS[name][3]
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(text.replace(old, new))
        said = notices(folder, path, CAPTURES, "src/runtime/runtime_gpu_test", build, way_of(compiling[library], copy.name))
    print(f"{name:57} {said or 'nothing'}", flush=True)
    return bool(said)


def plant(name, build, compiling):
    """Tells what first says of a fault, and whether anything did."""
    if name in RUNTIME_MUTANTS:
        return plant_in_runtime(name, build, compiling)
    path, text, old = place_of(name)
    new, unit = MUTANTS[name][2], UNIT.get(path, pathlib.Path(path).name)
    cases = CASES.get(pathlib.Path(path).stem) or CASES[unit.removesuffix("_gpu.cu")]
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path
        copy.parent.mkdir(parents=True)
        copy.write_text(text.replace(old, new))
        chosen = ":".join(["GpuOpHarnessBits.*", *(f"*/{case}" for case in cases.split(":"))])
        for test, library in TESTS.items():
            said = notices(folder, str(kernels_file(unit)), chosen, f"src/ops/{test}", build, way_of(compiling[library], unit))
            if said:
                said = f"{'results' if test == next(iter(TESTS)) else 'accesses'}: {said}"
                break
    print(f"{name:57} {said or 'nothing'}", flush=True)
    return bool(said)


def run(usage, names, find, plant_one):
    """The command line of a list of faults: `find` raises where a fault's text is gone, `plant_one` says whether it was noticed."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: {usage} BUILD [NAME ...] | --texts")
    if sys.argv[1] == "--texts":
        for name in names:
            find(name)
        return
    build = pathlib.Path(sys.argv[1]).resolve()
    compiling = compile_commands(build)
    chosen = sys.argv[2:] or names
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as workers:
        noticed = workers.map(lambda name: plant_one(name, build, compiling), chosen)
        missed = [name for name, seen in zip(chosen, noticed) if not seen]
    print(f"{len(chosen)} faults, {len(missed)} not noticed" + "".join(f"\n  {name}" for name in missed))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    run("gpu_mutants.py", [*MUTANTS, *RUNTIME_MUTANTS], place_of, plant)
