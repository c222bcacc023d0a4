// Reads and encodes all rows of a data set on several threads, and reports what each of them becomes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/batch/common_begin.h"
#include "data/encode/row_encoder.h"
#include "data/rows/dataset.h"
#include "data/rows/row_subset.h"
#include "tasks/micro_capacity.h"

namespace plimsoll {

// The facts of a row that counting needs, without its ids.
struct RowFacts {
  int64_t row = 0;                         // of the data set
  int64_t whole_length = 0, row_size = 0;  // as in Example
  int64_t tokens = 0, targets = 0;         // of all sequences, as they are cut
  int64_t labelled = 0;                    // tokens that carry a label
  int64_t squares = 0;                     // of the sequences' lengths
  int64_t longest = 0;                     // tokens of the longest sequence
  int64_t longest_source = 0;              // the same without targets that stand apart
  RowSize size = {};                       // with targets that stand apart counted apart
  int64_t memory = 0;                      // encode_counted(); 0: not asked
  bool truncated = false, learns = false;
  std::string damage = {};  // why it cannot be read; then the rest means nothing
};
RowFacts facts_of(int64_t row, const Example& example, bool has_target);

enum class Visit : uint8_t {
  epoch,     // as an epoch without shuffling does: weights repeat rows and leave some out
  each_once  // of the subset
};

// An empty beginning, for rows that such an encoder makes.
CommonBegin no_common_begin(const ExampleEncoder& encoder);

// Calls `take` for each row in order, from one thread at a time. Its arguments do not depend on the number of
// threads, nor does the error that ends the walk: that of the first row which has one. Each thread holds a
// unit of its own; `dataset` has its columns selected and holds nothing afterwards. The rows that a batch
// takes are added to `begin`.
void for_each_row(Dataset& dataset, const RowSubset& subset, const ExampleEncoder& encoder, Visit visit,
                  int64_t threads, const std::function<void(const RowFacts&)>& take,
                  CommonBegin* begin = nullptr);

}  // namespace plimsoll
