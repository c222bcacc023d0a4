#include "base/file_texts.h"

#include "base/regular_file.h"
#include "base/units.h"

namespace plimsoll {

std::string FileTexts::read(const std::filesystem::path& path, int64_t most) {
  const auto known = texts_.find(path);
  if (known != texts_.end() && std::ssize(known->second) <= most) return known->second;
  std::string text = read_regular(path, most);
  if (std::ssize(text) <= kMiB) texts_.insert_or_assign(path, text);
  return text;
}

}  // namespace plimsoll
