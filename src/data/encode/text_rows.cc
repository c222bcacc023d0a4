// One text, whose every token is a target.
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

class TextEncoder : public RowEncoder {
 public:
  explicit TextEncoder(const TextRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    encode_text(rows_.texts, rows_.train_on_begin, {}, row[0].text, example);
    require_known_ids(example.ids, rows_.vocab_size, where);
    finish_tokens(rows_.cut, where, example);
  }

 private:
  TextRows rows_;
};

}  // namespace

MadeEncoder text_rows(const TextRows& rows) { return std::make_unique<TextEncoder>(rows); }

}  // namespace plimsoll
