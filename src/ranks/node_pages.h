// Memory that the processes of a node have once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ranks/run_ranks.h"

namespace plimsoll {

// Pages of a file without a name, which goes with the last process that has it: one that is killed leaves nothing.
class NodePages {
 public:
  // All ranks call it. The first rank of each node makes pages for so many bytes, the others open them by its process,
  // and each claims an equal part, so that they lie by the CPUs of all. All throw where one fails: DoesNotFitError
  // where the system has no such memory, UsageError where the pages cannot be opened.
  NodePages(RunRanks& ranks, int64_t bytes);
  ~NodePages();
  NodePages(const NodePages&) = delete;
  NodePages& operator=(const NodePages&) = delete;

  // The way out for users whose processes cannot share pages.
  static constexpr const char* kInstead =
      "set memory.node_copy to false, so that each process has a copy of its own";
  // Whole pages.
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  // True at one rank of each node: it writes what no other writes a part of.
  [[nodiscard]] bool writes() const { return writes_; }
  // Puts them at an address that the process has reserved, once; who reserved it gives it back.
  void map(std::byte* at);
  // From here on the process can only read them.
  void seal();

 private:
  // A part of the pages, in whole huge ones.
  struct Part {
    int64_t begin = 0, bytes = 0;
  };
  void make();
  void open(const std::string& place);
  // The pages exist from here on: one that is missing later would end the process without a word.
  void claim() const;

  int64_t bytes_;
  bool writes_ = false;
  Part own_;
  int file_ = -1;
  std::byte* at_ = nullptr;
};

}  // namespace plimsoll
