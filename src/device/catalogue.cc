#include "device/catalogue.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/strings.h"
#include "base/units.h"

namespace plimsoll {
namespace {

// The most by which two processes on one card may differ.
constexpr int64_t kAgain = 16 * kMiB;

// Links to the host: what pinned memory was seen to get of PCIe with 16 or 8 lanes.
constexpr double kPcie3 = 12, kPcie4 = 24, kPcie5 = 48;
constexpr double kPcie4x8 = 12, kPcie5x8 = 24;

// By generation, the small ones first. NVIDIA's data sheets and architecture papers; memory as nvidia-smi
// prints it. The sheets of GeForce cards name the rate of 16-bit sums too: these rates are those of 32 bits.
// Clocks of laptops go by the power that their makers allow: these are in the midst of the ranges that the
// sheets give. GTX cards have no tensor cores: they take their instructions, at the rate of f32. A board of the
// A16 has four GPUs, and a row is one of them.
constexpr std::array kCards = {
    Card{"T4", 16, 15360, 75, 40, 320, 65, 8.1, kPcie3},
    Card{"GTX 1650", 4, 4096, 75, 14, 128, 3, 3, kPcie3},
    Card{"GTX 1650 SUPER", 4, 4096, 75, 20, 192, 4.4, 4.4, kPcie3},
    Card{"GTX 1660", 6, 6144, 75, 22, 192, 5, 5, kPcie3},
    Card{"GTX 1660 SUPER", 6, 6144, 75, 22, 336, 5, 5, kPcie3},
    Card{"GTX 1660 Ti", 6, 6144, 75, 24, 288, 5.4, 5.4, kPcie3},
    Card{"GTX 1650 Laptop", 4, 4096, 75, 16, 128, 2.8, 2.8, kPcie3},
    Card{"GTX 1650 Ti Laptop", 4, 4096, 75, 16, 192, 2.8, 2.8, kPcie3},
    Card{"GTX 1660 Ti Laptop", 6, 6144, 75, 24, 288, 4.5, 4.5, kPcie3},
    Card{"RTX 2060", 6, 6144, 75, 30, 336, 25.8, 6.5, kPcie3},
    Card{"RTX 2060", 12, 12288, 75, 34, 336, 28.7, 7.2, kPcie3},
    Card{"RTX 2060 SUPER", 8, 8192, 75, 34, 448, 28.7, 7.2, kPcie3},
    Card{"RTX 2070", 8, 8192, 75, 36, 448, 29.9, 7.5, kPcie3},
    Card{"RTX 2070 SUPER", 8, 8192, 75, 40, 448, 36.3, 9.1, kPcie3},
    Card{"RTX 2080", 8, 8192, 75, 46, 448, 40.3, 10.1, kPcie3},
    Card{"RTX 2080 SUPER", 8, 8192, 75, 48, 496, 44.6, 11.2, kPcie3},
    Card{"RTX 2080 Ti", 11, 11264, 75, 68, 616, 53.8, 13.4, kPcie3},
    Card{"TITAN RTX", 24, 24220, 75, 72, 672, 130.5, 16.3, kPcie3},
    Card{"RTX 2060 Laptop", 6, 6144, 75, 30, 336, 21.2, 5.3, kPcie3},
    Card{"RTX 2070 Laptop", 8, 8192, 75, 36, 448, 24.4, 6.1, kPcie3},
    Card{"RTX 2070 SUPER Laptop", 8, 8192, 75, 40, 448, 26, 6.5, kPcie3},
    Card{"RTX 2080 Laptop", 8, 8192, 75, 46, 448, 31.6, 7.9, kPcie3},
    Card{"RTX 2080 SUPER Laptop", 8, 8192, 75, 48, 448, 32.4, 8.1, kPcie3},
    Card{"Quadro RTX 4000", 8, 7982, 75, 36, 416, 57, 7.1, kPcie3},
    Card{"Quadro RTX 5000", 16, 16125, 75, 48, 448, 89.2, 11.2, kPcie3},
    Card{"Quadro RTX 6000", 24, 24220, 75, 72, 672, 130.5, 16.3, kPcie3},
    Card{"Quadro RTX 8000", 48, 48601, 75, 72, 672, 130.5, 16.3, kPcie3},
    Card{"A100", 40, 40960, 80, 108, 1555, 312, 19.5, kPcie4},
    Card{"A100", 80, 81920, 80, 108, 2039, 312, 19.5, kPcie4},
    Card{"A800", 40, 40960, 80, 108, 1555, 312, 19.5, kPcie4},
    Card{"A800", 80, 81920, 80, 108, 2039, 312, 19.5, kPcie4},
    Card{"A30", 24, 24576, 80, 56, 933, 165, 10.3, kPcie4},
    Card{"A2", 16, 15356, 86, 10, 200, 18, 4.5, kPcie4x8},
    Card{"A10", 24, 23028, 86, 72, 600, 125, 31.2, kPcie4},
    Card{"A10G", 24, 23028, 86, 80, 600, 70, 35, kPcie4},
    Card{"A16", 16, 15356, 86, 10, 200, 18, 4.5, kPcie4},
    Card{"A40", 48, 46068, 86, 84, 696, 149.7, 37.4, kPcie4},
    Card{"RTX A2000", 6, 6138, 86, 26, 288, 31.9, 8, kPcie4},
    Card{"RTX A2000", 12, 12282, 86, 26, 288, 31.9, 8, kPcie4},
    Card{"RTX A4000", 16, 16376, 86, 48, 448, 76.7, 19.2, kPcie4},
    Card{"RTX A4500", 20, 20470, 86, 56, 640, 94.6, 23.7, kPcie4},
    Card{"RTX A5000", 24, 24564, 86, 64, 768, 111.1, 27.8, kPcie4},
    Card{"RTX A5500", 24, 24564, 86, 80, 768, 136.4, 34.1, kPcie4},
    Card{"RTX A6000", 48, 49140, 86, 84, 768, 154.8, 38.7, kPcie4},
    Card{"RTX 3050", 8, 8192, 86, 20, 224, 18.2, 9.1, kPcie4x8},
    Card{"RTX 3050", 6, 6144, 86, 18, 168, 13.5, 6.8, kPcie4x8},
    Card{"RTX 3060", 12, 12288, 86, 28, 360, 25.5, 12.7, kPcie4},
    Card{"RTX 3060", 8, 8192, 86, 28, 240, 25.5, 12.7, kPcie4},
    Card{"RTX 3060 Ti", 8, 8192, 86, 38, 448, 32.4, 16.2, kPcie4},
    Card{"RTX 3070", 8, 8192, 86, 46, 448, 40.6, 20.3, kPcie4},
    Card{"RTX 3070 Ti", 8, 8192, 86, 48, 608, 43.5, 21.7, kPcie4},
    Card{"RTX 3080", 10, 10240, 86, 68, 760, 59.5, 29.8, kPcie4},
    Card{"RTX 3080", 12, 12288, 86, 70, 912, 61.3, 30.6, kPcie4},
    Card{"RTX 3080 Ti", 12, 12288, 86, 80, 912, 68.2, 34.1, kPcie4},
    Card{"RTX 3090", 24, 24576, 86, 82, 936, 71.2, 35.6, kPcie4},
    Card{"RTX 3090 Ti", 24, 24564, 86, 84, 1008, 80, 40, kPcie4},
    Card{"RTX 2050", 4, 4096, 86, 16, 112, 10.2, 5.1, kPcie4x8},
    Card{"RTX 3050 Laptop", 4, 4096, 86, 16, 192, 12.2, 6.1, kPcie4x8},
    Card{"RTX 3050 Laptop", 6, 6144, 86, 20, 168, 15.3, 7.6, kPcie4x8},
    Card{"RTX 3050 Ti Laptop", 4, 4096, 86, 20, 192, 14.2, 7.1, kPcie4x8},
    Card{"RTX 3060 Laptop", 6, 6144, 86, 30, 336, 21.9, 10.9, kPcie4x8},
    Card{"RTX 3070 Laptop", 8, 8192, 86, 40, 448, 31.9, 16, kPcie4x8},
    Card{"RTX 3070 Ti Laptop", 8, 8192, 86, 46, 448, 35, 17.5, kPcie4x8},
    Card{"RTX 3080 Laptop", 8, 8192, 86, 48, 448, 38, 19, kPcie4x8},
    Card{"RTX 3080 Laptop", 16, 16384, 86, 48, 448, 38, 19, kPcie4x8},
    Card{"RTX 3080 Ti Laptop", 16, 16384, 86, 58, 512, 47.2, 23.6, kPcie4x8},
    Card{"L4", 24, 23034, 89, 58, 300, 121, 30.3, kPcie4},
    Card{"L20", 48, 46068, 89, 92, 864, 119.5, 59.8, kPcie4},
    Card{"L40", 48, 46068, 89, 142, 864, 181, 90.5, kPcie4},
    Card{"L40S", 48, 46068, 89, 142, 864, 362, 91.6, kPcie4},
    Card{"RTX 2000 Ada", 16, 16380, 89, 22, 224, 48, 12, kPcie4x8},
    Card{"RTX 4000 SFF Ada", 20, 20475, 89, 48, 280, 76.6, 19.2, kPcie4},
    Card{"RTX 4000 Ada", 20, 20475, 89, 48, 360, 106.9, 26.7, kPcie4},
    Card{"RTX 4500 Ada", 24, 24570, 89, 60, 432, 158.5, 39.6, kPcie4},
    Card{"RTX 5000 Ada", 32, 32760, 89, 100, 576, 261.1, 65.3, kPcie4},
    Card{"RTX 5880 Ada", 48, 49140, 89, 110, 960, 277.2, 69.3, kPcie4},
    Card{"RTX 6000 Ada", 48, 49140, 89, 142, 960, 364.2, 91.1, kPcie4},
    Card{"RTX 4060", 8, 8188, 89, 24, 272, 30.2, 15.1, kPcie4x8},
    Card{"RTX 4060 Ti", 8, 8188, 89, 34, 288, 44.1, 22.1, kPcie4x8},
    Card{"RTX 4060 Ti", 16, 16380, 89, 34, 288, 44.1, 22.1, kPcie4x8},
    Card{"RTX 4070", 12, 12282, 89, 46, 504, 58.3, 29.1, kPcie4},
    Card{"RTX 4070 SUPER", 12, 12282, 89, 56, 504, 71, 35.5, kPcie4},
    Card{"RTX 4070 Ti", 12, 12282, 89, 60, 504, 80.2, 40.1, kPcie4},
    Card{"RTX 4070 Ti SUPER", 16, 16376, 89, 66, 672, 88.2, 44.1, kPcie4},
    Card{"RTX 4080", 16, 16376, 89, 76, 717, 97.5, 48.7, kPcie4},
    Card{"RTX 4080 SUPER", 16, 16376, 89, 80, 736, 104.4, 52.2, kPcie4},
    Card{"RTX 4090", 24, 24564, 89, 128, 1008, 165.2, 82.6, kPcie4},
    Card{"RTX 4090 D", 24, 24564, 89, 114, 1008, 147, 73.5, kPcie4},
    Card{"RTX 4050 Laptop", 6, 6141, 89, 20, 192, 18, 9, kPcie4x8},
    Card{"RTX 4060 Laptop", 8, 8188, 89, 24, 256, 23.2, 11.6, kPcie4x8},
    Card{"RTX 4070 Laptop", 8, 8188, 89, 36, 256, 31.2, 15.6, kPcie4x8},
    Card{"RTX 4080 Laptop", 12, 12282, 89, 58, 432, 49.4, 24.7, kPcie4x8},
    Card{"RTX 4090 Laptop", 16, 16376, 89, 76, 576, 66, 33, kPcie4x8},
    Card{"H100 SXM", 80, 81559, 90, 132, 3350, 989.4, 66.9, kPcie5},
    Card{"H100 PCIe", 80, 81559, 90, 114, 2039, 756, 51.2, kPcie5},
    Card{"H100 NVL", 94, 95830, 90, 132, 3938, 835, 60, kPcie5},
    Card{"H800", 80, 81559, 90, 132, 3350, 989.4, 66.9, kPcie5},
    Card{"H20", 96, 97871, 90, 78, 4000, 148, 44, kPcie5},
    Card{"H200", 141, 143771, 90, 132, 4800, 989.4, 66.9, kPcie5},
    Card{"H200 NVL", 141, 143771, 90, 132, 4800, 835, 60, kPcie5},
    Card{"B200", 180, 183359, 100, 148, 8000, 2250, 74.5, kPcie5},
    Card{"RTX 5050", 8, 8151, 120, 20, 320, 26.3, 13.2, kPcie5x8},
    Card{"RTX 5060", 8, 8151, 120, 30, 448, 38.4, 19.2, kPcie5x8},
    Card{"RTX 5060 Ti", 8, 8151, 120, 36, 448, 47.4, 23.7, kPcie5x8},
    Card{"RTX 5060 Ti", 16, 16311, 120, 36, 448, 47.4, 23.7, kPcie5x8},
    Card{"RTX 5070", 12, 12227, 120, 48, 672, 61.7, 30.9, kPcie5},
    Card{"RTX 5070 Ti", 16, 16303, 120, 70, 896, 87.9, 43.9, kPcie5},
    Card{"RTX 5080", 16, 16303, 120, 84, 960, 112.6, 56.3, kPcie5},
    Card{"RTX 5090", 32, 32607, 120, 170, 1792, 209.5, 104.8, kPcie5},
    Card{"RTX 5050 Laptop", 8, 8151, 120, 20, 384, 15, 7.5, kPcie5x8},
    Card{"RTX 5060 Laptop", 8, 8151, 120, 26, 384, 19.4, 9.7, kPcie5x8},
    Card{"RTX 5070 Laptop", 8, 8151, 120, 36, 384, 26.2, 13.1, kPcie5x8},
    Card{"RTX 5070 Ti Laptop", 12, 12227, 120, 46, 672, 34, 17, kPcie5x8},
    Card{"RTX 5080 Laptop", 16, 16303, 120, 60, 896, 46, 23, kPcie5x8},
    Card{"RTX 5090 Laptop", 24, 24463, 120, 82, 896, 63.6, 31.8, kPcie5x8},
    Card{"RTX PRO 4000", 24, 24467, 120, 70, 672, 187.6, 46.9, kPcie5},
    Card{"RTX PRO 4500", 32, 32623, 120, 82, 896, 219.8, 54.9, kPcie5},
    Card{"RTX PRO 5000", 48, 48935, 120, 110, 1344, 294.8, 73.7, kPcie5},
    Card{"RTX PRO 6000", 96, 97887, 120, 188, 1792, 503.8, 126, kPcie5},
};

// Words that people put before or behind a card's own name, and that tell no two cards apart.
constexpr std::array<std::string_view, 20> kPlain = {
    "nvidia",      "geforce", "tesla",   "quadro",   "generation", "gpu",   "tensor",
    "core",        "sxm4",    "sxm5",    "hbm3",     "hbm3e",      "with",  "blackwell",
    "workstation", "server",  "edition", "emulated", "sxm6",       "design"};

struct Requested {
  std::string letters;  // "rtx3080"
  int gigabytes = 0;    // 0: not given
};

// "20gb", "20gib" or "20g"; 0: another word.
int size_of_word(std::string_view word) {
  size_t digits = 0;
  while (digits < word.size() && word[digits] >= '0' && word[digits] <= '9') ++digits;
  const std::string_view unit = word.substr(digits);
  const bool is_size = digits > 0 && digits < 5 && (unit == "gb" || unit == "gib" || unit == "g");
  return is_size ? std::stoi(std::string(word.substr(0, digits))) : 0;
}

// "NVIDIA GeForce RTX 3080-20 GB" means "rtx3080" with 20 GB.
Requested read(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!words.back().empty())
      words.emplace_back();
  }
  Requested requested;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool apart = i + 1 < words.size() && size_of_word(word + words[i + 1]) > 0;
    if (word == "mobile") {
      requested.letters += "laptop";
    } else if (const int size = size_of_word(apart ? word + words[i + 1] : word); size > 0 && i > 0) {
      requested.gigabytes = size;
      i += apart ? 1 : 0;
    } else if (std::find(kPlain.begin(), kPlain.end(), word) == kPlain.end()) {
      requested.letters += word;
    }
  }
  return requested;
}

