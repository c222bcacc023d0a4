#include <iterator>
#include <nlohmann/json.hpp>

#include "recipe/document/document.h"

namespace plimsoll {
namespace {

// Walks the text and keeps the line of the last character read: nlohmann's events carry no position. The
// lexer reads at most one character too many (after a number), and a line break still counts to the line it
// ends.
class LineIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineIterator(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineIterator& operator++() {
    if (after_break_) ++*line_;
    after_break_ = *at_ == '\n';
    ++at_;
    return *this;
  }
  LineIterator operator++(int) {
    LineIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const LineIterator& a, const LineIterator& b) { return a.at_ == b.at_; }
  friend bool operator!=(const LineIterator& a, const LineIterator& b) { return a.at_ != b.at_; }

 private:
  const char* at_;
  int* line_;
  bool after_break_ = false;
};

class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonEvents(TreeBuilder& tree, const int& line) : tree_(tree), line_(line) {}

  bool null() override { return tree_.null(line_), true; }
  bool boolean(bool value) override { return plain(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return plain(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return plain(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& as_written) override {
    return plain(as_written);
  }
  bool string(string_t& value) override { return tree_.scalar(value, true, line_), true; }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return tree_.open(Node::Kind::map, line_), true; }
  bool key(string_t& value) override { return tree_.scalar(value, true, line_), true; }
  bool end_object() override { return tree_.close(), true; }
  bool start_array(std::size_t /*size*/) override { return tree_.open(Node::Kind::list, line_), true; }
  bool end_array() override { return tree_.close(), true; }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 2: syntax error ..."
    const std::string_view what = error.what();
    const size_t reason = what.find(": ");
    throw DocumentError(line_, "not valid JSON: " + std::string(what.substr(reason + 2)));
  }

 private:
  bool plain(const std::string& text) { return tree_.scalar(text, false, line_), true; }

  TreeBuilder& tree_;
  const int& line_;
};

}  // namespace

Node read_json(std::string_view text) {
  check_text(text);
  int line = 1;
  TreeBuilder tree;
  JsonEvents events(tree, line);
  const char* end = text.data() + text.size();
  // DeepSpeed's files may hold comments (it reads them by hjson).
  nlohmann::json::sax_parse(LineIterator(text.data(), &line), LineIterator(end, &line), &events,
                            nlohmann::detail::input_format_t::json, /*strict=*/true,
                            /*ignore_comments=*/true);
  return tree.take();
}

}  // namespace plimsoll
