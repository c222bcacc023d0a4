#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include "recipe/document/document.h"

namespace plimsoll {
namespace {

int line_of(const YAML::Mark& mark) { return mark.line + 1; }

// Anchors are refused: a few lines of aliases can stand for gigabytes.
class YamlEvents : public YAML::EventHandler {
 public:
  explicit YamlEvents(TreeBuilder& tree) : tree_(tree) {}

  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    check(mark, "", anchor);
    tree_.null(line_of(mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override { check(mark, "", anchor); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check(mark, tag, anchor);
    tree_.scalar(value, tag == "!", line_of(mark));  // yaml-cpp tags quoted scalars "!", plain ones "?"
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    check(mark, tag, anchor);
    tree_.open(Node::Kind::list, line_of(mark));
  }
  void OnSequenceEnd() override { tree_.close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    check(mark, tag, anchor);
    tree_.open(Node::Kind::map, line_of(mark));
  }
  void OnMapEnd() override { tree_.close(); }

 private:
  static void check(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0)
      throw DocumentError(line_of(mark), "anchors (&) and aliases (*) have no place in a recipe");
    if (!tag.empty() && tag != "?" && tag != "!")
      throw DocumentError(line_of(mark),
                          "tags (!) have no place in a recipe: quote text that starts with '!'");
  }

  TreeBuilder& tree_;
};

// yaml-cpp drops lines that start with '%' in the middle of a document without a word.
void refuse_directives(std::string_view text) {
  int line = 1;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && c == '%') throw DocumentError(line, "directives (%) have no place in a recipe");
    at_start = c == '\n' || c == '\r';
    if (c == '\n') ++line;
  }
}

}  // namespace

Node read_yaml(std::string_view text) {
  check_text(text);
  refuse_directives(text);
  std::istringstream stream{std::string(text)};
  TreeBuilder tree;
  YamlEvents events(tree);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(events)) return {};
    Node root = tree.take();
    if (parser.HandleNextDocument(events))
      throw DocumentError(0, "holds more than one YAML document; a recipe is one");
    return root;
  } catch (const YAML::Exception& error) {
    throw DocumentError(error.mark.is_null() ? 0 : line_of(error.mark), "not valid YAML: " + error.msg);
  }
}

}  // namespace plimsoll
