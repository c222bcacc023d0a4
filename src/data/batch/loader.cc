#include "data/batch/loader.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "data/batch/row_memory.h"
#include "data/batch/statistics.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

// At worst: one row's text, the JSON it is parsed to, and its ids before truncation.
constexpr int64_t kRowScratchBytes = 8 * kMiB;

int64_t thread_stack_bytes() {
  pthread_attr_t attributes;
  if (pthread_getattr_default_np(&attributes) != 0) throw InternalError("the threads' stack size is unknown");
  size_t bytes = 0;
  pthread_attr_getstacksize(&attributes, &bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<int64_t>(bytes);
}

void check_options(const LoaderOptions& options) {
  if (options.effective < 1) throw UsageError("batch.effective: at least 1 sequence is needed.");
  if (options.prefetch < 1) throw UsageError("data.prefetch: at least 1 batch is needed.");
}

int64_t planned_row(const Dataset& dataset, const LoaderOptions& options) {
  return std::max(options.longest_row, dataset.longest_row());
}

}  // namespace

SequenceShape sequence_shape(const LoaderOptions& options, const SampleRules& samples) {
  const int64_t sequences = rule_of(samples.task.task).sequences;
  const int64_t longest = options.packing || options.joined ? 0 : options.longest_sample;
  return {longest > 0 ? longest : samples.longest_sample(),
          options.packing ? packed_documents(samples.max_length) : sequences, targets_of(samples.task), false,
          sequences};
}

LoaderMemory plan_loader_memory(const Dataset& dataset, const RowSubset& subset, const SampleRules& samples,
                                const LoaderOptions& options) {
  LoaderMemory memory;
  memory.long_row_bytes = options.row_memory.value_or(most_row_memory(planned_row(dataset, options)));
  memory.queue_bytes = (options.prefetch + 1) *
                       EffectiveBatch::planned_bytes(options.effective, sequence_shape(options, samples));
  const int64_t order_bytes = row_order_bytes(dataset.units());
  const int64_t held_bytes = plan_access(dataset, options.order).held_bytes;
  memory.rows_bytes = dataset.expected_bytes(held_bytes) + order_bytes + subset.bytes();
  // A pair of numbers for each row, where the loss needs those of the model before training
  // (train/reference_log_probs.h).
  if (samples.task.preference.reference == Preference::Reference::given)
    memory.rows_bytes += dataset.rows() * 2 * int64_t{sizeof(float)};
  memory.slack_bytes =
      dataset.bound_bytes(held_bytes) - dataset.expected_bytes(held_bytes) + kRowScratchBytes;
  memory.thread_stack_bytes = thread_stack_bytes();
  return memory;
}

Loader::Loader(Dataset dataset, RowSubset subset, ExampleEncoder encoder, const LoaderOptions& options)
    : dataset_(std::move(dataset)),
      reader_(dataset_, std::move(subset), options.order),
      encoder_(std::move(encoder)),
      options_(options) {
  check_options(options_);
  dataset_.cap_memory(plan_access(dataset_, options_.order).held_bytes);
  if (options_.longest_row > 0) {
    const int64_t longest = std::max(planned_row(dataset_, options_), kAlwaysPlannedRow);
    dataset_.limit_values(std::min(kMostRowValues, longest / kValueSize));
    encoder_.limit_rows(longest);
  }
  slots_.reserve(static_cast<size_t>(options_.prefetch + 1));
  for (int64_t i = 0; i <= options_.prefetch; ++i)
    slots_.emplace_back(options_.effective, sequence_shape(options_, encoder_.samples()));
}

Loader::~Loader() { stop(); }

void Loader::store_rows(const std::filesystem::path& folder,
                        const std::function<void(int64_t, int64_t)>& progress) {
  if (plan_access(dataset_, options_.order).kind == AccessKind::stored) dataset_.store_rows(folder, progress);
}

int64_t Loader::steps_per_epoch() const { return ceil_div(rows(), options_.effective); }

void Loader::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void Loader::start(const DataPosition& position) {
  if (position.epoch < 0 || position.index < 0 || position.index >= rows())
    throw UsageError(formatted(
        "{}: row {} of epoch {} is asked for, an epoch has {} rows. The data changed since the "
        "checkpoint was written.",
        dataset_.name(), format_count(position.index), format_count(position.epoch), format_count(rows())));
  stop();
  produced_ = taken_ = released_ = 0;
  finished_ = false;
  error_ = nullptr;
  thread_ = std::jthread([this, position](const std::stop_token& token) {
    if (options_.on_thread_start) options_.on_thread_start();
    run(token, position);
  });
}

