// A prompt and its response as texts.
#include "base/error.h"
#include "base/format.h"
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"

namespace plimsoll {
namespace {

class PromptEncoder : public RowEncoder {
 public:
  explicit PromptEncoder(const PromptRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    TwoTexts texts;
    read_two_texts(rows_.columns, row, where, texts);
    if (rows_.joined)
      encode_joined(rows_.texts, rows_.train_on_prompt, std::string(texts.prompt),
                    std::string(texts.response), example);
    else
      encode_text(rows_.texts, rows_.train_on_prompt, texts.prompt, texts.response, example);
    require_known_ids(example.ids, rows_.vocab_size, where);
    finish_tokens(rows_.cut, where, example);
  }

 private:
  PromptRows rows_;
};

}  // namespace

void read_two_texts(const TwoTextColumns& columns, const Row& row, const Where& where, TwoTexts& texts) {
  if (columns.alpaca.empty()) {
    texts.prompt = row[0].text;
    texts.response = row.size() > 1 ? std::string_view(row[1].text) : std::string_view();
    return;
  }
  texts.held = read_alpaca(row, columns.alpaca, columns.reading, where);
  const auto& messages = texts.held.messages;
  if (messages.size() > 2)
    throw UsageError(formatted("{}: has more than a question and its answer, which {} has no place for.",
                               where(), columns.no_place));
  texts.prompt = messages[0]["content"].get_ref<const std::string&>();
  texts.response = messages[1]["content"].get_ref<const std::string&>();
}

MadeEncoder prompt_rows(const PromptRows& rows) { return std::make_unique<PromptEncoder>(rows); }

}  // namespace plimsoll
