// Conversations, which a chat template renders.
#include "data/encode/ids.h"
#include "data/encode/messages.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

class ConversationEncoder : public RowEncoder {
 public:
  explicit ConversationEncoder(const ConversationRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    rows_.converse(rows_.read(row, where), where, example);
    require_known_ids(example.ids, rows_.vocab_size, where);
    finish_tokens(rows_.cut, where, example);
  }

 private:
  ConversationRows rows_;
};

}  // namespace

ReadConversation conversation_reader(const ColumnBinding& columns, int64_t reading) {
  if (columns.format == RowFormat::prompt_response)
    return [](const Row& row, const Where&) { return conversation_of(row[0].text, row[1].text); };
  if (columns.format == RowFormat::alpaca)
    return [parts = columns.parts, reading](const Row& row, const Where& where) {
      return read_alpaca(row, parts, reading, where);
    };
  const MessageNames names{columns.message_role, columns.message_content, reading > kFirstReading};
  return [parts = columns.parts, names](const Row& row, const Where& where) {
    return read_messages(row, parts, where, names);
  };
}

MadeEncoder conversation_rows(const ConversationRows& rows) {
  return std::make_unique<ConversationEncoder>(rows);
}

}  // namespace plimsoll
