// Words of any runtime for an allocation that failed: of failure, of memory, and of its place. Rows of known
// programs say more, so these count only where none of those matched.
#include <algorithm>
#include <string>

#include "base/format.h"
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

struct General {
  std::string_view anchor;    // without its first letter, which may be a capital
  bool says_failure = false;  // by itself; otherwise another word of the line has to
  bool says_memory = true;    // by itself; otherwise what follows has to: ports and nodes are allocated too
  bool says_limit = false;    // a program's own limit was reached, not the memory's end
};

constexpr General kGeneral[] = {{"ut of memory"},
                                {"ut-of-memory"},
                                {"ut of the memory"},
                                {"ut of device memory"},
                                {"ut of GPU memory"},
                                {"ut of host memory"},
                                {"ut of system memory"},
                                {"ut of VRAM"},
                                {"ot enough memory"},
                                {"ot enough free memory"},
                                {"ot enough GPU memory"},
                                {"ot enough device memory"},
                                {"ot enough system memory"},
                                {"ot enough VRAM"},
                                {"o enough memory"},
                                {"o enough GPU memory"},
                                {"nsufficient memory"},
                                {"nsufficient GPU memory"},
                                {"nsufficient device memory"},
                                {"nsufficient system memory"},
                                {"nsufficient VRAM"},
                                {"emory is exhausted"},
                                {"emory exhausted"},
                                {"emory not enough"},
                                {"emory is not enough"},
                                {"emory isn't enough"},
                                {"o memory left"},
                                {"ad allocation"},
                                {"emory allocation fail", true},
                                {"emory allocation err", true},
                                {"uffer allocation fail", true},
                                {"alloc failed", true},
                                {"alloc() failed", true},
                                {"lloc memory fail", true},
                                {"llocate memory fail", true},
                                {"lloc mem fail", true},
                                {"annot malloc", true},
                                {"ailed to alloc", true, false},
                                {"nable to alloc", true, false},
                                {"annot alloc", true, false},
                                {"an't alloc", true, false},
                                {"ould not alloc", true, false},
                                {"ouldn't alloc", true, false},
                                {"rror allocating", true, false},
                                {"rror while allocating", true, false},
                                {"emory object allocation fail", true},
                                {"OM when alloc"},
                                {"OM when trying to alloc"},
                                {"llocation failed", true, false},
                                {"llocation failure", true, false},
                                {"emory limit exceeded", false, true, true},
                                {"emory limit reached", false, true, true},
                                {"emory quota exceeded", false, true, true},
                                {"emory budget exceeded", false, true, true},
                                {"xceeded memory limit", false, true, true},
                                {"xceeds memory limit", false, true, true},
                                {"xceeded the memory limit", false, true, true},
                                {"xceeds the memory limit", false, true, true},
                                {"xceeded its memory limit", false, true, true}};

constexpr size_t kSpellings = 4;

// Text has no blanks, so words are known by their case: INPUT has no NPU in it, nor OUTPUT a TPU.
const std::string kOnDevice =
    R"((?<on_device> CUDA (?! _Host ) | [Cc]uda | (?<![A-Z]) (?: HIP | NPU | XPU | MLU | HPU | TPU | MPS ) (?![A-Z]) | hip[A-Z_])"
    R"(| cu(?: Mem | Ctx | Graph | BLAS | DNN ) | R[Oo][Cc]m | aclrt | rtMalloc | CANN)"
    R"(| (?i: gpu | vram | hbm | metal | vulkan | sycl | opencl | musa | device_?mem | ondevice | thedevice ) ))";
// The host by name, and what mostly means it.
const std::string kOnHost =
    R"((?<on_host> CUDA_Host | ENOMEM | (?i: host_?mem | onhost | thehost | systemmem | systemram | mainmem | virtualmem | errno:?=?12 | oserror12 ) ))";
const std::string kInProcess =
    R"((?<in_process> (?<![A-Z]) (?: CPU | RAM ) (?![A-Z]) | (?<![A-Za-z]) m(?: alloc | map ) | (?: c | re | aligned_m ) alloc | (?i: swap ) ))";
const std::string kPinned =
    R"((?<on_pinned> (?i: pinned | page-?locked | pin_memory | hostalloc | hostregister ) ))";

// Lines that speak of memory where nothing failed: warnings, another way that was taken, storage of threads; and the
// states of libraries, which have rows of their own.
const std::string kNoFailure =
    R"((?i: warn | retry | (?<![a-z_=]) (?: info | debug ) (?![a-z]) | falling?back | host_malloc | mlock | skipp | statictls | notafailure | continuing | will(?:be)?use | using .* instead | handler | protection | cu(?: blas | dnn | fft | solver | sparse | rand )_ (?: status_ )? $ ))";
