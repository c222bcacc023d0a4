#include "data/encode/ids.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/format.h"
#include "data/files/cell.h"
#include "files/json.h"

namespace plimsoll {

void require_known_ids(const std::vector<int32_t>& ids, int64_t vocab_size, const Where& where) {
  const auto largest = std::max_element(ids.begin(), ids.end());
  if (largest == ids.end() || vocab_size == 0 || *largest < vocab_size) return;
  throw UsageError(formatted(
      "{}: the tokenizer gives the id {}, the model has the ids 0 to {} (vocab_size in config.json). "
      "Tokenizer and model do not belong together.",
      where(), *largest, vocab_size - 1));
}

std::vector<int32_t> ready_ids(const nlohmann::ordered_json& list, int64_t vocab_size, const Where& where) {
  std::vector<int32_t> ids;
  const auto known = [&](const nlohmann::ordered_json& id) {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < vocab_size;
  };
  if (!list.is_array())
    throw DamagedError(formatted("{}: is {}, token ids are expected.", where(), describe_kind(list)));
  for (const nlohmann::ordered_json& id : list) {
    if (!known(id))
      throw DamagedError(formatted("{}: holds the token id {}, the model has the ids 0 to {}.", where(),
                                   id.dump().substr(0, 40), vocab_size - 1));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

void require_ready(const std::vector<int32_t>& ids, IdsAre are, int64_t vocab_size, const Where& where) {
  const bool labels = are == IdsAre::labels;
  for (const int32_t id : ids) {
    if ((id >= 0 && id < vocab_size) || (labels && id == kIgnoreLabel)) continue;
    throw DamagedError(formatted(
        "{}: holds the {}{}, the model has the ids 0 to {}. The file was made for another tokenizer.",
        where(), labels ? "label " : "token id ", id, vocab_size - 1));
  }
}

void read_ready(const Row& row, int64_t vocab_size, const Where& where, Example& example) {
  example.ids = row[0].ids;
  example.labels = row.size() > 1 ? row[1].ids : example.ids;
  if (example.labels.size() != example.ids.size())
    throw DamagedError(formatted("{}: has {} input_ids and {} labels. Give one label per id, -100 for none.",
                                 where(), example.ids.size(), example.labels.size()));
  require_ready(example.ids, IdsAre::tokens, vocab_size, where);
  require_ready(example.labels, IdsAre::labels, vocab_size, where);
}

void drop_padding(std::optional<int64_t> padding, std::vector<int32_t>& ids) {
  while (padding && ids.size() > 1 && ids.back() == *padding) ids.pop_back();
}

}  // namespace plimsoll
