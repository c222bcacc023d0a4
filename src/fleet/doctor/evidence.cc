#include "fleet/doctor/evidence.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numeric>
#include <unordered_map>

namespace plimsoll::doctor {
namespace {

constexpr double kLargest = 4611686018427387904.0;  // 2^62
constexpr size_t kMostHolders = 256;

// Figures that are bytes also where they are printed without a unit.
bool is_bytes(std::string_view name) {
  constexpr std::array kNames = {"tried", "tried_total", "allowed", "used", "total", "size"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

// Names that may be made of digits alone.
bool is_name(std::string_view name) {
  return name == "step_id" || name == "tasks" || name == "node" || name == "process" || name == "group";
}

std::string digits_of(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (c != ' ' && c != ',') out += c;
  return out;
}

bool is_unit(std::string_view unit) {
  if (unit == "bytes" || unit == "B") return true;
  if (unit.empty() || unit.size() > 3 || std::string_view("kKMGTP").find(unit[0]) == std::string_view::npos)
    return false;
  unit.remove_prefix(1);
  return unit.empty() || unit == "B" || unit == "b" || unit == "iB" || unit == "ib";
}

std::string without_blanks(std::string text) {
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  return text;
}

double unit_of(std::string_view unit) {
  switch (unit.front()) {
    case 'k':
    case 'K':
      return 1024.0;
    case 'M':
      return 1024.0 * 1024;
    case 'G':
      return 1024.0 * 1024 * 1024;
    case 'T':
      return 1024.0 * 1024 * 1024 * 1024;
    case 'P':
      return 1024.0 * 1024 * 1024 * 1024 * 1024;
    default:
      return 1;
  }
}

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == ',' || c == ' ';
  });
}

// "float" of [32,1024] is 131,072 bytes: what TensorFlow and NumPy leave to the reader.
std::optional<int64_t> tensor_bytes(const std::string& shape, const std::string& type) {
  static const std::map<std::string, int64_t, std::less<>> kTypes = {
      {"float", 4},    {"float32", 4}, {"double", 8}, {"float64", 8}, {"half", 2},      {"float16", 2},
      {"bfloat16", 2}, {"int32", 4},   {"int64", 8},  {"int8", 1},    {"uint8", 1},     {"bool", 1},
      {"int16", 2},    {"uint16", 2},  {"uint32", 4}, {"uint64", 8},  {"complex64", 8}, {"complex128", 16}};
  const auto found = kTypes.find(type);
  if (found == kTypes.end()) return std::nullopt;
  double bytes = static_cast<double>(found->second);
  int64_t exact = found->second;
  for (size_t at = 0; at < shape.size();) {
    int64_t dimension = 0;
    const auto [end, error] = std::from_chars(shape.data() + at, shape.data() + shape.size(), dimension);
    if (error != std::errc()) {
      ++at;
      continue;
    }
    bytes *= static_cast<double>(dimension);
    if (bytes >= kLargest) return std::nullopt;
    exact *= dimension;
    at = static_cast<size_t>(end - shape.data());
  }
  return exact;
}

class Reader {
 public:
  explicit Reader(const MessageRow& row) {
    for (const std::string_view field : row.fields)
      if (!field.empty()) fields_.emplace_back(field);
  }

  Message read(const Sighting& sighting) const {
    Message message;
    message.row = sighting.row;
    message.line = message.last_line = sighting.line;
    message.sender = sighting.sender;
    message.quote = sighting.quote;
    message.during = sighting.during;
    message.during_line = sighting.during_line;
    message.step = sighting.step;
    message.of_steps = sighting.of_steps;
    Expression::Groups all = sighting.before;
    for (const Expression& field : fields_) {
      Expression::Groups groups;
      if (field.match(sighting.window, groups)) all.insert(groups.begin(), groups.end());
    }
    for (const auto& [name, text] : all) add(name, text, all, message);
    complete(all, message);
    if (sighting.row->sign == Sign::device_full) add_holders(sighting.window, message);
    return message;
  }

 private:
  static void add(const std::string& name, const std::string& text, const Expression::Groups& all,
                  Message& message) {
    if (is_name(name)) {
      message.words[name] = text;
      return;
    }
    if (!is_number(text)) {
      if (const auto bytes = parse_printed_bytes(text)) {
        message.bytes[name] = *bytes;
      } else if (name == "tried" || text.empty() || text[0] < '0' || text[0] > '9' ||
                 text.find("iB") == text.npos) {
        message.words[name] =
            name == "tried" ? without_blanks(text) : text;  // the rest are sizes too large to be any
      }
      return;
    }
    if (text.find('.') != text.npos) return add_decimal(name, text, all, message);
    int64_t value = 0;
    const std::string digits = digits_of(text);
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc()) return;
    if (is_bytes(name)) {
      if (static_cast<double>(value) < kLargest) message.bytes[name] = {value, 0};
    } else if (name.ends_with("_kb")) {
      message.bytes[name.substr(0, name.size() - 3)] = {value * 1024, 0};
    } else {
      message.counts[name] = value;
    }
  }

