// Words of any runtime for an allocation that failed: of failure, of memory, and of its place. Rows of known
// programs say more, so these count only where none of those matched.
#include <algorithm>
#include <deque>
#include <string>

#include "base/format.h"
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

struct General {
  std::string_view anchor;    // without its first letter, which may be a capital
  bool says_failure = false;  // by itself; otherwise another word of the line has to
  bool says_memory = true;    // by itself; otherwise the line has to: ports and nodes are allocated too
  bool says_limit = false;    // a program's own limit was reached, not the memory's end
  std::string_view behind{};  // an expression over the rest of the line, which must match
  bool of_host = false;       // the words of C and C++ for it: the host, unless the line names a device
  std::string_view before{};  // an expression over the line before the anchor, which must match
};

// A chip's, a disk's and shared memory are others than the one that ran out; words about leaks and addresses are no memory.
const std::string kOtherMemory =
    R"((?! .{0,40}? (?i: shared (?! gpu ) | smem | disk | storage | stack (?! trace ) | memory (?: leak | access | address | bandwidth | clock | map | region | monitor | profil ) ) ))";
// A device's memory, the host's, or a memory that has no name.
const std::string kMemory =
    R"((?: (?<on_device> (?i: (?: gpu | cuda | hip | device | video | graphics | hbm | xpu | npu | tpu | hpu | mps | metal | vulkan | accelerator | card ) [a-z0-9_:'()]{0,8}? memory | vram | hbm )))"
    R"( | (?<on_host> (?i: (?: host | system | cpu | main | physical | virtual | swap | heap ) [_'-]? (?: memory | ram | space ) ) | RAM (?! [A-Z] ) ))"
    R"( | (?i: memory ) (?! [-_] ) ))";
// "enough contiguous GPU memory": words without a figure stand between.
const std::string kOfMemoryNext =
    formatted("{} (?: (?<on_host> ram (?! [pei] ) ) | [A-Za-z'/_()-]{{0,24}}? {} )", kOtherMemory, kMemory);
// "exceeds the available memory", and not a length.
const std::string kOfAll = formatted("{} (?! s? 10% ) .{{0,40}}? {}", kOtherMemory, kMemory);
// "27.4 GB exceeds GPU memory (23.6 GB)".
const std::string kASize = kOfAll + R"(.{0,24}? [0-9] \s? [KMGT]?i?B)";
constexpr std::string_view kSizeBefore = R"((?= .* [0-9] \s? [KMGT]?i?B .{0,24} $ ))";
// "memory usage exceeded the container's limit".
constexpr std::string_view kALimit =
    R"((?! (?: s | ed )? [0-9.]+ % ) (?: .{0,40}? (?<by_group> (?i: container | cgroup | pod ) ) )? .{0,40}? (?<by_limit> (?i: limit | budget | quota | allowance ) ))";
// "does not fit in 24 GB of VRAM", "too large for one GPU".
const std::string kInMemory = formatted(
    "{} .{{0,30}}? (?: {} | (?<on_device> (?i: gpu | thedevice | accelerator ) ) )", kOtherMemory, kMemory);
// Pages and blocks of a server's cache, not of a file.
constexpr std::string_view kOfCache = R"((?= .{0,80}? (?i: token | cache | kv ) ))";
constexpr std::string_view kFailed =
    R"(.{0,40}? (?i: fail | error | exceed | unsuccessful | refus | denied | not possible ))";
// "but only 11.0 GiB are free".
constexpr std::string_view kIsFree =
    R"(.{0,24}? [0-9] .{0,30}? (?i: available | free | left | remain | present | installed ))";
constexpr std::string_view kSpeaksOfMemory =
    R"((?! .* (?i: disk | storage | quota | spaceon ) ) (?= .* (?: (?i: memory | vram | gpu | hbm ) | RAM ) ))";
const std::string kIsFreeMemory =
    R"((?! .* (?i: disk | storage | quota | spaceon ) ) (?= .{0,80}? (?: (?i: memory | vram | gpu | hbm ) | RAM ) ) )" +
    std::string(kIsFree);
