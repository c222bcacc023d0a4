// The content of `plimsoll top`: one look at the queue and this machine, as data. A recorded frame is one
// line of JSON; a replay shows the same data again.
//
// Unknown values are absent, never 0.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system_memory.h"

namespace plimsoll::top {

// A process that computes on a GPU and belongs to no run.
struct CardProcess {
  int64_t pid = 0;               // as the driver numbers it
  std::string name;              // empty: it is not to be seen from here
  std::optional<int64_t> bytes;  // of the card
};

struct DeviceStatus {
  std::string name;      // "cpu:0", or as CUDA_VISIBLE_DEVICES names it
  int64_t capacity = 0;  // bytes, for all runs together
  int64_t reserved = 0;
  std::optional<int64_t> used;  // by the queue's runs
  int runs = 0;
  int threads = 0, threads_reserved = 0;  // of cpu:0
  // For a GPU that the driver reports.
  std::string model = {};
  std::optional<int64_t> memory = {}, memory_used = {};  // the card's, and what all there is on it takes
  std::optional<int64_t> others = {};                    // what is of no run takes of it
  std::optional<int> busy_percent = {};
  std::string problem = {};  // why nothing new starts there, in words behind its name; empty: it answers
  std::vector<CardProcess> processes = {};
};

// The progress of a Plimsoll training, by the files of its run folder.
struct Progress {
  int64_t step = 0, steps = 0;
  std::optional<double> step_seconds;     // median of the last ones
  std::optional<double> planned_seconds;  // of a step
  std::optional<int64_t> planned_bytes;   // of the process, at its peak
  std::optional<double> loss;
  std::optional<double> eval_loss = {};  // of the last evaluation
  std::optional<double> best_loss = {};  // the least of any evaluation
  // The number of several devices, the share of the last steps in which the first waited for others, and the one
  // that computed longest, with how much longer than the median.
  int64_t ranks = 1;
  std::optional<double> waiting_share = {};
  std::optional<int64_t> slowest = {};
  std::optional<double> slower = {};
};

// Processes of a run that are there now.
struct RunProcesses {
  int count = 0;
  std::optional<int64_t> largest = {};  // PSS
};

struct RunStatus {
  int64_t id = 0;
  std::string name, state, note;
  std::vector<std::string> devices;
  int64_t reserved = 0;      // of the host
  int64_t device_bytes = 0;  // on each of `device_count`, which has no names before it starts
  int device_count = 0;
  int threads = 0;
  int attempts = 0;
  std::optional<double> started, ended;               // of the last attempt
  std::optional<int64_t> used;                        // PSS of its processes now
  std::optional<int64_t> peak;                        // measured, of an attempt that is over
  std::optional<int64_t> used_on_card, peak_on_card;  // the most on any of its cards, now and ever
  std::optional<double> cores;                        // since the frame before
  std::optional<double> growth;                       // bytes a second, where it grows without end
  RunProcesses processes = {};
  std::optional<Progress> progress;
};

// A process that is of no run and takes much memory.
struct Foreign {
  int64_t pid = 0;
  std::string name;
  int64_t bytes = 0;  // resident
  std::optional<double> cores;
};

struct Frame {
  double time = 0;  // seconds since 1970
  bool worker = false, paused = false, draining = false;
  int64_t memory = 0, available = 0;  // of the host
  SwapMemory swap;                    // of the host too
  double load = 0;                    // one minute
  // Pressure: share of the last ten seconds in which something waited, in percent. "cpu", "memory", "io".
  std::map<std::string, double> pressure;
  std::vector<DeviceStatus> devices;
  std::vector<RunStatus> runs;
  std::vector<Foreign> foreign;  // the largest
};

// "3 ranks: largest 410 MiB, waiting 4 %, slowest rank 2 (+18 %)"; empty where it has one.
std::string ranks_text(const RunStatus& run);
// "grows by 1.00 MiB a minute: beyond its reservation in 2 h", or empty.
std::string growth_text(const RunStatus& run);
// Seconds until its last step; none where that is not known.
std::optional<double> seconds_left(const RunStatus& run);

nlohmann::ordered_json frame_json(const Frame& frame);
// Throws DamagedError that begins with `where`.
Frame read_frame(std::string_view text, const std::string& where);

// Memory that a run could still have on a device; nullopt: it does not answer, or that is not known.
std::optional<int64_t> free_bytes(const DeviceStatus& device);

// Shown instead of a list without runs.
inline constexpr std::string_view kQueueIsEmpty = "the queue is empty";

// The frame as tables. Foreign names are as they are: printing makes them printable.
std::string frame_text(const Frame& frame, size_t columns = SIZE_MAX);
// Its parts: host, worker and devices; runs with their titles on the first line; the others.
std::string frame_heading(const Frame& frame, size_t columns = SIZE_MAX);
// A line for each run, in `columns`: what has no room is left out or cut.
std::string runs_text(const std::vector<const RunStatus*>& runs, size_t columns = SIZE_MAX);
std::string foreign_text(const Frame& frame, size_t columns);

}  // namespace plimsoll::top
