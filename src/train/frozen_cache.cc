#include "train/frozen_cache.h"

#include "base/crc32c.h"
#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "files/atomic.h"
#include "files/file.h"
#include "passes/keep_frozen.h"
#include "train/batch_writer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kComparedPiece = 64 * kKiB;
constexpr int64_t kEndOfRows = -1;  // instead of a row: the file has all of them

bool is_f32(const Executor& program) {
  const Graph& graph = program.graph();
  return graph.tensor(graph.find(kKeptTensor)).dtype == DType::f32;
}

// The micro-step's input.
std::span<std::byte> kept_input(const Executor& train) {
  if (is_f32(train)) return std::as_writable_bytes(train.input<float>(kKeptTensor));
  return std::as_writable_bytes(train.input<uint16_t>(kKeptTensor));
}
// The frozen program's output, after a run.
std::span<const std::byte> kept_output(const Executor& frozen) {
  if (is_f32(frozen)) return std::as_bytes(frozen.left_behind<float>(kKeptTensor));
  return std::as_bytes(frozen.left_behind<uint16_t>(kKeptTensor));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

struct FrozenCache::Head {
  int64_t row = kEndOfRows;
  int64_t tokens = 0;
  uint32_t ids = 0;      // checksum of the row's ids
  uint32_t content = 0;  // of what follows
  uint32_t head = 0;     // of all before and of the sequence
  int32_t sequence = 0;  // of the row

  [[nodiscard]] uint32_t sum() const {
    // A first sequence is summed as in files that knew no others.
    return crc32c(std::as_bytes(std::span(this, 1)).first(offsetof(Head, head))) ^
           static_cast<uint32_t>(sequence);
  }
};

struct FrozenCache::Sample {
  int64_t row = 0;
  int32_t sequence = 0;
  int64_t first = 0, tokens = 0;  // of the micro-step's
  uint32_t ids = 0;
};

FrozenCache::FrozenCache(const Plan& plan, int64_t dataset_rows)
    : plan_(plan),
      each_(kept_records(plan.request.workload.experiment)),
      places_(static_cast<size_t>(dataset_rows * each_), -1) {
  static_assert(sizeof(Head) == kKeptHeadBytes);
}

void FrozenCache::open(RunFolder& folder, const std::string& fingerprint) {
  file_ = folder.begin_log(kFile);
  // Named if it is more than one, so that a file with only the first sequences is rewritten.
  const std::string records = each_ > 1 ? R"(, "records": )" + std::to_string(each_) : "";
  std::string head =
      formatted(R"({{"step": 0, "frozen": {}{}}})", crc32c(std::as_bytes(std::span(fingerprint))), records);
  head.resize(static_cast<size_t>(kKeptLineBytes) - 1, ' ');
  bytes_ = kKeptLineBytes;
  const bool same = first_line(file_) == head;
  if (same) {
    from_.emplace(File::open(file_));
    find_records(kKeptLineBytes, false);
    // The end was written once all before it was on the disk: until then what a record holds may be missing.
    if (!complete_) find_records(kKeptLineBytes, true);
  }
  to_.emplace(file_, same ? bytes_ : 0);
  if (!same) {
    require_disk_space(folder.path(), plan_.kept_bytes, "outputs of the frozen blocks (memory.keep_frozen)");
    to_->write(head + "\n");
  }
  from_.emplace(File::open(file_));
}

// Records up to the first that is not whole: a run that was killed left it, or a power cut.
void FrozenCache::find_records(int64_t begin, bool compare) {
  const Graph& train = plan_.programs.front();
  const Tensor& kept = train.tensor(train.find(kKeptTensor));
  const int64_t token_bytes = kept.shape.last() * size_of(kept.dtype);
  const int64_t size = from_->size();
  std::fill(places_.begin(), places_.end(), -1);
  bytes_ = begin;
  for (Head head; !complete_ && begin + kKeptHeadBytes <= size;) {
    from_->read(begin, std::as_writable_bytes(std::span(&head, 1)));
    const int64_t content = begin + kKeptHeadBytes, end = content + head.tokens * token_bytes;
    if (head.head != head.sum() || end > size) break;
    if (compare && !is_whole(content, end - content, head.content)) break;
    complete_ = head.row == kEndOfRows;
    const bool known = head.row >= 0 && head.row < std::ssize(places_) / each_ && head.sequence >= 0 &&
                       head.sequence < each_;
    if (known) place_of(head.row, head.sequence) = begin;
    begin = bytes_ = end;
  }
}

bool FrozenCache::is_whole(int64_t content, int64_t bytes, uint32_t sum) const {
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kComparedPiece, bytes)));
  uint32_t found = 0;
  for (int64_t at = 0; at < bytes; at += kComparedPiece) {
    const auto part = std::span(piece).first(static_cast<size_t>(std::min(kComparedPiece, bytes - at)));
    from_->read(content + at, part);
    found = crc32c(part, found);
  }
  return found == sum;
}

