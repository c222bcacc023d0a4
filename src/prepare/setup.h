// Turns a recipe into the inputs of planning and running: experiment, device, data, host needs, budgets.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_template.h"
#include "data/batch/loader.h"
#include "ops/cpu_kernel.h"
#include "plan/search/plan.h"
#include "prepare/resolved.h"
#include "recipe/recipe.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {

// The model, the recipe's method and precision. A PEFT folder in `adapter` decides rank, scale and targets.
// Throws UsageError.
Experiment read_experiment(const Resolved& resolved);

// Returns true if the experiment's adapters are of the table of token embeddings too.
bool adapts_embedding(const Experiment& experiment);

// Says what adapters over new random weights (init: random) are good for; "" for another recipe.
std::string random_base_note(const Recipe& recipe);

// Throws UsageError where a run that begins would put adapters over random weights although the model's
// folder has weights.
void require_base(const Recipe& recipe);

// The reference of preferences is the frozen base: throws UsageError where a part of it trains.
void require_frozen_reference(const Experiment& experiment);

struct DataSetup;
// Throws UsageError, naming the key, for what a run on several devices does not do so far. Without `data` (null) nothing
// that depends on rows is refused.
void refuse_with_several_devices(const Recipe& recipe, const DataSetup* data);

struct PlannedMachine;
// The link between the devices of the recipe: as stated, as measured on this machine, else a guess.
Link link_of(const Recipe& recipe, const PlannedMachine& machine, const DeviceDescription& device);
// Several cards exchange by NCCL where memory.exchange asks for it: `auto` is the staged way until that was measured.
ExchangeWay exchange_way(const Recipe& recipe);
// Throws UsageError where memory.exchange is for devices that the recipe does not have.
void refuse_exchange(const Recipe& recipe);
// The memory that NCCL takes on a GPU, with what sums are formed in, and of a process; empty for the staged way.
std::vector<OutsidePart> exchange_parts(const Recipe& recipe);
std::vector<Component> exchange_on_host(const Recipe& recipe);
// The target's link, with the rate of what ops send over it, and what cards exchange by.
void take_link(const Recipe& recipe, const PlannedMachine& machine, Target& target);

// Returns true if memory.tier says what several devices divide: memory.shard does not.
bool tier_divides(const Recipe& recipe);
// The parts that the devices of the recipe divide among themselves.
ShardStage shard_stage(const Recipe& recipe);
// The key of a plan's notes about them.
inline constexpr const char* kShardKey = "memory.shard";

// The processes of a machine that hold frozen weights once; 1: each has a copy of its own.
int64_t node_ranks(const Recipe& recipe, const PlannedMachine& machine);
// The reason why nothing is left that memory.shard: weights could divide: matrices of layers below adapters are there
// once for all. Empty where something is.
std::string needs_no_division(const Recipe& recipe, const PlannedMachine& machine);
// Has the request count once what the processes of a machine share.
void take_node_copy(const Recipe& recipe, const PlannedMachine& machine, PlanRequest& request);

// The setting that computes with whole weights before training, such as "method.dora: true": devices cannot divide
// weights then. Empty where nothing does.
std::string needs_whole_weights(const Recipe& recipe);

struct MachineOptions {
  std::optional<Isa> max_isa;
  int64_t threads = 0;     // 0: one per CPU of the process's mask
  double link = 0;         // bytes per second between several devices, as stated; 0: as measured, or a guess
  int64_t nodes = 1;       // machines that share the devices
  int64_t on_node = 0;     // the most devices that one of them has; 0: they share evenly
  int64_t free_bytes = 0;  // of memory, on the one that has least; 0: of this one
  int64_t card_free_bytes = 0;  // of the card that has least, for an arena; 0: of this process's
};
CpuSettings cpu_settings(const MachineOptions& options);

// A machine that is planned for: this one, or another one.
struct PlannedMachine {
  CpuSettings cpu;
  bool elsewhere = false;                         // what is free here says nothing of it
  std::shared_ptr<const DeviceRates> rates = {};  // measured there; none: those known here
  double link = 0;                                // as stated; 0: not
  int64_t nodes = 1;                              // of this kind, which share the devices
  int64_t on_node = 0;                            // MachineOptions::on_node
  int64_t free_bytes = 0;                         // MachineOptions::free_bytes
  int64_t card_free_bytes = 0;                    // likewise
};
// The devices of each node, or of the one that has most.
int64_t devices_of_node(const Recipe& recipe, int64_t nodes, int64_t on_node);
// As the options say, where threads may be more than this process may use; with `file`, which
// `calibrate --export` wrote, that machine. Throws UsageError, DamagedError.
PlannedMachine planned_machine(const MachineOptions& options, const std::string& file);

// Checks a recipe for a card that is named: throws UsageError where that does not compute in its precision.
void require_card_computes(const Recipe& recipe);

