#include "tokenizer/steps/decoder_steps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tokenizer/models/byte_level.h"
#include "tokenizer/models/model.h"
#include "unicode/utf8.h"

namespace plimsoll {
namespace {

// Replaces every `from` (not empty).
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t i = text.find(from); i != text.npos; i = text.find(from, done)) {
    out.append(text.substr(done, i - done)).append(to);
    done = i + from.size();
  }
  return out.append(text.substr(done));
}

// A step that hands on to the next one.
class Link : public TokenSink {
 public:
  explicit Link(Sink next) : next_(std::move(next)) {}
  void finish() override { next_->finish(); }

 protected:
  void give(std::string_view token) { next_->token(token); }

 private:
  Sink next_;
};

class End final : public TokenSink {
 public:
  explicit End(std::string& out) : out_(out) {}
  void token(std::string_view token) override { out_ += token; }
  void finish() override {}

 private:
  std::string& out_;
};

class ByteLevelStep final : public Link {
 public:
  using Link::Link;
  void token(std::string_view token) override {
    append_bytes_of_token(token, pending_);
    const size_t whole = pending_.size() - unfinished_utf8_bytes(pending_);
    if (whole == 0) return;
    const std::string_view text = std::string_view(pending_).substr(0, whole);
    if (is_valid_utf8(text))
      give(text);
    else
      give(replace_invalid_utf8(text));
    pending_.erase(0, whole);
  }
  void finish() override {
    if (!pending_.empty()) give(replace_invalid_utf8(std::exchange(pending_, {})));
    Link::finish();
  }

 private:
  std::string pending_;
};

class ByteFallbackStep final : public Link {
 public:
  ByteFallbackStep(bool parts, Sink next) : Link(std::move(next)), parts_(parts) {}
  void token(std::string_view token) override {
    const int byte = byte_of_piece(token);
    if (byte < 0) {
      flush();
      give(token);
      return;
    }
    run_.push_back(static_cast<char>(byte));
    if (parts_ && run_.size() <= kLongestCharacter && is_valid_utf8(run_)) give(std::exchange(run_, {}));
  }
  void finish() override {
    flush();
    Link::finish();
  }

 private:
  void flush() {
    if (run_.empty()) return;
    const std::string run = std::exchange(run_, {});
    if (is_valid_utf8(run)) return give(run);
    for (size_t i = 0; i < run.size(); ++i) give(kReplacement);
  }

  static constexpr size_t kLongestCharacter = 4;

  bool parts_;
  std::string run_;
};

class FuseStep final : public Link {
 public:
  using Link::Link;
  void token(std::string_view token) override { text_ += token; }
  void finish() override {
    give(text_);
    Link::finish();
  }

 private:
  std::string text_;
};

class MetaspaceStep final : public Link {
 public:
  MetaspaceStep(const std::string& mark, bool drop_first, Sink next)
      : Link(std::move(next)), mark_(mark), drop_(drop_first) {}
  void token(std::string_view token) override {
    give(replaced(token, mark_, std::exchange(drop_, false) ? "" : " "));
  }

 private:
  std::string mark_;
  bool drop_;
};

// The reference's order.
constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kCleanUps = {{{" .", "."},
                                                                                      {" ?", "?"},
                                                                                      {" !", "!"},
                                                                                      {" ,", ","},
                                                                                      {" ' ", "'"},
                                                                                      {" n't", "n't"},
                                                                                      {" 'm", "'m"},
                                                                                      {" do not", " don't"},
                                                                                      {" 's", "'s"},
                                                                                      {" 've", "'ve"},
                                                                                      {" 're", "'re"}}};

class WordPieceStep final : public Link {
 public:
  WordPieceStep(const std::string& prefix, bool clean_up, Sink next)
      : Link(std::move(next)), prefix_(prefix), clean_up_(clean_up) {}
  void token(std::string_view token) override {
    std::string text(token);
    if (!std::exchange(first_, false)) {
      if (token.starts_with(prefix_))
        text = token.substr(prefix_.size());
      else
        text.insert(0, " ");
    }
    if (clean_up_)
      for (const auto& [from, to] : kCleanUps) text = replaced(text, from, to);
    give(text);
  }

