#include "recipe/document/document.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/format.h"
#include "base/strings.h"

namespace plimsoll {

std::string excerpt(std::string_view text) {
  size_t longest = 60;
  // Never in the middle of a character of UTF-8.
  while (longest > 0 && longest < text.size() && (static_cast<unsigned char>(text[longest]) & 0xC0U) == 0x80U)
    --longest;
  std::string line;
  for (const char c : text.substr(0, longest)) line += static_cast<unsigned char>(c) < 0x20U ? ' ' : c;
  return text.size() > longest ? line + "..." : line;
}

std::string describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::scalar:
      break;
  }
  return formatted("{}{}'", node.quoted ? "the quoted text '" : "'", excerpt(node.text));
}

bool TreeBuilder::expects_key() const {
  return !open_.empty() && open_.back().node.kind == Node::Kind::map && !open_.back().has_key;
}

void TreeBuilder::open(Node::Kind kind, int line) {
  if (expects_key())
    throw DocumentError(line, "a key must be a word, not a list or a map (is a bracket left open?)");
  if (open_.size() == kMaxDocumentDepth)
    throw DocumentError(line, formatted("nested more than {} deep", kMaxDocumentDepth));
  Frame frame;
  frame.node.kind = kind;
  frame.node.line = line;
  open_.push_back(std::move(frame));
}

void TreeBuilder::close() {
  Node node = std::move(open_.back().node);
  open_.pop_back();
  add(std::move(node));
}

void TreeBuilder::scalar(std::string text, bool quoted, int line) {
  if (expects_key()) {
    Frame& frame = open_.back();
    frame.has_key = true;
    frame.key = std::move(text);
    frame.key_line = line;
    return;
  }
  Node node;
  node.kind = Node::Kind::scalar;
  node.quoted = quoted;
  node.text = std::move(text);
  node.line = line;
  add(std::move(node));
}

void TreeBuilder::null(int line) {
  if (expects_key()) throw DocumentError(line, "a key must be a word, found nothing");
  Node node;
  node.line = line;
  add(std::move(node));
}

void TreeBuilder::add(Node node) {
  if (open_.empty()) {
    root_ = std::move(node);
    return;
  }
  Frame& frame = open_.back();
  if (frame.has_key) {
    node.key = std::move(frame.key);
    node.key_line = frame.key_line;
    frame.has_key = false;
  }
  frame.node.items.push_back(std::move(node));
}

Node TreeBuilder::take() { return std::move(root_); }

bool is_utf8(std::string_view text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

void check_text(std::string_view text) {
  if (text.size() > kMaxDocumentBytes) throw DocumentError(0, "is longer than 1 MiB; no recipe is");
  int line = 0;
  for (const std::string& row : split(text, '\n')) {
    ++line;
    const bool control = std::any_of(row.begin(), row.end(), [](char c) {
      return static_cast<unsigned char>(c) < 0x20U && c != '\r' && c != '\t';
    });
    if (control)
      throw DocumentError(line, "holds a control character; a recipe is UTF-8 text (YAML or JSON)");
    if (!is_utf8(row))
      throw DocumentError(line, "holds bytes that are no UTF-8; a recipe is UTF-8 text (YAML or JSON)");
  }
}

}  // namespace plimsoll