  static void add_decimal(const std::string& name, const std::string& text, const Expression::Groups& all,
                          Message& message) {
    // "(3.2/23.6 GiB)": the unit stands behind the second one.
    const auto total = all.find("total");
    if (name == "free" && total != all.end()) {
      const size_t unit = std::min(total->second.find_first_not_of("0123456789., "), total->second.size());
      if (const auto bytes = parse_printed_bytes(text + total->second.substr(unit))) {
        message.bytes[name] = *bytes;
        return;
      }
    }
    message.words[name] = text;
  }

  static void complete(const Expression::Groups& all, Message& message) {
    const auto shape = all.find("shape");
    const auto type = all.find("dtype");
    if (message.size("tried") == nullptr && shape != all.end() && type != all.end())
      if (const auto bytes = tensor_bytes(without_blanks(shape->second), type->second))
        message.bytes["tried"] = {*bytes, 0};
    // In containers NVML knows nothing of the own process.
    const Bytes* own = message.size("this_process");
    if (own != nullptr && own->value == 0) message.bytes.erase("this_process");
  }

  static void add_holders(const std::string& window, Message& message) {
    static const Expression kHolder(R"(Process {pid:count} has {bytes:size} memory in use)");
    kHolder.for_each(window, kMostHolders, [&](const Expression::Groups& groups) {
      const auto bytes = parse_printed_bytes(groups.at("bytes"));
      int64_t pid = 0;
      const std::string& digits = groups.at("pid");
      std::from_chars(digits.data(), digits.data() + digits.size(), pid);
      if (bytes) message.holders.push_back({pid, *bytes});
    });
  }

  std::vector<Expression> fields_;
};

bool same_figures(const Message& a, const Message& b) {
  const auto equal = [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.value == y.second.value && x.second.slack == y.second.slack;
  };
  return a.row == b.row && a.counts == b.counts && a.words == b.words && a.bytes.size() == b.bytes.size() &&
         std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), equal);
}

}  // namespace

std::optional<Bytes> parse_printed_bytes(std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789., ");
  if (end == 0 || end == text.npos || !is_unit(text.substr(end))) return std::nullopt;
  std::string digits = digits_of(text.substr(0, end));
  while (digits.ends_with('.')) digits.pop_back();
  double number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size()) return std::nullopt;
  const double unit = unit_of(text.substr(end));
  if (number * unit >= kLargest) return std::nullopt;
  const size_t point = digits.find('.');
  const double decimals = point == std::string::npos ? 0 : static_cast<double>(digits.size() - point - 1);
  const bool exact = unit <= 1024 && decimals == 0;
  return Bytes{std::llround(number * unit), exact ? 0 : std::llround(unit * std::pow(10.0, -decimals) / 2)};
}

void add_evidence(const LogScanner& scanner, const std::string& file, Evidence& evidence) {
  std::map<const MessageRow*, Reader> readers;
  std::map<const MessageRow*, int64_t> kept;
  const size_t before = evidence.messages.size();
  for (const Sighting& sighting : scanner.sightings()) {
    const Reader& reader = readers.try_emplace(sighting.row, *sighting.row).first->second;
    Message message = reader.read(sighting);
    message.file = file;
    ++kept[sighting.row];
    const auto same =
        std::find_if(evidence.messages.begin() + static_cast<int64_t>(before), evidence.messages.end(),
                     [&](const Message& other) { return same_figures(message, other); });
    if (same == evidence.messages.end()) {
      evidence.messages.push_back(std::move(message));
    } else {
      ++same->count;
      same->last_line = message.line;
    }
  }
  // Sightings between the first and the last that were kept were only counted.
  for (const auto& [row, times] : kept) {
    const auto first =
        std::find_if(evidence.messages.begin() + static_cast<int64_t>(before), evidence.messages.end(),
                     [row = row](const Message& other) { return other.row == row; });
    first->count += scanner.count(*row) - times;
  }
  evidence.lines += scanner.lines();
  evidence.skipped += scanner.skipped();
  if (scanner.last_step() >= 0) {
    evidence.last_step = scanner.last_step();
    evidence.last_step_line = scanner.last_step_line();
  }
}

}  // namespace plimsoll::doctor