// Returns true if a card goes by these letters; a family's letters stand for the card of it that most people
// have.
bool goes_by(const Card& card, const std::string& letters) {
  constexpr std::string_view kLaptop = "laptop";
  const std::string own = read(card.name).letters;
  // The names that people use for RTX and GTX cards: "4090", "A6000", "1650".
  const bool is_short = (own.starts_with("rtx") || own.starts_with("gtx")) && own.substr(3) == letters;
  // Drivers name a laptop's card of little power so: "RTX 2070 with Max-Q Design".
  const bool is_max_q =
      own.ends_with(kLaptop) && own.substr(0, own.size() - kLaptop.size()) + "maxq" == letters;
  return own == letters || own + "pcie" == letters || (own == "h100sxm" && letters == "h100") || is_short ||
         is_max_q;
}

// Returns true for a name of another maker's card.
bool is_of_others(const std::string& letters) {
  static constexpr std::array<std::string_view, 7> kOthers = {"mi",       "rx",    "radeon", "arc",
                                                              "instinct", "apple", "gaudi"};
  const bool apple = letters.size() >= 2 && letters[0] == 'm' && letters[1] >= '1' && letters[1] <= '9';
  return apple ||
         std::ranges::any_of(kOthers, [&](std::string_view one) { return letters.starts_with(one); });
}

