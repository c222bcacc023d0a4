#include "infer/generator.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "formats/convert.h"
#include "graph/op_kind.h"
#include "ops/step_values.h"
#include "plan/program/experiment.h"
#include "plan/search/workloads.h"
#include "prepare/host_needs.h"

namespace plimsoll {

namespace {

const TableRow& logits_row(const Plan& plan) { return *plan.layout.find_persistent("logits"); }

// Logits as floats, and as a card has them.
std::vector<Component> host_of_logits(const Plan& plan, bool is_card) {
  const TableRow& row = logits_row(plan);
  return {{"logits", row.shape.elements() * int64_t{sizeof(float)} + (is_card ? row.bytes : 0)}};
}

Experiment experiment_of(const GenerationRequest& request) {
  Experiment experiment;
  experiment.model = request.model;
  experiment.precision.compute = request.compute;
  experiment.lora = request.lora.has_value();
  if (request.lora) experiment.lora_options = *request.lora;
  experiment.quantised = request.quantisation.has_value();
  if (request.quantisation) experiment.quantisation = *request.quantisation;
  return experiment;
}

}  // namespace

GenerationPlan plan_generation(GenerationRequest request, const InferenceDevice& device) {
  request.prefill = std::min(request.prefill, request.context);
  PlanRequest requested;
  requested.workload = {
      .experiment = experiment_of(request), .use = Use::generate, .generation = request.shape()};
  requested.choices.graphs = device.graphs;
  requested.target = answering_target(
      device, requested.workload.experiment,
      [is_card = device.is_card()](const Plan& plan) { return host_of_logits(plan, is_card); });
  requested.target.budget = InferenceMemory(device).budget();
  return {std::move(request), device, make_plan(requested)};
}

void require_fit(const GenerationPlan& plan) {
  const int64_t graphs_on_host = plan.plan.request.target.own_memory ? 0 : plan.plan.graph_bytes();
  const auto refusal =
      InferenceMemory(plan.device)
          .refusal("generation", {plan.plan.device_bytes(), plan.plan.host_bytes() - graphs_on_host});
  if (!refusal) return;
  throw DoesNotFitError(
      formatted("{} with a context of {} tokens{} --context and --precision bf16 make it smaller", *refusal,
                format_count(plan.request.context),
                plan.request.sequences > 1
                    ? formatted(" and {} beams; fewer of them,", format_count(plan.request.sequences))
                    : std::string(";")));
}

Generator::Generator(GenerationPlan plan, RunObserver& observer)
    : plan_(std::move(plan)),
      session_(open_session(plan_.plan, plan_.device, {}, observer)),
      spare_(plan_.plan.spare_bytes > 0 ? session_.device->map(plan_.plan.spare_bytes) : nullptr),
      first_(plan_.plan.programs[0], plan_.plan.layout.programs[0], *session_.device,
             session_.memory.arenas(), {.graphs = plan_.plan.graphs_of(plan_.plan.programs[0].name())}),
      decode_(plan_.plan.programs[1], plan_.plan.layout.programs[1], *session_.device,
              session_.memory.arenas(), {.graphs = plan_.plan.graphs_of(plan_.plan.programs[1].name())}),
      logits_(static_cast<size_t>(plan_.request.model.vocab * plan_.request.sequences)),
      stored_logits_(plan_.device.is_card() ? static_cast<size_t>(logits_row(plan_.plan).bytes) : 0),
      cache_(written_cache(plan_.plan.programs, plan_.plan.layout)) {
  cached_.reserve(static_cast<size_t>(plan_.request.context));
}

void Generator::begin(std::span<const int32_t> prompt, bool go_on) {
  check_prompt(prompt);
  if (!encodes()) return prefill(prompt, go_on);
  read_source(prompt);
  cached_.clear();
  length_ = 0;
  const auto start = static_cast<int32_t>(plan_.request.model.encoder_decoder->start_token);
  feed(decode_, std::vector<int32_t>(static_cast<size_t>(plan_.request.sequences), start), 1);
}

void Generator::prefill(std::span<const int32_t> prompt, bool go_on) {
  const GenerationRequest& request = plan_.request;
  const auto chunk = static_cast<size_t>(request.prefill);
  // Frequencies that depend on the length make another cache for another length.
  const RopeSpec& rope = request.model.rope;
  if (request.sequences > 1 || rope.type == RopeType::dynamic ||
      is_far(std::ssize(prompt)) != is_far(length_))
    cached_.clear();
  const auto known = static_cast<size_t>(
      std::mismatch(cached_.begin(), cached_.end(), prompt.begin(), prompt.end() - 1).first -
      cached_.begin());
  size_t kept = go_on ? known : std::min(known, whole_chunks_) / chunk * chunk;
  // A state has taken in all of its text: no part of it can be left out again.
  if (request.model.carries_state() && (!go_on || known != cached_.size())) kept = 0;
  const bool from_chunks = kept % chunk == 0 && kept <= whole_chunks_;
  whole_chunks_ = (from_chunks ? prompt.size() : std::min(whole_chunks_, kept)) / chunk * chunk;
  cached_.resize(kept);
  length_ = static_cast<int64_t>(kept);
  computed_ += static_cast<int64_t>(prompt.size() - kept);
  for (size_t at = kept; at < prompt.size(); at += chunk)
    feed(first_, prompt.subspan(at, std::min(chunk, prompt.size() - at)),
         static_cast<int64_t>(prompt.size()));
  if (request.sequences > 1) reorder(std::vector<int32_t>(static_cast<size_t>(request.sequences), 0));
}

bool Generator::is_far(int64_t length) const {
  const RopeSpec& rope = plan_.request.model.rope;
  return rope.type == RopeType::longrope && length > rope.original_length;
}

void Generator::write_next(int32_t token) {
  if (is_far(length_ + 1) == is_far(length_)) return feed(decode_, {&token, 1}, length_ + 1);
  std::vector<int32_t> text = cached_;
  text.push_back(token);
  prefill(text, false);
}

void Generator::generate(std::span<const int32_t> prompt, int64_t max_new, const ChooseToken& choose,
                         const OnToken& on_token, bool go_on) {
  check_internal(plan_.request.sequences == 1, "generate: beams are for search");
  begin(prompt, go_on);
  for (int64_t number = 0; number < max_new; ++number) {
    const int32_t token = choose(logits_, number);
    if (!on_token(token) || number + 1 == max_new || length_ == plan_.request.context) return;
    write_next(token);
  }
}

std::vector<Hypothesis> Generator::search(std::span<const int32_t> prompt, int64_t max_new,
                                          const BeamOptions& options,
                                          const std::vector<int32_t>& end_tokens) {
  check_internal(plan_.request.sequences == options.beams, "search: a plan of other beams");
  require_one_rope(std::ssize(prompt), max_new);
  begin(prompt, false);
  // The last token of an answer is not cached.
  BeamSearch beams(options, plan_.request.model.vocab, end_tokens,
                   std::min(max_new, plan_.request.context - length_ + 1));
  while (beams.step(logits_)) {
    reorder(beams.parents());
    feed(decode_, beams.tokens(), length_ + 1);
  }
  return beams.best();
}

void Generator::require_one_rope(int64_t prompt, int64_t max_new) const {
  const int64_t end = std::min(prompt + max_new - 1, plan_.request.context);  // the last token is not read
  if (is_far(prompt) == is_far(end)) return;
  throw UsageError(formatted(
      "beams may not continue past {} tokens, where this model's RoPE (longrope) changes: the prompt has {} tokens, the "
      "answer up to {}; use --num-beams 1 or --max-new-tokens {}",
      format_count(plan_.request.model.rope.original_length), format_count(prompt), format_count(max_new),
      plan_.request.model.rope.original_length - prompt + 1));
}

void Generator::check_prompt(std::span<const int32_t> prompt) const {
  if (prompt.empty()) throw UsageError("the prompt is empty; it needs at least one token");
  const int64_t longest = encodes() ? plan_.request.source : plan_.request.context;
  if (static_cast<int64_t>(prompt.size()) > longest) {
    throw UsageError(formatted("the prompt has {} tokens, the context only {}",
                               format_count(static_cast<int64_t>(prompt.size())), format_count(longest)));
  }
  for (const int32_t id : prompt) {
    if (id < 0 || id >= plan_.request.model.vocab) {
      throw UsageError(formatted("token id {} is not in the model's vocabulary of {}", id,
                                 format_count(plan_.request.model.vocab)));
    }
  }
}

namespace {

// Writes the inputs that a program reads of one token axis.
void write_tokens(const Executor& program, const std::string& prefix, std::span<const int32_t> ids) {
  const auto input_ids = program.input<int32_t>(prefix + "input_ids");
  std::fill(input_ids.begin(), input_ids.end(), 0);
  std::copy(ids.begin(), ids.end(), input_ids.begin());
  const auto starts = program.input<int32_t>(prefix + "seq_starts");
  starts[0] = 0;
  starts[1] = static_cast<int32_t>(ids.size());
}

class Step {
 public:
  explicit Step(const Executor& program) : values_(program.input<double>(kStepTensor)) {
    std::fill(values_.begin(), values_.end(), 0.0);
    set(StepValue::first_micro_step, 1.0);
  }
  void set(StepValue which, double value) { values_[static_cast<size_t>(which)] = value; }
  void set_live(AxisId axis, int64_t tokens) {
    set(live_tokens_of(axis), static_cast<double>(tokens));
    set(live_sequences_of(axis), 1.0);
  }

