#include "text/post_processor.h"

namespace plimsoll {
namespace {

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids":
// [1]}}}
Affixes template_affixes(const Json& json, const std::string& where) {
  Affixes affixes;
  bool after_text = false;
  for (const Json& part : json.at("single")) {
    if (part.contains("Sequence")) {
      if (after_text || part.at("Sequence").at("id") != "A")
        refuse_component(where, "post-processor", "TemplateProcessing with several sequences for one text",
                         "one $A");
      after_text = true;
      continue;
    }
    const auto name = part.at("SpecialToken").at("id").get<std::string>();
    const auto ids = json.at("special_tokens").at(name).at("ids").get<std::vector<int32_t>>();
    auto& side = after_text ? affixes.suffix : affixes.prefix;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!after_text) refuse_component(where, "post-processor", "TemplateProcessing without the text", "one $A");
  return affixes;
}

}  // namespace

Affixes make_post_processor(const Json& json, const std::string& where) {
  if (json.is_null()) return {};
  const auto type = json.at("type").get<std::string>();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return template_affixes(json, where);
  if (type == "RobertaProcessing" || type == "BertProcessing")  // "cls" and "sep" are [content, id]
    return {{json.at("cls").at(1).get<int32_t>()}, {json.at("sep").at(1).get<int32_t>()}};
  if (type == "Sequence") {
    Affixes all;
    for (const Json& step : json.at("processors")) {
      const Affixes outer = make_post_processor(step, where);
      all.prefix.insert(all.prefix.begin(), outer.prefix.begin(), outer.prefix.end());
      all.suffix.insert(all.suffix.end(), outer.suffix.begin(), outer.suffix.end());
    }
    return all;
  }
  refuse_component(where, "post-processor", type,
                   "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing, Sequence, null");
}

}  // namespace plimsoll
