#include "recipe/translate/read_file.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_ending.h"
#include "base/format.h"
#include "base/regular_file.h"

namespace plimsoll {
namespace {

std::string read_standard_input() {
  std::string text(kMaxDocumentBytes + 1, '\0');
  std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (std::cin.bad()) throw UsageError(formatted("{}: cannot be read", kStandardInputWords));
  text.resize(static_cast<size_t>(std::cin.gcount()));
  return text;
}

bool is_json_name(const std::string& file, const std::string& text) {
  if (file != kStandardInput) return ending_of(file) == ".json";
  return nlohmann::json::accept(text);
}

std::string shown_name(const std::string& file) {
  return file == kStandardInput ? kStandardInputWords : file;
}

// At most one byte more than a document may have: enough to see that it is too long.
std::string read_text_of(const std::string& file) {
  if (file == kStandardInput) return standard_input();
  std::error_code unknown;  // what cannot be looked at cannot be opened either
  if (std::filesystem::is_directory(file, unknown))
    throw UsageError(file + ": is a folder, not a recipe; `plimsoll plan FOLDER` takes a model's folder");
  // A stream that the shell handed over, as <(...) and /dev/stdin are, is read as it comes.
  if (!file.starts_with("/dev/") && !file.starts_with("/proc/self/fd/"))
    return read_start(file, static_cast<int64_t>(kMaxDocumentBytes) + 1);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw UsageError(formatted("{}: cannot be opened: {}", file, std::strerror(errno)));
  std::string text(kMaxDocumentBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) throw UsageError(formatted("{}: cannot be read: {}", file, std::strerror(errno)));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

// The kind of a file that is not YAML; "" where it may be meant as YAML.
std::string other_kind(std::string_view text, const Source& source) {
  const std::string end = ending_of(source.name);
  if (text.starts_with("#!") || end == ".py")
    return "a program, not a recipe: a recipe is a map of keys, in YAML or JSON";
  if (end == ".md" || text.find("\n```") != std::string_view::npos || text.starts_with("```"))
    return "a document, not a recipe: save the lines of the recipe in it (between ``` and ```) in a file of "
           "their own";
  if (text.starts_with("PK\x03\x04")) return "a zip file, not a recipe";
  return "";
}

template <class Read>
Node read_document(std::string_view text, const Source& source, Read read) {
  try {
    return read(text);
  } catch (const DocumentError& error) {
    if (const std::string kind = source.has_lines ? other_kind(text, source) : ""; !kind.empty())
      throw UsageError(formatted("{}: is {}", source.name, kind));
    throw UsageError(formatted("{}: {}", source.place(error.line), error.what()));
  }
}

}  // namespace

const std::string& standard_input() {
  static const std::string text = read_standard_input();
  return text;
}

Node read_tree(const std::string& file) {
  const Source source = {shown_name(file), true, {}};
  const std::string text = read_text_of(file);
  return read_document(text, source, is_json_name(file, text) ? read_json : read_yaml);
}

NamedTraining named_training(const std::string& file) {
  const size_t colon = file.rfind(':');
  std::error_code unknown;
  if (colon == std::string::npos || std::filesystem::exists(file, unknown)) return {file, {}};
  const std::string script = file.substr(0, colon);
  int line = 0;
  const char* const end = file.data() + file.size();
  const auto read = std::from_chars(file.data() + colon + 1, end, line);
  if (read.ec != std::errc() || read.ptr != end || line < 1 || !std::filesystem::exists(script, unknown))
    return {file, {}};
  return {script, line};
}

RecipeText read_recipe_text(const NamedTraining& named) {
  const std::string& file = named.file;
  const Source source = {shown_name(file), true, {}};
  const std::string text = read_text_of(file);
  RecipeText read;
  if (named.line && !is_shell_script(text, file))
    throw UsageError(formatted("{}: is no shell script, of which :{} could name a training by its line",
                               source.name, *named.line));
  if (is_shell_script(text, file)) {
    try {
      read.training = read_shell_training(text, named.line, std::filesystem::absolute(file).parent_path());
    } catch (const DocumentError& error) {
      throw UsageError(formatted("{}: {}", source.place(error.line), error.what()));
    }
  } else {
    read.root = read_document(text, source, is_json_name(file, text) ? read_json : read_yaml);
  }
  return read;
}

Node read_yaml_of(std::string_view text, const Source& source) {
  return read_document(text, source, read_yaml);
}

}  // namespace plimsoll
