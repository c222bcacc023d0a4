#include "recipe/shell/variables.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/strings.h"
#include "recipe/document/document.h"

namespace plimsoll {

bool is_name_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

namespace {

size_t name_length(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return 0;
  size_t length = 0;
  while (length < text.size() && is_name_char(text[length])) ++length;
  return length;
}

constexpr int kMostNested = 16;

// The end of the ${ at `at`, with those inside of it.
size_t closing_brace(std::string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '{' && text[at - 1] == '$') ++depth;
    if (text[at] == '}' && --depth == 0) return at;
  }
  return std::string_view::npos;
}

// The end of the $( whose parenthesis is at `at`.
size_t closing_parenthesis(std::string_view text, size_t at) {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')' && --depth == 0) return at;
  }
  return std::string_view::npos;
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

// The folder that holds a path; relative ones are relative to the script's folder, so that "." lies in "..".
std::string folder_of(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  if (path == "." || path.empty()) return "..";
  if (path == ".." || path.ends_with("/..")) return path + "/..";
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Words of a command without where its words of complaint go.
std::vector<std::string> plain_words(const std::string& text) {
  std::vector<std::string> words;
  for (std::string& word : split(text, ' ')) {
    const bool after_redirect = !words.empty() && (words.back() == ">" || words.back() == "2>");
    if (after_redirect) words.pop_back();
    const bool redirects =
        word.size() > 1 && (word.starts_with('>') || word.starts_with("2>") || word.starts_with("&>"));
    if (!word.empty() && !after_redirect && !redirects) words.push_back(std::move(word));
  }
  return words;
}

// A variable that holds itself twice grows without end in a few lines.
struct TotalLength {
  size_t total = 0;
  void add(size_t length) {
    total += length;
    if (total > kMaxDocumentBytes) throw DocumentError(0, "has variables that grow beyond a recipe's size");
  }
};

constexpr int64_t kLargest = int64_t{1} << 40;  // beyond it nothing here is a number of anything

class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}
  std::optional<int64_t> read() {
    const auto value = sum(0);
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool takes(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  static std::optional<int64_t> bounded(int64_t value) {
    return value > kLargest || value < -kLargest ? std::nullopt : std::optional(value);
  }
  std::optional<int64_t> atom(int depth) {
    if (depth > 32) return std::nullopt;
    if (takes('(')) {
      const auto inner = sum(depth + 1);
      return takes(')') ? inner : std::nullopt;
    }
    skip();
    int64_t value = 0;
    const auto read = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (read.ec != std::errc()) return std::nullopt;
    at_ = static_cast<size_t>(read.ptr - text_.data());
    return bounded(value);
  }
  std::optional<int64_t> product(int depth) {
    auto left = atom(depth);
    while (left) {
      const char sign = takes('*') ? '*' : takes('/') ? '/' : takes('%') ? '%' : '\0';
      if (sign == '\0') return left;
      const auto right = atom(depth);
      if (!right || (sign != '*' && *right == 0)) return std::nullopt;
      const bool is_large = sign == '*' && *right != 0 && std::abs(*left) > kLargest / std::abs(*right);
      if (is_large) return std::nullopt;
      left = bounded(sign == '*' ? *left * *right : sign == '/' ? *left / *right : *left % *right);
    }
    return left;
  }
  std::optional<int64_t> sum(int depth) {
    auto left = product(depth);
    while (left) {
      const char sign = takes('+') ? '+' : takes('-') ? '-' : '\0';
      if (sign == '\0') return left;
      const auto right = product(depth);
      if (!right) return std::nullopt;
      left = bounded(sign == '+' ? *left + *right : *left - *right);
    }
    return left;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> whole_arithmetic(std::string_view text) { return Arithmetic(text).read(); }

bool is_unresolved(std::string_view text) {
  return text.find('$') != std::string_view::npos || text.find('`') != std::string_view::npos;
}

bool ShellVariables::knows(const std::string& name) const {
  const auto at = values_.find(name);
  return at != values_.end() && at->second.is_known;
}

std::optional<std::string> ShellVariables::value(std::string_view name) const {
  const auto at = values_.find(name);
  if (at == values_.end() || !at->second.is_known || at->second.values.size() != 1) return std::nullopt;
  return at->second.values.front();
}

namespace {

// Nothing, or an argument of the script, which is nothing where it is run by itself.
bool is_argument(const std::vector<std::string>& values) {
  if (values.size() != 1) return false;
  std::string_view text = values.front();
  if (text.starts_with("${") && text.ends_with('}')) text = text.substr(1, text.size() - 2);
  const bool is_position = text.size() == 2 && std::isdigit(static_cast<unsigned char>(text[1])) != 0;
  return text.empty() || is_position;
}

}  // namespace

// Expands what stands between ${ and }: NAME, NAME[i], NAME[@], NAME:-otherwise.
std::optional<ShellVariables::Values> ShellVariables::lookup(std::string_view inside, int depth) const {
  const bool is_position = !inside.empty() && std::isdigit(static_cast<unsigned char>(inside.front())) != 0;
  size_t length = name_length(inside);
  while (is_position && length < inside.size() &&
         std::isdigit(static_cast<unsigned char>(inside[length])) != 0)
    ++length;
  if (length == 0) return std::nullopt;
  const auto at = values_.find(inside.substr(0, length));
  const bool is_known = at != values_.end() && at->second.is_known;
  std::string_view rest = inside.substr(length);
  if (rest.empty() && is_known) return at->second.values;
  if (rest == "[@]" || rest == "[*]") return is_known ? std::optional(at->second.values) : std::nullopt;
  for (const std::string_view sign : {":-", "-", ":="}) {
    if (!rest.starts_with(sign)) continue;
    if (is_known && !is_argument(at->second.values)) return at->second.values;
    // In a branch it may have become something else.
    if (at != values_.end() && !is_known) return std::nullopt;
    std::string otherwise = joined(rest.substr(sign.size()), depth + 1);
    std::erase(otherwise, '"');
    return Values{otherwise};
  }
  if (!rest.starts_with('[') || !rest.ends_with(']') || !is_known) return std::nullopt;
  const auto index = arithmetic(rest.substr(1, rest.size() - 2), depth + 1);
  const auto count = static_cast<int64_t>(at->second.values.size());
  if (!index || *index < 0 || *index >= count) return std::nullopt;
  return Values{at->second.values[static_cast<size_t>(*index)]};
}

std::vector<ShellVariables::Part> ShellVariables::parts_of(std::string_view text, int depth) const {
  std::vector<Part> parts;
  size_t at = 0;
  TotalLength bound;
  const auto written = [&](size_t length) {
    bound.add(length);
    parts.push_back({std::string(text.substr(at, length)), false});
    at += length;
  };
  const auto found = [&](const Values& values, size_t length) {
    for (size_t i = 0; i < values.size(); ++i) {
      bound.add(values[i].size() + 1);
      if (i > 0) parts.push_back({" ", true});
      parts.push_back({values[i], true});
    }
    at += length;
  };
  while (at < text.size()) {
    if (text[at] != '$' || depth > kMostNested) {
      const size_t next = depth > kMostNested ? text.size() : std::min(text.find('$', at), text.size());
      written(next - at);
      continue;
    }
    const std::string_view rest = text.substr(at + 1);
    if (rest.starts_with("((") || rest.starts_with('[')) {  // $[...] is the older form
      const std::string_view close = rest.starts_with('[') ? "]" : "))";
      const bool is_older = rest.starts_with('[');
      const size_t last = is_older ? text.find(close, at) : closing_parenthesis(text, at + 1);
      const size_t begin = at + 1 + close.size();
      const size_t end = last == std::string_view::npos || is_older ? last : last - 1;
      if (end == std::string_view::npos || end < begin) {
        written(text.size() - at);
        continue;
      }
      const auto value = arithmetic(text.substr(begin, end - begin), depth + 1);
      const size_t length = end + close.size() - at;
      value ? found({std::to_string(*value)}, length) : written(length);
    } else if (rest.starts_with('{')) {
      const size_t end = closing_brace(text, at + 1);
      const size_t length = (end == std::string_view::npos ? text.size() : end + 1) - at;
      const auto values = lookup(text.substr(at + 2, length < 3 ? 0 : length - 3), depth);
      values ? found(*values, length) : written(length);
    } else if (rest.starts_with('(')) {
      const size_t end = closing_parenthesis(text, at + 1);
      const auto path = end == std::string_view::npos ? std::nullopt
                                                      : printed(text.substr(at + 2, end - at - 2), depth + 1);
      if (path)
        found({*path}, end + 1 - at);
      else
        written(text.size() - at);  // what a command prints; and what stands behind it
    } else {
      const size_t length = name_length(rest);
      const auto values = lookup(rest.substr(0, length), depth);
      values ? found(*values, length + 1)
             : written(std::max<size_t>(length, 1) + 1 > text.size() - at ? text.size() - at
                                                                          : std::max<size_t>(length, 1) + 1);
    }
  }
  return parts;
}

std::string ShellVariables::joined(std::string_view text, int depth) const {
  std::string all;
  for (const Part& part : parts_of(text, depth)) all += part.text;
  return all;
}

std::optional<std::string> ShellVariables::printed(std::string_view command, int depth) const {
  std::string written(command);
  for (const char* script :
       {"${BASH_SOURCE[0]:-$0}", "${BASH_SOURCE:-$0}", "${BASH_SOURCE[0]}", "$BASH_SOURCE", "$0"})
    replace_all(written, script, kThisScript);
  std::string text = joined(written, depth);
  std::erase_if(text, [](char c) { return c == '"' || c == '\''; });
  if (is_unresolved(text)) return std::nullopt;
  std::vector<std::string> words = plain_words(text);
  if (!words.empty() && words[0] == "expr") {
    std::erase(text, '\\');  // \* is a product
    const auto value = whole_arithmetic(std::string_view(text).substr(text.find("expr") + 4));
    return value ? std::optional(std::to_string(*value)) : std::nullopt;
  }
  std::erase_if(words, [](const std::string& word) {
    return word == "--" || word == "-P" || word == "-f" || word == "-m";
  });
  const bool asks_where =
      words.size() == 4 && words[0] == "cd" && (words[2] == "&&" || words[2] == ";") && words[3] == "pwd";
  if (asks_where) return words[1];
  if (words.size() == 1 && words[0] == "pwd") return ".";
  if (words.size() != 2) return std::nullopt;
  if (words[0] == "dirname") return folder_of(words[1]);
  if (words[0] == "realpath" || words[0] == "readlink") return words[1];
  if (words[0] == "basename") return words[1].substr(words[1].rfind('/') + 1);
  return std::nullopt;
}

namespace {

// $(nvidia-smi -L | wc -l) and the like: what prints the number of devices.
bool counts_devices(std::string_view text) {
  const bool of_smi =
      text.find("nvidia-smi") != std::string_view::npos && text.find("wc -l") != std::string_view::npos;
  return text.starts_with("$(") && (of_smi || text.find("device_count()") != std::string_view::npos);
}

// The number of devices is that of processes, which is 1 unless a key names another: a batch that is divided by it comes
// out whole.
std::string with_one_device(std::string text) {
  for (size_t at = text.find("$("); at != std::string::npos; at = text.find("$(", at + 1)) {
    const size_t end = closing_parenthesis(text, at + 1);
    if (end != std::string::npos && counts_devices(std::string_view(text).substr(at, end + 1 - at)))
      text.replace(at, end + 1 - at, "1");
  }
  return text;
}

}  // namespace

// Inside of $((...)) and of an array's index, names need no $.
std::optional<int64_t> ShellVariables::arithmetic(std::string_view text, int depth) const {
  const std::string all = with_one_device(joined(text, depth));
  std::string filled;
  for (size_t at = 0; at < all.size();) {
    const bool is_inside = at > 0 && (is_name_char(all[at - 1]) || all[at - 1] == '$');
    const size_t length = is_inside ? 0 : name_length(std::string_view(all).substr(at));
    const auto known = length == 0 ? std::nullopt : value(std::string_view(all).substr(at, length));
    const std::string number = known ? with_one_device(*known) : "";
    if (known && whole_arithmetic(number)) {
      filled += number;
      at += length;
    } else {
      filled += all[at++];
    }
  }
  return whole_arithmetic(filled);
}

std::vector<std::string> ShellVariables::expand(const ShellWord& word) const {
  std::vector<std::string> fields;
  bool is_open = false;
  const auto extend = [&](std::string_view text) {
    if (!is_open) fields.emplace_back();
    is_open = true;
    fields.back() += text;
  };
  for (const ShellPiece& piece : word.pieces) {
    if (piece.quote == Quote::single) {
      extend(piece.text);
      continue;
    }
    if (piece.quote == Quote::doubled) extend("");
    const bool is_array = piece.text.ends_with("[@]}");
    for (const Part& part : parts_of(piece.text)) {
      const bool splits = part.may_split && (piece.quote == Quote::none || (is_array && part.text == " "));
      if (!splits) {
        extend(part.text);
        continue;
      }
      int depth = 0;  // inside of a $(...) that was not run
      for (size_t i = 0; i < part.text.size(); ++i) {
        const char c = part.text[i];
        if (c == '(' && (depth > 0 || (i > 0 && part.text[i - 1] == '$'))) ++depth;
        if (c == ')' && depth > 0) --depth;
        if (depth == 0 && std::isspace(static_cast<unsigned char>(c)) != 0)
          is_open = false;
        else
          extend(std::string_view(&c, 1));
      }
    }
  }
  return fields;
}

bool ShellVariables::assign(const ShellWord& word, bool is_certain) {
  if (word.pieces.empty() || word.pieces.front().quote != Quote::none) return false;
  const std::string& head = word.pieces.front().text;
  const size_t length = name_length(head);
  const bool appends = length > 0 && head.substr(length).starts_with("+=");
  if (length == 0 || (!appends && !head.substr(length).starts_with("="))) return false;
  const std::string name = head.substr(0, length);
  ShellWord rest = word;
  rest.pieces.front().text.erase(0, length + (appends ? 2U : 1U));
  Values values;
  TotalLength bound;
  if (!word.items.empty()) {
    for (const ShellWord& item : word.items)
      for (std::string& field : expand(item)) {
        bound.add(field.size() + 1);
        values.push_back(std::move(field));
      }
  } else {
    std::string text;  // an assignment is not split
    for (const ShellPiece& piece : rest.pieces)
      if (piece.quote == Quote::single)
        text += piece.text;
      else
        for (const Part& part : parts_of(piece.text)) {
          bound.add(part.text.size());
          text += part.text;
        }
    values = {text};
  }
  Value& known = values_[name];
  if (appends && !known.is_known) return true;
  if (appends)
    for (const std::string& value : known.values) bound.add(value.size() + 1);
  if (appends && word.items.empty())
    values = {known.values.empty() ? values.front() : known.values.front() + values.front()};
  else if (appends)
    values.insert(values.begin(), known.values.begin(), known.values.end());
  known = is_certain ? Value{values, true} : Value{{}, false};
  return true;
}

}  // namespace plimsoll
