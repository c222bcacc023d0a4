#include "recipe/translate/read_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/format.h"
#include "base/regular_file.h"

namespace plimsoll {
namespace {

// At most one byte more than a document may have: enough to see that it is too long.
std::string read_text_of(const std::string& file) {
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
  const std::string end = std::filesystem::path(source.name).extension().string();
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

Node read_tree(const std::string& file) {
  const Source source = {file, true, {}};
  const bool is_json = std::filesystem::path(file).extension() == ".json";
  return read_document(read_text_of(file), source, is_json ? read_json : read_yaml);
}

RecipeText read_recipe_text(const std::string& file) {
  const Source source = {file, true, {}};
  const std::string text = read_text_of(file);
  RecipeText read;
  if (is_shell_script(text, file)) {
    try {
      read.training = read_shell_training(text);
    } catch (const DocumentError& error) {
      throw UsageError(formatted("{}: {}", source.place(error.line), error.what()));
    }
  } else {
    const bool is_json = std::filesystem::path(file).extension() == ".json";
    read.root = read_document(text, source, is_json ? read_json : read_yaml);
  }
  return read;
}

Node read_yaml_of(std::string_view text, const Source& source) {
  return read_document(text, source, read_yaml);
}

}  // namespace plimsoll
