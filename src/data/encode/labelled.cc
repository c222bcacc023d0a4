// Rows of a text, or two, with their class or numbers.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/encode/example.h"
#include "data/rows/labels.h"
#include "files/json.h"

namespace plimsoll {
namespace {

// Loses `count` tokens at an end.
void lose(int64_t count, Truncation truncation, std::vector<int32_t>& ids) {
  if (truncation == Truncation::left)
    ids.erase(ids.begin(), ids.begin() + count);
  else
    ids.resize(ids.size() - static_cast<size_t>(count));
}

}  // namespace

void cut_pair(int64_t room, Truncation truncation, std::vector<int32_t>& first,
              std::vector<int32_t>& second) {
  if (std::ssize(first) + std::ssize(second) <= room) return;
  std::vector<int32_t>& shorter = first.size() > second.size() ? second : first;
  std::vector<int32_t>& longer = first.size() > second.size() ? first : second;
  int64_t short_length = std::ssize(shorter), long_length = std::max(short_length, room - short_length);
  if (short_length + long_length > room) {
    short_length = room / 2;
    long_length = room - short_length;
  }
  lose(std::ssize(shorter) - short_length, truncation, shorter);
  lose(std::ssize(longer) - long_length, truncation, longer);
}

void ExampleEncoder::encode_framed(const std::vector<std::string_view>& texts,
                                   const std::function<std::string()>& where, Example& one) const {
  const Affixes& around = *options_.around;
  const bool two = texts.size() == 2;
  if (two && !around.pair)
    throw UsageError(
        where() +
        ": has two texts, and the post_processor of the model's tokenizer.json does not say what "
        "stands around two.");
  const PairAffixes pair = two ? *around.pair : PairAffixes{around.prefix, {}, around.suffix};
  if (pair.second_type > 1 || (pair.second_type > 0 && pair.second_type >= options_.token_types))
    throw UsageError(where() + ": the model's tokenizer.json gives second texts the token type " +
                     std::to_string(pair.second_type) + ", the model has " +
                     std::to_string(options_.token_types) + " (type_vocab_size in config.json).");
  std::vector<int32_t> first, second;
  tokenize_(texts[0], first);
  if (two) tokenize_(texts[1], second);
  const int64_t added = std::ssize(pair.before) + std::ssize(pair.between) + std::ssize(pair.after);
  const int64_t room = options_.max_length - added;
  one.whole_length = added + std::ssize(first) + std::ssize(second);
  if (room < 0)
    throw UsageError("data.max_length: " + std::to_string(options_.max_length) +
                     " tokens have no room for the " + std::to_string(added) +
                     " that stand around the texts of " + where() + ".");
  if (one.whole_length > options_.max_length) {
    if (options_.truncation == Truncation::drop) return;
    if (options_.truncation == Truncation::refuse) refuse_long(one.whole_length, where);
    cut_pair(room, options_.truncation, first, second);
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

void ExampleEncoder::read_types(const nlohmann::ordered_json& types,
                                const std::function<std::string()>& where, Example& one) const {
  const std::vector<int32_t> ids =
      ready_ids(types, options_.token_types, [&] { return where() + ": 'token_type_ids'"; });
  if (ids.size() < one.ids.size())
    throw DamagedError(where() + ": has " + std::to_string(one.ids.size()) + " input_ids and " +
                       std::to_string(ids.size()) + " token_type_ids.");
  const auto end = ids.begin() + std::ssize(one.ids);
  const auto second = std::find(ids.begin(), end, 1);
  if (std::count(second, end, 1) != end - second ||
      std::count(ids.begin(), second, 0) != second - ids.begin())
    throw DamagedError(where() + ": 'token_type_ids' are not 0 up to a second text and 1 from there on.");
  if (second != end) one.second = second - ids.begin();
}

// Whatever the row was filled with is cut first: it is no part of the text.
void ExampleEncoder::encode_ready(const Row& row, const std::function<std::string()>& where,
                                  Example& one) const {
  one.ids = ready_ids(part_of(row, options_.parts, "sentence"), options_.vocab_size, where);
  drop_padding(options_.padding, one.ids);
  const nlohmann::ordered_json& types = part_of(row, options_.parts, "token_type_ids");
  if (options_.token_types > 0 && !types.is_null()) read_types(types, where, one);
  const int64_t excess = std::ssize(one.ids) - options_.max_length;
  if (one.second >= 0 && excess > 0 && options_.truncation == Truncation::left)
    one.second = std::max<int64_t>(0, one.second - excess);
  if (one.second >= options_.max_length) one.second = -1;
}

void ExampleEncoder::encode_labelled(const Row& row, const std::function<std::string()>& where,
                                     Example& example) const {
  Example one;
  if (options_.ready) {
    encode_ready(row, where, one);
  } else {
    std::vector<std::string_view> texts;
    for (const char* part : {"sentence", "sentence2"}) {
      const nlohmann::ordered_json& text = part_of(row, options_.parts, part);
      if (text.is_null()) continue;
      if (!text.is_string())
        throw DamagedError(where() + ": '" + part + "' is " + describe_kind(text) + ", a text is expected.");
      texts.push_back(text.get_ref<const std::string&>());
    }
    if (!options_.around) one.ids = options_.begin;
    if (options_.around && !texts.empty()) encode_framed(texts, where, one);
    for (size_t i = 0; !options_.around && i < texts.size(); ++i) tokenize_(texts[i], one.ids);
  }
  example.second = one.second;
  if (!append(std::move(one), where, example)) return;
  if (!options_.learns) return expect_nothing(example);
  const nlohmann::ordered_json label = part_of(row, options_.parts, "label");
  example.values =
      label_values(label, {options_.task, options_.labels, options_.lists, options_.reading}, where);
  example.targets = 1;
}

}  // namespace plimsoll
