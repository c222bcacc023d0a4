#include "runs/run_record.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/shell_word.h"
#include "base/strings.h"
#include "base/units.h"
#include "plan/search/run_time.h"
#include "runs/metrics.h"

namespace plimsoll {
namespace {

using Json = nlohmann::ordered_json;

Json best_json(const std::optional<BestStep>& best) {
  if (!best) return nullptr;
  return {
      {"step", best->step}, {"eval_loss", best->eval_loss}, {"metric", best->goal}, {"value", best->value}};
}

// Live tokens over what all micro-steps had room for.
double fill_of(const Plan& plan, const RunRecord& record) {
  const Experiment& experiment = plan.request.workload.experiment;
  const MicroCapacity micro_step = experiment.train_capacity(plan.variant);
  const int64_t targets = experiment.has_targets() ? experiment.logit_rows(micro_step) : 0;
  const int64_t capacity = experiment.batch_shape(micro_step, 1).tokens + targets;
  if (record.work.micro_steps == 0) return 0;
  return static_cast<double>(record.work.passed) /
         static_cast<double>(experiment.ranks * record.work.micro_steps * capacity);
}

// The share of the rows' tokens that passed through the model with another row's.
double shared_of(const RunRecord& record) {
  if (record.work.tokens == 0) return 0;
  return 1 - static_cast<double>(record.work.passed) / static_cast<double>(record.work.tokens);
}

}  // namespace

void StepTimes::reserve(int64_t steps) {
  for (auto* values : {&seconds_, &rates_}) values->reserve(static_cast<size_t>(steps));
}

void StepTimes::add(double seconds, double tokens_per_second) {
  if (seconds_.size() == seconds_.capacity()) return;
  seconds_.push_back(seconds);
  rates_.push_back(tokens_per_second);
}

double StepTimes::median_seconds() const { return median_after_warmup(seconds_); }
double StepTimes::median_rate() const { return median_after_warmup(rates_); }

namespace {

Json ranks_json(const std::vector<RankRecord>& ranks) {
  Json list = Json::array();
  for (const RankRecord& rank : ranks)
    list.push_back({{"process_peak_rss_bytes", rank.peak_rss},
                    {"process_data_bytes", rank.data},
                    {"device_arena_bytes", rank.device_bytes},
                    {"shared_bytes", rank.shared_bytes},
                    {"exchange_bytes", rank.exchange_bytes},
                    {"sent_bytes", rank.sent_bytes},
                    {"sending_seconds", rank.sending_seconds},
                    {"loaded_bytes", rank.loaded_bytes}});
  return list;
}

void add_ranks(const Plan& plan, const RunRecord& record, Json& json) {
  json["ranks"] = ranks_json(record.ranks);
  json["planned"]["exchange_bytes"] = plan.request.target.exchange_bytes;
  json["planned"]["shared_bytes"] = plan.layout.shared.bytes;
  json["planned"]["bytes_together"] = plan.bytes_together();
  json["measured"]["bytes_together"] = record.bytes_together(plan.machines());
}

void add_loss_scale(const LossScale& scale, Json& json) {
  json["loss_scale"] = scale.value;
  json["skipped_steps"] = scale.skipped_steps;
}

}  // namespace

void write_run_json(RunFolder& output, const Plan& plan, const RunRecord& record, const StepTimes& times) {
  Json json = {
      {"finished", record.finished},
      {"planned",
       {{"device_arena_bytes", plan.arena_bytes()},
        {"host_arena_bytes", plan.host_arena_bytes()},
        {"disk_bytes", plan.disk_bytes()},
        {"scratch_bytes", plan.request.workload.data ? plan.request.workload.data->scratch.bytes : 0},
        {"process_peak_rss_bytes", plan.process_peak_bytes()},
        {"process_data_bytes", plan.data_bytes()},
        {"seconds_per_step", plan.seconds_per_step}}},
      {"measured",
       {{"device_arena_bytes", record.device_bytes},
        {"host_arena_bytes", record.host_bytes},
        {"disk_bytes", record.disk_bytes},
        {"scratch_bytes", record.scratch_bytes},
        {"process_peak_rss_bytes", record.memory.peak_rss},
        {"process_data_bytes", record.memory.data},
        {"process_file_bytes", record.memory.files},
        {"seconds_per_step", times.median_seconds()}}},
      {"steps", record.steps},
      {"tokens_per_second", times.median_rate()},
      {"seconds", record.seconds},
      {"final_loss", record.final_loss},
      {"eval_loss", record.eval_loss ? Json(*record.eval_loss) : Json(nullptr)},
      {"best", best_json(record.best)},
      {"data_wait_seconds", record.data_wait_seconds},
      {"offload_wait_seconds", record.offload_wait_seconds},
      {"variant",
       {{"micro_batch", plan.variant.micro_batch},
        {"micro_tokens", plan.variant.micro_tokens},
        {"accumulation", plan.variant.accumulation},
        {"loss_chunk", plan.variant.loss_chunk}}},
      {"micro_steps", record.work.micro_steps},
      {"fill", fill_of(plan, record)},
      {"shared", shared_of(record)},
      {"lossy", plan.request.lossy},
      {"rows",
       {{"truncated", record.rows.truncated},
        {"without_targets", record.rows.without_targets},
        {"damaged", record.rows.damaged}}},
      {"kernels", record.kernels}};
  if (record.loss_scale) add_loss_scale(*record.loss_scale, json);
  if (record.card)
    json["card"] = {{"name", plan.request.target.device.card_name},
                    {"memory_bytes", record.card->total},
                    {"arena_bytes", record.card->arena},
                    {"planned_outside_bytes", outside_bytes(plan.request.target.device)},
                    {"outside_bytes", record.card->beside},
                    {"grown_bytes", record.card->grown},
                    {"planned_graph_bytes", plan.graph_bytes()},
                    {"graphs", record.card->graphs.graphs},
                    {"graph_nodes", record.card->graphs.nodes},
                    {"graph_bytes", record.card->graphs.bytes},
                    {"products", record.products},
                    {"host_bytes", record.card->on_host}};
  if (!record.ranks.empty()) add_ranks(plan, record, json);
  output.write("run.json", json.dump(2) + "\n");
}

int64_t RunRecord::bytes_together(int64_t machines) const {
  int64_t bytes = machines * ranks.front().shared_bytes;
  for (const RankRecord& rank : ranks) bytes += rank.peak_rss - rank.shared_bytes;
  return bytes;
}

std::string above_plan(const ProcessMemory& measured, int64_t planned, bool card) {
  constexpr int64_t kCode = 32 * kMiB;  // of the files' pages, what the plan's component "program" is for
  const int64_t above = measured.peak_rss - planned;
  if (above <= 0) return "";
  if (!card && above <= measured.files - kCode)
    return formatted(
        "{} above the plan are pages of the program's own files that the kernel mapped ahead; it takes them "
        "back when memory is short",
        format_bytes(above));
  return formatted("the process took {} more than planned (what --profile records is no part of the plan)",
                   format_bytes(above));
}

namespace {

// The command that puts a question to the run's result, so that it can be pasted as it is, and what separates it from
// the next one. Encoders of masked words answer none: where there are rows for it they are evaluated.
std::string question(const TaskRule& rule, const std::string& folder, bool evaluated) {
  if (rule.scores && rule.pairs)
    return formatted("plimsoll score {} --prompt \"...\" --response \"...\" · ", folder);
  if (rule.scores) return formatted("plimsoll classify {} --text \"...\" · ", folder);
  if (rule.masks) return evaluated ? formatted("plimsoll eval {} · ", folder) : "";
  return formatted("plimsoll generate {} --prompt \"...\" · ", folder);
}

}  // namespace

void report_end(RunObserver& progress, const std::filesystem::path& output, const Plan& plan,
                const RunRecord& record, const StepTimes& times, bool whole) {
  const double per_step = times.steps() == 0 ? 0 : record.seconds / static_cast<double>(times.steps());
  const auto row = [](const char* what, int64_t arena, int64_t process, double seconds) {
    return formatted("        {}   process {}   {} a step   arena {} bytes", what, format_bytes(process),
                     format_seconds(seconds), format_count(arena));
  };
  progress.event(formatted(
      "done    {}{}{} · loss {}{}{} · {}", format_count(record.steps),
      record.steps == 1 ? " step in " : " steps in ", format_seconds(record.seconds),
      std::to_string(record.final_loss),
      record.eval_loss ? " · eval " + std::to_string(*record.eval_loss) : "",
      record.best ? formatted(" · best {} at {}", record.best->goal, format_count(record.best->step)) : "",
      output.string()));
  progress.event(row("planned ", plan.arena_bytes(), plan.process_peak_bytes(), plan.seconds_per_step));
  progress.event(row("measured", record.device_bytes, record.memory.peak_rss, per_step));
  if (const std::string note = above_plan(record.memory, plan.process_peak_bytes(), record.card.has_value());
      !note.empty())
    progress.event("note    " + note);
  if (record.work.micro_steps > 0)
    progress.event(formatted("        filled     {} % of {} micro-steps with tokens",
                             format_count(std::llround(100 * fill_of(plan, record))),
                             format_count(record.work.micro_steps)));
  if (plan.request.workload.experiment.shares_prefixes)
    progress.event(
        formatted("        shared     {} % of the rows' tokens, computed once (data.share_prefixes)",
                  format_count(std::llround(100 * shared_of(record)))));
  if (const std::string rows = words(record.rows); !rows.empty())
    progress.event("        rows       " + rows);
  const TaskRule& rule = rule_of(plan.request.workload.experiment.task.task);
  const std::string folder = quoted(output.string());
  if (!whole)
    progress.event(
        "note    the base of this adapter was random (init: random) and is in no folder: nothing can ask it");
  progress.event(formatted("        next       {}plimsoll report {}",
                           whole ? question(rule, folder, record.eval_loss.has_value()) : "", folder));
}

namespace {

// "4 x 4 = 16", or where rows fill micro-steps "16 in micro-steps of 2,048 tokens".
std::string batch_words(const Plan& plan) {
  const Variant& variant = plan.variant;
  const std::string effective = format_count(plan.request.workload.experiment.effective_batch);
  if (plan.request.workload.experiment.train_capacity(variant).by_tokens())
    return formatted("{} in micro-steps of {} tokens", effective, format_count(variant.micro_tokens));
  return formatted("{} x {} = {}", format_count(variant.micro_batch), format_count(variant.accumulation),
                   effective);
}

// The limit of the process, or how much of its memory others have too: then its share counts, and not all of it.
std::string limit_words(const Plan& plan) {
  const auto& budget = plan.request.target.budget.process_bytes;
  const int64_t shared = plan.layout.shared.bytes;
  if (shared > 0) return formatted(" ({} of it shared)", format_bytes(shared));
  return budget ? " of " + format_bytes(*budget) : "";
}

}  // namespace

std::string plan_line(const Plan& plan, int64_t steps) {
  const std::vector<std::string>& lossy = plan.request.lossy;
  const int64_t ranks = plan.request.workload.experiment.ranks;
  return formatted("plan    {} {}{} · {} · {}{}{}{}",
                   ranks > 1 ? formatted("each of {} processes", ranks) : "process",
                   format_bytes(plan.process_peak_bytes()), limit_words(plan), batch_words(plan),
                   format_count(steps), steps == 1 ? " step" : " steps",
                   plan.request.workload.run ? " · about " + duration_words(plan.run_seconds()) : "",
                   lossy.empty() ? "" : " · lossy: " + join(lossy, ", "));
}

std::string products_note(const Plan& plan) {
  const Isa isa = plan.request.target.device.isa;
  if (plan.request.workload.experiment.precision.scales_loss())
    return "note    fp16 is slow on a CPU, which multiplies it as f32: bf16 takes as much memory and is "
           "faster";
  if (plan.request.workload.experiment.precision.compute != DType::bf16 || isa >= Isa::avx512_bf16) return "";
  return formatted("note    no bf16 products with {}: bf16 values are multiplied as f32", to_string(isa));
}

}  // namespace plimsoll