constexpr std::string_view kNot = R"((?= .* (?i: not | n't | unable to | never ) .{0,12}? $ ))";

const General kGeneral[] = {{"ut of memory"},
                            {"ut-of-memory"},
                            {"ut of the memory"},
                            {"ut of", false, true, false, kOfMemoryNext},
                            {"ot enough", false, true, false, kOfMemoryNext},
                            {"ot enough space to alloc", true, false},
                            {"o enough", false, true, false, kOfMemoryNext},
                            {"ot have enough", false, true, false, kOfMemoryNext},
                            {"n't have enough", false, true, false, kOfMemoryNext},
                            {"ot sufficient", false, true, false, kOfMemoryNext},
                            {"nsufficient", false, true, false, kOfMemoryNext},
                            {"oo little", false, true, false, kOfMemoryNext},
                            {"ack of", false, true, false, kOfMemoryNext},
                            {"o more", false, true, false, kOfMemoryNext},
                            {"o free", false, true, false, kOfMemoryNext},
                            {"o free pages", false, true, false, kOfCache},
                            {"o free blocks", false, true, false, kOfCache},
                            {"xhausted", false, true, false, kOfMemoryNext},
                            {"xhaust all", false, true, false, kOfMemoryNext},
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
                            {"emory too small"},
                            {"o memory left"},
                            {"o memory available"},
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
                            {"ailed allocation", true, false},
                            {"ailure allocating", true, false},
                            {"ailure to alloc", true, false},
                            {"nable to alloc", true, false},
                            {"ot able to alloc", true, false},
                            {"mpossible to alloc", true, false},
                            {"annot alloc", true, false},
                            {"annot allocate memory", false, true, false, {}, true},
                            {"be allocated", true, false, false, {}, false, kNot},
                            {"OM detected", true},
                            {"etected OOM", true},
                            {"an't alloc", true, false},
                            {"ould not alloc", true, false},
                            {"ouldn't alloc", true, false},
                            {"id not alloc", true, false},
                            {"rror allocating", true, false},
                            {"rror in alloc", true, false},
                            {"rror while allocating", true, false},
                            {"emory object allocation fail", true},
                            {"OM when alloc"},
                            {"OM when trying to alloc"},
                            {"xceed", false, true, false, kOfAll},
                            {"xceed", false, true, false, kALimit, false, kSpeaksOfMemory},
                            {"xceed", true, true, false, kASize, false, kSizeBefore},
                            {"arger than the available", false, true, false, kOfAll},
                            {"t fit", false, true, false, kInMemory},
                            {"oo large for", false, true, false, kInMemory},
                            {"oo large to fit", true, true, false, kInMemory},
                            {"oo big for", false, true, false, kInMemory},
                            {"ut only", true, true, false, kIsFree, false, kSpeaksOfMemory},
                            {"ut only", true, true, false, kIsFreeMemory},
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
    R"(| cu(?: Mem | Ctx | Graph | BLAS | DNN ) | device_context | R[Oo][Cc]m | aclrt | rtMalloc | CANN)"
    R"(| (?i: gpu | vram | hbm | metal | vulkan | sycl | opencl | musa | device_?mem | ondevice | thedevice | vertex | texture | framebuffer | opengl | d3d12 | dxgi | wgpu | directml ) ))";
// The host by name, and what mostly means it.
const std::string kOnHost =
    R"((?<on_host> CUDA_Host | ENOMEM | (?i: (?: host | system | main | virtual )[_'s-]{0,2} m (?: em | $ ) | onhost | thehost | systemram | errno:?=?12 | oserror12 ) ))";
const std::string kInProcess =
    R"((?<in_process> (?<![A-Z]) (?: CPU | RAM ) (?![A-Z]) | (?<![A-Za-z]) m(?: alloc | map ) | (?: c | re | aligned_m ) alloc | (?i: swap | heap | pagingfile | killed ))"
    R"(| [Cc]\+\+ | bad_alloc | ould ?not ?compile | bzip2 | zlib | [Dd]ata(?: Loader | set ) | cc1plus | cc1 (?! [0-9] ) | Cerror: | OpenCV | alloc\.cpp | OpenBLAS | pandas | [Pp]olars | DataFrame | Arrayb | rawdatachunk ))";
const std::string kInCache =
    R"((?<in_cache> (?i: kv_?cache | kv_?pool | kv_?block | cacheblock | blockpool | freepages | freeblocks | token_to_kv | req_to_token ) ))";
const std::string kPinned =
    R"((?<on_pinned> (?i: pinned | page-?locked | pin_memory | hostalloc | hostregister | malloc_?host | host_?malloc ) ))";

// Lines that speak of memory where nothing failed: warnings, another way that was taken, storage of threads; and the
// states of libraries, which have rows of their own.
const std::string kNoFailure =
    R"((?: cudaError (?! MemoryAllocation ) [A-Z] | (?i: warn | retry | (?<![a-z_=]) (?: info | debug ) (?![a-z]) | falling?back | host_malloc | mlock | skipp | busyorunavailable | statictls | notafailure | fortheinterpreter | nativethread | continuing | atsome(?:point|$) | will(?:be)?use | using .* instead | handler | protection | cu(?: blas | dnn | fft | solver | sparse | rand )_ (?: status_ )? $ )))";
const std::string kFailure =
    R"((?: (?i: error | fail | refus | reject | denied | throw | fatal | exception | abort | terminat | panic | what\(\) | critical | exhaust | unable | cannot | couldnot | crash | kill | uncaught | invalid | notable | unsuccess | died | givingup | (?<![a-z]) err (?![a-z]) ) | \[E\] | ❌ | ✗ ))";
// The rest of the line says that something failed: by a word, or by two sizes of which one is too small.
constexpr std::string_view kFailsBehind =
    R"(.{0,120}? (?: (?i: aborting | exiting | terminating | stopping | givingup | quitting | shuttingdown ) | [0-9] \s? [KMGT]?i?B .{0,60}? [0-9] \s? [KMGT]?i?B ))";
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
        "^ (?! .* {} ) .{{{}}} {} (?: [!.]* $ | [!,:]? \\(? (?i: at | in | on ) (?i: step | epoch | layer | batch | iter ) )",
        kNoFailure, letters_of(one.anchor), one.general->behind));
  }
  return all;
}

