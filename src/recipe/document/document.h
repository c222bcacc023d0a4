// A recipe's text as a tree with line numbers, the same for YAML and JSON. Depth and size are limited, so
// that no input is too much for the stack or the memory; anchors, tags and several documents are refused.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll {

struct Node {
  enum class Kind : unsigned char { null, scalar, list, map };
  Kind kind = Kind::null;
  bool quoted = false;  // a scalar in quotes is never a number or a boolean
  std::string text;     // of a scalar, as written
  int line = 0;         // from 1
  std::string key;      // of a child of a map
  int key_line = 0;
  std::vector<Node> items;  // children of a list or a map, in the order of the text

  // Quoted or not: JSON has no other way to write a word.
  [[nodiscard]] bool is_word(std::string_view word) const { return kind == Kind::scalar && text == word; }
};

// "'x'", "a list", "nothing": the node as an error names it.
std::string describe(const Node& node);

// The text cannot be read at all. `line` is 0 when the error is about the whole text.
struct DocumentError : std::runtime_error {
  DocumentError(int line_number, const std::string& message)
      : std::runtime_error(message), line(line_number) {}
  int line;
};

inline constexpr size_t kMaxDocumentBytes = size_t{1} << 20;
inline constexpr size_t kMaxDocumentDepth = 16;

bool is_utf8(std::string_view text);

// Read the whole text; throw DocumentError.
Node read_yaml(std::string_view text);
Node read_json(std::string_view text);

// Builds the tree from the events of a reader. A key is the scalar that a map sees first.
class TreeBuilder {
 public:
  void open(Node::Kind kind, int line);
  void close();
  void scalar(std::string text, bool quoted, int line);
  void null(int line);
  [[nodiscard]] Node take();

 private:
  [[nodiscard]] bool expects_key() const;
  void add(Node node);

  struct Frame {
    Node node;
    bool has_key = false;
    std::string key;
    int key_line = 0;
  };
  std::vector<Frame> open_;
  Node root_;
};

// Throws DocumentError when the text is too long or holds bytes no text has.
void check_text(std::string_view text);

// `text` shortened for a message.
std::string excerpt(std::string_view text);

}  // namespace plimsoll
