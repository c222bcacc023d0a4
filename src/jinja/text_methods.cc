// Methods of str.
#include <unicode/uchar.h>

#include <algorithm>

#include "base/format.h"
#include "jinja/library.h"
#include "jinja/python_text.h"
#include "unicode/utf8.h"

namespace plimsoll::jinja {
namespace {

using Parts = std::vector<std::string_view>;

// str.split(): at runs of white space.
Parts split_at_space(std::string_view text, int64_t most) {
  Parts parts;
  for (text = strip_left(text); !text.empty(); text = strip_left(text)) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    for (size_t at = 0; at < text.size(); end = at)
      if (is_space(next_code_point(text, at))) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return parts;
}

Parts rsplit_at_space(std::string_view text, int64_t most) {
  Parts parts;
  for (text = strip_right(text); !text.empty(); text = strip_right(text)) {
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(text);
      break;
    }
    size_t start = text.size();
    while (start > 0) {
      const Utf8Char before = decode_utf8_before(text.data() + start);
      if (is_space(before.code)) break;
      start -= before.bytes;
    }
    parts.push_back(text.substr(start));
    text = text.substr(0, start);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Parts split_at(std::string_view text, std::string_view separator, int64_t most) {
  Parts parts;
  size_t start = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t end = text.find(separator, start);
    if (end == std::string_view::npos) break;
    parts.push_back(text.substr(start, end - start));
    start = end + separator.size();
  }
  parts.push_back(text.substr(start));
  return parts;
}

Parts rsplit_at(std::string_view text, std::string_view separator, int64_t most) {
  Parts parts;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(at + separator.size()));
    text = text.substr(0, at);
  }
  parts.push_back(text);
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Value list_of(Runtime& runtime, const Parts& parts) {
  std::vector<Value> items;
  for (const std::string_view part : parts) runtime.append(items, runtime.make_text(std::string(part)));
  return Value::list(std::move(items));
}

Value split(Runtime& runtime, const std::string& text, const Arguments& arguments, bool from_right) {
  const auto given = arguments.bind({"sep", "maxsplit"});
  int64_t most = integer_of(given[1], -1, "maxsplit");
  // One part more than a list may have: enough to be refused.
  if (most < 0) most = static_cast<int64_t>(runtime.limits().value_bytes / 16);
  if (given[0] == nullptr || given[0]->is(Type::none))
    return list_of(runtime, from_right ? rsplit_at_space(text, most) : split_at_space(text, most));
  const std::string& separator = text_of(*given[0], "split");
  if (separator.empty()) fail("split: the separator is empty");
  return list_of(runtime, from_right ? rsplit_at(text, separator, most) : split_at(text, separator, most));
}

Value strip(Runtime& runtime, const std::string& text, const Arguments& arguments, bool left, bool right) {
  const auto given = arguments.bind({"chars"});
  const bool any = given[0] != nullptr && !given[0]->is(Type::none);
  const std::string* chars = any ? &text_of(*given[0], "strip") : nullptr;
  if (chars != nullptr) {
    // Each character of the text may be compared with each of `chars`.
    runtime.charge(static_cast<int64_t>(std::min(text.size() * (chars->size() / 16), size_t{1} << 40)));
  }
  std::string_view rest = text;
  if (left) rest = strip_left(rest, chars);
  if (right) rest = strip_right(rest, chars);
  return runtime.make_text(std::string(rest));
}

bool has_affix(const std::string& text, const Arguments& arguments, bool at_start) {
  const Value& affix = *arguments.bind({"affix"}, 1)[0];
  const auto matches = [&](const Value& value) {
    const std::string& part = text_of(value, at_start ? "startswith" : "endswith");
    return at_start ? text.starts_with(part) : text.ends_with(part);
  };
  if (!affix.is(Type::tuple)) return matches(affix);
  return std::any_of(affix.items().begin(), affix.items().end(), matches);
}

Value find(const std::string& text, const std::string& name, const Arguments& arguments) {
  const std::string& part = text_of(*arguments.bind({"sub"}, 1)[0], name.c_str());
  const size_t at = name == "rfind" ? text.rfind(part) : text.find(part);
  if (at != std::string::npos)
    return Value::integer(static_cast<int64_t>(count_code_points(std::string_view(text).substr(0, at))));
  if (name == "index") fail(formatted("index: the text has no '{}'", part.substr(0, 40)));
  return Value::integer(-1);
}

int64_t count(const std::string& text, const Arguments& arguments) {
  const std::string& part = text_of(*arguments.bind({"sub"}, 1)[0], "count");
  if (part.empty()) return static_cast<int64_t>(count_code_points(text)) + 1;
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

Value joined(Runtime& runtime, const std::string& separator, const Arguments& arguments) {
  const Value& parts = *arguments.bind({"parts"}, 1)[0];
  std::string text;
  bool first = true;
  for (const Value& part : iterate(runtime, parts)) {
    if (!first) runtime.append(text, separator);
    first = false;
    runtime.append(text, text_of(part, "join"));
  }
  return runtime.make_text(std::move(text));
}

Value lines_of(Runtime& runtime, const std::string& text, const Arguments& arguments) {
  const bool keep_ends = flag_of(arguments.bind({"keepends"})[0]);
  const Parts lines = split_lines(text);
  if (!keep_ends) return list_of(runtime, lines);
  std::vector<Value> items;
  const char* end = text.data() + text.size();
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* next = i + 1 < lines.size() ? lines[i + 1].data() : end;
    runtime.append(items, runtime.make_text(std::string(lines[i].data(), next)));
  }
  return Value::list(std::move(items));
}

bool is_digits(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto kind =
        u_getIntPropertyValue(static_cast<UChar32>(next_code_point(text, at)), UCHAR_NUMERIC_TYPE);
    if (kind != U_NT_DECIMAL && kind != U_NT_DIGIT) return false;
  }
  return !text.empty();
}

