// Tokenizers and data files.
#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"
#include "cli/model/describe.h"
#include "data/rows/columns.h"
#include "data/rows/dataset.h"
#include "files/file.h"
#include "tokenizer/files/sentence_piece_model.h"
#include "tokenizer/files/tokenizer_file.h"
#include "tokenizer/tokenizer.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostTokenizerBytes = 512 * kMiB;

// "BPE", "Sequence (Digits, ByteLevel)": the type of a component, and of its parts.
std::string component(const nlohmann::json& head, const char* key, const char* parts) {
  const auto found = head.find(key);
  if (found == head.end() || !found->is_object()) return "none";
  const std::string type = found->value("type", "?");
  const auto list = found->find(parts);
  if (list == found->end() || !list->is_array()) return type;
  std::vector<std::string> names;
  for (const auto& part : *list)
    if (part.is_object()) names.push_back(part.value("type", "?"));
  return formatted("{} ({})", type, join(names, ", "));
}

// Bytes of all files of the data set.
int64_t bytes_below(const fs::path& path) {
  if (!fs::is_directory(path)) return static_cast<int64_t>(fs::file_size(path));
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

// By the first format that has these columns: what auto finds, then those that tasks bring along.
ColumnBinding bind_by_columns(std::span<const Column> columns, const std::string& where) {
  constexpr std::array<std::optional<RowFormat>, 3> kFormats = {std::nullopt, RowFormat::preference,
                                                                RowFormat::sentence_label};
  std::exception_ptr problem;
  for (const std::optional<RowFormat>& format : kFormats) {
    try {
      return bind_columns(columns, format, {}, where);
    } catch (const UsageError&) {
      if (problem == nullptr) problem = std::current_exception();
    }
  }
  std::rethrow_exception(problem);
}

std::string task_words(RowFormat format) {
  if (format == RowFormat::preference) return ", of task: dpo or reward";
  return format == RowFormat::sentence_label ? ", of task: classify" : "";
}

// Describes the facts that any tokenizer has; returns the reason why this one cannot be used, or "".
std::string add_pieces(const fs::path& file, Description& d) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_file(file);
    d.add_count("pieces", tokenizer.vocab_size());
    for (const std::string& note : tokenizer.notes()) d.add("note", note);
    d.add("memory", format_bytes(tokenizer.resident_bytes()), tokenizer.resident_bytes());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Description describe_sentence_piece(const fs::path& file) {
  using Kind = SentencePieceModel::Kind;
  Description d{"tokenizer", {}, {}};
  const auto read = read_sentence_piece_model(read_text(file, kMostTokenizerBytes), file.string());
  const char* kind = read.kind == Kind::bpe       ? "BPE"
                     : read.kind == Kind::unigram ? "Unigram"
                     : read.kind == Kind::word    ? "words"
                                                  : "characters";
  d.add("model", std::string("SentencePiece, ") + kind);
  const std::string problem = add_pieces(file, d);
  d.add("byte fallback", read.byte_fallback ? "yes" : "no", read.byte_fallback);
  if (!problem.empty()) d.add("problem", problem);
  return d;
}

}  // namespace

Description describe_tokenizer(const fs::path& file) {
  if (file.extension() == ".model") return describe_sentence_piece(file);
  Description d{"tokenizer", {}, {}};
  const TokenizerFile read = read_tokenizer_file(read_text(file, kMostTokenizerBytes), file.string());
  d.add("model", read.model_type());
  const std::string problem = add_pieces(file, d);
  if (!read.merges.empty()) d.add_count("merges", static_cast<int64_t>(read.merges.size()));
  const auto added = read.head.find("added_tokens");
  d.add_count("added tokens",
              added != read.head.end() && added->is_array() ? static_cast<int64_t>(added->size()) : 0);
  d.add("normalizer", component(read.head, "normalizer", "normalizers"));
  d.add("pre-tokenizer", component(read.head, "pre_tokenizer", "pretokenizers"));
  d.add("post-processor", component(read.head, "post_processor", "processors"));
  d.add("decoder", component(read.head, "decoder", "decoders"));
  if (!problem.empty()) d.add("problem", problem);
  return d;
}

Description describe_data(const fs::path& path) {
  Description d{"data", {}, {}};
  Dataset dataset = Dataset::open(std::span(&path, 1));
  std::optional<ColumnBinding> binding;
  try {
    binding = dataset.bind(
        [&](std::span<const Column> columns) { return bind_by_columns(columns, dataset.name()); });
  } catch (const UsageError&) {  // said below
  }
  std::vector<std::string> used;
  FactTable columns{"columns", {"column", "type"}, {}, {}, {}};
  for (const Column& column : dataset.columns()) {
    used.push_back(column.name);
    columns.add({column.name, column.type}, {column.name, column.type});
  }
  ReadAs as = ReadAs::json;
  std::string format;
  if (binding) {
    format = formatted("{} ({})", to_string(binding->format), join(binding->columns, ", "));
    used = binding->columns;
    as = binding->read_as();
  }
  dataset.select(used, as);
  d.add_count("rows", dataset.rows());
  d.add("bytes", format_bytes(bytes_below(path)), bytes_below(path));
  d.add_count("units", static_cast<int64_t>(dataset.units().size()));
  d.add(
      "rows are",
      binding ? format + task_words(binding->format) : "none that auto knows; name columns with data.columns",
      binding ? nlohmann::ordered_json(format) : nlohmann::ordered_json(nullptr));
  d.tables.push_back(std::move(columns));
  return d;
}

}  // namespace plimsoll
