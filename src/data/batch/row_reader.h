// Reads rows in the order of an epoch, with the units of the current window in memory or each row read alone.
#pragma once

#include <cstdint>

#include "data/encode/row_encoder.h"
#include "data/rows/dataset.h"
#include "data/rows/row_access.h"
#include "data/rows/row_order.h"

namespace plimsoll {

// Encodes a row of a unit, by its number there, as `visit` reads it. Throws DamagedError for one that cannot be read,
// or marks it in `example` where damaged rows are to be skipped.
void encode_row_of(const Block& unit, int64_t row, const RowVisit& visit, RowErrors on_error,
                   const ExampleEncoder& encoder, Row& cells, Example& example);

class RowReader {
 public:
  // `dataset` outlives the reader and has its columns selected.
  RowReader(Dataset& dataset, RowSubset subset, const OrderOptions& options);
  ~RowReader();
  RowReader(const RowReader&) = delete;
  RowReader& operator=(const RowReader&) = delete;

  [[nodiscard]] int64_t rows() const { return order_.rows(); }
  // Encodes the row that the epoch visits at `index`. Cheap while indices ascend: a new window loads its
  // units. Rows that are stored (row_access.h) must be, by Dataset::store_rows(). Returns the row's number in
  // the data set. Throws DamagedError for a row that cannot be read, or marks it in `example` where the data
  // set is to skip damaged rows.
  int64_t encode(int64_t epoch, int64_t index, const ExampleEncoder& encoder, Example& example);

  // A row by its number in the data set, as the first epoch reads it; its unit alone is held then.
  void encode_row(int64_t row, const ExampleEncoder& encoder, Example& example);

 private:
  void encode_held(const RowVisit& visit, const ExampleEncoder& encoder, Example& example);

  Dataset& dataset_;
  RowOrder order_;
  AccessKind access_;
  Row row_;
  int64_t epoch_ = 0;
  size_t window_ = 0;
  bool holds_window_ = false;
};

}  // namespace plimsoll
