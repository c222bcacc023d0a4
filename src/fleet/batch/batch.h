// A report of a batch of the queue, over or so far: when and where each run was, and what was reserved
// compared with what was used.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fleet/queue/processes/memory_history.h"
#include "fleet/queue/store/store.h"

namespace plimsoll::batch {

// One attempt of a run.
struct Bar {
  int64_t id = 0;
  int number = 1;  // of the attempt
  std::string name, outcome;
  bool done = false, running = false;
  std::vector<std::string> devices;  // {"cpu:0"} where it has none of its own
  double started = 0, ended = 0;     // seconds since 1970; of one that runs, now
  queue::Need need;
  int64_t peak_bytes = 0;       // of the host; 0: unknown
  int64_t card_peak_bytes = 0;  // the most on one of its cards that a worker saw; 0: unknown
  std::optional<queue::MemoryHistory> memory;
  // The run folder's losses, if it is a training, in the bar of its last attempt: that of the last step, and
  // the least of its evaluations.
  std::optional<double> loss = {}, eval_loss = {};
};

struct Batch {
  std::vector<Bar> bars;  // by start
  queue::Machine machine;
  double begin = 0, end = 0;
  int runs = 0, done = 0, failed = 0, open = 0;  // entries
  double mean_wait = 0;                          // seconds from add to the first start
};

// The attempts since the last time in which nothing ran for `pause` seconds; infinity: all there are.
// `group`: of its entries alone; empty: of all.
Batch take(queue::Store& store, double now, double pause, const std::string& group = "");

// The trainings whose loss is known, the best first: by the least loss of their evaluations; those without
// one behind them, by that of the last step.
std::vector<const Bar*> ranked(const Batch& batch);

// The host's memory at `count` equally distant times from begin to end, in bytes.
struct Course {
  std::vector<int64_t> reserved, used;
};
Course course_of(const Batch& batch, size_t count);
// Reserved of a device, by time, over its capacity and the batch's time: 0 to 1.
double share_reserved(const Batch& batch, const std::string& device);
// The highest sum of what was reserved at one time.
int64_t most_reserved(const Batch& batch, const std::string& device);
// The highest sum of the peaks of runs that were on a card at one time: no more was used, as far as peaks are
// known. 0: of none is it known.
int64_t most_used(const Batch& batch, const std::string& card);

// Bytes in words, or "-" for 0, which means that they are not known.
std::string known_bytes(int64_t bytes);

std::string batch_text(const Batch& batch, size_t width);
nlohmann::ordered_json batch_json(const Batch& batch);
// One HTML file that needs nothing but itself.
std::string batch_page(const Batch& batch);

}  // namespace plimsoll::batch
