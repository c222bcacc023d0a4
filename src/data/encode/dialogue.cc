#include "data/encode/dialogue.h"

#include <algorithm>

namespace plimsoll {
namespace {

constexpr std::string_view kHuman = "\n\nHuman:", kAssistant = "\n\nAssistant:";
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

}  // namespace

bool is_dialogue(std::string_view text) {
  return text.starts_with(kHuman) && text.find(kAssistant) != std::string_view::npos;
}

bool holds_dialogue(const nlohmann::ordered_json& cell) {
  return cell.is_string() && is_dialogue(cell.get_ref<const std::string&>());
}

nlohmann::ordered_json dialogue_messages(std::string_view text, const std::string& role,
                                         const std::string& content) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  while (!text.empty()) {
    const bool asks = text.starts_with(kHuman);
    text.remove_prefix((asks ? kHuman : kAssistant).size());
    const size_t end = std::min({text.find(kHuman), text.find(kAssistant), text.size()});
    messages.push_back(
        {{role, asks ? "user" : "assistant"}, {content, std::string(without_blanks(text.substr(0, end)))}});
    text.remove_prefix(end);
  }
  return messages;
}

size_t shared_dialogue(std::string_view a, std::string_view b) {
  const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
  const size_t at = a.substr(0, static_cast<size_t>(parted)).rfind(kAssistant);
  return at == std::string_view::npos ? 0 : at + kAssistant.size();
}

}  // namespace plimsoll