// Expressions over the rest of the line: no word of kNoFailure, memory unless the anchor says it, the anchor's own.
std::vector<std::string> every_rest(const std::vector<Spelled>& spelled, const std::string& nothing_else,
                                    std::string_view more) {
  std::vector<std::string> all;
  for (const Spelled& one : spelled)
    all.push_back(
        formatted("{} .{{{}}} {}{}", nothing_else, letters_of(one.anchor), one.general->behind, more));
  return all;
}

// A message that guesses proves nothing.
constexpr std::string_view kGuess =
    R"((?! .* (?i: maybe | mayhave | mightbe | mighthave | possibl | perhaps | probabl | likely | usually | couldbe | couldhave | canbe | rootcause | if(?:it|the|a|you) ) ))";
constexpr std::string_view kForMemory =
    R"(.{0,40}? (?: (?i: due ?to | because ?of | because | for | by | : | \( | reason ) .{0,30}? (?<ended_for> (?i: memory | oom ) ) ))";
const std::string kByGroup =
    R"((?<by_group> (?i: container | pod | docker | cgroup | controlgroup | kubelet | sandbox ) ))";
const std::string kByDaemon =
    R"((?<by_daemon> (?i: pressure | lowonmemory | lowmemory | starv | earlyoom | oomd | jetsam | watchdog ) ))";
const std::string kByJob =
    R"((?<by_job> (?i: slurm | (?<![a-z]) job | scheduler | batchsystem | pbs | lsf | htcondor | qsub | yarn ) ))";
const std::string kBySetLimit = R"((?<by_limit> (?i: limit | quota | budget | allowance ) ))";

