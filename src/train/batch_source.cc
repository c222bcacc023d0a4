#include "train/batch_source.h"

#include <chrono>

#include "base/format.h"
#include "base/units.h"
#include "plan/search/run_time.h"
#include "train/run_clock.h"

namespace plimsoll {
namespace {

LoaderOptions recorded(const LoaderOptions& options, Profile* profile) {
  return profile == nullptr ? options : profile->recorded(options);
}

}  // namespace

BatchSource::BatchSource(const Plan& plan, DataSetup& data, Profile* profile)
    : frozen_bytes_(plan.kept_bytes),
      frozen_(frozen_cache_for(plan, data)),
      reference_log_probs_(reference_log_probs_for(plan.request.workload.experiment, data)),
      loader_(std::move(data.train->dataset), std::move(data.train->rows), std::move(data.train->encoder),
              recorded(data.train->loader, profile)) {}

void BatchSource::store_rows(const std::filesystem::path& folder, RunObserver& observer) {
  const auto start = RunClock::now();
  loader_.store_rows(folder, [&](int64_t done, int64_t rows) { observer.storing(done, rows); });
  if (const int64_t bytes = loader_.stored_bytes(); bytes > 0)
    observer.event(formatted("rows    written to a scratch file for the shuffle: {} in {}",
                             format_bytes(bytes), duration_words(seconds_since(start))));
}

bool BatchSource::fill(const CacheFilling& with, Loader* evaluation) {
  return fill_references(with, evaluation) && fill_frozen(with);
}

bool BatchSource::fill_references(const CacheFilling& with, Loader* evaluation) {
  if (reference_log_probs_ == nullptr) return true;
  reference_log_probs_->open(with.folder, with.fingerprint, with.resumed, with.place.ranks);
  if (!reference_log_probs_->are_complete() && !compute_reference_log_probs(with, evaluation)) return false;
  reference_log_probs_->serve();
  return true;
}

bool BatchSource::compute_reference_log_probs(const CacheFilling& with, Loader* evaluation) {
  bool as_begun = !with.resumed, replaced = false;
  if (as_begun)
    with.observer.event(std::string("rows    reference log-probabilities before the first step: ") +
                        ReferenceLogProbs::kFile);
  const auto begin = [&] {
    if (as_begun) return;
    as_begun = replaced = true;
    with.observer.event(
        formatted("note    {} lacks rows or was changed: they are recomputed with the weights of {}",
                  ReferenceLogProbs::kFile, with.model),
        LogLevel::warn);
    with.load_start();
  };
  if (!reference_log_probs_->compute(ReferenceLogProbs::Of::train, with.place, loader_, with.interrupted,
                                     begin))
    return false;
  if (evaluation != nullptr && !reference_log_probs_->compute(ReferenceLogProbs::Of::eval, with.place,
                                                              *evaluation, with.interrupted, begin))
    return false;
  reference_log_probs_->complete(with.place.ranks);
  if (replaced) with.load_back();
  return true;
}

bool BatchSource::fill_frozen(const CacheFilling& with) {
  if (frozen_ == nullptr) return true;
  frozen_->open(with.folder, with.fingerprint);
  if (frozen_->is_complete()) return true;
  with.observer.event(formatted("rows    outputs of the frozen blocks, kept for all epochs ({}): {}",
                                format_bytes(frozen_bytes_), FrozenCache::kFile));
  return frozen_->compute(with.place, loader_, with.interrupted);
}

}  // namespace plimsoll