// Describes the device of a recipe that computes in `compute` on the card that it names, where it names one.
// Throws UsageError for what its card does not do.
DeviceDescription device_of(const Recipe& recipe, const std::optional<PlannedCard>& card, DType compute,
                            const PlannedMachine& machine);

// The purpose that rows are read for: scores alone need no labels.
enum class Reads : uint8_t { to_learn, to_score };

// The reading of rows of files: what a recipe says of it, and the columns that were found by that. Rows
// that another recipe reads alike are open already.
struct RowReading {
  struct Requested {
    std::vector<TrainSource> sources;
    RowErrors on_error = RowErrors::stop;
    Task task = Task::sft;
    std::optional<std::string> glue;
    std::optional<RowFormat> format;
    std::map<std::string, std::string> names;  // data.columns
    bool as_trl = false;
    int64_t rules = kReading;  // data.reading
    Reads reads = Reads::to_learn;
    int64_t most_rows = kAllRows;
    friend bool operator==(const Requested&, const Requested&) = default;
  };
  Requested requested;
  ColumnBinding columns;
};

// Training and evaluation rows with what turns them into token ids. Of rows some are read for the plan.
struct DataSource {
  Dataset dataset;
  RowReading reading;
  RowSubset rows;
  ExampleEncoder encoder;
  LoaderOptions loader;
};
// The lengths of rows. After a sample, longer ones may come.
struct RowLengths {
  int64_t max_length = 0;                                                // that they were cut to
  int64_t longest_sequence = 0, longest_target = 0, longest_sample = 0;  // as in DataStatistics
  int64_t longest_shared = 0, common_begin = 0;
  std::shared_ptr<const std::vector<RowSize>> sizes = {};  // of training rows
};
struct DataSetup {
  std::shared_ptr<const Tokenizer> tokenizer;  // none when rows carry ids
  SpecialTokens special;
  std::optional<DataSource> train;
  std::optional<DataSource> eval;
  std::optional<ChatTemplate> chat;  // of the training rows
  std::vector<std::string> labels;   // of the classes, as in Resolved
  std::optional<DataSummary> summary;
  std::vector<double> shared;           // as in DataStatistics, of training rows
  std::optional<RowLengths> lengths;    // of training and evaluation; none: any row may be as long as allowed
  std::optional<int64_t> packed_steps;  // of the first epoch, where rows are packed and all of them were read
  int64_t dropped_rows = 0;             // too long, and left out
  int64_t total_steps = 0;              // for whoever trains: total_steps() below
};

// The counting of rows: if rows beyond a sample are read to know how long they are, who is notified of it
// (rows done, and all), and the threads that read them.
struct Counting {
  bool every_row = false;
  std::function<void(int64_t, int64_t)> progress = {};
  int64_t threads = 1;
};
DecoderTokens decoder_tokens(const EncoderDecoderSpec& model);
// A tokenizer file of the folder is loaded.
// `full_rows`: as though any row might be as long as the recipe allows. `opened`: rows of another recipe;
// files that it reads alike are not opened again.
DataSetup open_data(const Resolved& resolved, const Counting& counting = {}, bool full_rows = false,
                    const DataSetup* opened = nullptr);

// The first rows of each file, as they are read and as they would be if nothing were cut.
struct FirstRows {
  DataSetup data;  // without evaluation rows; of its summary the rendering alone
  ExampleEncoder whole;
};
FirstRows open_first_rows(const Resolved& resolved, int64_t count);

// A note about rows with tools that their chat template prints nowhere; else "".
std::string unprinted_tools_note(const DataSetup& data);

// Rows or texts that a model is to score, and how: the encoder's task is that of a reward model asked for one
// answer at a time, where it is.
struct RowsToScore {
  ExampleEncoder encoder;
  std::optional<DataSource> source;  // none: texts are given
};
// data.train, or with none texts: of a classifier one or `two`, of a reward model an answer and its prompt.
// With a model that `talks`, prompt and response are rendered as a conversation.
RowsToScore open_to_score(const Resolved& resolved, bool talks, bool two);

// The recipe with its data.max_length, where null says that of the longest row: every row is encoded for it,
// once. `opened` as for open_data().
Resolved with_length(const Resolved& resolved, int64_t threads = 1, const DataSetup* opened = nullptr);

// Optimizer steps of the run. With packing and no schedule.max_steps all rows are encoded for it, once.
int64_t total_steps(const Recipe& recipe, DataSource& train, int64_t threads = 1);

// The steps of the run and what is in them, by what opening its data found, else by rows that are stated; none
// where neither rows nor steps are named.
std::optional<RunSteps> run_steps(const Recipe& recipe, const DataSetup* data,
                                  const std::optional<StatedRows>& stated = std::nullopt);

PlanRequest plan_request(const Resolved& resolved, const PlannedMachine& machine, const DataSetup* data);

}  // namespace plimsoll