 private:
  std::span<double> values_;
};

}  // namespace

void Generator::read_source(std::span<const int32_t> source) {
  source_length_ = static_cast<int64_t>(source.size());
  write_tokens(first_, "", source);
  Step(first_).set_live(kFirstAxis, source_length_);
  first_.run();
}

void Generator::feed(const Executor& program, std::span<const int32_t> ids, int64_t sequence) {
  const GenerationRequest& request = plan_.request;
  const auto rows = static_cast<int64_t>(ids.size());
  const bool chunk = &program == &first_ || request.sequences == 1;
  // Inputs share the transient arena with everything else: all of them are written before each run.
  const std::string prefix = encodes() ? "decoder." : "";
  write_tokens(program, prefix, ids);
  const auto positions = program.input<int32_t>(prefix + "positions");
  std::fill(positions.begin(), positions.end(), 0);
  for (size_t i = 0; i < ids.size(); ++i)
    positions[i] = static_cast<int32_t>(length_) + (chunk ? static_cast<int32_t>(i) : 0);
  const ModelSpec& model = request.model;
  for (size_t which = 0; which <= model.other_ropes.size(); ++which)
    if (const std::string input = rope_input(which); program.has(input))
      rope_frequencies(which == 0 ? model.rope : model.other_ropes[which - 1], model.rotary(), sequence,
                       program.input<float>(input));
  const auto last_row = program.input<int32_t>("last_row");
  for (size_t i = 0; i < last_row.size(); ++i)
    last_row[i] = static_cast<int32_t>(chunk ? rows - 1 : static_cast<int64_t>(i));
  Step step(program);
  if (encodes()) step.set_live(kFirstAxis, source_length_);
  step.set_live(encodes() ? kFirstAxis + 1 : kFirstAxis, rows);
  step.set(StepValue::kv_length, static_cast<double>(length_));
  program.run();
  length_ += chunk ? rows : 1;
  if (request.sequences == 1) cached_.insert(cached_.end(), ids.begin(), ids.end());
  read_logits();
}

void Generator::read_logits() {
  const TableRow& row = logits_row(plan_.plan);
  const PersistentState& now = state();
  std::span<const std::byte> stored = stored_logits_;
  if (now.in_memory(row)) {
    stored = now.bytes(row);
  } else {
    now.read(row, 0, stored_logits_);
  }
  convert(stored, row.dtype, std::as_writable_bytes(std::span(logits_)), DType::f32);
  if (!std::all_of(logits_.begin(), logits_.end(), [](float x) { return std::isfinite(x); }))
    throw StoppedError(formatted(
        "the model's logits are not finite after token {}: its weights are damaged, or --precision fp32 "
        "is needed",
        format_count(length_)));
}

namespace {

// Returns true if a tensor of the cache has a row for each token of a sequence; else it is a state of all of them.
bool has_rows_of_tokens(const Graph& decode, const TableRow& row) {
  return std::ranges::any_of(decode.ops(), [&](const Op& op) {
    return op.kind == OpKind::attention_cached && std::ranges::any_of(op.outputs, [&](TensorId id) {
             return id != kNoTensor && decode.tensor(id).name == row.name;
           });
  });
}

}  // namespace

void Generator::reorder(std::span<const int32_t> parents) {
  const Arenas arenas = session_.memory.arenas();
  std::byte* const spare = spare_->data();
  for (const TableRow* row : cache_) {
    std::byte* const all = arenas.address(*row);
    const size_t part = static_cast<size_t>(row->bytes) / parents.size();
    size_t live = part;
    if (has_rows_of_tokens(plan_.plan.programs.back(), *row))
      live = part / static_cast<size_t>(plan_.request.context) * static_cast<size_t>(length_);
    const auto moves = [&](size_t i) { return static_cast<size_t>(parents[i]) != i; };
    for (size_t i = 0; i < parents.size(); ++i)
      if (moves(i))
        session_.device->copy(spare + i * live, {all + static_cast<size_t>(parents[i]) * part, live});
    for (size_t i = 0; i < parents.size(); ++i)
      if (moves(i)) session_.device->copy(all + i * part, {spare + i * live, live});
  }
}

}  // namespace plimsoll
