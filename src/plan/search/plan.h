// The plan of a run: the variant that fits, its programs, their layout, and what the report says about them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layout/disk_file.h"
#include "passes/keep_frozen.h"
#include "plan/program/experiment.h"
#include "plan/program/graphs.h"
#include "ranks/exchange_way.h"

namespace plimsoll {

// A named part of a memory budget.
struct Component {
  std::string name;
  int64_t bytes = 0;
};

// The needs of the process outside the arena, stated by those who will allocate it.
struct HostNeeds {
  std::vector<Component> components;  // resident at the peak
  int64_t baseline_data_bytes = 0;    // VmData of the process when planning began
  int64_t extra_data_bytes = 0;       // counted by VmData beyond the components: thread stacks at full size
  [[nodiscard]] int64_t total() const;
};

// Budgets in bytes; none: not limited.
struct Budget {
  std::optional<int64_t> device_bytes;  // of its arena; this and the next: where it has memory of its own
  std::optional<int64_t> host_bytes;
  std::optional<int64_t> disk_bytes;
  std::optional<int64_t> process_bytes;  // everything, where device and host are one memory
  bool disk_in_memory = false;           // what is on "disk" is memory (tmpfs) and counts to the process
  bool of_free = false;                  // from what is free now, not stated
  std::string device_source;             // "memory: 5.1GiB", "90 % of 21.3 GiB free"
  std::string host_source;
  int64_t free_bytes = 0;  // on this machine now, whatever the budgets say
  std::optional<int64_t> device_free_bytes =
      {};               // of the card for an arena, likewise; none: it was not asked
  int64_t sharing = 1;  // processes of a machine, which divide its memory and disk
};

// The parts that the recipe wants off the device; each part that is not named stays.
struct OffloadParts {
  bool states = false, gradients = false, weights = false, activations = false;
  [[nodiscard]] bool any() const { return states || gradients || weights || activations; }
};

// Plans other than the fastest (docs/explanation/planner.md): a, the least memory in at most a twentieth more time; b, the
// same with half of its micro-batch; c, the least memory in at most twice the time; least, at any.
enum class Preset : uint8_t { none, a, b, c, least };

// The scratch file that rows are written to for a full shuffle.
struct ScratchFile {
  int64_t bytes = 0;          // of disk; 0: none is needed
  bool exact = true;          // whether they are
  double seconds = 0.0;       // to write it, about
  std::string shortage = {};  // what the disk lacks
};

// A summary of the rows of a run, for the report.
struct DataSummary {
  int64_t rows = 0;           // of an epoch
  int64_t sampled_rows = 0;   // that the rest is estimated from; 0: all rows were read
  int64_t tokens = 0;         // of an epoch, after truncation
  int64_t targets = 0;        // of them, that the loss sees
  double row_length = 0;      // of the row that a token is in, on average
  int64_t longest = 0;        // tokens of a row, before truncation
  int64_t common_length = 0;  // that all but one row in a thousand stay within; 0: not known
  int64_t rows_longer = 0;
  int64_t bytes_per_epoch = 0;
  double truncated_share = 0.0;   // of rows
  double skipped_share = 0.0;     // rows with no target left
  double damaged_share = 0.0;     // rows that cannot be read
  int64_t common_begin = 0;       // tokens that every row begins with
  double shared_share = 0.0;      // of a step's tokens, that its rows begin with alike
  std::string shuffle = {};       // data.shuffle
  std::string rows_read = {};     // held, alone or stored (data/rows/row_access.h)
  double row_read_seconds = 0.0;  // of a row that is read alone
  ScratchFile scratch = {};
  std::vector<std::string> rendering = {};  // how rows become text, where there is something to say of it
};
// "12,000 rows · about 3,400,000 tokens · ..."
std::string data_words(const DataSummary& data);
// "5.2 GiB of disk, ..."; "" where no scratch file is needed.
std::string scratch_words(const DataSummary& data);

// The steps of a run, and what is in one of them on average. Without rows every sequence counts as full.
struct RunSteps {
  int64_t steps = 0;
  double epochs = 0;       // 0: the steps were stated
  bool estimated = false;  // from a sample of the rows
  double tokens = 0;       // of a step; 0: no rows are known
  double rows = 0;
  double targets = 0;
  double row_length = 0;
  int64_t evaluations = 0;
  int64_t eval_rows = 0;
  std::shared_ptr<const std::vector<RowSize>> sizes = {};  // of some rows, spread over all; none: not known
  std::vector<double> shared = {};  // shares of the tokens of 1, 2, 4 ... rows that these begin with alike
};

// The share of tokens that so many rows begin with alike, by those of 1, 2, 4 ... rows.
double shared_by(const std::vector<double>& shared, double rows);

// The use that the process makes of the experiment. Rows go through the evaluation program by themselves in
// `eval`, `score` and `classify`; inspection runs one micro-step and keeps all logits.
enum class Use : uint8_t { train, evaluate, generate, inspect };

// The experiment, what the process does with it, and its data.
struct Workload {
  Experiment experiment;
  Use use = Use::train;
  GenerationShape generation = {};       // of texts that are generated
  bool same_rows = false;                // every epoch visits the same rows, each by itself
  int64_t dataset_rows = 0;              // of all files that are named
  std::optional<DataSummary> data = {};  // for the report
  std::optional<RunSteps> run = {};      // where rows or steps are stated
};

// The recipe's own choices of how the workload is cut and where its tensors are; the planner chooses what is
// absent.
struct Choices {
  std::optional<int64_t> micro_batch;  // the recipe's; none: the planner chooses
  std::optional<int64_t> micro_tokens;
  std::optional<int64_t> eval_micro_batch;
  std::optional<int64_t> loss_chunk;
  std::optional<RecomputeLevels> recompute;
  std::optional<OffloadParts> offload;
  std::optional<OffloadTargets> targets;  // where each part lives, exactly
  std::optional<int64_t> prefetch;        // of transfers
  bool in_part = true;           // parts may be in several places each; tests of the rest leave that out
  bool offload_of_tier = false;  // a tier says what leaves the device
  Preset preset = Preset::none;
  KeepFrozen keep_frozen = KeepFrozen::automatic;
  UseGraphs graphs = UseGraphs::automatic;
  // The experiment shares prefixes because that is faster, and may do without where it does not fit
  // otherwise.
  bool may_stop_sharing = false;
  bool keeps_frozen = false;  // the variants that are searched through
  int64_t kept_bytes = 0;     // of disk beside what they move there, where they do
  double tie = 0.01;          // variants within this share of the fastest are as good
};

struct Plan;

// The bytes per second that a process sends another one while it receives as many, sums included.
struct Link {
  enum class Source : uint8_t { guessed, measured, stated };
  // 0.7 to 1.0 GB/s were measured in shared memory of CPUs.
  double bytes_per_second = 1e9;
  Source source = Source::guessed;
  double share = 0;  // of a GPU's link to the host, where that is what was guessed by
};

// The share of a GPU's link that is left where GPUs exchange data through memory of the host, and from one to the other:
// guesses.
inline constexpr double kLinkThroughHost = 0.3, kLinkBetweenCards = 0.7;

// The device that it runs on, and how much of that it may take.
struct Target {
  DeviceDescription device;
  bool own_memory =
      false;  // the device's memory is not the host's: two budgets, and the host is an offload target
  std::vector<Space> targets;  // where offloaded tensors may go; empty: nothing is offloaded
  Budget budget;
  // Bytes that the host of a card is likely to have, where no recipe states them. Plans that move nothing off
  // the card come first, then those within this, twice and four times as much, and others only where nothing
  // else fits.
  std::optional<int64_t> likely_host_bytes = {};
  HostNeeds host;
  // The host memory of a plan that is laid out, in addition to these: batches, inputs of a card's programs.
  std::function<std::vector<Component>(const Plan&)> host_of = {};
  LayoutOptions layout;
  Link link = {};  // between several devices
  ExchangeWay exchange = ExchangeWay::staged;
  int64_t exchange_bytes = 0;  // of a GPU, that sums are formed in
};

class KnownModels;

// For the report: what the recipe may not mean.
struct RecipeNote {
  std::string text;
  std::string key = {};  // of the recipe, where this plan takes another value than it states
};

struct PlanRequest {
  Workload workload;
  Choices choices;
  Target target;
  std::vector<RecipeNote> notes = {};
  std::vector<std::string> lossy = {};  // means of memory.allow that were taken, for the report
  bool names_knee = false;              // for the report: what takes much less memory for little more time
  // Models that searches of this workload on this device measured, with other choices and budgets.
  std::shared_ptr<KnownModels> measured = {};
  // Called during a search, with the parts of it that are done and all of them.
  std::function<void(size_t, size_t)> progress = {};
};

// A variant with what it costs.
struct Candidate {
  Variant variant;
  bool graphs = false;  // with captured graphs of the programs for which they are worth it
  int64_t arena_bytes =
      0;  // of the device, by its share of what a node has once: lower bound, until it is laid out
  int64_t graph_bytes = 0;  // of a device with memory of its own, beside the arena
  int64_t host_bytes = 0;   // beyond HostNeeds: programs and what is offloaded to the host
  int64_t disk_bytes = 0;
  int64_t disk_traffic = 0;  // bytes read from and written to the disk in a step
  double seconds_per_step = 0;
  double layout_work = 0;  // of the search for its layout (ArenaLayout::work)
};

// A means that changes the result and that the recipe does not allow, with the device bytes of the same
// variant under it.
struct Saving {
  std::string means;
  int64_t device_bytes = 0;
};

// A change of the recipe under which the run would be over sooner, planned for real.
struct Faster {
  std::vector<std::string> sets;  // "data.packing=true"
  std::string effect;             // on the result, in words
  double run_seconds = 0;
  int64_t memory_bytes = 0;  // of what the budget bounds
};

struct Plan {
  PlanRequest request;
  Variant variant;
  std::vector<Graph> programs;
  ArenaLayout layout;
  double seconds_per_step = 0;         // with rows as the request's run has them
  double micro_steps = 0;              // of an optimizer step, likewise
  double fill = 0;                     // of the micro-steps' tokens
  double seconds_per_evaluation = 0;   // of all evaluation rows
  int64_t sent_bytes = 0;              // by each of several devices, in a step
  double sending_seconds = 0;          // of a step: while devices send each other something
  int64_t kept_bytes = 0;              // of disk: what the frozen blocks say of an epoch's rows
  double kept_seconds = 0;             // of the whole run: to compute, write and read them
  Candidate smallest;                  // the least memory of any variant within the other budgets
  std::optional<Candidate> knee = {};  // where the request asks: much less memory for little more time
  std::vector<PlannedGraphs> graphs;   // of each program, where the device is a GPU
  std::vector<Component> host_of;      // what the target's host_of said of it
  int64_t spare_bytes = 0;             // of the device beside the arena: beams change places by way of it
  bool search_ended = false;           // at its limit of work: this is the best found until then
  std::vector<Saving> savings;         // worth telling, for the report
  std::vector<Faster> faster;          // likewise, fastest first

