// The filter tojson: json.dumps of Python.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/format.h"
#include "jinja/python_text.h"
#include "jinja/runtime.h"

namespace plimsoll::jinja {
namespace {

class JsonPrinter {
 public:
  JsonPrinter(Runtime& runtime, bool ascii, bool sorted)
      : runtime_(runtime), ascii_(ascii), sorted_(sorted) {}

  bool indented = false;
  std::string indent;
  std::string item_separator;
  std::string key_separator;
  std::string out;

  void print(const Value& value) {
    runtime_.charge(1);
    switch (value.type()) {
      case Type::none:
        return add("null");
      case Type::boolean:
        return add(value.as_boolean() ? "true" : "false");
      case Type::integer:
        return add(std::to_string(value.as_integer()));
      case Type::real:
        return add(number(value.as_real()));
      case Type::string:
        return text(value.text());
      case Type::list:
      case Type::tuple:
        return list(value.items());
      case Type::dict:
        return dict(value.dict());
      default:
        fail(formatted(
            "tojson: a {} is no JSON{}", type_name(value),
            value.is(Type::undefined) && !value.text().empty() ? formatted(" ({})", value.text()) : ""));
    }
  }

 private:
  void add(std::string_view text) { runtime_.append(out, text); }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return repr(value);
  }

  void line() {
    if (!indented) return;
    add("\n");
    for (int i = 0; i < depth_; ++i) add(indent);
  }

  void list(const std::vector<Value>& items) {
    if (items.empty()) return add("[]");
    add("[");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(item_separator);
      line();
      print(items[i]);
    }
    --depth_;
    line();
    add("]");
  }

  void dict(const Dict& dict) {
    if (dict.items.empty()) return add("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (sorted_)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto* a, const auto* b) { return compare(a->first, b->first) < 0; });
    add("{");
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) add(item_separator);
      line();
      key(items[i]->first);
      add(key_separator);
      print(items[i]->second);
    }
    --depth_;
    line();
    add("}");
  }

  void key(const Value& key) {
    if (key.is(Type::string)) return text(key.text());
    if (!key.is_number() && !key.is(Type::none)) fail(formatted("tojson: a {} is no key", type_name(key)));
    add("\"");
    print(key);
    add("\"");
  }

  void text(std::string_view value) {
    add("\"");
    for (size_t at = 0; at < value.size();) {
      const size_t start = at;
      const char32_t code = next_code_point(value, at);
      static constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
      static constexpr std::string_view kNames = "\"\\nrtfb";
      const size_t known = code < 0x80 ? kPlain.find(static_cast<char>(code)) : std::string_view::npos;
      if (known != std::string_view::npos)
        add(std::string("\\") + kNames[known]);
      else if (code < 0x20 || (ascii_ && code >= 0x7F))
        escape(code);
      else
        add(value.substr(start, at - start));
    }
    add("\"");
  }

  void escape(char32_t code) {
    const auto unit = [this](unsigned value) {
      std::array<char, 8> buffer{};
      std::snprintf(buffer.data(), buffer.size(), "\\u%04x", value & 0xFFFFU);
      add(buffer.data());
    };
    if (code < 0x10000) return unit(code);
    unit(0xD800 + ((code - 0x10000) >> 10));
    unit(0xDC00 + ((code - 0x10000) & 0x3FF));
  }

  Runtime& runtime_;
  bool ascii_;
  bool sorted_;
  int depth_ = 0;
};

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const Value& indent, bool ascii, bool sorted,
                    const std::optional<std::pair<std::string, std::string>>& separators) {
  JsonPrinter printer(runtime, ascii, sorted);
  printer.indented = !indent.is(Type::none) && !indent.is(Type::undefined);
  if (printer.indented) {
    if (indent.is(Type::string)) {
      printer.indent = indent.text();
    } else {
      const int64_t width = std::max<int64_t>(0, to_integer(indent, "tojson: indent"));
      if (width > 1000) fail(formatted("tojson: an indent of {} is too wide", width));
      printer.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  printer.item_separator = separators ? separators->first : (printer.indented ? "," : ", ");
  printer.key_separator = separators ? separators->second : ": ";
  printer.print(value);
  return std::move(printer.out);
}

}  // namespace plimsoll::jinja