// A card of NVIDIA that runs cannot use, by how its letters begin; `digit`: with a digit behind that.
struct Unusable {
  std::string_view begins;
  bool digit;
  std::string_view generation;  // empty: its machines have no x86-64 CPU
};
// The first that fits counts.
constexpr std::array kUnusable = {
    Unusable{"v100", false, "Volta, compute capability 7.0"},
    Unusable{"gv100", false, "Volta, compute capability 7.0"},
    Unusable{"titanv", false, "Volta, compute capability 7.0"},
    Unusable{"p100", false, "Pascal, compute capability 6.0"},
    Unusable{"gp100", false, "Pascal, compute capability 6.0"},
    Unusable{"p", true, "Pascal, compute capability 6.1"},
    Unusable{"titanx", false, "Pascal, compute capability 6.1, or older"},
    Unusable{"gtx10", true, "Pascal, compute capability 6.1"},
    Unusable{"10", true, "Pascal, compute capability 6.1"},
    Unusable{"gtx9", true, "Maxwell, compute capability 5.2"},
    Unusable{"gtx8", true, "Maxwell or Kepler, compute capability 5.0 or less"},
    Unusable{"gtx7", true, "Maxwell or Kepler, compute capability 5.0 or less"},
    Unusable{"gtx6", true, "Kepler, compute capability 3.0"},
    Unusable{"m10", false, "Maxwell, compute capability 5.0"},
    Unusable{"m40", false, "Maxwell, compute capability 5.2"},
    Unusable{"m60", false, "Maxwell, compute capability 5.2"},
    Unusable{"k", true, "Kepler, compute capability 3.7 or less"},
    Unusable{"gh200", false, ""},
    Unusable{"gb200", false, ""},
    Unusable{"gb300", false, ""},
    Unusable{"gb10", false, ""},
    Unusable{"dgxspark", false, ""},
    Unusable{"jetson", false, ""},
};

