// A text, or two, with the class, the classes or the numbers that it has.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/encode/ids.h"
#include "data/encode/row_kinds.h"
#include "data/files/cell.h"
#include "data/rows/labels.h"
#include "files/json.h"

namespace plimsoll {
namespace {

// As classifiers are trained elsewhere: what the tokenizer makes of the text, with no end of text behind it.
class LabelledEncoder : public RowEncoder {
 public:
  explicit LabelledEncoder(const LabelledRows& rows) : rows_(rows) {}

  void encode(const Row& row, const Where& where, Example& example) const override {
    Example one;
    if (rows_.columns.ready)
      encode_ready(row, where, one);
    else
      encode_texts(texts_of(row, where), where, one);
    example.second = one.second;
    if (!append_sequence(rows_.sequences, std::move(one), where, example)) return;
    if (!rows_.learns) return expect_nothing(example.sequences() * targets_of(rows_.task), example);
    example.values = label_values(cell(row, "label"),
                                  {rows_.task, rows_.labels, rows_.columns.lists, rows_.reading}, where);
    example.targets = 1;
  }

 private:
  [[nodiscard]] const nlohmann::ordered_json& cell(const Row& row, std::string_view part) const {
    return part_of(row, rows_.columns.parts, part);
  }
  [[nodiscard]] const CutRule& cut() const { return rows_.sequences.cut; }

  [[nodiscard]] std::vector<std::string_view> texts_of(const Row& row, const Where& where) const {
    std::vector<std::string_view> texts;
    for (const char* part : {"sentence", "sentence2"}) {
      const nlohmann::ordered_json& text = cell(row, part);
      if (text.is_null()) continue;
      if (!text.is_string())
        throw DamagedError(
            formatted("{}: '{}' is {}, a text is expected.", where(), part, describe_kind(text)));
      texts.push_back(text.get_ref<const std::string&>());
    }
    return texts;
  }

  void encode_texts(const std::vector<std::string_view>& texts, const Where& where, Example& one) const {
    if (rows_.model.around) {
      if (!texts.empty()) encode_framed(texts, where, one);
      return;
    }
    one.ids = rows_.texts.begin;
    for (const std::string_view text : texts) rows_.texts.tokenize(text, one.ids);
  }

  [[nodiscard]] PairAffixes affixes(bool two, const Where& where) const {
    const Affixes& around = *rows_.model.around;
    if (two && !around.pair)
      throw UsageError(
          where() +
          ": has two texts, and the post_processor of the model's tokenizer.json does not say what "
          "stands around two.");
    PairAffixes pair = two ? *around.pair : PairAffixes{around.prefix, {}, around.suffix};
    const int64_t types = rows_.model.token_types;
    if (pair.second_type > 1 || (pair.second_type > 0 && pair.second_type >= types))
      throw UsageError(
          formatted("{}: the model's tokenizer.json gives second texts the token type {}, the model has {} "
                    "(type_vocab_size in config.json).",
                    where(), pair.second_type, types));
    return pair;
  }

  // One or two texts with what stands around them, cut to the length; without ids where the row is left out.
  void encode_framed(const std::vector<std::string_view>& texts, const Where& where, Example& one) const {
    const bool two = texts.size() == 2;
    const PairAffixes pair = affixes(two, where);
    std::vector<int32_t> first, second;
    rows_.texts.tokenize(texts[0], first);
    if (two) rows_.texts.tokenize(texts[1], second);
    const int64_t added = std::ssize(pair.before) + std::ssize(pair.between) + std::ssize(pair.after);
    const int64_t room = cut().max_length - added;
    one.whole_length = added + std::ssize(first) + std::ssize(second);
    if (room < 0)
      throw UsageError(
          formatted("data.max_length: {} tokens have no room for the {} that stand around the texts of {}.",
                    cut().max_length, added, where()));
    if (one.whole_length > cut().max_length) {
      if (cut().truncation == Truncation::drop) return;
      if (cut().truncation == Truncation::refuse) refuse_long(cut(), one.whole_length, where);
      cut_pair(room, cut().truncation, first, second);
    }
    const auto put = [&](const std::vector<int32_t>& ids) {
      one.ids.insert(one.ids.end(), ids.begin(), ids.end());
    };
    put(pair.before);
    put(first);
    put(pair.between);
    if (pair.second_type == 1) one.second = std::ssize(one.ids);
    put(second);
    put(pair.after);
  }

  // Token types of ready ids: 0 up to a second text, then 1.
  void read_types(const nlohmann::ordered_json& types, const Where& where, Example& one) const {
    const std::vector<int32_t> ids =
        ready_ids(types, rows_.model.token_types, [&] { return where() + ": 'token_type_ids'"; });
    if (ids.size() < one.ids.size())
      throw DamagedError(
          formatted("{}: has {} input_ids and {} token_type_ids.", where(), one.ids.size(), ids.size()));
    const auto end = ids.begin() + std::ssize(one.ids);
    const auto second = std::find(ids.begin(), end, 1);
    if (std::count(second, end, 1) != end - second ||
        std::count(ids.begin(), second, 0) != second - ids.begin())
      throw DamagedError(where() + ": 'token_type_ids' are not 0 up to a second text and 1 from there on.");
    if (second != end) one.second = second - ids.begin();
  }

  // Whatever the row was filled with is cut first: it is no part of the text.
  void encode_ready(const Row& row, const Where& where, Example& one) const {
    one.ids = ready_ids(cell(row, "sentence"), rows_.sequences.vocab_size, where);
    drop_padding(rows_.sequences.padding, one.ids);
    const nlohmann::ordered_json& types = cell(row, "token_type_ids");
    if (rows_.model.token_types > 0 && !types.is_null()) read_types(types, where, one);
    const int64_t excess = std::ssize(one.ids) - cut().max_length;
    if (one.second >= 0 && excess > 0 && cut().truncation == Truncation::left)
      one.second = std::max<int64_t>(0, one.second - excess);
    if (one.second >= cut().max_length) one.second = -1;
  }

  LabelledRows rows_;
};

}  // namespace

MadeEncoder labelled_rows(const LabelledRows& rows) { return std::make_unique<LabelledEncoder>(rows); }

}  // namespace plimsoll
