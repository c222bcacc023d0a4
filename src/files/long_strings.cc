#include "files/long_strings.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace plimsoll {
namespace {

using nlohmann::json;

// The bytes that stand together from `at` on: an escape, of a first surrogate with the second one, or a byte.
size_t step_at(std::string_view text, size_t at) {
  if (text[at] != '\\') return 1;
  if (text.substr(at, 2) != "\\u") return 2;
  constexpr size_t kEscape = 6;
  const std::string_view code = text.substr(at, kEscape).substr(2);
  const bool first = code.size() == 4 && (code[0] == 'd' || code[0] == 'D') &&
                     std::string_view("89abAB").find(code[1]) != std::string_view::npos;
  return first ? 2 * kEscape : kEscape;
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

// The end of the string that begins behind its quote; the end of the text where it has none.
size_t end_of_string(std::string_view text, size_t at) {
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return std::min(at, text.size());
}

// The value of a string by the library, piece by piece; none where it is not one.
std::optional<std::string> value_of(std::string_view raw) {
  constexpr size_t kPiece = size_t{32} << 10;
  std::string value, quoted;
  value.reserve(raw.size());
  for (size_t begin = 0; begin < raw.size();) {
    size_t end = begin;
    while (end < raw.size() && (end - begin < kPiece || continues_character(raw[end])))
      end += step_at(raw, end);
    end = std::min(end, raw.size());
    quoted.assign(1, '"').append(raw.substr(begin, end - begin)) += '"';
    const json piece = json::parse(quoted, nullptr, false);
    if (!piece.is_string()) return std::nullopt;
    value += piece.get_ref<const std::string&>();
    begin = end;
  }
  if (value.size() < raw.size() - raw.size() / 8) value.shrink_to_fit();  // many escapes
  return value;
}

// A text without its long strings, and these by the number that each has among all strings.
struct Shortened {
  std::string text;
  std::vector<std::pair<int64_t, std::string_view>> taken_out;
};

Shortened without_long_strings(std::string_view text) {
  Shortened shortened;
  size_t copied = 0;
  int64_t number = 0;
  for (size_t at = text.find('"'); at < text.size(); at = text.find('"', at), ++number) {
    const size_t begin = at + 1, end = end_of_string(text, begin);
    at = end + 1;
    if (end - begin < kLongString || end == text.size()) continue;
    const size_t next = text.find_first_not_of(" \t\r\n", at);
    if (next < text.size() && text[next] == ':') continue;  // a key
    shortened.text += text.substr(copied, begin - copied);
    copied = end;
    shortened.taken_out.emplace_back(number, text.substr(begin, end - begin));
  }
  if (copied > 0) shortened.text += text.substr(copied);
  return shortened;
}

// Says of a whole text what is wrong with it.
template <class Json>
class Fault final : public nlohmann::json_sax<Json> {
 public:
  explicit Fault(nlohmann::json_sax<Json>& handler) : handler_(handler) {}
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename Json::number_integer_t) override { return true; }
  bool number_unsigned(typename Json::number_unsigned_t) override { return true; }
  bool number_float(typename Json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(typename Json::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string& token, const json::exception& error) override {
    return handler_.parse_error(position, token, error);
  }

 private:
  nlohmann::json_sax<Json>& handler_;
};

// Puts the strings that were taken out back to their places.
template <class Json>
class Restoring final : public nlohmann::json_sax<Json> {
 public:
  Restoring(std::string_view text, const Shortened& shortened, nlohmann::json_sax<Json>& handler)
      : text_(text), next_(shortened.taken_out.begin()), end_(shortened.taken_out.end()), handler_(handler) {}

  bool null() override { return handler_.null(); }
  bool boolean(bool value) override { return handler_.boolean(value); }
  bool number_integer(typename Json::number_integer_t value) override {
    return handler_.number_integer(value);
  }
  bool number_unsigned(typename Json::number_unsigned_t value) override {
    return handler_.number_unsigned(value);
  }
  bool number_float(typename Json::number_float_t value, const std::string& text) override {
    return handler_.number_float(value, text);
  }
  bool string(std::string& value) override {
    if (next_ == end_ || next_->first != number_++) return handler_.string(value);
    std::optional<std::string> whole = value_of((next_++)->second);
    return whole ? handler_.string(*whole) : say_fault();
  }
  bool binary(typename Json::binary_t& value) override { return handler_.binary(value); }
  bool start_object(size_t elements) override { return handler_.start_object(elements); }
  bool key(std::string& name) override {
    ++number_;
    return handler_.key(name);
  }
  bool end_object() override { return handler_.end_object(); }
  bool start_array(size_t elements) override { return handler_.start_array(elements); }
  bool end_array() override { return handler_.end_array(); }
  bool parse_error(size_t, const std::string&, const json::exception&) override { return say_fault(); }

 private:
  bool say_fault() {
    Fault<Json> fault(handler_);
    const bool is_sound = Json::sax_parse(text_.begin(), text_.end(), &fault);
    check_internal(!is_sound, "JSON with a long string is read otherwise than without");
    return false;
  }

  std::string_view text_;
  std::vector<std::pair<int64_t, std::string_view>>::const_iterator next_, end_;
  nlohmann::json_sax<Json>& handler_;
  int64_t number_ = 0;
};

template <class Json>
void parse(std::string_view text, nlohmann::json_sax<Json>& handler) {
  const Shortened shortened = text.size() < kLongString ? Shortened{} : without_long_strings(text);
  if (shortened.taken_out.empty()) {
    Json::sax_parse(text.begin(), text.end(), &handler);
    return;
  }
  Restoring<Json> restoring(text, shortened, handler);
  Json::sax_parse(shortened.text.begin(), shortened.text.end(), &restoring);
}

}  // namespace

void parse_sparingly(std::string_view text, nlohmann::json_sax<nlohmann::json>& handler) {
  parse(text, handler);
}

void parse_sparingly(std::string_view text, nlohmann::json_sax<nlohmann::ordered_json>& handler) {
  parse(text, handler);
}

}  // namespace plimsoll
