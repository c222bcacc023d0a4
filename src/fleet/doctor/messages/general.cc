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
  std::string_view behind{};  // an expression over the rest of the line, which must match
  bool of_host = false;       // the words of C and C++ for it: the host, unless the line names a device
};

constexpr std::string_view kFailed =
    R"(.{0,40}? (?i: fail | error | exceed | unsuccessful | refus | denied | not possible ))";
// "exceeds the available memory", and not a length, or the shared memory of a block.
constexpr std::string_view kOfAll =
    R"(.{0,24}? (?<! shared ) (?<! Shared ) (?i: memory (?! - | _ ) | ram (?![a-z]) | vram | hbm (?![a-z]) ) (?! .{0,30}? (?i: shared ) ))";

constexpr General kGeneral[] = {{"ut of memory"},
                                {"ut-of-memory"},
                                {"ut of the memory"},
                                {"ut of device memory"},
                                {"ut of GPU memory"},
                                {"ut of host memory"},
                                {"ut of system memory"},
                                {"ut of VRAM"},
                                {"ut of unified memory"},
                                {"ut of virtual memory"},
                                {"ut of RAM"},
                                {"ut of CPU memory"},
                                {"ot enough memory"},
                                {"ot enough free memory"},
                                {"ot enough GPU memory"},
                                {"ot enough device memory"},
                                {"ot enough system memory"},
                                {"ot enough CPU memory"},
                                {"ot enough RAM"},
                                {"ot enough VRAM"},
                                {"ot enough space to alloc", true, false},
                                {"o enough memory"},
                                {"o enough GPU memory"},
                                {"nsufficient memory"},
                                {"nsufficient GPU memory"},
                                {"nsufficient device memory"},
                                {"nsufficient system memory"},
                                {"nsufficient host memory"},
                                {"nsufficient VRAM"},
                                {"nsufficient RAM"},
                                {"emory is exhausted"},
                                {"emory is full"},
                                {"emory is insufficient"},
                                {"emory insufficient"},
                                {"emory error in alloc"},
                                {"emory exceed", false, true, false, R"((?! s? 10% ))"},
                                {"emory exhausted"},
                                {"emory not enough"},
                                {"emory is not enough"},
                                {"emory isn't enough"},
                                {"o memory left"},
                                {"ad allocation", false, true, false, {}, true},
                                {"emory allocation", true, true, false, kFailed},
                                {"uffer allocation fail", true},
                                {"alloc failed", true},
                                {"alloc() failed", true},
                                {"lloc memory fail", true},
                                {"llocate memory fail", true},
                                {"lloc mem fail", true},
                                {"annot malloc", true},
                                {"an't malloc", true},
                                {"ailed to malloc", true},
                                {"ailed to apply for memory", true},
                                {"ailed to reserve", true, false},
                                {"nable to reserve", true, false},
                                {"nable to acquire", true, false},
                                {"ailed to alloc", true, false},
                                {"ail to alloc", true, false},
                                {"ailed allocating", true, false},
                                {"nable to alloc", true, false},
                                {"annot alloc", true, false},
                                {"annot allocate memory", false, true, false, {}, true},
                                {"OM detected", true},
                                {"etected OOM", true},
                                {"an't alloc", true, false},
                                {"ould not alloc", true, false},
                                {"ouldn't alloc", true, false},
                                {"rror allocating", true, false},
                                {"rror while allocating", true, false},
                                {"emory object allocation fail", true},
                                {"OM when alloc"},
                                {"OM when trying to alloc"},
                                {"xceeds the", false, true, false, kOfAll},
                                {"xceeds available", false, true, false, kOfAll},
                                {"xceeded the", false, true, false, kOfAll},
                                {"xceeding", false, true, false, kOfAll},
                                {"arger than the available", false, true, false, kOfAll},
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

// Text has no blanks, so words are known by their case: INPUT has no NPU in it, nor OUTPUT a TPU.
const std::string kOnDevice =
    R"((?<on_device> CUDA (?! _Host ) | [Cc]uda | (?<![A-Z]) (?: HIP | NPU | XPU | MLU | HPU | TPU | MPS ) (?![A-Z]) | hip[A-Z_])"
    R"(| cu(?: Mem | Ctx | Graph | BLAS | DNN ) | R[Oo][Cc]m | aclrt | rtMalloc | CANN)"
    R"(| (?i: gpu | vram | hbm | metal | vulkan | sycl | opencl | musa | device_?mem | ondevice | thedevice | d3d12 | dxgi | wgpu | directml ) ))";
// The host by name, and what mostly means it.
const std::string kOnHost =
    R"((?<on_host> CUDA_Host | ENOMEM | (?i: host_?mem | onhost | thehost | systemmem | systemram | mainmem | virtualmem | errno:?=?12 | oserror12 ) ))";
const std::string kInProcess =
    R"((?<in_process> (?<![A-Z]) (?: CPU | RAM ) (?![A-Z]) | (?<![A-Za-z]) m(?: alloc | map ) | (?: c | re | aligned_m ) alloc | (?i: swap | pagingfile | killed ))"
    R"(| [Cc]\+\+ | cc1plus | cc1 (?! [0-9] ) | Cerror: | OpenCV | alloc\.cpp | OpenBLAS | pandas | [Pp]olars | DataFrame | Arrayb | rawdatachunk ))";
const std::string kPinned =
    R"((?<on_pinned> (?i: pinned | page-?locked | pin_memory | hostalloc | hostregister | malloc_?host | host_?malloc ) ))";

// Lines that speak of memory where nothing failed: warnings, another way that was taken, storage of threads; and the
// states of libraries, which have rows of their own.
const std::string kNoFailure =
    R"((?: cudaError (?! MemoryAllocation ) [A-Z] | (?i: warn | retry | (?<![a-z_=]) (?: info | debug ) (?![a-z]) | falling?back | host_malloc | mlock | skipp | busyorunavailable | statictls | notafailure | fortheinterpreter | nativethread | continuing | will(?:be)?use | using .* instead | handler | protection | cu(?: blas | dnn | fft | solver | sparse | rand )_ (?: status_ )? $ )))";
const std::string kFailure =
    R"((?i: error | fail | fatal | exception | abort | terminat | panic | what\(\) | critical | exhaust | unable | cannot | couldnot | crash | kill | uncaught ))";
constexpr std::string_view kByLimit = R"(^ .{0,16}? (?<by_limit> (?i: limit | quota | budget ) ))";
constexpr std::string_view kAnyLimit =
    R"(^ .{0,90}? (?<by_limit> (?i: maxsize | maximumsize | maxallowed | maximumallowed | memorylimit | limitof ) ))";
constexpr std::string_view kOfHost = R"(^ (?<in_process> . ))";
constexpr std::string_view kTried = "alloc [a-z]* .{0,40}? {tried:size}";
// Not ports, tasks or nodes: what was to be allocated was memory.
const std::string kOfMemory =
    R"((?i: memory | memalign | buffer | tensor | bytes | [0-9] [KMGT]i?B | array | cache | workspace | malloc ))";

struct Spelled {
  const General* general;
  std::string anchor;
};

// "ut of memory" as it is, as a title (ut of Memory), as in a name (utOfMemory), in capitals and as a constant
// (UT_OF_MEMORY). Blanks do not count.
std::vector<std::string> spellings(std::string_view anchor) {
  std::string name, title, capitals, constant;
  for (size_t i = 0; i < anchor.size(); ++i) {
    const char c = anchor[i];
    const bool begins = i > 0 && anchor[i - 1] == ' ';
    const char upper = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    const std::string_view rest = anchor.substr(i);
    const bool is_small = rest.starts_with("of ") || rest.starts_with("the ") || rest.starts_with("to ");
    name += begins ? upper : c;
    title += begins && !is_small ? upper : c;
    capitals += upper;
    constant += c == ' ' ? '_' : upper;
  }
  std::vector<std::string> all = {std::string(anchor), name, capitals, constant};
  if (title != name) all.push_back(title);
  return all;
}

std::vector<Spelled> every_spelling() {
  std::vector<Spelled> all;
  for (const General& general : kGeneral)
    for (const std::string& spelling : spellings(general.anchor)) all.push_back({&general, spelling});
  return all;
}

int64_t letters_of(std::string_view anchor) {
  return std::count_if(anchor.begin(), anchor.end(), [](char c) { return c != ' '; });
}

// A line that says that and nothing else, or at which step: prose has more words behind. The end of a wrapped line of
// prose begins with a small letter.
constexpr std::string_view kBareHead =
    R"((?: [^A-Za-z]* (?: \[ OOM \] )? (?: (?i: cuda | gpu | hip | rocm | xpu | mps | npu | device ) [A-Za-z]? | [A-Z] ) | ^ [\w./+-]{1,24} : [A-Za-z] ) $)";
std::vector<std::string> every_line_of_its_own(const std::vector<Spelled>& spelled) {
  std::vector<std::string> all;
  for (const Spelled& one : spelled) {
    all.push_back(formatted(
        "^ (?! .* {} ) .{{{}}} (?: [!.]* $ | [!,:]? \\(? (?i: at | in | on ) (?i: step | epoch | layer | batch | iter ) )",
        kNoFailure, letters_of(one.anchor)));
  }
  return all;
}

// Expressions over the rest of the line: no word of kNoFailure, memory unless the anchor says it, the anchor's own.
std::vector<std::string> every_rest(const std::vector<Spelled>& spelled, const std::string& nothing_else,
                                    const std::string& allocates) {
  std::vector<std::string> all;
  for (const Spelled& one : spelled)
    all.push_back(one.general->behind.empty() ? (one.general->says_memory ? nothing_else : allocates)
                                              : formatted("{} .{{{}}} {}", nothing_else,
                                                          letters_of(one.anchor), one.general->behind));
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
  static const std::vector<Spelled> kSpelled = every_spelling();  // rows refer to them
  static const std::vector<std::string> kAlone = every_line_of_its_own(kSpelled);
  static const std::vector<std::string> kBehind = every_rest(kSpelled, kNothingElse, kAllocates);
  static const std::string kNothingBefore = formatted("{}{}", kPlaces, kBareHead);
  std::vector<MessageRow> rows;
  for (size_t i = 0; i < kSpelled.size(); ++i) {
    const General& general = *kSpelled[i].general;
    const auto row = [&](const std::string& first, const std::string& needs) {
      return MessageRow{"any.out_of_memory",
                        Sign::maybe_device,
                        kSpelled[i].anchor,
                        {first, kDeviceBehind, kHostBehind, kProcessBehind, kPinnedBehind,
                         general.says_limit ? kByLimit : kTried,
                         general.of_host          ? kOfHost
                         : general.behind.empty() ? std::string_view()
                                                  : kAnyLimit},
                        "an error speaks of memory",
                        needs,
                        true};
    };
    if (general.says_memory && !general.says_failure && general.behind.empty())
      rows.push_back(row(kAlone[i], kNothingBefore));
    rows.push_back(row(kBehind[i], general.says_failure ? kPlaces : kLineFails));
  }
  return rows;
}

}  // namespace plimsoll::doctor