  [[nodiscard]] int64_t arena_bytes() const { return layout.arena_bytes(); }
  [[nodiscard]] int64_t host_arena_bytes() const { return layout.arena_bytes(Space::host); }
  // Bytes of the device's memory, outside the arena.
  [[nodiscard]] int64_t graph_bytes() const { return graphs_part(graphs, request.target.device).counted(); }
  // Bytes of the device, with all that is taken outside the arena for this plan alone.
  [[nodiscard]] int64_t device_bytes() const { return arena_bytes() + spare_bytes + graph_bytes(); }
  // The graphs of the program; 0: none are to be made.
  [[nodiscard]] int graphs_of(const std::string& program) const;
  // All that is outside the arena.
  [[nodiscard]] std::vector<OutsidePart> outside() const;
  [[nodiscard]] int64_t disk_bytes() const { return disk_file_bytes(layout) + kept_bytes; }
  // Everything in the host's memory, by component: the request's needs, the programs, what is offloaded to
  // it, and of what the processes of a node have there once this one's share.
  [[nodiscard]] std::vector<Component> host_components() const;
  [[nodiscard]] int64_t host_bytes() const;
  // The same by what the process maps: with all that the processes of a node have once.
  [[nodiscard]] int64_t host_peak_bytes() const {
    return host_bytes() + layout.shared.of_others(Space::host);
  }
  // In the host's memory: a card's arena is not. Likewise.
  [[nodiscard]] int64_t process_peak_bytes() const {
    return (request.target.own_memory ? 0 : arena_bytes() + spare_bytes) + host_peak_bytes();
  }
  // The process's share of what its node needs, as budgets of processes are; likewise of its arena.
  [[nodiscard]] int64_t arena_share_bytes() const {
    return arena_bytes() - layout.shared.of_others(Space::device);
  }
  [[nodiscard]] int64_t process_share_bytes() const {
    return process_peak_bytes() - layout.shared.of_others();
  }
  // The bytes of the most processes that a node has, and of all on all nodes: what they share counts once a node.
  [[nodiscard]] int64_t node_bytes() const { return bytes_of(request.target.budget.sharing, 1); }
  [[nodiscard]] int64_t bytes_together() const;
  [[nodiscard]] int64_t machines() const;
  // The bytes that memory_budget() bounds.
  [[nodiscard]] int64_t memory_bytes() const;
  // The most that the arena may take: the device's budget, or what the host's needs leave of the process's.
  [[nodiscard]] std::optional<int64_t> arena_budget() const;
  // An upper bound in the kernel's VmData terms.
  [[nodiscard]] int64_t data_bytes() const;
  // Throughput in real tokens, where rows are known.
  [[nodiscard]] double tokens_per_second() const;
  // Seconds of the whole run, steps, evaluations and what is kept; 0 where the request knows of none.
  [[nodiscard]] double run_seconds() const;
  [[nodiscard]] bool fits_device() const;
  [[nodiscard]] bool fits_host() const;
  [[nodiscard]] bool fits_disk() const;
  [[nodiscard]] bool fits_process() const;
  [[nodiscard]] bool fits() const { return fits_device() && fits_host() && fits_disk() && fits_process(); }

