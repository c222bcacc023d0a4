#include "text/tokenizer_file.h"

#include <limits>

namespace plimsoll {
namespace {

constexpr int kMostNesting = 64;

// Takes the entries of model.vocab and model.merges away as the parser meets them: as JSON values they would
// need ten times the memory of the file.
class TableReader {
 public:
  TableReader(TokenizerFile& file, const std::string& where) : file_(file), where_(where) {}

  // Called by the parser for every event; false drops the value from the JSON tree.
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    switch (event) {
      case Json::parse_event_t::key:
        return key(depth, value.get_ref<const std::string&>());
      case Json::parse_event_t::value:
        return scalar(depth, value);
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        start(depth, event == Json::parse_event_t::object_start);
        return true;
      case Json::parse_event_t::array_end:
        return array_end(depth);
      case Json::parse_event_t::object_end:
        break;
    }
    return true;
  }

 private:
  enum class Table : uint8_t { none, vocab, merges };
  // Depths inside {"model": {"vocab": {piece: id}, "merges": [["a", "b"] or "a b"]}}.
  static constexpr int kModelKey = 1;
  static constexpr int kTableKey = 2;
  static constexpr int kEntry = 3;
  static constexpr int kPairPart = 4;

  [[noreturn]] void damaged(const std::string& what) const { throw DamagedError(where_ + ": " + what); }

  bool key(int depth, const std::string& name) {
    if (depth == kModelKey) in_model_ = name == "model";
    if (depth <= kTableKey) table_ = Table::none;
    if (depth == kTableKey && in_model_) {
      if (name == "vocab") table_ = Table::vocab;
      if (name == "merges") table_ = Table::merges;
    }
    if (table_ != Table::vocab || depth != kEntry) return true;
    piece_ = name;
    return false;
  }

  void start(int depth, bool is_object) {
    if (depth > kMostNesting) damaged("nested deeper than " + std::to_string(kMostNesting) + " levels");
    // Unigram's vocabulary is a list: it stays in the tree.
    if (depth == kTableKey && table_ == Table::vocab && !is_object) table_ = Table::none;
    if (depth == kTableKey && table_ == Table::merges && is_object) damaged("model.merges is not a list");
    if (depth >= kEntry && table_ == Table::vocab)
      damaged("the id of the piece \"" + piece_ + "\" is no number");
    if (depth > kEntry && table_ == Table::merges) damaged("an entry of model.merges is no pair of pieces");
    if (depth == kEntry && table_ == Table::merges) {
      if (is_object) damaged("an entry of model.merges is no pair of pieces");
      pair_.clear();
    }
  }

  bool scalar(int depth, const Json& value) {
    if (table_ == Table::vocab && depth == kEntry) {
      add_piece(value);
      return false;
    }
    if (table_ == Table::merges && depth == kEntry) {
      add_merge(value.get<std::string>());
      return false;
    }
    if (table_ == Table::merges && depth == kPairPart) {
      pair_.push_back(value.get<std::string>());
      return false;
    }
    return true;
  }

  bool array_end(int depth) {
    if (table_ != Table::merges || depth != kEntry) return true;
    if (pair_.size() != 2) damaged("an entry of model.merges is no pair of pieces");
    file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    return false;
  }

  void add_piece(const Json& id) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max())
      damaged("the id of the piece \"" + piece_ + "\" is " + id.dump());
    file_.vocab.push_back({piece_, id.get<int32_t>()});
  }

  // "left right": exactly one space.
  void add_merge(const std::string& text) {
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      damaged("the merge \"" + text + "\" is not two pieces with one space between");
    file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }

  TokenizerFile& file_;
  const std::string& where_;
  bool in_model_ = false;
  Table table_ = Table::none;
  std::string piece_;
  std::vector<std::string> pair_;
};

}  // namespace

std::string TokenizerFile::model_type() const {
  const Json& model = head.at("model");
  if (const auto it = model.find("type"); it != model.end()) return it->get<std::string>();
  if (model.contains("merges")) return "BPE";
  if (model.contains("unk_id")) return "Unigram";
  return model.contains("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

TokenizerFile read_tokenizer_file(std::string_view text, const std::string& where) {
  TokenizerFile file;
  TableReader reader(file, where);
  file.head = Json::parse(text, [&reader](int depth, Json::parse_event_t event, Json& value) {
    return reader(depth, event, value);
  });
  if (!file.head.is_object() || !file.head.contains("model") || !file.head.at("model").is_object())
    throw DamagedError(where + ": no object \"model\": this is not a tokenizer.json");
  return file;
}

}  // namespace plimsoll