std::string anywhere_before(const std::string& words) { return formatted("(?: (?= .* {} ) )?", words); }
std::string anywhere_behind(const std::string& words) { return "^ .{0,200}? " + words; }

constexpr std::string_view kKilled[] = {"illed",  "ILLED",  "erminated", "ERMINATED",
                                        "topped", "victed", "borted"};
constexpr std::string_view kKilledForMemory[] = {"OM killed", "OM-killed", "OMKilled", "om-killed",
                                                 "om killed", "OM Killed", "OM-Killed"};

// The words of other languages for memory that was not enough; a device's where they or the line name one.
constexpr std::string_view kElsewhere[] = {"显存不足",
                                           "显存不够",
                                           "显存溢出",
                                           "内存不足",
                                           "内存不够",
                                           "内存溢出",
                                           "無法配置記憶體",
                                           "記憶體不足",
                                           "记忆体不足",
                                           "无法分配内存",
                                           "メモリ不足",
                                           "メモリが不足",
                                           "メモリを確保できません",
                                           "메모리 부족",
                                           "메모리가 부족",
                                           "Недостаточно памяти",
                                           "Не хватает памяти",
                                           "Не удалось выделить память",
                                           "Nicht genügend Speicher",
                                           "Nicht genügend Hauptspeicher",
                                           "nicht genügend Speicher",
                                           "Mémoire insuffisante",
                                           "mémoire insuffisante",
                                           "Impossible d'allouer de la mémoire",
                                           "No hay suficiente memoria",
                                           "Memoria insuficiente",
                                           "memoria insuficiente",
                                           "No se pudo asignar memoria",
                                           "Memória insuficiente",
                                           "Não é possível alocar memória",
                                           "Impossibile allocare memoria"};

// A line of a log has a program's prefix, or these words first; a sentence of a page has others.
void add_elsewhere(std::vector<MessageRow>& rows) {
  static const std::string kDevice =
      R"((?<on_device> (?i: cuda | gpu | npu | vram | 显存 | 显卡 | 視訊記憶體 | ビデオメモリ | видеопам ) ))";
  static const std::string kBefore = formatted(
      "^ (?! .* {} ) {} (?: .* {} .* | [^A-Za-z]{{0,40}} | [\\w./+-]{{1,24}} : | (?i: cuda | gpu ) ) $",
      kNoFailure, anywhere_before(kDevice), kFailure);
  static const std::string kBehind = formatted("^ {} (?<in_process> . )", anywhere_before(kDevice));
  for (const std::string_view anchor : kElsewhere)
    rows.push_back({"any.out_of_memory",
                    Sign::maybe_device,
                    anchor,
                    {kBehind},
                    "an error speaks of memory",
                    kBefore,
                    true});
}

constexpr std::string_view kKillers[] = {"OM killer", "OM Killer", "om killer", "om-killer", "OM-killer"};
constexpr std::string_view kOfKiller =
    R"(^ (?<ended_for> (?i: om -? killer ) ) .{0,12}? (?: fired | triggered | activated | (?: has )? killed | terminated ))";

void add_kills(std::vector<MessageRow>& rows) {
  static const std::string kBefore = formatted(
      "^ {} (?! .* (?: (?i: warn | debug ) | (?<! [\\w.-] ) 0 [A-Za-z() /]{{0,30}} $ | (?: is | are ) [a-zO] $ | ^ [a-z] $ ) ) {}{}{}{}",
      kGuess, anywhere_before(kByGroup), anywhere_before(kByDaemon), anywhere_before(kByJob),
      anywhere_before(kBySetLimit));
  static const std::string kFor = formatted("^ {} {}", kGuess, kForMemory);
  static const std::string kOf =
      formatted("^ {} (?<ended_for> (?i: om -? killed ) ) (?! ['\"]? [:=] )", kGuess);
  static const std::string kGroupBehind = anywhere_behind(kByGroup);
  static const std::string kDaemonBehind = anywhere_behind(kByDaemon);
  static const std::string kJobBehind = anywhere_behind(kByJob);
  static const std::string kLimitBehind = anywhere_behind(kBySetLimit);
  const auto add = [&](std::string_view anchor, std::string_view first) {
    rows.push_back({"any.out_of_memory",
                    Sign::maybe_device,
                    anchor,
                    {first, kGroupBehind, kDaemonBehind, kJobBehind, kLimitBehind},
                    "a process was ended for want of memory",
                    kBefore,
                    true});
  };
  for (const std::string_view anchor : kKilled) add(anchor, kFor);
  for (const std::string_view anchor : kKilledForMemory) add(anchor, kOf);
  for (const std::string_view anchor : kKillers) add(anchor, kOfKiller);
}

}  // namespace

