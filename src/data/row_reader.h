// Rows in the order of an epoch, with the units of the current window held in memory.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "data/dataset.h"
#include "data/example.h"
#include "data/row_order.h"

namespace plimsoll {

class RowReader {
 public:
  // `dataset` outlives the reader and has its columns selected.
  RowReader(Dataset& dataset, RowSubset subset, const OrderOptions& options)
      : dataset_(dataset), order_(dataset.units(), std::move(subset), options) {}

  [[nodiscard]] int64_t rows() const { return order_.rows(); }
  // Encodes the row that the epoch visits at `index`. Cheap while indices ascend: a new window loads its
  // units. Returns the row's number in the data set. Throws DamagedError for a row that cannot be read, or
  // says so in `example` where the data set is to skip them.
  int64_t encode(int64_t epoch, int64_t index, const ExampleEncoder& encoder, Example& example) {
    if (epoch != epoch_) {
      order_.start_epoch(epoch);
      epoch_ = epoch;
      holds_window_ = false;
    }
    const RowOrder::Place place = order_.at(index);
    if (!holds_window_ || place.window != window_) {
      dataset_.hold(order_.window_units(place.window));
      window_ = place.window;
      holds_window_ = true;
    }
    encode_held(place.row, encoder, example);
    return place.row;
  }

  // A row by its number in the data set; its unit alone is held then.
  void encode_row(int64_t row, const ExampleEncoder& encoder, Example& example) {
    const size_t unit = dataset_.unit_of(row);
    dataset_.hold(std::span(&unit, 1));
    holds_window_ = false;
    encode_held(row, encoder, example);
  }

 private:
  void encode_held(int64_t row, const ExampleEncoder& encoder, Example& example) {
    try {
      dataset_.read(row, row_);
      encoder.encode(
          row_, [&] { return dataset_.where(row); }, example);
    } catch (const DamagedError& error) {
      if (dataset_.on_error() == OnError::stop)
        throw DamagedError(error.what() + std::string("\n  data.on_error: skip leaves out such rows"));
      example = {};
      example.damage = error.what();
    }
  }

  Dataset& dataset_;
  RowOrder order_;
  Row row_;
  int64_t epoch_ = 0;
  size_t window_ = 0;
  bool holds_window_ = false;
};

}  // namespace plimsoll
