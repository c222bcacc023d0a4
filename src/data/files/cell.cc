#include "data/files/cell.h"

#include "base/growth.h"

namespace plimsoll {

int64_t row_size(const nlohmann::ordered_json& value) {
  int64_t size = kValueSize;
  if (value.is_string()) size += std::ssize(value.get_ref<const std::string&>());
  if (value.is_object())
    for (const auto& [key, member] : value.items()) size += std::ssize(key) + row_size(member);
  if (value.is_array())
    for (const auto& item : value) size += row_size(item);
  return size;
}

int64_t row_size(const Row& row) {
  int64_t size = 0;
  for (const Cell& cell : row)
    size += std::ssize(cell.text) + std::ssize(cell.ids) * static_cast<int64_t>(sizeof(int32_t)) +
            (cell.json.is_null() ? 0 : row_size(cell.json));
  return size;
}

void forget_long(Row& row) {
  for (Cell& cell : row) {
    forget_many(cell.text);
    forget_many(cell.ids);
    cell.json = nullptr;
  }
}

}  // namespace plimsoll
