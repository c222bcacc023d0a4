#include "tokenizer/steps/post_processor.h"

namespace plimsoll {
namespace {

// {"pair": [.., {"Sequence": {"id": "A", "type_id": 0}}, .., {"Sequence": {"id": "B", "type_id": 1}}, ..]}
// with the first text before the second, and token types 0 up to the second and all one from there on. None
// for others: only those who have two texts miss it.
std::optional<PairAffixes> template_pair(const JsonPart& json) {
  PairAffixes pair;
  int texts = 0;
  for (const JsonPart& part : json.at("pair").items()) {
    const bool is_text = part.has("Sequence");
    const JsonPart item = part.at(is_text ? "Sequence" : "SpecialToken");
    const int32_t type = item.at("type_id").id();
    if (is_text && (texts == 2 || item.at("id").text() != (texts == 0 ? "A" : "B"))) return std::nullopt;
    if (is_text && ++texts == 2) pair.second_type = type;
    if (type != (texts < 2 ? 0 : pair.second_type)) return std::nullopt;
    if (is_text) continue;
    auto& side = texts == 0 ? pair.before : texts == 1 ? pair.between : pair.after;
    for (const JsonPart& id : json.at("special_tokens").at(item.at("id").text().c_str()).at("ids").items())
      side.push_back(id.id());
  }
  return texts == 2 ? std::optional(pair) : std::nullopt;
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids":
// [1]}}}
Affixes template_affixes(const JsonPart& json) {
  Affixes affixes;
  bool after_text = false;
  const JsonPart single = json.at("single");
  for (const JsonPart& part : single.items()) {
    if (part.has("Sequence")) {
      const std::string& sequence = part.at("Sequence").at("id").text();
      if (after_text || sequence != "A") part.refuse("sequence", "$" + sequence, "one $A for one text");
      after_text = true;
      continue;
    }
    const std::string& name = part.at("SpecialToken").at("id").text();
    auto& side = after_text ? affixes.suffix : affixes.prefix;
    for (const JsonPart& id : json.at("special_tokens").at(name.c_str()).at("ids").items())
      side.push_back(id.id());
  }
  if (!after_text) single.refuse("template", "without the text", "one $A");
  if (json.has("pair")) affixes.pair = template_pair(json);
  return affixes;
}

// "cls" and "sep" of BertProcessing and RobertaProcessing: [content, id].
int32_t id_of_pair(const JsonPart& json) {
  const auto pair = json.items();
  if (pair.size() != 2) json.damaged("expected [token, id]");
  return pair[1].id();
}

}  // namespace

Affixes make_post_processor(const JsonPart& json) {
  if (json.is_null()) return {};
  const std::string& type = json.at("type").text();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return template_affixes(json);
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    const int32_t cls = id_of_pair(json.at("cls")), sep = id_of_pair(json.at("sep"));
    const bool bert = type == "BertProcessing";
    const std::vector<int32_t> between = bert ? std::vector{sep} : std::vector{sep, sep};
    return {{cls}, {sep}, PairAffixes{{cls}, between, {sep}, bert ? 1 : 0}};
  }
  if (type == "Sequence") {
    Affixes all;
    int with_pairs = 0;
    for (const JsonPart& step : json.at("processors").items()) {
      Affixes outer = make_post_processor(step);
      const bool changes = step.at("type").text() != "ByteLevel";
      if (changes) all.pair = with_pairs++ == 0 ? std::move(outer.pair) : std::nullopt;
      all.prefix.insert(all.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
      all.suffix.insert(all.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    }
    return all;
  }
  json.refuse("post-processor", type,
              "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence, null");
}

}  // namespace plimsoll