std::vector<MessageRow> general_messages() {
  static const std::string kPlaces =
      formatted("^ (?! .* {} ) {}{}{}{}{}", kNoFailure, anywhere_before(kOnDevice), anywhere_before(kOnHost),
                anywhere_before(kInProcess), anywhere_before(kPinned), anywhere_before(kInCache));
  static const std::string kFails = formatted(
      "(?: .* {} .* | [^A-Za-z]* [A-Z]? | (?! (?i: note | tip | hint | info | todo | q | a ) : ) [\\w./+-]{{1,24}} : [A-Za-z]? ) $",
      kFailure);
  static const std::string kNothingElse = formatted("^ (?! .* {} )", kNoFailure);
  static const std::string kMemoryBehind = formatted("(?= .{{0,90}}? {} )", kOfMemory);
  static const std::string kMemoryBefore = formatted("(?= .* {} )", kOfMemory);
  static const std::string kDeviceBehind = anywhere_behind(kOnDevice);
  static const std::string kHostBehind = anywhere_behind(kOnHost);
  static const std::string kProcessBehind = anywhere_behind(kInProcess);
  static const std::string kPinnedBehind = anywhere_behind(kPinned);
  static const std::string kCacheBehind = anywhere_behind(kInCache);
  static const std::vector<Spelled> kSpelled = every_spelling();  // rows refer to them
  static const std::vector<std::string> kAlone = every_line_of_its_own(kSpelled);
  static const std::vector<std::string> kRest = every_rest(kSpelled, kNothingElse, "");
  static const std::vector<std::string> kRestFails = every_rest(kSpelled, kNothingElse, kFailsBehind);
  static const std::vector<std::string> kRestOfMemory =
      every_rest(kSpelled, kNothingElse + kMemoryBehind, "");
  static const std::string kNothingBefore = formatted("{}{}", kPlaces, kBareHead);
  static std::deque<std::string> needed;  // rows refer to these too
  std::vector<MessageRow> rows;
  for (size_t i = 0; i < kSpelled.size(); ++i) {
    const General& general = *kSpelled[i].general;
    const auto row = [&](const std::string& first, std::string_view more, std::string_view last = {}) {
      needed.push_back(formatted("{}{}{}{}", kPlaces, general.before, more, last));
      rows.push_back(MessageRow{"any.out_of_memory",
                                Sign::maybe_device,
                                kSpelled[i].anchor,
                                {first, kDeviceBehind, kHostBehind, kProcessBehind, kPinnedBehind,
                                 kCacheBehind, general.says_limit ? kByLimit : kTried,
                                 general.of_host          ? kOfHost
                                 : general.behind.empty() ? std::string_view()
                                                          : kAnyLimit},
                                "an error speaks of memory",
                                needed.back(),
                                true});
    };
    if (!general.says_memory) {
      row(kRestOfMemory[i], "");
      if (!general.before.empty()) row(kRest[i], kMemoryBefore);
    } else if (general.says_failure) {
      row(kRest[i], "");
    } else {
      row(kAlone[i], kBareHead);
      row(kRest[i], kFails);
      row(kRestFails[i], "");
    }
  }
  add_kills(rows);
  add_elsewhere(rows);
  return rows;
}

}  // namespace plimsoll::doctor