 private:
  std::string prefix_;
  bool clean_up_;
  bool first_ = true;
};

class ReplaceStep final : public Link {
 public:
  ReplaceStep(const Pattern& pattern, const std::string& content, Sink next)
      : Link(std::move(next)), pattern_(pattern), content_(content) {}
  void token(std::string_view token) override {
    std::string text;
    give(pattern_.replace(token, content_, kMostTokenText, text) ? text : token);
  }

 private:
  const Pattern& pattern_;
  std::string content_;
};

class StripStep final : public Link {
 public:
  StripStep(const std::string& content, size_t start, size_t stop, bool joined, Sink next)
      : Link(std::move(next)), content_(content), start_(start), stop_(stop), joined_(joined), left_(start) {}

  void token(std::string_view token) override {
    if (!joined_) left_ = start_;
    if (joined_ && token.empty()) return;
    while (left_ > 0 && token.starts_with(content_)) {
      token.remove_prefix(content_.size());
      --left_;
    }
    if (!token.empty()) left_ = 0;  // what follows is inside the text
    if (!joined_) return give(without_end(token));
    held_ += token;
    const size_t keep = held_.size() - without_end(held_).size();
    give(std::string_view(held_).substr(0, held_.size() - keep));
    held_.erase(0, held_.size() - keep);
  }
  void finish() override { Link::finish(); }

 private:
  std::string_view without_end(std::string_view text) const {
    for (size_t i = 0; i < stop_ && text.ends_with(content_); ++i) text.remove_suffix(content_.size());
    return text;
  }

  std::string content_;
  size_t start_;
  size_t stop_;
  bool joined_;
  size_t left_;       // what may still be removed at the start
  std::string held_;  // what would be removed if the text ended here
};

class BpeSuffixStep final : public Link {
 public:
  BpeSuffixStep(const std::string& suffix, Sink next) : Link(std::move(next)), suffix_(suffix) {}
  void token(std::string_view token) override {
    if (holds_) give(replaced(held_, suffix_, " "));
    held_ = token;
    holds_ = true;
  }
  void finish() override {
    if (holds_) give(replaced(held_, suffix_, ""));
    Link::finish();
  }

 private:
  std::string suffix_;
  std::string held_;
  bool holds_ = false;
};

class JoinBySpacesStep final : public Link {
 public:
  using Link::Link;
  void token(std::string_view token) override {
    if (!std::exchange(first_, false)) give(" ");
    give(token);
  }

 private:
  bool first_ = true;
};

}  // namespace

Sink end_of_steps(std::string& out) { return std::make_unique<End>(out); }
Sink byte_level_step(Sink next) { return std::make_unique<ByteLevelStep>(std::move(next)); }
Sink byte_fallback_step(bool parts, Sink next) {
  return std::make_unique<ByteFallbackStep>(parts, std::move(next));
}
Sink fuse_step(Sink next) { return std::make_unique<FuseStep>(std::move(next)); }
Sink metaspace_step(const std::string& mark, bool drop_first, Sink next) {
  return std::make_unique<MetaspaceStep>(mark, drop_first, std::move(next));
}
Sink word_piece_step(const std::string& prefix, bool clean_up, Sink next) {
  return std::make_unique<WordPieceStep>(prefix, clean_up, std::move(next));
}
Sink replace_step(const Pattern& pattern, const std::string& content, Sink next) {
  return std::make_unique<ReplaceStep>(pattern, content, std::move(next));
}
Sink strip_step(const std::string& content, size_t start, size_t stop, bool joined, Sink next) {
  return std::make_unique<StripStep>(content, start, stop, joined, std::move(next));
}
Sink bpe_suffix_step(const std::string& suffix, Sink next) {
  return std::make_unique<BpeSuffixStep>(suffix, std::move(next));
}
Sink join_by_spaces_step(Sink next) { return std::make_unique<JoinBySpacesStep>(std::move(next)); }

}  // namespace plimsoll
