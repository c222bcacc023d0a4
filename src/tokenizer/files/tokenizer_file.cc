#include "tokenizer/files/tokenizer_file.h"

#include <limits>

#include "base/format.h"

namespace plimsoll {
namespace {

constexpr int kMostNesting = 64;

// Takes the entries of model.vocab and model.merges away as the parser meets them: as JSON values they would
// need ten times the memory of the file.
class TableReader {
 public:
  TableReader(TokenizerFile& file, const std::string& where) : file_(file), where_(where) {}

  // Called by the parser for every event; false drops the value from the JSON tree.
  bool operator()(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    const bool kept = visit(depth, event, value);
    // A value of the tree takes ten times its text: those in use have some 100,000.
    if (kept && ++kept_values_ > kMostValues)
      damaged(formatted("holds more than {} values outside of vocabulary and merges", kMostValues));
    return kept;
  }

 private:
  bool visit(int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    switch (event) {
      case nlohmann::json::parse_event_t::key:
        return key(depth, value.get_ref<const std::string&>());
      case nlohmann::json::parse_event_t::value:
        return scalar(depth, value);
      case nlohmann::json::parse_event_t::object_start:
      case nlohmann::json::parse_event_t::array_start:
        start(depth, event == nlohmann::json::parse_event_t::object_start);
        return true;
      case nlohmann::json::parse_event_t::array_end:
        return array_end(depth);
      case nlohmann::json::parse_event_t::object_end:
        break;
    }
    return true;
  }

  enum class Table : uint8_t { none, vocab, scored, merges };
  // Depths inside {"model": {"vocab": {piece: id} or [[piece, score]], "merges": [["a", "b"] or "a b"]}}.
  static constexpr int kModelKey = 1;
  static constexpr int kTableKey = 2;
  static constexpr int kEntry = 3;
  static constexpr int kPairPart = 4;
  static constexpr int64_t kMostValues = 8'000'000;

  [[noreturn]] void damaged(const std::string& what) const {
    throw DamagedError(formatted("{}: {}", where_, what));
  }

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
    if (depth > kMostNesting) damaged(formatted("nested deeper than {} levels", kMostNesting));
    if (depth == kTableKey && table_ == Table::vocab && !is_object) {
      table_ = Table::scored;
      file_.vocab_is_list = true;
    }
    if (depth == kEntry && table_ == Table::scored) {
      if (is_object) bad_scored_piece();
      pair_.clear();
      has_score_ = false;
    }
    if (depth > kEntry && table_ == Table::scored) bad_scored_piece();
    if (depth == kTableKey && table_ == Table::merges && is_object) damaged("model.merges is not a list");
    if (depth >= kEntry && table_ == Table::vocab)
      damaged(formatted("the id of the piece \"{}\" is no number", piece_));
    if (depth > kEntry && table_ == Table::merges) damaged("an entry of model.merges is no pair of pieces");
    if (depth == kEntry && table_ == Table::merges) {
      if (is_object) damaged("an entry of model.merges is no pair of pieces");
      pair_.clear();
    }
  }

  bool scalar(int depth, const nlohmann::json& value) {
    if (table_ == Table::vocab && depth == kEntry) {
      add_piece(value);
      return false;
    }
    if (table_ == Table::scored && depth >= kEntry) {
      read_scored_part(depth, value);
      return false;
    }
    if (table_ == Table::merges && depth >= kEntry && !value.is_string())
      damaged("an entry of model.merges is no pair of pieces, but " + value.dump());
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
    if (table_ == Table::scored && depth == kEntry) {
      if (pair_.size() != 1 || !has_score_) bad_scored_piece();
      file_.vocab.push_back({std::move(pair_[0]), static_cast<int32_t>(file_.vocab.size())});
      file_.scores.push_back(score_);
      return false;
    }
    if (table_ != Table::merges || depth != kEntry) return true;
    if (pair_.size() != 2) damaged("an entry of model.merges is no pair of pieces");
    file_.merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    return false;
  }

  void add_piece(const nlohmann::json& id) {
    if (!id.is_number_integer() || id < 0 || id > std::numeric_limits<int32_t>::max())
      damaged(formatted("the id of the piece \"{}\" is {}", piece_, id.dump()));
    file_.vocab.push_back({piece_, id.get<int32_t>()});
  }

  [[noreturn]] void bad_scored_piece() const {
    damaged(formatted("entry {} of model.vocab is no [piece, score]", file_.scores.size()));
  }

  // The piece, then its score.
  void read_scored_part(int depth, const nlohmann::json& value) {
    if (depth != kPairPart || has_score_) bad_scored_piece();
    if (pair_.empty() && value.is_string()) {
      pair_.push_back(value.get<std::string>());
    } else if (pair_.size() == 1 && value.is_number()) {
      score_ = value.get<double>();
      has_score_ = true;
    } else {
      bad_scored_piece();
    }
  }

  // "left right": exactly one space.
  void add_merge(const std::string& text) {
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      damaged(formatted("the merge \"{}\" is not two pieces with one space between", text));
    file_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }

  TokenizerFile& file_;
  const std::string& where_;
  int64_t kept_values_ = 0;
  bool in_model_ = false;
  Table table_ = Table::none;
  std::string piece_;
  std::vector<std::string> pair_;
  double score_ = 0;
  bool has_score_ = false;
};

}  // namespace

std::string TokenizerFile::model_type() const {
  const JsonPart model = this->model();
  if (const auto type = model.find("type")) return type->text();
  if (model.has("merges")) return "BPE";
  if (model.has("unk_id")) return "Unigram";
  return model.has("continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

TokenizerFile read_tokenizer_file(std::string_view text, const std::string& where) {
  TokenizerFile file;
  file.name = where;
  TableReader reader(file, where);
  try {
    file.head =
        nlohmann::json::parse(text, [&reader](int depth, nlohmann::json::parse_event_t event,
                                              nlohmann::json& value) { return reader(depth, event, value); });
  } catch (const nlohmann::json::exception& e) {
    constexpr size_t kMostBytes = 300;         // it quotes what was read last: a string may have megabytes
    const std::string_view reason = e.what();  // "[json.exception.parse_error.101] parse error at ..."
    const size_t head = reason.find("] ");
    throw DamagedError(formatted("{}: not a readable tokenizer.json: {}", where,
                                 reason.substr(head == std::string_view::npos ? 0 : head + 2, kMostBytes)));
  }
  if (!file.head.is_object() || !file.head.contains("model") || !file.head.at("model").is_object())
    throw DamagedError(where + ": no object \"model\": this is not a tokenizer.json");
  if (!file.head.at("model").contains("vocab")) file.model().damaged("has no \"vocab\"");
  return file;
}

}  // namespace plimsoll
