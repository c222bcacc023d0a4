// Ready token ids, with labels or without.
#include "base/error.h"
#include "base/format.h"
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

class ReadyEncoder : public RowEncoder {
 public:
  explicit ReadyEncoder(const ReadyRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    example.ids = row[0].ids;
    example.labels = row.size() > 1 ? row[1].ids : example.ids;
    if (example.labels.size() != example.ids.size())
      throw DamagedError(
          formatted("{}: has {} input_ids and {} labels. Give one label per id, -100 for none.", where(),
                    example.ids.size(), example.labels.size()));
    require_ready(example.ids, IdsAre::tokens, rows_.vocab_size, where);
    require_ready(example.labels, IdsAre::labels, rows_.vocab_size, where);
    finish_tokens(rows_.cut, where, example);
  }

 private:
  ReadyRows rows_;
};

}  // namespace

MadeEncoder ready_rows(const ReadyRows& rows) { return std::make_unique<ReadyEncoder>(rows); }

}  // namespace plimsoll
