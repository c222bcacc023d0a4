// The tokens that all sequences of some rows begin with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/batch/prefix_tree.h"
#include "data/encode/example.h"

namespace plimsoll {

// The common beginning is exact, so that a plan may count on it: a micro-step of any of these rows has these
// tokens once (data/batch/prefix_tree.h). It does not depend on the order in which rows are added. With
// `of_one` it ends before the first token that is trained.
class CommonBegin {
 public:
  explicit CommonBegin(SharedLabels labels) : labels_(labels) {}

  // One that a batch takes.
  void add(const Example& example);
  void add(const CommonBegin& other);
  [[nodiscard]] int64_t tokens() const { return ids_ ? static_cast<int64_t>(ids_->size()) : 0; }

 private:
  using Ids = std::vector<int32_t>;
  void keep(std::span<const int32_t> ids);

  SharedLabels labels_;
  std::optional<Ids> ids_;  // none: no row was added
};

}  // namespace plimsoll
