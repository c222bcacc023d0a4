#include "text/post_processor.h"

namespace plimsoll {
namespace {

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
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return {{id_of_pair(json.at("cls"))}, {id_of_pair(json.at("sep"))}};
  if (type == "Sequence") {
    Affixes all;
    for (const JsonPart& step : json.at("processors").items()) {
      const Affixes outer = make_post_processor(step);
      all.prefix.insert(all.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
      all.suffix.insert(all.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    }
    return all;
  }
  json.refuse("post-processor", type,
              "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence, null");
}

}  // namespace plimsoll
