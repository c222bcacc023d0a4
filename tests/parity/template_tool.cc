// Renders the cases of a JSON file: [{"template", "variables", "now"?: [year, month, day, hour, minute,
// second]}]. Prints a JSON array of {"text", "generated"} or {"error"}.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "files/file.h"
#include "jinja/template.h"

namespace {

using nlohmann::ordered_json;

std::optional<std::tm> time_of(const ordered_json& test) {
  if (!test.contains("now")) return std::nullopt;
  const auto parts = test["now"].get<std::vector<int>>();
  std::tm now{};
  now.tm_year = parts.at(0) - 1900;
  now.tm_mon = parts.at(1) - 1;
  now.tm_mday = parts.at(2);
  now.tm_hour = parts.at(3);
  now.tm_min = parts.at(4);
  now.tm_sec = parts.at(5);
  now.tm_isdst = -1;
  std::mktime(&now);  // fills in the days of week and year
  return now;
}

ordered_json result_of(const ordered_json& test) {
  try {
    const auto source = test.at("template").get<std::string>();
    const auto rendered =
        plimsoll::Template::parse(source, "template").render(test.at("variables"), time_of(test));
    ordered_json spans = ordered_json::array();
    for (const auto& span : rendered.generated) spans.push_back({span.begin, span.end});
    return {{"text", rendered.text}, {"generated", spans}};
  } catch (const plimsoll::TemplateError& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CASES.json\n", argv[0]);
    return 2;
  }
  ordered_json results = ordered_json::array();
  for (const auto& test : ordered_json::parse(plimsoll::read_text(argv[1], int64_t{1} << 30)))
    results.push_back(result_of(test));
  std::cout << results.dump() << '\n';
}