const Unusable* unusable_card(const std::string& letters) {
  const auto found = std::ranges::find_if(kUnusable, [&](const Unusable& one) {
    const size_t end = one.begins.size();
    return letters.starts_with(one.begins) &&
           (!one.digit || (letters.size() > end && letters[end] >= '0' && letters[end] <= '9'));
  });
  return found == kUnusable.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_unusable(const Unusable& card, std::string_view text, std::string_view what) {
  if (card.generation.empty())
    throw UsageError(
        formatted("{}: '{}' is in machines with an Arm CPU, and this program runs on x86-64; the same GPU on "
                  "x86-64 is an H100, H200 or B200",
                  what, text));
  throw UsageError(
      formatted("{}: '{}' cannot be used: it is a card of {}, and kernels need 7.5 (Turing) or later, as the "
                "T4, the GTX 16 and the RTX 20 have; the CPU of its machine trains (--device cpu)",
                what, text, card.generation));
}

[[noreturn]] void refuse_unknown(std::string_view text, std::string_view what) {
  if (const Unusable* const card = unusable_card(read(text).letters)) refuse_unusable(*card, text, what);
  if (is_of_others(read(text).letters))
    throw UsageError(
        formatted("{}: '{}' is not a card of NVIDIA, and others are not supported: runs compute on CPUs and "
                  "NVIDIA's cards",
                  what, text));
  constexpr int kFar = 100;
  constexpr size_t kNamed = 5;
  const Requested requested = read(text);
  std::vector<std::pair<int, std::string>> near;
  for (const Card& card : kCards) {
    const int size = requested.gigabytes == 0 || requested.gigabytes == card.gigabytes ? 0 : 1;
    near.emplace_back(2 * edit_distance(requested.letters, read(card.name).letters, kFar) + size,
                      full_name(card));
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  for (size_t i = 0; i < kNamed; ++i) names.push_back(near[i].second);
  throw UsageError(formatted(
      "{}: '{}' is not a card that is known; the nearest are {}. Kernels need compute capability 7.5 "
      "(Turing) or later; such a card that is missing here is planned for by its size: "
      "--device card --memory 16GiB",
      what, text, join(names, ", ")));
}

// A card that was rebuilt with more memory, or an odd edition of it.
Card of_other_size(Card card, int gigabytes, std::string_view text, std::string_view what) {
  constexpr int kMost = 3;  // times as much as it is sold with
  if (gigabytes > kMost * card.gigabytes)
    throw UsageError(formatted("{}: '{}': no {} has {} GB; it is sold with {}", what, text, card.name,
                               gigabytes, card.gigabytes));
  card.gigabytes = gigabytes;
  card.memory_mib = int64_t{gigabytes} * (kGiB / kMiB);
  return card;
}

// GeForce cards reach more of the rate of 32-bit sums, which is half of what their tensor cores can do, or what they
// have instead of those; they do not reach each other.
bool is_geforce(const Card& card) {
  return (card.name.starts_with("RTX") && card.name.find('A') == std::string_view::npos &&
          !card.name.starts_with("RTX PRO")) ||
         card.name.starts_with("GTX");
}

}  // namespace

std::span<const Card> all_cards() { return kCards; }

std::string full_name(const Card& card) { return formatted("{} {}GB", card.name, card.gigabytes); }

Card find_card(std::string_view text, std::string_view what) {
  const Requested requested = read(text);
  const Card* first = nullptr;
  for (const Card& card : kCards) {
    if (!goes_by(card, requested.letters)) continue;
    if (requested.gigabytes == card.gigabytes) return card;
    if (first == nullptr) first = &card;
  }
  if (first == nullptr) refuse_unknown(text, what);
  return requested.gigabytes == 0 ? *first : of_other_size(*first, requested.gigabytes, text, what);
}

Card find_card_of(std::string_view name, int64_t memory_bytes, std::string_view what) {
  Card found = find_card(name, what);
  if (read(name).gigabytes > 0) return found;
  const auto far = [&](const Card& card) { return std::abs(card.memory_mib * kMiB - memory_bytes); };
  for (const Card& card : kCards)
    if (card.name == found.name && far(card) < far(found)) found = card;
  return found;
}

std::vector<OutsidePart> outside_parts(const Card& card, bool driver, const MeasuredCard* measured) {
  // The driver: what cards of 10 to 141 GB were seen to lack of the memory that they are sold with (220 MiB
  // of an RTX 3080's 10 GiB, 770 of an A100's 80). The context: local memory and queues of each
  // multiprocessor, more where it holds 2,048 threads instead of 1,024 or 1,536.
  constexpr int64_t kDriver = 200 * kMiB, kDriverUncertain = 150 * kMiB;
  constexpr double kDriverShare = 0.007;
  constexpr int64_t kContext = 32 * kMiB;
  const bool many_threads =
      card.compute_capability == 80 || card.compute_capability == 90 || card.compute_capability == 100;
  const double per_multiprocessor = (many_threads ? 3.7 : 3.2) * kMiB;
  const int64_t context = kContext + static_cast<int64_t>(per_multiprocessor * card.multiprocessors);
  std::vector<OutsidePart> parts;
  if (driver && measured != nullptr && measured->memory_bytes)
    parts.push_back(
        {"driver, measured", std::max<int64_t>(0, card.memory_mib * kMiB - *measured->memory_bytes), 0});
  else if (driver)
    parts.push_back(
        {"driver", kDriver + static_cast<int64_t>(kDriverShare * static_cast<double>(card.memory_mib * kMiB)),
         kDriverUncertain});
  if (measured != nullptr && measured->process_bytes) {
    parts.push_back({"context and code, measured", *measured->process_bytes, kAgain});
    return parts;
  }
  parts.push_back({"context", context, context / 5});
  parts.push_back(code_part());
  return parts;
}

OutsidePart code_part() {
  constexpr int64_t kCode = 41 * kMiB, kUncertain = 20 * kMiB;
  return {"code and libraries", kCode, kUncertain};
}

OutsidePart host_part(const MeasuredCard* measured, bool library) {
  // The driver's libraries, their heaps and tables. A guess that nothing stands behind until a card was
  // measured. cuBLASLt 13.1 was seen to take 148 MB when it is opened, where there is no card.
  constexpr int64_t kBytes = 220 * kMiB, kUncertain = 100 * kMiB, kLibrary = 142 * kMiB;
  if (measured != nullptr && measured->host_bytes) return {"CUDA, measured", *measured->host_bytes, kAgain};
  return {"CUDA", kBytes + (library ? kLibrary : 0), kUncertain};
}

namespace {

// The share of the rate of others of its kind that a card of 70 W sustains: under products its clock falls to
// stay within its power (Jia et al., Dissecting the NVidia Turing T4 GPU, arXiv:1903.07486). Public aggregate
// scores of deep learning have a T4 at 0.63 of an RTX 3060 (25.7 against 40.9), which this keeps within the
// 30 % that are printed; of the L4 NVIDIA says that it is 2.7 times a T4.
double sustained(const Card& card) {
  if (card.name == "T4") return 0.26 / 0.70;
  return card.name == "L4" ? 0.38 / 0.70 : 1.0;
}

// Shares of the data sheet's rates that are reached.
DeviceRates rates_of(const Card& card) {
  const double products = (is_geforce(card) ? 0.85 : 0.70) * sustained(card);
  const double attention = (is_geforce(card) ? 0.40 : 0.25) * sustained(card);
  DeviceRates rates;
  rates.of_card = true;
  rates.matmul_bf16 = products * card.tflops_16 * 1e12;
  rates.vector_bf16 = attention * card.tflops_16 * 1e12;
  rates.matmul_f32 = 0.70 * card.tflops_32 * 1e12;
  rates.bandwidth = 0.80 * card.bandwidth * 1e9;
  rates.op_overhead = 2.5e-6;
  rates.host_copy = card.link * 1e9;
  rates.note = "by the card's data sheet: it was not measured";
  return rates;
}

// Rates of attention and gated linear attention on a card where they were not measured: guesses by counting
// what the kernels do and move in addition to products. By plain arithmetic (f32, and what else tensor cores
// do not take) 55 to 72 of 100 instructions that nvcc makes are multiplications, and half of that is guessed
// to be reached; the backward computes 7 products for the 5 that count, and heads above 128 values scores
// twice.
std::vector<RateCurve> guessed_curves(const Card& card, double by_tiles) {
  const double all_32 = card.tflops_32 * 1e12, all_16 = card.tflops_16 * 1e12;
  const double gla = (is_geforce(card) ? 0.10 : 0.05) * sustained(card) * all_16;
  std::vector<RateCurve> curves;
  const auto add = [&](std::string op, DType dtype, double rate) {
    curves.push_back({std::move(op), dtype, 0, {{1, rate}}});
  };
  const auto both_ways = [&](const std::string& form, DType dtype, double forward, double backward) {
    add("attention" + form, dtype, forward);
    add("attention_grad" + form, dtype, backward);
  };
  both_ways("", DType::bf16, by_tiles, by_tiles);
  both_ways("_with_bias", DType::bf16, 0.7 * by_tiles, 0.6 * by_tiles);
  both_ways("_with_dropout", DType::bf16, 0.25 * by_tiles, 0.4 * by_tiles);
  both_ways("_plain", DType::bf16, 0.20 * all_32, 0.15 * all_32);
  both_ways("", DType::f32, 0.30 * all_32, 0.22 * all_32);
  for (const char* const op : {"gla", "gla_grad"}) {
    add(op, DType::bf16, gla);
    add(op, DType::f32, 0.10 * all_32);
  }
  for (const char* const op : {"delta_rule", "delta_rule_grad"})  // by plain arithmetic in all types
    for (const DType dtype : {DType::f32, DType::bf16}) add(op, dtype, 0.12 * all_32);
  return curves;
}
void add_guesses(const Card& card, DeviceRates& rates) {
  const auto measured = rates.ops;
  for (RateCurve& guess : guessed_curves(card, rates.vector_bf16))
    if (std::ranges::none_of(
            measured, [&](const RateCurve& one) { return one.op == guess.op && one.dtype == guess.dtype; }))
      rates.ops.push_back(std::move(guess));
}

}  // namespace

int64_t library_workspace_bytes(int compute_capability, int64_t memory_bytes) {
  constexpr int kHopper = 90;
  constexpr int64_t kSmallCard = 24000 * kMiB;
  if (compute_capability >= kHopper) return 32 * kMiB;
  return (memory_bytes < kSmallCard ? 1 : 4) * kMiB;
}

// The time that CUDA's runtime takes to launch a kernel, by published figures: a guess until it was measured.
constexpr double kLaunchSeconds = 3.5e-6;

DeviceDescription describe_card(const Card& card, bool driver, const MeasuredCard* measured) {
  const int64_t workspace = library_workspace_bytes(card.compute_capability, card.memory_mib * kMiB);
  const int64_t shared = card.compute_capability == 75                                     ? 64
                         : card.compute_capability == 80                                   ? 163
                         : card.compute_capability == 90 || card.compute_capability == 100 ? 227
                                                                                           : 99;
  DeviceDescription device;
  device.kind = "card";
  device.backend = Backend::gpu;
  device.card = {card.compute_capability, card.multiprocessors, shared * kKiB};
  device.card_name = full_name(card);
  device.outside = outside_parts(card, driver, measured);
  device.reaches_host = false;
  device.reaches_cards = !is_geforce(card);
  if (measured != nullptr && measured->graph_node_bytes)
    device.graph_node = {*measured->graph_node_bytes, *measured->graph_node_bytes / 8, true};
  device.launch_seconds =
      measured != nullptr ? measured->launch_seconds.value_or(kLaunchSeconds) : kLaunchSeconds;
  device.library_products = true;
  device.rates = measured != nullptr && measured->rates ? *measured->rates : rates_of(card);
  add_guesses(card, device.rates);
  device.matmul_scratch_bytes = [workspace](const MatmulShape&) { return workspace; };
  return device;
}

}  // namespace plimsoll
