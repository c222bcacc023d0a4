// Writes the events of a command, as lines of JSON, to a descriptor that another program reads (docs/reference/json.md, "Events").
// The reader has no power over the run: one that is gone or takes nothing costs events, never a step or a save.
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "runs/observer.h"

namespace plimsoll {

class EventStream {
 public:
  static constexpr int kVersion = 1;

  // The stream of this process; null without --events. open() throws UsageError for a descriptor that is not open for
  // writing; from then on each text on standard error is a note, too.
  static EventStream* of_process();
  static void open(int descriptor, std::string_view command, std::string_view version);

  // An event whose further keys are those of `object`, a text of JSON that has some; "": the object names its event and
  // time. Allocates nothing for what a pipe takes.
  void send(std::string_view event, std::string_view object);
  void note(std::string_view text, LogLevel level);
  // At most ten a second, and the last.
  void load(std::string_view what, int64_t done, int64_t total);
  // Adds suggestions that fit to the error that follows.
  void set_ways(const nlohmann::ordered_json& ways);
  void error(ExitCode code, const std::string& message, bool of_recipe);
  // The last event; waits for a reader that takes what is left.
  void end(int exit_code);

 private:
  EventStream(int descriptor, std::string_view command, std::string_view version);
  // False where the line has no room.
  bool append(std::string_view event, std::string_view object);
  void hand_out(int patience_ms);
  // Waits for a slow reader, so that what is sent last has room; once one has taken nothing, no more.
  void make_room();
  // Bytes of whole lines that a pipe takes at once, so that a reader never sees a part of one that is short.
  [[nodiscard]] size_t next_part() const;
  [[nodiscard]] bool write_some(size_t bytes);

  int descriptor_;
  int64_t process_;  // a fork of this process has no such descriptor
  bool gone_ = false, stalled_ = false;
  int64_t left_out_ = 0;
  double last_load_ = 0;
  std::string waiting_, ways_;
  std::mutex lock_;
};

// Sends what a run reports, and passes it on to the observer that shows it.
class EventObserver final : public RunObserver {
 public:
  EventObserver(EventStream& stream, RunObserver& shown) : stream_(stream), shown_(shown) {}

  [[nodiscard]] bool hears(LogLevel level) const override {
    return level <= LogLevel::info || shown_.hears(level);
  }
  void step(const StepProgress& state) override { shown_.step(state); }
  void loading(int64_t done, int64_t total) override;
  void counting(int64_t done, int64_t total) override;
  void storing(int64_t done, int64_t total) override;
  void answering(int64_t done, int64_t total) override;
  void logged(std::string_view kind, std::string_view line) override;
  void steps_end() override { shown_.steps_end(); }
  void result(std::string_view text) override { shown_.result(text); }

 private:
  void line_of(const std::string& line, LogLevel level) override;

  EventStream& stream_;
  RunObserver& shown_;
};

}  // namespace plimsoll
