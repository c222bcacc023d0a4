#include "data/batch/row_memory.h"

#include <exception>
#include <optional>
#include <system_error>
#include <thread>

#include "base/heap_peak.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

// The bound of a row below this size is no more than 8 MiB.
constexpr int64_t kLongRow = 256 * kKiB;

// None where the system starts no thread.
template <class Work>
std::optional<int64_t> counted_alone(const Work& work) {
  int64_t bytes = 0;
  std::exception_ptr error;
  try {
    std::jthread([&] {
      const HeapPeak peak;
      try {
        work();
      } catch (...) {
        error = std::current_exception();
      }
      bytes = peak.bytes();
    });
  } catch (const std::system_error&) {
    return std::nullopt;
  }
  if (error != nullptr) std::rethrow_exception(error);
  return bytes;
}

}  // namespace

int64_t encode_counted(const Block& unit, int64_t row, const RowVisit& visit, RowErrors on_error,
                       const ExampleEncoder& encoder, Row& cells, Example& example) {
  const int64_t in_file = unit.text_bytes(row);
  const auto size = [&] { return std::max(in_file, example.size); };
  if (in_file <= kLongRow) {
    encode_row_of(unit, row, visit, on_error, encoder, cells, example);
    if (size() <= kLongRow) return most_row_memory(size());
  }
  forget_long(cells);
  forget_long(example);
  std::optional<int64_t> bytes;
  if (HeapPeak::counts())
    bytes = counted_alone([&] {
      Row own;
      Example made;
      encode_row_of(unit, row, visit, on_error, encoder, own, made);
      example = std::move(made);
    });
  // Tables that are set up once, some KiB, count with the row that needs them first.
  if (bytes) return round_up(*bytes, 128 * kKiB);
  encode_row_of(unit, row, visit, on_error, encoder, cells, example);
  return most_row_memory(size());
}

}  // namespace plimsoll
