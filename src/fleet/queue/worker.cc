#include "fleet/queue/worker.h"

#include <algorithm>

#include "fleet/queue/store/machine_record.h"

namespace plimsoll::queue {
namespace {

constexpr int kTickMilliseconds = 200;

}  // namespace

Worker::Worker(Store& store, Launcher& launcher, WorkerOptions options)
    : store_(store), launcher_(launcher), options_(std::move(options)), lock_(store.folder()) {
  record_machine(store.folder(), launcher.open());
  take_up(store, options_.grace_seconds);
  if (store.draining()) store.drain(false);  // that was for the worker before this one
}

void Worker::run(const std::function<bool()>& stop_requested) {
  RetryLoop retries(options_.report);
  for (bool over = false; !over && !stop_requested();) {
    store_.require_in_place();
    if (!retries.done([&] { over = look(); })) {
      version_ = -1;  // what is on disk counts
      if (options_.until_done && launcher_.is_idle()) retries.give_up_after(options_.patience_seconds);
    }
    if (!over) launcher_.wait(kTickMilliseconds);
  }
}

bool Worker::look() {
  if (const int64_t version = store_.version(); version != version_) {
    version_ = version;
    reload();
  }
  for (const Entry& entry : entries_)
    if (is_begun(entry.state) && entry.stop_requested) launcher_.stop(entry);
  changed_ |= launcher_.settle(entries_);
  std::erase_if(entries_, [](const Entry& entry) { return is_over(entry.state); });
  if ((changed_ || launcher_.is_due()) && !draining_ && !store_.paused()) launcher_.start(entries_);
  changed_ = false;
  if (!draining_ || launcher_.running() > 0) return options_.until_done && all_done();
  store_.drain(false);
  return true;
}

void Worker::reload() {
  entries_ = store_.open_entries();
  let_go_what_may_follow(store_, entries_);
  hold_cycles(store_, entries_);
  draining_ = store_.draining();
  changed_ = true;
  launcher_.adopt(entries_);
}

bool Worker::all_done() const {
  return launcher_.running() == 0 && std::none_of(entries_.begin(), entries_.end(),
                                                  [](const Entry& one) { return one.state != State::held; });
}

}  // namespace plimsoll::queue
