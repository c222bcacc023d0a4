#include "tokenizer/steps/metaspace.h"

#include "tokenizer/steps/pre_tokenizer.h"

namespace plimsoll {
namespace {

class MetaspaceSplit final : public PreTokenizer {
 public:
  explicit MetaspaceSplit(Metaspace options) : options_(std::move(options)) {}

  void split(std::string_view word, Words& out) const override {
    const std::string& mark = options_.replacement;
    const bool marked = word.starts_with(' ') || word.starts_with(mark);
    const bool prepend =
        !marked && (options_.prepend == PrependScheme::always ||
                    (options_.prepend == PrependScheme::first && word.data() == out.input_start));
    if (prepend || word.find(' ') != word.npos) {
      std::string text;
      text.reserve(word.size() * 5 / 4 + mark.size());
      if (prepend) text += mark;
      for (const char c : word) {
        if (c == ' ')
          text += mark;
        else
          text += c;
      }
      word = out.owned.emplace_back(std::move(text));
    }
    if (!options_.split) return out.add(word);
    size_t begin = 0;
    for (size_t next = word.find(mark, 1); next != word.npos; next = word.find(mark, next + 1)) {
      out.add(word.substr(begin, next - begin));
      begin = next;
    }
    out.add(word.substr(begin));
  }

 private:
  Metaspace options_;
};

}  // namespace

Metaspace read_metaspace(const JsonPart& json) {
  Metaspace options;
  options.replacement = json.at("replacement").character();
  options.split = json.flag_or("split", true);
  options.prepend = PrependScheme::always;
  const auto scheme = json.find("prepend_scheme");
  if (scheme) {
    const std::string& name = scheme->text();
    if (name != "always" && name != "first" && name != "never")
      scheme->refuse("scheme", name, "always, first, never");
    options.prepend = name == "always"  ? PrependScheme::always
                      : name == "first" ? PrependScheme::first
                                        : PrependScheme::never;
  }
  if (const auto old = json.find("add_prefix_space"); old && !old->flag()) {
    if (!scheme || options.prepend != PrependScheme::never)
      old->damaged("false contradicts prepend_scheme, which is not \"never\"");
  }
  return options;
}

std::unique_ptr<PreTokenizer> make_metaspace(const JsonPart& json, std::string_view type) {
  return type == "Metaspace" ? std::make_unique<MetaspaceSplit>(read_metaspace(json)) : nullptr;
}

}  // namespace plimsoll
