// Agreement of the ranks of a run, before it begins and around each of its steps.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ranks/group.h"
#include "ranks/watch.h"

namespace plimsoll {

// The word of a rank, 64 bytes, that all ranks exchange before and after each step.
struct RankWord {
  int32_t failed = 0;  // with this exit code
  int32_t stops = 0;   // a signal asked it to
  int32_t saves = 0;   // likewise
  int32_t ends = 0;    // of the leading rank: the run has no patience left
  uint64_t rows = 0;   // a hash of the row numbers of the batch
  double busy = 0;     // seconds of the last step in which it computed
  std::array<std::byte, 32> spare{};
};
static_assert(sizeof(RankWord) == 64);

// Facts that must be the same at all ranks, by name.
using RankFacts = std::vector<std::pair<std::string, std::string>>;

class RunRanks {
 public:
  // `watch` may be null. Both outlive it.
  explicit RunRanks(Group& group, Watch* watch = nullptr) : group_(group), watch_(watch) {}

  [[nodiscard]] Group& group() { return group_; }
  [[nodiscard]] Watch* watch() { return watch_; }
  [[nodiscard]] int size() const { return group_.size(); }
  [[nodiscard]] bool is_alone() const { return group_.is_alone(); }
  [[nodiscard]] bool leads() const { return group_.leads(); }
  // The ranks on this one's node; without a watch all of them are in one process.
  [[nodiscard]] std::vector<int> on_node() const;
  [[nodiscard]] bool are_on_one_node() const { return std::ssize(on_node()) == size(); }

  // Does the work at every rank; it may be a part of other work of this kind. Where it throws at one of them, all throw: the first rank that failed its
  // own exception, others an Error with that one's code, and its text behind "rank N: ".
  template <class Work>
  auto together(Work&& work) {
    using Result = std::invoke_result_t<Work>;
    if (is_alone()) return work();
    if constexpr (std::is_void_v<Result>) {
      settle(failure_of([&] { work(); }));
    } else {
      std::optional<Result> result;
      settle(failure_of([&] { result.emplace(work()); }));
      return std::move(*result);
    }
  }
  // The leading rank does the work, and all have its text; they throw as together().
  std::string by_leader(const std::function<std::string()>& work);
  // Throws UsageError, at all ranks, where one has another value than the leading rank: names the first such
  // fact.
  void require_same(const RankFacts& facts);

  // All ranks exchange their words: the result asks for what any of them asks for, and ends where the leading
  // rank does. Throws where a rank failed, as together(), and StoppedError where their rows differ.
  RankWord meet(const RankWord& mine);
  // The seconds of all ranks' last words (RankWord::busy).
  [[nodiscard]] std::span<const double> busy() const { return busy_; }
  // This rank failed: the others get that where they meet next. Nothing where they know already.
  void fail(ExitCode code, const std::string& text);
  // While it lives, ranks exchange data: others do not meet this one next.
  class Exchange {
   public:
    explicit Exchange(RunRanks& ranks) : ranks_(ranks) { ranks_.exchanging_ = true; }
    void done() { ranks_.exchanging_ = false; }

   private:
    RunRanks& ranks_;
  };
  // Work of all ranks once they know of a failure: they may meet, and fail, in it as before.
  void after_failure(const std::function<void()>& work);
  // All ranks know of the failure, and leave in good order.
  [[nodiscard]] bool failed_together() const { return failed_together_; }

 private:
  struct Failure {
    std::exception_ptr own;  // null: none
    ExitCode code = ExitCode::ok;
    std::string text;
  };
  static Failure failure_of(const std::function<void()>& work);
  void settle(const Failure& mine);
  std::vector<RankWord> gather_words(const RankWord& mine);
  static bool any_fails(const std::vector<RankWord>& words);
  [[noreturn]] void throw_first(const std::vector<std::string>& texts, const Failure& mine);

  Group& group_;
  Watch* watch_;
  bool exchanging_ = false, failed_together_ = false;
  std::vector<double> busy_;
};

// The ranks of a process that trains alone.
RunRanks& no_other_ranks();

}  // namespace plimsoll
