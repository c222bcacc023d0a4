// Texts of small files that several readers ask for, such as tokenizer_config.json: each file is opened once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace plimsoll {

class FileTexts {
 public:
  // The whole file, of at most `most` bytes. Throws as read_regular() does. A text above 1 MiB is not kept.
  std::string read(const std::filesystem::path& path, int64_t most);

 private:
  std::map<std::filesystem::path, std::string> texts_;
};

}  // namespace plimsoll
