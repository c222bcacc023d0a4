#include "data/encode/conversation_pieces.h"

#include <algorithm>
#include <string>
#include <string_view>

namespace plimsoll {
namespace {

// A run of tokens, all of them trained or none.
struct Run {
  std::vector<int32_t> ids;
  bool learnt = false;
};

// The prefix of a text so that the tokenizer puts no space of its own before the text.
constexpr std::string_view kPrefix = "\n";

void encode_piece(const Tokenizer& tokenizer, std::string_view text, bool bare, std::vector<int32_t>& ids) {
  if (text.empty()) return;
  if (!bare) return tokenizer.encode_into(text, false, ids);
  const std::vector<int32_t> all = tokenizer.encode(std::string(kPrefix).append(text), false);
  const size_t before = tokenizer.encode(kPrefix, false).size();
  ids.insert(ids.end(), all.begin() + static_cast<std::ptrdiff_t>(std::min(before, all.size())), all.end());
}

// `bare` is the state at the beginning of the text and, afterwards, at its end.
void encode_part(const Tokenizer& tokenizer, std::string_view text, bool& bare, std::vector<int32_t>& ids) {
  static_assert(kCut.size() == kCutBare.size());
  while (true) {
    const size_t cut = std::min(text.find(kCut), text.find(kCutBare));
    encode_piece(tokenizer, text.substr(0, cut), bare, ids);
    if (cut == std::string_view::npos) return;
    bare = text.substr(cut).starts_with(kCutBare);
    text.remove_prefix(cut + kCut.size());
  }
}

// The texts outside of the answers, and the answers, in turns.
std::vector<Run> runs_of(const Tokenizer& tokenizer, const TrainingText& rendered) {
  const std::string_view text = rendered.text;
  std::vector<Run> runs;
  bool bare = false;
  const auto add = [&](size_t begin, size_t end, bool learnt) {
    runs.push_back({{}, learnt});
    encode_part(tokenizer, text.substr(begin, end - begin), bare, runs.back().ids);
    // The end of a part is a cut; a bare one stands inside of the next part.
    bare = false;
  };
  size_t at = 0;
  for (const ByteSpan& span : rendered.learnt) {
    add(at, span.begin, false);
    add(span.begin, span.end, true);
    at = span.end;
  }
  add(at, text.size(), false);
  return runs;
}

struct PairLengths {
  size_t source = 0;
  size_t target = 0;
};

// Splits `room` tokens between a prompt and its response: the longer one is cut, both where both are long
// (LLaMA-Factory 0.9.5, src/llamafactory/data/processor/processor_utils.py, infer_seqlen).
PairLengths fit_turn(size_t source, size_t target, size_t room) {
  size_t most = room;
  if (target * 2 >= room)
    most = source * 2 < room
               ? room - source
               : static_cast<size_t>(static_cast<double>(room) *
                                     (static_cast<double>(target) / static_cast<double>(source + target)));
  const size_t kept = std::min(most, target);
  return {std::min(room - kept, source), kept};
}

void append(const Run& run, size_t count, bool learnt, Example& example) {
  const auto end = run.ids.begin() + static_cast<std::ptrdiff_t>(count);
  example.ids.insert(example.ids.end(), run.ids.begin(), end);
  if (learnt)
    example.labels.insert(example.labels.end(), run.ids.begin(), end);
  else
    example.labels.insert(example.labels.end(), count, kIgnoreLabel);
}

// Turns in order, each cut to what room is left (LLaMA-Factory 0.9.5, data/processor/supervised.py).
void fit_turns(std::vector<Run> runs, const PieceOptions& options, Example& example) {
  const bool ends_once = options.rules.ends_once;
  if (ends_once && runs.size() > 1) {
    std::vector<int32_t>& last = runs[runs.size() - 2].ids;
    if (!last.empty() && last.back() == options.eos) last.pop_back();
  }
  const auto most = static_cast<size_t>(std::max<int64_t>(options.max_length - (ends_once ? 1 : 0), 0));
  for (size_t i = 0; i + 1 < runs.size() && example.ids.size() < most; i += 2) {
    const PairLengths kept = fit_turn(runs[i].ids.size(), runs[i + 1].ids.size(), most - example.ids.size());
    const size_t begin = example.ids.size();
    append(runs[i], kept.source, options.train_on_prompt, example);
    if (ends_once && i > 0 && kept.source > 0 && !options.train_on_prompt)
      example.labels[begin] = options.eos;
    append(runs[i + 1], kept.target, true, example);
  }
  if (!ends_once) return;
  example.ids.push_back(options.eos);
  example.labels.push_back(options.eos);
}

void end_text(const PieceOptions& options, Example& example) {
  const auto most = static_cast<size_t>(options.max_length);
  if (example.ids.size() > most) {
    const bool learnt = example.labels[most - 1] != kIgnoreLabel && options.rules.end_is_learnt;
    example.ids.resize(most);
    example.labels.resize(most);
    example.ids.back() = options.eos;
    example.labels.back() = learnt ? options.eos : kIgnoreLabel;
  }
  if (options.rules.last_is_hidden && !example.labels.empty()) example.labels.back() = kIgnoreLabel;
}

}  // namespace

void encode_pieces(const Tokenizer& tokenizer, const TrainingText& rendered, const PieceOptions& options,
                   Example& example) {
  const std::vector<Run> runs = runs_of(tokenizer, rendered);
  for (const Run& run : runs) example.whole_length += static_cast<int64_t>(run.ids.size());
  if (options.rules.cutting == TemplateRules::Cutting::turns) return fit_turns(runs, options, example);
  for (const Run& run : runs) append(run, run.ids.size(), run.learnt || options.train_on_prompt, example);
  if (options.rules.cutting == TemplateRules::Cutting::ended) end_text(options, example);
}

}  // namespace plimsoll