Value without_affix(Runtime& runtime, const std::string& text, const Arguments& arguments, bool at_start) {
  const std::string& affix = text_of(*arguments.bind({"affix"}, 1)[0], "the affix");
  if (at_start ? !text.starts_with(affix) : !text.ends_with(affix)) return runtime.make_text(text);
  return runtime.make_text(at_start ? text.substr(affix.size()) : text.substr(0, text.size() - affix.size()));
}

// Methods without arguments.
std::optional<Value> call_plain(Runtime& runtime, const std::string& text, const std::string& name) {
  if (name == "upper") return runtime.make_text(to_upper(text));
  if (name == "lower") return runtime.make_text(to_lower(text));
  if (name == "title") {
    runtime.charge(static_cast<int64_t>(text.size()));  // every letter is mapped by itself
    return runtime.make_text(python_title(text));
  }
  if (name == "capitalize") return runtime.make_text(capitalize(text));
  if (name == "isdigit") return Value::boolean(is_digits(text));
  if (name == "isspace") return Value::boolean(!text.empty() && is_space(text));
  if (name == "isupper") return Value::boolean(is_all_upper(text));
  if (name == "islower") return Value::boolean(is_all_lower(text));
  return std::nullopt;
}

}  // namespace

std::string replace_all(const Runtime& runtime, std::string_view text, std::string_view old,
                        std::string_view replacement, int64_t count) {
  std::string out;
  size_t at = 0;
  while (count != 0) {
    // An empty text stands before every character and at the end.
    const size_t found = old.empty() ? at : text.find(old, at);
    if (found == std::string_view::npos) break;
    runtime.append(out, text.substr(at, found - at));
    runtime.append(out, replacement);
    --count;
    at = found + old.size();
    if (!old.empty()) continue;
    if (at == text.size()) return out;
    const size_t start = at;
    next_code_point(text, at);
    runtime.append(out, text.substr(start, at - start));
  }
  runtime.append(out, text.substr(at));
  return out;
}

std::optional<Value> call_text_method(Runtime& runtime, const std::string& text, const std::string& name,
                                      const Arguments& arguments) {
  // At worst a search compares all of what it looks for at every place.
  size_t compared = 1;
  for (const Value& value : arguments.positional)
    if (value.is(Type::string)) compared += value.text().size() / 64;
  runtime.charge(static_cast<int64_t>(text.size() / 16 * compared));
  if (name == "split" || name == "rsplit") return split(runtime, text, arguments, name == "rsplit");
  if (name == "strip") return strip(runtime, text, arguments, true, true);
  if (name == "lstrip") return strip(runtime, text, arguments, true, false);
  if (name == "rstrip") return strip(runtime, text, arguments, false, true);
  if (name == "startswith") return Value::boolean(has_affix(text, arguments, true));
  if (name == "endswith") return Value::boolean(has_affix(text, arguments, false));
  if (name == "removeprefix") return without_affix(runtime, text, arguments, true);
  if (name == "removesuffix") return without_affix(runtime, text, arguments, false);
  if (name == "find" || name == "rfind" || name == "index") return find(text, name, arguments);
  if (name == "count") return Value::integer(count(text, arguments));
  if (name == "join") return joined(runtime, text, arguments);
  if (name == "splitlines") return lines_of(runtime, text, arguments);
  if (name == "replace") {
    const auto given = arguments.bind({"old", "new", "count"}, 2);
    return runtime.make_text(replace_all(runtime, text, text_of(*given[0], "replace"),
                                         text_of(*given[1], "replace"), integer_of(given[2], -1, "count")));
  }
  auto result = call_plain(runtime, text, name);
  if (result) (void)arguments.bind({});
  return result;
}

}  // namespace plimsoll::jinja
