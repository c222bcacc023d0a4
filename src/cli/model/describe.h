// Describes a file or folder by looking at headers and small files, never at weights.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plimsoll {

// A line of the table and its value for machines.
struct Fact {
  std::string name;
  std::string text;
  nlohmann::ordered_json value;
};

// A further table: the columns of a data file, the tensors of a model.
struct FactTable {
  std::string name;                  // its key in JSON
  std::vector<std::string> columns;  // their keys in JSON
  std::vector<bool> right;           // flush right
  std::vector<std::vector<std::string>> text;
  std::vector<std::vector<nlohmann::ordered_json>> values;

  void add(std::vector<std::string> row, std::vector<nlohmann::ordered_json> row_values) {
    text.push_back(std::move(row));
    values.push_back(std::move(row_values));
  }
};

struct Description {
  std::string kind;  // "model", "adapter", "run", "checkpoint", "tokenizer", "safetensors", "data"
  std::vector<Fact> facts;
  std::vector<FactTable> tables;

  void add(std::string name, std::string text, nlohmann::ordered_json value);
  void add(std::string name, const std::string& text) { add(std::move(name), text, text); }
  void add_count(std::string name, int64_t count);
};

// `tensors`: lists every tensor too. Throws UsageError for a path that is not one of these kinds,
// DamagedError for a damaged one.
Description describe(const std::filesystem::path& path, bool tensors);

// Its parts, by kind.
Description describe_model(const std::filesystem::path& folder, bool tensors);
Description describe_adapter(const std::filesystem::path& folder, bool tensors);
Description describe_checkpoint(const std::filesystem::path& folder, bool tensors);
Description describe_run(const std::filesystem::path& folder, bool tensors);
Description describe_safetensors(const std::filesystem::path& file, bool tensors);
Description describe_tokenizer(const std::filesystem::path& file);
Description describe_data(const std::filesystem::path& path);

}  // namespace plimsoll
