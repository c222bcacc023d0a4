// Ready token ids, with labels or without.
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"

namespace plimsoll {
namespace {

class ReadyEncoder : public RowEncoder {
 public:
  explicit ReadyEncoder(const ReadyRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    read_ready(row, rows_.vocab_size, where, example);
    finish_tokens(rows_.cut, where, example);
  }

 private:
  ReadyRows rows_;
};

}  // namespace

MadeEncoder ready_rows(const ReadyRows& rows) { return std::make_unique<ReadyEncoder>(rows); }

}  // namespace plimsoll
