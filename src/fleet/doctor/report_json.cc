#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "fleet/doctor/diagnosis.h"

namespace plimsoll::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json known(int64_t value) { return value >= 0 ? Json(value) : Json(nullptr); }

// Sizes as bytes, and how far off rounding may have put them.
Json figures_json(const Message& message) {
  Json figures = Json::object();
  for (const auto& [name, bytes] : message.bytes) {
    figures[name + "_bytes"] = bytes.value;
    if (bytes.slack > 0) figures[name + "_bytes_off_by"] = bytes.slack;
  }
  for (const auto& [name, value] : message.counts) figures[name] = value;
  for (const auto& [name, text] : message.words) figures[name] = text;
  if (!message.holders.empty()) {
    figures["processes"] = Json::array();
    for (const Holder& holder : message.holders)
      figures["processes"].push_back({{"pid", holder.pid}, {"bytes", holder.bytes.value}});
  }
  return figures;
}

Json message_json(const Message& message) {
  Json json = {{"message", message.row->name}};
  if (!message.file.empty()) json["file"] = message.file;
  json["line"] = message.line;
  json["count"] = message.count;
  if (message.count > 1) json["last_line"] = message.last_line;
  json["sender"] = message.sender;
  json["step"] = known(message.step);
  json["of_steps"] = known(message.of_steps);
  json["during"] = message.during.empty() ? Json(nullptr) : Json(message.during);
  json["figures"] = figures_json(message);
  json["text"] = message.quote;
  return json;
}

}  // namespace

std::string diagnosis_json(const Diagnosis& diagnosis, const Evidence& evidence) {
  constexpr const char* kVerdicts[] = {"no", "possibly", "yes"};
  constexpr const char* kCertainties[] = {"possible", "likely", "certain"};
  Json json = {{"out_of_memory", kVerdicts[static_cast<size_t>(diagnosis.out_of_memory)]},
               {"cause", name_of(diagnosis.cause)},
               {"certainty", kCertainties[static_cast<size_t>(diagnosis.certainty)]},
               {"headline", diagnosis.headline},
               {"reason", diagnosis.reason},
               {"missing_bytes", diagnosis.missing > 0 ? Json(diagnosis.missing) : Json(nullptr)},
               {"tensor", diagnosis.tensor ? Json{{"words", diagnosis.tensor->words},
                                                  {"bytes", diagnosis.tensor->bytes},
                                                  {"certain", diagnosis.tensor->is_certain}}
                                           : Json(nullptr)},
               {"ruled_out", diagnosis.ruled_out},
               {"notes", diagnosis.notes},
               {"evidence", diagnosis.message ? message_json(*diagnosis.message) : Json(nullptr)},
               {"supporting", Json::array()},
               {"steps", Json::array()},
               {"lines", evidence.lines},
               {"skipped", evidence.skipped}};
  for (const Message& message : diagnosis.supporting) json["supporting"].push_back(message_json(message));
  for (const Step& step : diagnosis.steps)
    json["steps"].push_back({{"what", step.what},
                             {"saves_bytes", step.saves > 0 ? Json(step.saves) : Json(nullptr)},
                             {"seconds_per_step", step.seconds > 0 ? Json(step.seconds) : Json(nullptr)},
                             {"lossless", step.lossless},
                             {"command", step.command.empty() ? Json(nullptr) : Json(step.command)}});
  return json_text(json);
}

}  // namespace plimsoll::doctor
