// Converts arguments of tool calls: OpenAI's rows hold them as the text of a JSON object, templates print an
// object.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace plimsoll {

bool has_argument_texts(const nlohmann::ordered_json& messages);
// The messages with objects instead of texts. Throws TemplateError for a text that is not an object: it would
// be printed in quotes.
nlohmann::ordered_json with_argument_objects(const nlohmann::ordered_json& messages);

}  // namespace plimsoll
