#include "chat/tool_arguments.h"

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/format.h"
#include "files/json.h"
#include "jinja/template.h"

namespace plimsoll {
namespace {

using nlohmann::ordered_json;

// Shows the arguments of each call of a message: {"function": {"name", "arguments"}}, {"name", "arguments"},
// and the older "function_call".
template <class Json>
void each_arguments(Json& message, const std::function<void(Json&)>& show) {
  const auto of_call = [&](Json& call) {
    if (!call.is_object()) return;
    const auto function = call.find("function");
    Json& holder = function != call.end() && function->is_object() ? *function : call;
    if (const auto arguments = holder.find("arguments"); arguments != holder.end()) show(*arguments);
  };
  if (!message.is_object()) return;
  if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
    for (auto& call : *calls) of_call(call);
  if (const auto call = message.find("function_call"); call != message.end()) of_call(*call);
}

ordered_json object_of(const std::string& text, size_t message) {
  const std::string here = formatted("message {}: the arguments of its call are a text", message + 1);
  // No call has so many: they take 100 bytes of memory each, which are not planned for.
  constexpr int64_t kMostValues = 10'000;
  ordered_json object;
  try {
    object = parse_ordered_json(text, here, {.max_values = kMostValues});
  } catch (const Error&) {
    object = nullptr;
  }
  if (!object.is_object())
    throw TemplateError(here + " that is no JSON object, which the chat template would print in quotes");
  return object;
}

}  // namespace

bool has_argument_texts(const ordered_json& messages) {
  bool found = false;
  for (const ordered_json& message : messages)
    each_arguments<const ordered_json>(message, [&](const ordered_json& one) { found |= one.is_string(); });
  return found;
}

ordered_json with_argument_objects(const ordered_json& messages) {
  ordered_json out = messages;
  for (size_t i = 0; i < out.size(); ++i)
    each_arguments<ordered_json>(out[i], [&](ordered_json& arguments) {
      if (arguments.is_string()) arguments = object_of(arguments.get<std::string>(), i);
    });
  return out;
}

}  // namespace plimsoll