std::vector<FrozenCache::Sample> FrozenCache::samples_of(const Executor& program, const EffectiveBatch& batch,
                                                         const MicroBatch& micro) const {
  const auto starts = program.input<int32_t>("seq_starts");
  const auto ids = program.input<int32_t>("input_ids");
  const int64_t every =
      plan_.request.workload.experiment.has_targets() ? 2 : 1;  // targets have an axis of their own
  std::vector<Sample> samples;
  int32_t latest = -1;
  for (int64_t s = 0, place = 0; s < micro.live_sequences; s += every, ++place) {
    const int32_t sample = micro.sample_in_batch[static_cast<size_t>(s)];
    const int64_t first = starts[static_cast<size_t>(place)], end = starts[static_cast<size_t>(place) + 1];
    // Sequences of a row follow each other in the batch, which holds rows whole.
    const auto sequence = static_cast<int32_t>(sample % each_);
    if (sample != latest) samples.push_back({batch.row(sample), sequence, first, 0, 0});
    latest = sample;
    samples.back().tokens = end - samples.back().first;
  }
  for (Sample& sample : samples)
    sample.ids = crc32c(
        std::as_bytes(ids.subspan(static_cast<size_t>(sample.first), static_cast<size_t>(sample.tokens))));
  return samples;
}

void FrozenCache::add(const Sample& sample, std::span<const std::byte> content) {
  Head head{.row = sample.row, .tokens = sample.tokens, .ids = sample.ids, .content = crc32c(content)};
  head.sequence = sample.sequence;
  head.head = head.sum();
  to_->write(text_of(std::as_bytes(std::span(&head, 1))));
  to_->write(text_of(content));
  if (sample.row != kEndOfRows) place_of(sample.row, sample.sequence) = bytes_;
  bytes_ += kKeptHeadBytes + std::ssize(content);
}

bool FrozenCache::compute(const RunPlace& place, Loader& loader, const std::function<bool()>& interrupted) {
  RunPlace unpoisoned = place;  // its last output is read once the program has ended
  unpoisoned.poison = false;
  unpoisoned.recorder = nullptr;  // a profile is of steps
  const Experiment& experiment = plan_.request.workload.experiment;
  const Executor program = bind_program(unpoisoned, kFrozenProgram);
  BatchWriter writer(program, experiment.model);
  MicroSteps steps(experiment.train_capacity(plan_.variant), train_shape(experiment),
                   experiment.effective_batch);
  const auto tensor = kept_output(program);
  const auto starts = program.input<int32_t>("input_ids").size();
  const size_t token_bytes = tensor.size() / starts;
  loader.start({});
  while (const EffectiveBatch* batch = loader.next()) {
    steps.cut(*batch);
    for (int64_t i = 0; i < steps.count(); ++i) {
      if (interrupted()) return false;
      const MicroBatch& micro = steps.fill(i);
      writer.write(micro);
      std::vector<Sample> samples = samples_of(program, *batch, micro);
      const auto is_known = [&](const Sample& sample) { return place_of(sample.row, sample.sequence) >= 0; };
      std::erase_if(samples, is_known);
      if (samples.empty()) continue;
      program.run();
      for (const Sample& sample : samples)
        if (!is_known(sample))
          add(sample, tensor.subspan(static_cast<size_t>(sample.first) * token_bytes,
                                     static_cast<size_t>(sample.tokens) * token_bytes));
    }
    if (batch->ends_epoch) break;
  }
  to_->sync();  // the rows that the mark promises are there
  add({.row = kEndOfRows}, {});
  complete_ = true;
  return true;
}

void FrozenCache::read(const Executor& train, const EffectiveBatch& batch, const MicroBatch& micro) const {
  const auto tensor = kept_input(train);
  const size_t token_bytes = tensor.size() / train.input<int32_t>("input_ids").size();
  size_t filled = 0;
  for (const Sample& sample : samples_of(train, batch, micro)) {
    const int64_t place = places_[static_cast<size_t>(sample.row * each_ + sample.sequence)];
    const auto refuse = [&](const std::string& why) {
      throw DamagedError(formatted(
          "{}: row {}{}. Start the run again, or train without this file: --set memory.keep_frozen=off",
          file_.string(), sample.row, why));
    };
    if (place < 0) refuse(" has no record: the rows changed since it was written");
    Head head;
    from_->read(place, std::as_writable_bytes(std::span(&head, 1)));
    if (head.head != head.sum() || head.row != sample.row || head.sequence != sample.sequence)
      refuse(" is damaged");
    if (head.tokens != sample.tokens || head.ids != sample.ids)
      refuse(" has other tokens now: the rows changed since it was written");
    const auto to = tensor.subspan(static_cast<size_t>(sample.first) * token_bytes,
                                   static_cast<size_t>(sample.tokens) * token_bytes);
    from_->read(place + kKeptHeadBytes, to);
    if (crc32c(to) != head.content) refuse(" is damaged");
    filled = static_cast<size_t>(sample.first + sample.tokens) * token_bytes;
  }
  std::fill(tensor.begin() + static_cast<std::ptrdiff_t>(filled), tensor.end(), std::byte{0});
}

std::unique_ptr<FrozenCache> frozen_cache_for(const Plan& plan, const DataSetup& data) {
  if (!plan.variant.keep_frozen) return nullptr;
  return std::make_unique<FrozenCache>(plan, data.train->dataset.rows());
}

}  // namespace plimsoll