 private:
  [[nodiscard]] int64_t bytes_of(int64_t processes, int64_t nodes) const;
};

// A record of a kept row is so many bytes in addition to its tokens.
inline constexpr int64_t kKeptHeadBytes = 32;
// Records of a row: one for each of its sequences. A target that stands apart has none.
int64_t kept_records(const Experiment& experiment);
// The reason why the frozen blocks' outputs cannot be kept; empty: they can.
std::string why_nothing_is_kept(const PlanRequest& request);

// The budget that a plan is made within, the device's or the whole process's, and what a variant takes of it.
// Of a device that is what the arena takes and what is outside of it.
std::optional<int64_t> memory_budget(const PlanRequest& request);
void limit_memory(PlanRequest& request, std::optional<int64_t> bytes);
int64_t memory_bytes(const PlanRequest& request, const Candidate& candidate);

// The only planner. Of training the fastest variant that fits; where none does,
// the smallest one, whose fits() is false. Of other uses the most rows at a
// time that fit, or the fewest. The layout is validated.
Plan make_plan(const PlanRequest& request);
// The same where it fits; else nothing, and no least memory is looked for.
std::optional<Plan> plan_where_it_fits(const PlanRequest& request);

// That variant of the request, laid out and validated, whether it fits or not.
Plan plan_variant(const PlanRequest& request, const Variant& variant);
// The cost of a plan, as it is laid out.
Candidate candidate_of(const Plan& plan);
// The lower bound of that variant's device bytes, without a layout; for deep models by measured depth.
int64_t device_bytes_at_least(const PlanRequest& request, const Variant& variant);

// The component of the device that a tensor of `graph` belongs to. An activation is "kept" where the forward
// pass writes it and the backward pass reads it.
std::string component_name(const Graph& graph, const TableRow& row);

// Device bytes by component, largest meaning first; they sum to the arena. Transient bytes are those alive at
// the peak of the largest program, and what the layout adds to them.
std::vector<Component> device_components(const Plan& plan);

// The bytes on disk, by component.
std::vector<Component> disk_components(const Plan& plan);

// "layers.27 backward, mlp": where the largest program has its peak.
std::string peak_place(const Plan& plan);

// plan/report/report.cc
// In lines of at most `columns`, or 100.
std::string report_text(const Plan& plan, size_t columns = 100);
// The report that fits `rows` lines with a command above and a prompt below: the verdict and the table.
std::string brief_report_text(const Plan& plan, size_t columns, size_t rows);
std::string report_json(const Plan& plan);
// One of "graph", "program", "layout", "table", or the name of a pass: the programs as it leaves them. Throws
// UsageError for another, and for a pass that none of the plan's programs goes through.
std::string dump(const Plan& plan, const std::string& what);
// plan/search/words.cc: "micro-batch 2 x 8, recompute block in 12 of 24 layers, states on disk".
std::string variant_words(const Experiment& experiment, const Variant& variant);

}  // namespace plimsoll
