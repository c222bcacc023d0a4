#include "files/json.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/units.h"
#include "files/file.h"
#include "files/json_values.h"
#include "files/long_strings.h"

namespace plimsoll {
namespace {

using nlohmann::json;

// Goes through the text before anything is made of it, and stops at the first broken limit. (A callback of
// the parser would do both at once, but json.hpp looks through all members of an object after each object in
// it.)
class LimitGuard : public nlohmann::json_sax<json> {
 public:
  LimitGuard(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override {
    if (limits_.unique_keys) open_objects_.emplace_back();
    return open();
  }
  bool key(string_t& name) override {
    if (limits_.unique_keys && !open_objects_.back().insert(name).second)
      throw DamagedError(formatted("{}: names '{}' twice.", where_, name));
    return true;
  }
  bool end_object() override {
    if (limits_.unique_keys) open_objects_.pop_back();
    return close();
  }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    throw DamagedError(formatted("{}: is not valid JSON: {}.", where_, reason_of(error)));
  }

 private:
  bool open() {
    if (++depth_ > limits_.max_depth)
      throw DamagedError(formatted("{}: is nested deeper than {} levels.", where_, limits_.max_depth));
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& where_;
  const JsonLimits& limits_;
  int depth_ = 0;
  std::vector<std::set<std::string>> open_objects_;
};

// Checks that JSON, as far as it is there, stays within the depth: by its brackets outside of strings, in a
// tenth of the time of the guard.
bool is_shallow(std::string_view text, int max_depth) {
  if (std::count(text.begin(), text.end(), '[') + std::count(text.begin(), text.end(), '{') <= max_depth)
    return true;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      while (++i < text.size() && text[i] != '"')
        if (text[i] == '\\') ++i;
    } else if (c == '{' || c == '[') {
      if (++depth > max_depth) return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

using nlohmann::ordered_json;

// Builds values while it checks the limits, so that a refused text never takes more memory than they allow.
// (The library's own parser looks through all members of an object after each object in it when it has a
// callback.)
class OrderedBuilder : public nlohmann::json_sax<ordered_json> {
 public:
  OrderedBuilder(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override {
    return value.size() < kLongString ? add(value) : add(std::move(value));
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(ordered_json::value_t::object); }
  bool key(string_t& name) override {
    if (stack_.empty()) {
      target_ = depth_ == 1 ? outer_member(name) : nullptr;
      return true;
    }
    ordered_json& object = *stack_.back();
    target_ = &object[name];
    if (static_cast<int64_t>(object.size()) > limits_.max_keys)
      throw DamagedError(
          formatted("{}: has an object of more than {} keys.", where_, format_count(limits_.max_keys)));
    *target_ = nullptr;  // of a key that comes twice the last value counts
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(ordered_json::value_t::array); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    throw DamagedError(formatted("{}: is not valid JSON: {}.", where_, reason_of(error)));
  }

 protected:
  // The place for values outside of any open one: null for values that are not kept.
  virtual ordered_json* outer_member(const std::string& name) = 0;
  // True if an outermost object is made of outer members instead of being a value.
  [[nodiscard]] virtual bool has_outer_object() const { return false; }
  void keep_in(ordered_json& root) { target_ = &root; }

 private:
  template <class Value>
  bool add(Value&& value) {
    if (depth_ == 0 && has_outer_object()) refuse_outer(ordered_json(value));
    place(std::forward<Value>(value));
    return true;
  }
  template <class Value>
  ordered_json* place(Value&& value) {
    if (stack_.empty() && target_ == nullptr) return nullptr;
    if (++values_ > limits_.max_values)
      throw DamagedError(formatted("{}: has more than {} values.", where_, format_count(limits_.max_values)));
    if (!stack_.empty() && stack_.back()->is_array())
      return &stack_.back()->emplace_back(std::forward<Value>(value));
    *target_ = ordered_json(std::forward<Value>(value));
    return target_;
  }
  bool open(ordered_json::value_t type) {
    if (++depth_ > limits_.max_depth)
      throw DamagedError(formatted("{}: is nested deeper than {} levels.", where_, limits_.max_depth));
    if (depth_ == 1 && has_outer_object()) {
      if (type == ordered_json::value_t::array) refuse_outer(ordered_json::array());
      return true;
    }
    if (ordered_json* const opened = place(type)) stack_.push_back(opened);
    return true;
  }
  bool close() {
    --depth_;
    if (!stack_.empty()) stack_.pop_back();
    return true;
  }
  [[noreturn]] void refuse_outer(const ordered_json& value) const {
    throw DamagedError(formatted("{}: is {}, not an object.", where_, describe_kind(value)));
  }

  const std::string& where_;
  const JsonLimits& limits_;
  std::vector<ordered_json*> stack_;  // the open containers that are kept, outermost first
  ordered_json* target_ = nullptr;    // where the next value outside of an array goes
  int64_t depth_ = 0;
  int64_t values_ = 0;
};

class WholeValue final : public OrderedBuilder {
 public:
  WholeValue(const std::string& where, const JsonLimits& limits) : OrderedBuilder(where, limits) {
    keep_in(root_);
  }
  ordered_json take() { return std::move(root_); }

 private:
  ordered_json* outer_member(const std::string&) override { return nullptr; }
  ordered_json root_;
};

class Members final : public OrderedBuilder {
 public:
  Members(std::span<const std::string> names, const std::string& where, const JsonLimits& limits)
      : OrderedBuilder(where, limits), values_(names.size()) {
    for (size_t i = 0; i < names.size(); ++i) numbers_.emplace(names[i], i);
  }
  std::vector<ordered_json> take() { return std::move(values_); }

 private:
  ordered_json* outer_member(const std::string& name) override {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? nullptr : &(values_[found->second] = nullptr);
  }
  [[nodiscard]] bool has_outer_object() const override { return true; }
  std::map<std::string, size_t> numbers_;
  std::vector<ordered_json> values_;
};

std::string kind_name(json::value_t type) {
  switch (type) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "true or false";
    default:
      return "a number";
  }
}

// At most `bytes` of the text, not ending within a character.
std::string_view first_bytes(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  while (bytes > 0 && continues(bytes)) --bytes;
  return text.substr(0, bytes);
}

}  // namespace

std::string reason_of(const json::exception& error) {
  constexpr size_t kMostBytes = 300;  // it quotes what was read last: a row may have megabytes
  const std::string_view text = error.what();
  const size_t head = text.find("] ");
  const std::string_view reason = head == std::string_view::npos ? text : text.substr(head + 2);
  const std::string_view shown = first_bytes(reason, kMostBytes);
  // Bytes that are no UTF-8, the commonest of reasons, would spoil the terminal and the log.
  std::string readable(shown);
  try {
    (void)json(readable).dump();
  } catch (const json::exception&) {
    for (char& c : readable)
      if (static_cast<unsigned char>(c) >= 0x80U) c = '?';
  }
  return shown.size() < reason.size() ? readable + "..." : readable;
}

json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  if (!limits.unique_keys && is_shallow(text, limits.max_depth))
    if (json value = json::parse(text.begin(), text.end(), nullptr, false); !value.is_discarded())
      return value;
  LimitGuard guard(where, limits);  // says what is wrong
  json::sax_parse(text.begin(), text.end(), &guard);
  return json::parse(text.begin(), text.end());
}

ordered_json parse_ordered_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  WholeValue builder(where, limits);
  parse_sparingly(text, builder);
  return builder.take();
}

std::vector<ordered_json> parse_members(std::string_view text, std::span<const std::string> names,
                                        const std::string& where, const JsonLimits& limits) {
  Members builder(names, where, limits);
  parse_sparingly(text, builder);
  return builder.take();
}

json read_json(const std::filesystem::path& path, int64_t max_bytes, const JsonLimits& limits) {
  return parse_json(read_text(path, max_bytes), path.string(), limits);
}

std::string describe_kind(const json& value) { return kind_name(value.type()); }
std::string describe_kind(const nlohmann::ordered_json& value) { return kind_name(value.type()); }

}  // namespace plimsoll
