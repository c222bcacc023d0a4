// Text normalisers of tokenizer.json. Each piece between added tokens is normalised by itself.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/growth.h"
#include "tokenizer/files/json_part.h"
#include "unicode/text_error.h"

namespace plimsoll {

// A piece of text on its way through the normalisers.
class NormalText {
 public:
  // `from_start`: the piece stands at the start of the whole input.
  void reset(std::string_view text, bool from_start) {
    text_ = text;
    from_start_ = from_start;
  }
  // Limits the bytes that it may become.
  void limit(size_t bytes) { most_ = bytes; }
  [[nodiscard]] size_t most() const { return most_; }
  // The text given, or a view of this object's own storage.
  [[nodiscard]] std::string_view text() const { return text_; }
  // The first character left is the input's first one: Metaspace's "first" asks for it.
  [[nodiscard]] bool from_start() const { return from_start_; }

  // An empty string to write the next text into, while text() stays valid; commit() makes it the text.
  // A long one has room for as much as there is: most normalisers make little more or less of it.
  std::string& begin() {
    next_.clear();
    reserve_more(next_, text_.size());
    return next_;
  }
  // Throws TextError for a text that has grown beyond its limit.
  void commit() {
    if (next_.size() > most_) refuse_growth(text_.size());
    storage_.swap(next_);
    text_ = storage_;
    forget_many(next_);
  }
  // Drops characters from the ends.
  void keep(std::string_view part) {
    from_start_ = from_start_ && part.data() == text_.data();
    text_ = part;
  }
  void lose_start() { from_start_ = false; }

 private:
  std::string_view text_;
  std::string storage_;
  std::string next_;
  bool from_start_ = false;
  size_t most_ = size_t{1} << 30;  // what the models count in 32 bits
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
  [[nodiscard]] virtual int64_t resident_bytes() const { return 0; }
};

// One after the other; without any, text stays as it is.
class NormalizerSequence final : public Normalizer {
 public:
  NormalizerSequence() = default;
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(NormalText& text) const override;
  [[nodiscard]] int64_t resident_bytes() const override;

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

// Null for a null normaliser. Throws UsageError naming what is not supported.
std::unique_ptr<Normalizer> make_normalizer(const JsonPart& json);

// The families, by "type"; null for a type of another family. Each in its own file.
std::unique_ptr<Normalizer> make_unicode_form(const JsonPart& json, std::string_view type);
std::unique_ptr<Normalizer> make_edit_normalizer(const JsonPart& json, std::string_view type);
std::unique_ptr<Normalizer> make_bert_normalizer(const JsonPart& json, std::string_view type);
std::unique_ptr<Normalizer> make_precompiled_normalizer(const JsonPart& json, std::string_view type);

}  // namespace plimsoll
