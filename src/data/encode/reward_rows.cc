// A prompt and two answers, or one alone, each of which is scored.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"
#include "files/json.h"

namespace plimsoll {
namespace {

// Two answers that are the same, as they are or as they were cut, teach nothing.
class RewardEncoder : public RowEncoder {
 public:
  explicit RewardEncoder(const RewardRows& rows) : rows_(rows), answers_(rows.answers) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    const std::vector<std::string>& parts = rows_.answers.columns.parts;
    for (const char* answer : {"chosen", "rejected"}) {
      if (!rows_.learns && std::find(parts.begin(), parts.end(), answer) == parts.end()) continue;
      Example one;
      const nlohmann::ordered_json prompt = answers_.prompt(row, where),
                                   text = answers_.answer(row, answer, where);
      const bool told_twice =
          rows_.answers.reading >= kQuestionReading && prompt.is_string() && begins_with_question(text);
      answers_.encode(row, told_twice ? nlohmann::ordered_json() : prompt, text, where, one);
      if (!append_sequence(rows_.sequences, std::move(one), where, example)) return leave_out(example);
    }
    if (!rows_.learns) return expect_nothing(example.sequences() * rows_.targets, example);
    const nlohmann::ordered_json& margin = answers_.cell(row, "margin");
    if (!margin.is_null() && !margin.is_number())
      throw DamagedError(
          formatted("{}: 'margin' is {}, a number is expected.", where(), describe_kind(margin)));
    example.values = {margin.is_null() ? 0.0F : margin.get<float>(), 0.0F};
    const auto chosen = example.ids.begin(), between = chosen + example.ends[0];
    example.targets = std::equal(chosen, between, between, example.ids.end()) ? 0 : 1;
  }

 private:
  RewardRows rows_;
  AnswerEncoder answers_;
};

}  // namespace

MadeEncoder reward_rows(const RewardRows& rows) { return std::make_unique<RewardEncoder>(rows); }

}  // namespace plimsoll
