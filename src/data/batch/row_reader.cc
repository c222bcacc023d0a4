#include "data/batch/row_reader.h"

#include "base/error.h"
#include "data/encode/messages.h"
#include "data/files/cell.h"

namespace plimsoll {

RowReader::RowReader(Dataset& dataset, RowSubset subset, const OrderOptions& options)
    : dataset_(dataset),
      order_(dataset.units(), std::move(subset), options),
      access_(plan_access(dataset, options).kind) {}

RowReader::~RowReader() = default;

int64_t RowReader::encode(int64_t epoch, int64_t index, const ExampleEncoder& encoder, Example& example) {
  if (epoch != epoch_) {
    order_.start_epoch(epoch);
    epoch_ = epoch;
    holds_window_ = false;
  }
  const RowOrder::Place place = order_.at(index);
  if (access_ != AccessKind::held) {
    dataset_.hold_row(place.row);
  } else if (!holds_window_ || place.window != window_) {
    dataset_.hold(order_.window_units(place.window));
    window_ = place.window;
    holds_window_ = true;
  }
  encode_held({place.row, epoch}, encoder, example);
  return place.row;
}

void RowReader::encode_row(int64_t row, const ExampleEncoder& encoder, Example& example) {
  const size_t unit = dataset_.unit_of(row);
  dataset_.hold(std::span(&unit, 1));
  holds_window_ = false;
  encode_held({row, 0}, encoder, example);
}

void RowReader::encode_held(const RowVisit& visit, const ExampleEncoder& encoder, Example& example) {
  const auto [block, local] = dataset_.find(visit.row);
  encode_row_of(*block, local, visit, dataset_.on_error(), encoder, row_, example);
}

void encode_row_of(const Block& unit, int64_t row, const RowVisit& visit, RowErrors on_error,
                   const ExampleEncoder& encoder, Row& cells, Example& example) {
  example.size = 0;    // of a row that cannot be read
  forget_long(cells);  // one long row is held at a time
  forget_long(example);
  try {
    unit.read(row, cells);
    encoder.encode(
        cells, [&] { return unit.where(row); }, example);
    encoder.draw(visit, example);
  } catch (const DamagedError& error) {
    if (on_error == RowErrors::stop) {
      const std::string said =
          error.what() +
          std::string("\n  data.on_error: skip leaves out such rows (--set data.on_error=skip)");
      if (dynamic_cast<const OtherThanText*>(&error) != nullptr) throw UsageError(said);
      throw DamagedError(said);
    }
    const int64_t size = example.size;
    example = {};
    example.size = size;
    example.damage = error.what();
  }
}

}  // namespace plimsoll