const EffectiveBatch* Loader::next() {
  std::unique_lock lock(mutex_);
  check_internal(thread_.joinable(), "a loader was asked for a batch before start()");
  released_ = taken_;
  changed_.notify_all();
  const auto ready = [this] { return produced_ > taken_ || finished_ || error_ != nullptr; };
  if (!ready()) {
    const auto begin = std::chrono::steady_clock::now();
    changed_.wait(lock, ready);
    wait_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  // Batches prepared before an error come first: where a run stops does not depend on timing.
  if (produced_ > taken_) return &slots_[static_cast<size_t>(taken_++) % slots_.size()];
  if (error_ != nullptr) std::rethrow_exception(error_);
  return nullptr;
}

EffectiveBatch* Loader::free_slot(const std::stop_token& token) {
  std::unique_lock lock(mutex_);
  const auto slots = static_cast<int64_t>(slots_.size());
  if (!changed_.wait(lock, token, [&] { return produced_ - released_ < slots; })) return nullptr;
  return &slots_[static_cast<size_t>(produced_) % slots_.size()];
}

void Loader::run(const std::stop_token& token, DataPosition position) {
  try {
    while (options_.epochs == 0 || position.epoch < options_.epochs) {
      EffectiveBatch* slot = free_slot(token);
      if (slot == nullptr || token.stop_requested()) return;
      if (options_.on_batch) options_.on_batch(true);
      prepare(position, *slot);
      if (options_.on_batch) options_.on_batch(false);
      position = slot->next;
      const std::lock_guard lock(mutex_);
      ++produced_;
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    finished_ = true;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
  }
  changed_.notify_all();
}

// Rows were read once before the run, which has room for the longest of them.
void Loader::require_as_counted(const Example& example, int64_t row) const {
  const auto tokens = std::ssize(example.ids);
  if (options_.packing || options_.longest_sample == 0 || tokens <= options_.longest_sample) return;
  if (!example.learns()) return;  // no batch has it
  throw UsageError(
      formatted("{}: has {} tokens, the longest row had {} when the run was planned: the data changed since. "
                "Start the run again.",
                dataset_.where(row), format_count(tokens), format_count(options_.longest_sample)));
}

void Loader::encode(const DataPosition& position) {
  const DataPosition place{position.epoch, position.index};
  if (held_ == place) return;
  row_ = reader_.encode(place.epoch, place.index, encoder_, example_);
  held_ = place;
  if (options_.on_example) options_.on_example(row_, example_);
}

DataPosition Loader::add_rows(DataPosition position, EffectiveBatch& batch) {
  // With packing the first row that finds no room begins the next batch, and is encoded once more for it.
  const int64_t limit = options_.packing ? rows() : std::min(position.index + options_.effective, rows());
  for (; position.index < limit; ++position.index) {
    held_ = {-1, 0};
    encode(position);
    require_as_counted(example_, row_);
    if (!batch.add(example_, row_)) break;
  }
  return position;
}

bool Loader::fills_another(DataPosition position) {
  int64_t tokens = -position.token;
  for (; position.index < rows(); ++position.index) {
    encode(position);
    tokens += std::ssize(example_.ids);
    if (tokens >= encoder_.samples().max_length) return true;
  }
  return false;
}

// A sequence that the epoch's last tokens do not fill is left out, as other programs do.
DataPosition Loader::add_joined(DataPosition position, EffectiveBatch& batch) {
  const auto length = static_cast<size_t>(encoder_.samples().max_length);
  const bool masks = rule_of(encoder_.samples().task.task).masks;
  Example sequence;
  std::vector<int32_t>& ids = sequence.ids;
  while (position.index < rows() && batch.sequences() < options_.effective) {
    encode(position);
    if (!example_.damage.empty()) batch.add(example_, row_);
    if (position.token > std::ssize(example_.ids))
      throw UsageError(formatted(
          "{}: has {} tokens, and {} are used already: the data changed since the "
          "checkpoint was written.",
          dataset_.where(row_), format_count(std::ssize(example_.ids)), format_count(position.token)));
    const auto from = example_.ids.begin() + static_cast<std::ptrdiff_t>(position.token);
    const auto taken =
        std::min<std::ptrdiff_t>(example_.ids.end() - from, static_cast<std::ptrdiff_t>(length - ids.size()));
    ids.insert(ids.end(), from, from + taken);
    if (masks)
      sequence.labels.insert(sequence.labels.end(), example_.labels.begin() + position.token,
                             example_.labels.begin() + position.token + taken);
    position.token += taken;
    if (position.token == std::ssize(example_.ids)) position = {position.epoch, position.index + 1};
    if (ids.size() < length) continue;
    std::copy(options_.joined_begin.begin(), options_.joined_begin.end(), ids.begin());
    if (masks) {
      sequence.candidates = std::ssize(ids);  // it is one of the epoch's, also where nothing of it was drawn
      sequence.targets =
          std::ssize(ids) - std::count(sequence.labels.begin(), sequence.labels.end(), kIgnoreLabel);
    } else {
      sequence.labels = ids;
      sequence.targets = std::ssize(ids) - 1;
    }
    check_internal(batch.add(sequence, row_), "a joined sequence does not fit into its batch");
    ids.clear();
    sequence.labels.clear();
  }
  return fills_another(position) ? position : DataPosition{position.epoch, rows()};
}

void Loader::prepare(const DataPosition& position, EffectiveBatch& batch) {
  if (epoch_ != position.epoch) {
    epoch_ = position.epoch;
    epoch_has_targets_ =
        position.index > 0 || position.token > 0;  // what came before a resumed position is not known
  }
  batch.clear();
  const DataPosition end = options_.joined ? add_joined(position, batch) : add_rows(position, batch);
  if (batch.damaged_rows() > 0 && first_damage_.empty()) first_damage_ = batch.first_damage();
  epoch_has_targets_ = epoch_has_targets_ || batch.sequences() > 0;  // of masked words none may be drawn
  batch.ends_epoch = end.index == rows();
  batch.next = batch.ends_epoch ? DataPosition{position.epoch + 1, 0} : end;
  if (batch.ends_epoch && !epoch_has_targets_ && options_.joined && first_damage_.empty())
    refuse_short_texts(dataset_.name(), encoder_.samples());
  if (batch.ends_epoch && !epoch_has_targets_)
    refuse_without_targets(dataset_.name(), encoder_.samples(), first_damage_);
}

}  // namespace plimsoll
