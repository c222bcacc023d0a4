// A program's calls, captured by its device to be launched as one graph. A decision of the host when it makes
// the calls (how many rows a library's product has) is fixed in a graph: each is launched only under the
// facts that it was captured with, and under others the calls are made one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/device.h"

namespace plimsoll {

class ProgramGraphs {
 public:
  // Keeps at most so many. The device must outlive it.
  ProgramGraphs(Device& device, std::vector<HostFact> facts, int most);

  // Makes the calls, or launches a graph of them. A capture comes when facts are seen again: their calls have
  // been made one by one by then, with all the code that they need.
  void run(const std::function<void()>& calls);

 private:
  using Values = std::vector<int64_t>;
  struct Captured {
    Values facts;
    std::unique_ptr<gpu::CardGraph> graph;
  };

  void look();
  [[nodiscard]] bool seen_lately() const;
  void remember();

  Device& device_;
  std::vector<HostFact> facts_;
  size_t most_;
  Values now_;
  std::vector<Captured> kept_;
  // The last facts that no graph had, each once, in turn.
  std::vector<Values> seen_;
  size_t next_seen_ = 0;
};

}  // namespace plimsoll
