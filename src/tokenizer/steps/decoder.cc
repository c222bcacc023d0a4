#include "tokenizer/steps/decoder.h"

#include "tokenizer/models/byte_level.h"
#include "tokenizer/models/model.h"
#include "tokenizer/steps/decoder_steps.h"

namespace plimsoll {
namespace {

std::string with_spaces(std::string text, std::string_view mark) {
  for (size_t i = text.find(mark); i != text.npos; i = text.find(mark, i + 1))
    text.replace(i, mark.size(), " ");
  return text;
}

}  // namespace

Decoder::Decoder(const JsonPart& json) {
  if (json.is_null())
    steps_.push_back({.kind = Kind::join_by_spaces});
  else
    append(json);
}

Decoder Decoder::sentence_piece(bool strip) {
  Decoder decoder;
  decoder.steps_.push_back({.kind = Kind::metaspace, .text = "\u2581", .drop_first = false});
  decoder.steps_.push_back({.kind = Kind::byte_fallback});
  decoder.steps_.push_back({.kind = Kind::fuse});
  if (strip) decoder.steps_.push_back({.kind = Kind::strip, .text = " ", .start = 1});
  return decoder;
}

void Decoder::append(const JsonPart& json) {
  const std::string& type = json.at("type").text();
  if (type == "Sequence") {
    for (const JsonPart& step : json.at("decoders").items()) append(step);
    return;
  }
  steps_.push_back(read_step(json, type));
}

Decoder::Step Decoder::read_step(const JsonPart& json, const std::string& type) {
  if (type == "ByteLevel") return {.kind = Kind::byte_level};
  if (type == "ByteFallback") return {.kind = Kind::byte_fallback};
  if (type == "Fuse") return {.kind = Kind::fuse};
  if (type == "Metaspace") {
    const Metaspace options = read_metaspace(json);
    return {.kind = Kind::metaspace,
            .text = options.replacement,
            .drop_first = options.prepend != PrependScheme::never};
  }
  if (type == "WordPiece")
    return {.kind = Kind::word_piece,
            .text = json.text_or("prefix", "##"),
            .clean_up = json.flag_or("cleanup", true)};
  if (type == "Replace")
    return {.kind = Kind::replace,
            .text = json.at("content").text(),
            .pattern = std::make_shared<const Pattern>(json.at("pattern"))};
  if (type == "Strip")
    return {.kind = Kind::strip,
            .text = json.at("content").character(),
            .start = json.at("start").count(),
            .stop = json.at("stop").count()};
  if (type == "BPEDecoder") {
    const std::string suffix = json.text_or("suffix", "</w>");
    if (suffix.empty()) json.damaged("the suffix is empty");
    return {.kind = Kind::bpe_suffix, .text = suffix};
  }
  json.refuse(
      "decoder", type,
      "ByteLevel, ByteFallback, Fuse, Metaspace, WordPiece, Replace, Strip, BPEDecoder, Sequence, null");
}

// A fused text may come out in parts unless a later step must see it whole.
bool Decoder::joins_whole(size_t step) const {
  for (size_t i = step + 1; i < steps_.size(); ++i)
    if (steps_[i].kind != Kind::fuse && steps_[i].kind != Kind::strip) return true;
  return false;
}

std::unique_ptr<TokenSink> Decoder::start(std::string& out, bool eager) const {
  std::unique_ptr<TokenSink> next = end_of_steps(out);
  for (size_t i = steps_.size(); i-- > 0;) {
    const Step& step = steps_[i];
    bool joined = false;  // what comes in are parts of one text
    for (size_t before = 0; before < i; ++before)
      joined = joined || steps_[before].kind == Kind::fuse || steps_[before].kind == Kind::byte_level;
    switch (step.kind) {
      case Kind::byte_level:
        if (joins_whole(i)) next = fuse_step(std::move(next));
        next = byte_level_step(std::move(next));
        break;
      case Kind::byte_fallback: {
        const bool parts = eager && (i + 1 == steps_.size() || steps_[i + 1].kind == Kind::fuse);
        next = byte_fallback_step(parts, std::move(next));
        break;
      }
      case Kind::fuse:
        if (joins_whole(i)) next = fuse_step(std::move(next));
        break;
      case Kind::metaspace:
        next = metaspace_step(step.text, step.drop_first, std::move(next));
        break;
      case Kind::word_piece:
        next = word_piece_step(step.text, step.clean_up, std::move(next));
        break;
      case Kind::replace:
        next = replace_step(*step.pattern, step.text, std::move(next));
        break;
      case Kind::strip:
        next = strip_step(step.text, step.start, step.stop, joined, std::move(next));
        break;
      case Kind::bpe_suffix:
        next = bpe_suffix_step(step.text, std::move(next));
        break;
      case Kind::join_by_spaces:
        next = join_by_spaces_step(std::move(next));
        break;
    }
  }
  return next;
}

void Decoder::append_bytes(std::string_view token, std::string& out) const {
  if (steps_.size() == 1 && steps_[0].kind == Kind::byte_level) return append_bytes_of_token(token, out);
  std::string bytes(token);
  bool is_raw = false;  // bytes already, and no token any more
  for (const Step& step : steps_) {
    std::string next;
    switch (step.kind) {
      case Kind::byte_level:
        append_bytes_of_token(bytes, next);
        break;
      case Kind::byte_fallback:
        if (const int byte = is_raw ? -1 : byte_of_piece(bytes); byte >= 0) {
          next = std::string(1, static_cast<char>(byte));
          is_raw = true;
        }
        break;
      case Kind::metaspace:
        next = with_spaces(bytes, step.text);
        break;
      case Kind::replace:
        if (is_raw || !step.pattern->replace(bytes, step.text, kMostTokenText, next)) next.clear();
        break;
      case Kind::word_piece:
        next = bytes.starts_with(step.text) ? bytes.substr(step.text.size()) : " " + bytes;
        break;
      case Kind::bpe_suffix:
        next = with_spaces(bytes, step.text);
        break;
      case Kind::join_by_spaces:
        next = " " + bytes;
        break;
      case Kind::fuse:
      case Kind::strip:
        break;
    }
    if (!next.empty()) bytes = std::move(next);
  }
  out += bytes;
}

size_t Decoder::bytes_in(std::string_view token, std::string_view text) const {
  return is_byte_level() ? bytes_of_token_in(token, text) : 0;
}

int64_t Decoder::resident_bytes() const {
  int64_t bytes = static_cast<int64_t>(steps_.capacity() * sizeof(Step));
  for (const Step& step : steps_) bytes += step.pattern ? step.pattern->resident_bytes() : 0;
  return bytes;
}

}  // namespace plimsoll