const std::string kFailure =
    R"((?i: error | fail | fatal | exception | abort | terminat | panic | what\(\) | critical | exhaust | unable | cannot | couldnot | crash ))";
constexpr std::string_view kByLimit = R"(^ .{0,16}? (?<by_limit> (?i: limit | quota | budget ) ))";
constexpr std::string_view kTried = "alloc [a-z]* .{0,40}? {tried:size}";
// Not ports, tasks or nodes: what was to be allocated was memory.
const std::string kOfMemory =
    R"((?i: memory | memalign | buffer | tensor | bytes | [0-9] [KMGT]i?B | array | cache | workspace | malloc ))";

// "ut of memory" as it is, as in a name (utOfMemory), in capitals and as a constant (UT_OF_MEMORY). Blanks do not count.
std::vector<std::string> spellings(std::string_view anchor) {
  std::string name, capitals, constant;
  bool begins = false;
  for (const char c : anchor) {
    const char upper = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    name += begins ? upper : c;
    capitals += upper;
    constant += c == ' ' ? '_' : upper;
    begins = c == ' ';
  }
  return {std::string(anchor), name, capitals, constant};
}

std::vector<std::string> every_spelling() {
  std::vector<std::string> all;
  for (const General& general : kGeneral)
    for (const std::string& spelling : spellings(general.anchor)) all.push_back(spelling);
  return all;
}

// A line that says that and nothing else, or at which step: prose has more words behind. The end of a wrapped line of
// prose begins with a small letter.
constexpr std::string_view kBareHead =
    R"([^A-Za-z]* (?: \[ OOM \] )? (?: (?i: cuda | gpu | hip | rocm | xpu | mps | npu | device ) [A-Za-z]? | [A-Z] ) $)";
std::vector<std::string> every_line_of_its_own() {
  std::vector<std::string> all;
  for (const std::string& anchor : every_spelling()) {
    const auto letters = std::count_if(anchor.begin(), anchor.end(), [](char c) { return c != ' '; });
    all.push_back(formatted(
        "^ (?! .* {} ) .{{{}}} (?: [!.]* $ | [!,:]? \\(? (?i: at | in | on ) (?i: step | epoch | layer | batch | iter ) )",
        kNoFailure, letters));
  }
  return all;
}

std::string anywhere_before(const std::string& words) { return formatted("(?: (?= .* {} ) )?", words); }
std::string anywhere_behind(const std::string& words) { return "^ .{0,200}? " + words; }

}  // namespace

std::vector<MessageRow> general_messages() {
  static const std::string kPlaces =
      formatted("^ (?! .* {} ) {}{}{}{}", kNoFailure, anywhere_before(kOnDevice), anywhere_before(kOnHost),
                anywhere_before(kInProcess), anywhere_before(kPinned));
  static const std::string kLineFails =
      formatted("{}(?: .* {} .* | [^A-Za-z]* [A-Z]? ) $", kPlaces, kFailure);
  static const std::string kNothingElse = formatted("^ (?! .* {} )", kNoFailure);
  static const std::string kAllocates = formatted("{}{}{}", kNothingElse, " .{0,90}? ", kOfMemory);
  static const std::string kDeviceBehind = anywhere_behind(kOnDevice);
  static const std::string kHostBehind = anywhere_behind(kOnHost);
  static const std::string kProcessBehind = anywhere_behind(kInProcess);
  static const std::string kPinnedBehind = anywhere_behind(kPinned);
  static const std::vector<std::string> kAnchors = every_spelling();  // rows refer to them
  static const std::vector<std::string> kAlone = every_line_of_its_own();
  static const std::string kNothingBefore = formatted("{}{}", kPlaces, kBareHead);
  std::vector<MessageRow> rows;
  for (size_t i = 0; i < kAnchors.size(); ++i) {
    const General& general = kGeneral[i / kSpellings];
    if (general.says_memory && !general.says_failure)
      rows.push_back({"any.out_of_memory",
                      Sign::maybe_device,
                      kAnchors[i],
                      {kAlone[i], kDeviceBehind, kHostBehind, kProcessBehind, kPinnedBehind,
                       general.says_limit ? kByLimit : kTried},
                      "an error speaks of memory",
                      kNothingBefore,
                      true});
    rows.push_back({"any.out_of_memory",
                    Sign::maybe_device,
                    kAnchors[i],
                    {general.says_memory ? kNothingElse : kAllocates, kDeviceBehind, kHostBehind,
                     kProcessBehind, kPinnedBehind, general.says_limit ? kByLimit : kTried},
                    "an error speaks of memory",
                    general.says_failure ? kPlaces : kLineFails,
                    true});
  }
  return rows;
}

}  // namespace plimsoll::doctor
