// Words of any runtime for an allocation that failed: of failure, of memory, and of its place. Rows of known
// programs say more, so these count only where none of those matched.
#include <algorithm>
#include <set>
#include <string>

#include "base/format.h"
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

// An anchor says this by itself; other words of the line have to say the rest.
enum class Says : uint8_t {
  memory,   // and not that something failed
  failure,  // and not of what: ports and nodes are allocated too
  both,
  limit,  // memory, and that a program's own limit was reached
  host    // memory, in the words of C and C++: the host's, unless the line names a device
};

struct General {
  std::string anchor;  // without its first letter, which may be a capital
  Says says = Says::memory;
  std::string behind = {};  // an expression over the rest of the line, which must match
  std::string before = {};  // an expression over the line before the anchor, which must match
  int64_t length = 0;       // of the anchor without blanks, up to what is behind; 0: all of it
};

// A chip's, a disk's and shared memory are others than the one that ran out; words about leaks and addresses are no
// memory.
const std::string kOtherMemory =
    R"((?! .{0,40}? (?i: shared (?! gpu ) | smem | disk | storage | stack (?! trace ) | memory (?: leak | access | address | bandwidth | bank | clock | format | map | region | monitor | profil ) ) ))";
// A device's memory, the host's, or a memory that has no name.
const std::string kMemory =
    R"((?: (?<on_device> (?i: (?: gpu | cuda | hip | device | video | graphics | unified | hbm | xpu | npu | tpu | hpu | mps | metal | vulkan | accelerator | card ) [a-z0-9_:'()]{0,8}? memory | vram | hbm )))"
    R"( | (?<on_host> (?i: (?: host | system | cpu | main | physical | virtual | swap | heap ) [_'-]? (?: memory | ram | space ) ) | RAM (?! [A-Z] ) ))"
    R"( | (?<in_cache> (?i: kv_? (?: cache | pool | block ) ) ) | (?i: memory ) (?! [-_] | (?i: sample | entr | episode | transition | item | cell | buffer ) ) ))";
// "enough contiguous GPU memory": words without a figure stand between, and none that ends the thought.
const std::string kOfMemoryNext = formatted(
    "(?! (?i: range | bound | order | sync | date | scope | vocab | place | tree | shape | sample | data | token | row | example ) ) {} (?: (?<on_host> ram (?! [pei] ) ) | [A-Za-z'/_()-]{{0,18}}? {} )",
    kOtherMemory, kMemory);
// "exceeds the available memory", and not a length.
const std::string kOfAll = formatted("{} (?! s? 10% ) .{{0,40}}? {}", kOtherMemory, kMemory);
constexpr std::string_view kThere =
    R"((?i: available | free | total | remain | left | physical | installed | present | have | has | only ))";
// "larger than the available memory".
const std::string kOfAllThere = formatted("(?= .{{0,30}}? {} ) {}", kThere, kOfAll);
// "27.4 GB exceeds GPU memory (23.6 GB)".
const std::string kASize = kOfAll + R"(.{0,24}? [0-9] \s? [KMGT]?i?B)";
constexpr std::string_view kSizeBefore = R"((?= .* [0-9] \s? [KMGT]?i?B .{0,24} $ ))";
// "memory usage exceeded the container's limit".
constexpr std::string_view kALimit =
    R"((?! (?: s | ed )? [0-9.]+ % ) .{0,40}? (?<by_limit> (?i: limit | budget | quota | allowance | threshold | request (?! s? / ) | reservation ) ))";
// "its memory request", "mem limit".
constexpr std::string_view kMemoryLimit =
    R"(.{0,24}? (?i: mem (?: ory )? ) .{0,8}? (?<by_limit> (?i: limit | budget | quota | request | reservation | allocation ) ))";
constexpr std::string_view kThanAllowed =
    R"(.{0,12}? (?: (?<by_limit> (?i: request | allow | permit | reserv | grant | limit ) ) | (?i: available | there | present ) ))";
// "does not fit in 24 GB of VRAM", "too large for one GPU".
const std::string kInMemory =
    formatted("{} [^:;]{{0,30}}? (?: {} | (?<on_device> (?i: gpu | thedevice | accelerator ) ) )",
              kOtherMemory, kMemory);
// Pages and blocks of a server's cache, not of a file.
constexpr std::string_view kOfCache = R"((?= .{0,80}? (?i: token | cache | kv ) ))";
constexpr std::string_view kCacheBefore = R"((?= .* (?i: kv_?cache ) .{0,12} $ ))";
constexpr std::string_view kFailed =
    R"(.{0,40}? (?i: fail | error | exceed | unsuccessful | refus | denied | not possible ))";
// "but only 11.0 GiB are free", and not 1 GPU.
constexpr std::string_view kIsFree =
    R"(.{0,24}? [0-9] (?: [0-9]{5} | [0-9.]* (?i: [KMGT] i? b | bytes ) | (?= .* memory ) ) .{0,30}? (?i: available | free | left | remain | present | installed ))";
constexpr std::string_view kNoDisk = R"((?! .* (?i: disk | storage | spaceon ) ))";
constexpr std::string_view kNamesMemory =
    R"((?: (?i: memory | vram | (?<! [0-9] ) gpu (?! s ) | hbm | cuda | kv_?cache | onxpu | onnpu ) | RAM ))";
const std::string kSpeaksOfMemory = formatted("{} (?= .* {} )", kNoDisk, kNamesMemory);
const std::string kMemorySoon = formatted("{} (?= .{{0,80}}? {} )", kNoDisk, kNamesMemory);
// "needs 20 GB of VRAM, and 16 GB are free"; "20 GB required, 16 GB available". diagnose.cc compares the two.
const std::string kNeeds = formatted(
    ".{{0,30}}? {{needed:size}} .{{0,60}}? (?: {} .{{0,24}}? {{free:size}} | {{free:size}} .{{0,16}}? {} )",
    kThere, kThere);
const std::string kNeededBefore = kSpeaksOfMemory + R"((?= .* (?<! [0-9.,] ) {needed:size} .{0,24}? $ ))";
const std::string kFreeBehind = formatted(".{{0,24}}? {{free:size}} .{{0,16}}? {}", kThere);
constexpr std::string_view kNot = R"((?= .* (?i: not | n't | unable to | never ) .{0,12}? $ ))";
// A message that guesses proves nothing.
constexpr std::string_view kGuess =
    R"((?! .* (?i: maybe | maybe? | mayhave | might | possibl | perhaps | probabl | likely | usually | could ?(?: be | have ) | canbe | rootcause | to ?avoid | if(?:it|the|a|you) ) ))";

// Words for a want of memory: its name follows.
constexpr std::string_view kLacks[] = {"ot enough",     "o enough",    "ot have enough", "n't have enough",
                                       "ot sufficient", "nsufficient", "oo little",      "ack of",
                                       "o more",        "o free",      "xhausted",       "xhaust all"};
// Its name comes first.
constexpr std::string_view kNames[] = {"emory", "RAM", "BM"};
constexpr std::string_view kIsLacking[] = {"exhausted",    "is exhausted",    "full",        "is full",
                                           "insufficient", "is insufficient", "not enough",  "is not enough",
                                           "isn't enough", "overflow",        "is too small"};
// Verbs of an allocation, and words for that it was refused.
constexpr std::string_view kCannot[] = {"ailed to",     "ail to", "nable to", "ot able to",
                                        "annot",        "an't",   "ould not", "ouldn't",
                                        "mpossible to", "id not", "ailure to"};
constexpr std::string_view kVerbs[] = {"alloc",  "reserve",       "acquire",
                                       "obtain", "create buffer", "create a buffer"};

const General kGeneral[] = {
    {"ut of memory"},
    {"ut-of-memory"},
    {"ut of the memory"},
    {"an out of", Says::both, kOfMemoryNext,
     R"((?! .* (?: _bfc | (?i: why | when | where | whether | until | incase ) ) ))" + std::string(kGuess)},
    {"un out of", Says::both, kOfMemoryNext, R"((?= .* (?i: has | have | had ) r $ ))"},
    {"ot enough space to alloc", Says::failure},
    {"o free pages", Says::memory, std::string(kOfCache), "(?= .* (?i: n ) $ )"},
    {"o free blocks", Says::memory, std::string(kOfCache), "(?= .* (?i: n ) $ )"},
    {"locks exhausted", Says::both, {}, R"((?= .* (?i: gpu | kv_? | cache ) .{0,6} $ ))"},
    {"s full", Says::memory, {}, R"((?= .* (?i: gpu | hbm | kv_?cache | kv_?pool ) [0-9: ]{0,4} i $ ))"},
    {"emory error in alloc"},
    {"emory exceed", Says::memory, R"((?! s? 10% ) (?: ed | s )?)"},
    {"o memory left"},
    {"o memory available"},
    {"ad allocation", Says::host},
    {"annot allocate memory", Says::host},
    {"emory allocation", Says::both, std::string(kFailed)},
    {"emory object allocation fail", Says::both},
    {"uffer allocation fail", Says::both},
    {"llocation of", Says::failure, R"(.{0,60}? (?i: fail | not possible | refus | denied ))"},
    {"llocation failed", Says::failure},
    {"llocation failed",
     Says::both,
     {},
     R"((?= .* (?i: tensor | buffer | workspace | cache | array | arena ) a $ ))"},
    {"llocation failure", Says::failure},
    {"alloc failed", Says::both},
    {"alloc() failed", Says::both},
    {"allocManaged failed", Says::both},
    {"allocAsync failed", Says::both},
    {"allocHost failed", Says::both},
    {"ostAlloc failed", Says::both},
    {"lloc memory fail", Says::both},
    {"llocate memory fail", Says::both},
    {"lloc mem fail", Says::both},
    {"annot malloc", Says::both},
    {"an't malloc", Says::both},
    {"ailed to malloc", Says::both},
    {"ailed to apply for memory", Says::both},
    {"ailed to call", Says::failure},
    {"ail to call", Says::failure},
    {"ailed allocating", Says::failure},
    {"ailed allocation", Says::failure},
    {"ailure allocating", Says::failure},
    {"rror allocating", Says::failure},
    {"rror in alloc", Says::failure},
    {"rror while allocating", Says::failure},
    {"be allocated", Says::failure, {}, std::string(kNot)},
    {"OM detected", Says::both, {}, "(?! .* (?i: no | not | any | without ) O $ )"},
    {"etected OOM", Says::both},
    {"OM when alloc"},
    {"OM when trying to alloc"},
    {"xceed", Says::memory, kOfAll},
    {"xceed", Says::memory, std::string(kALimit), kSpeaksOfMemory},
    {"xceed", Says::memory, std::string(kMemoryLimit)},
    {"xceed", Says::both, kASize, std::string(kSizeBefore)},
    {"xceeded its", Says::both, std::string(kMemoryLimit), std::string(kGuess)},
    {"ore memory than", Says::both, std::string(kThanAllowed), std::string(kGuess)},
    {"t fit", Says::memory, kInMemory},
    {"t fit", Says::memory, {}, std::string(kCacheBefore)},
    {"ut only", Says::both, std::string(kIsFree), kSpeaksOfMemory},
    {"ut only", Says::both, kMemorySoon + std::string(kIsFree)},
    {"equire", Says::both, kNeeds, kSpeaksOfMemory},
    {"equire", Says::both, kMemorySoon + kNeeds},
    {"need", Says::both, kNeeds, kSpeaksOfMemory},
    {"need", Says::both, kMemorySoon + kNeeds},
    {"equired", Says::both, kFreeBehind, kNeededBefore},
    {"needed", Says::both, kFreeBehind, kNeededBefore},
    {"xceeded", Says::both, std::string(kMemoryLimit), std::string(kGuess)},
    {"xceeded memory limit", Says::limit},
    {"xceeds memory limit", Says::limit},
    {"xceeded the memory limit", Says::limit},
    {"xceeds the memory limit", Says::limit},
    {"xceeded its memory limit", Says::limit}};

std::vector<General> every_general() {
  std::vector<General> all(std::begin(kGeneral), std::end(kGeneral));
  // "no free memory", and not what failed to free it.
  for (const std::string_view words : kLacks)
    all.push_back({std::string(words), Says::memory, kOfMemoryNext,
                   words.starts_with("o ") ? "(?= .* (?i: n ) $ )" : ""});
  // "3 out of 10" stands in many logs: the letter that a name begins with is looked for too.
  for (const char first : std::string_view("acdfghnprstuvx"))
    all.push_back({formatted("ut of {}", first), Says::memory, kOfMemoryNext, {}, 4});
  for (const std::string_view name : kNames)
    for (const std::string_view words : kIsLacking) all.push_back({formatted("{} {}", name, words)});
  for (const std::string_view cannot : kCannot)
    for (const std::string_view verb : kVerbs)
      all.push_back({formatted("{} {}", cannot, verb), Says::failure});
  for (const std::string_view larger : {"arger than", "igger than", "reater than"}) {
    all.push_back({std::string(larger), Says::memory, kOfAllThere});
    all.push_back({std::string(larger), Says::both, formatted(".{{0,24}}? {} .{{0,16}}? [0-9]", kThere),
                   kSpeaksOfMemory + std::string(kSizeBefore)});
  }
  for (const std::string_view large : {"oo large for", "oo big for", "oo large to fit", "oo big to fit"})
    all.push_back({std::string(large), Says::both, kInMemory, std::string(kGuess)});
  for (const std::string_view limit : {"emory limit", "emory quota", "emory budget", "emory cap"})
    all.push_back({std::string(limit), Says::memory,
                   R"(.{0,24}? (?<by_limit> (?i: reached | exceeded | (?<! [a-z] ) hit ) ))"});
  return all;
}

// Text has no blanks, so words are known by their case: INPUT has no NPU in it, nor OUTPUT a TPU.
const std::string kOnDevice =
    R"((?<on_device> CUDA (?! _Host ) | [Cc]uda | (?<![A-Z]) (?: HIP | NPU | XPU | MLU | HPU | TPU | MPS ) (?![A-Z]) | hip[A-Z_])"
    R"(| (?<! [A-Za-z] ) [VvH] $ | (?: (?<! [A-Za-z] ) | on ) (?: hip | npu | xpu | mlu | hpu | tpu | mps ) (?! [a-z] ) | cu(?: Mem | Ctx | Graph | BLAS | DNN ) | device_context | DEVICE | Tensor ?RT | R[Oo][Cc]m | aclrt | rtMalloc | CANN)"
    R"(| (?i: gpu | vram | hbm | metal | vulkan | sycl | opencl | musa | device_? m (?: em | $ ) | ondevice | thedevice | vertex | texture | framebuffer | opengl | d3d12 | dxgi | wgpu | directml ) ))";
// The host by name, and what mostly means it.
const std::string kOnHost =
    R"((?<on_host> CUDA_Host | ENOMEM | (?i: (?: host | system | main | virtual )[_'s-]{0,2} m (?: em | $ ) | onhost | thehost | systemram | (?: machine | node | server | computer | instance | system | thehost | vm ) (?: has | is | was | ran | run | [ro] $ ) | errno:?=?12 | oserror12 ) ))";
const std::string kInProcess =
    R"((?<in_process> (?<![A-Z]) (?: CPU | RAM ) (?![A-Z]) | (?<![A-Za-z]) m(?: alloc | map ) | (?: c | re | aligned_m ) alloc | (?i: swap | heap | pagingfile ))"
    R"(| [Cc]\+\+ | bad_alloc | ould ?not ?compile | bzip2 | zlib | [Dd]ata(?: Loader | set ) | cc1plus | cc1 (?! [0-9] ) | Cerror: | OpenCV | alloc\.cpp | OpenBLAS | pandas | [Pp]olars | DataFrame | Arrayb | rawdatachunk ))";
const std::string kInCache =
    R"((?<in_cache> (?i: kv_?cache | kv_?pool | kv_?block | cacheblock | blockpool | freepages | freeblocks | token_to_kv | req_to_token ) ))";
const std::string kPinned =
    R"((?<on_pinned> (?i: pinned | page-?locked | pin_memory | h? ost_?alloc | hostregister | alloc_?host | host_?malloc ) ))";

// Lines that speak of memory where nothing failed: warnings, another way that was taken, storage of threads; and the
// states of libraries, which have rows of their own.
const std::string kNoFailure =
    R"((?: cudaError (?! MemoryAllocation ) [A-Z] | (?i: warn | (?<! not ) retrying | retried | willretry | (?<![a-z_=]) (?: info | debug ) (?![a-z]) | fall(?: ing | s )? back | switchingto | host_malloc | mlock | skip (?: p | : ) | busyorunavailable | statictls | notafailure | fortheinterpreter | nativethread | continuing | atsome(?:point|$) | will(?:be)?use | using .* instead | ,using [a-z]+ mode | [,;-] using ?(?:the)? cpu | handler | protection | cu(?: blas | dnn | fft | solver | sparse | rand )_ (?: status_ )? $ )))";
const std::string kFailure =
    R"((?: (?i: error | fail | refus | reject | denied | throw | fatal | exception | abort | terminat | panic | what\(\) | critical | exhaust | unable | cannot | couldnot | crash | kill | uncaught | invalid | notable | unsuccess | died | exited | givingup | unsupported | non-ok | status:internal | (?<![a-z]) err (?![a-z]) ) | \[E\] | ❌ | ✗ ))";
// The rest of the line says that something failed: by a word, or by two sizes of which one is too small.
constexpr std::string_view kFailsBehind =
    R"(.{0,120}? (?: (?i: aborting | exiting | terminating | stopping | killing | givingup | quitting | shuttingdown ) | [0-9] \s? [KMGT]?i?B .{0,60}? [0-9] \s? [KMGT]?i?B ))";
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
  static const std::vector<General> kEach = every_general();  // these refer to it
  for (const General& general : kEach)
    for (const std::string& spelling : spellings(general.anchor)) all.push_back({&general, spelling});
  return all;
}

int64_t length_of(const Spelled& one) {
  if (one.general->length > 0) return one.general->length;
  return std::count_if(one.anchor.begin(), one.anchor.end(), [](char c) { return c != ' '; });
}

// A line that says that and nothing else, or at which step: prose has more words behind. The end of a wrapped line of
// prose begins with a small letter.
constexpr std::string_view kBareHead =
    R"((?: [^A-Za-z]* (?: \[ OOM \] )? (?: [\w./+-]{1,24} : ){0,2} (?: (?i: nvidia | amd | intel | paged )? (?i: cuda | gpu | hip | rocm | xpu | mps | npu | device | host | kv_?cache ) [A-Za-z]? | [A-Z] ) | ^ (?: \w+ \. ){1,6} [A-Z] | ^ [\w./+-]{1,24} : [A-Za-z] ) $)";
std::vector<std::string> every_line_of_its_own(const std::vector<Spelled>& spelled) {
  std::vector<std::string> all;
  for (const Spelled& one : spelled) {
    all.push_back(formatted(
        "^ (?! .* {} ) .{{{}}} {} (?: [!.]* $ | [!.:;,(-] | (?: Error | Exception ) (?= : | $ ) | \\(? (?i: at | in | on | during ) (?i: step | epoch | layer | batch | iter | device | gpu | cuda ) )",
        kNoFailure, length_of(one), one.general->behind));
  }
  return all;
}

// Expressions over the rest of the line: no word of kNoFailure, memory unless the anchor says it, the anchor's own.
std::vector<std::string> every_rest(const std::vector<Spelled>& spelled, const std::string& nothing_else,
                                    std::string_view more) {
  std::vector<std::string> all;
  for (const Spelled& one : spelled)
    all.push_back(formatted("{} .{{{}}} {}{}", nothing_else, length_of(one), one.general->behind, more));
  return all;
}

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

constexpr std::string_view kKilled[] = {"killed",     "Killed",     "KILLED",  "terminated",
                                        "Terminated", "TERMINATED", "stopped", "Stopped",
                                        "evicted",    "Evicted",    "aborted", "Aborted"};
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

// OOM as a word by itself, behind a failure or a device: "RuntimeError: OOM on rank 3", "ended because of OOM".
void add_words(std::vector<MessageRow>& rows) {
  static const std::string kBefore = formatted(
      "^ {} (?! .* {} ) (?! .* (?i: no | not | any | without ) $ ) {} (?: .* {} .* | .* (?i: due ?to | because ?of | with | got | hit | threw | raised | encountered ) .{{0,12}} "
      "| [^A-Za-z]* (?: [\\w./+-]{{1,24}} (?: [0-9] )? : ){{0,2}} (?i: cuda | gpu | hip | npu | xpu | mps | vram | hbm )? ) (?: CUDA | GPU | HIP | NPU | XPU | MPS | VRAM | HBM | (?<! [A-Z_] ) ) $",
      kGuess, kNoFailure, anywhere_before(kOnDevice), kFailure);
  static const std::string kBehind = formatted(
      "^ OOM (?! [A-Z_)-] | \\s? (?i: score | adj | safe | kill | protect | guard | handl | prevent | risk | check | test | s (?! [a-z] ) | count | retr | s? \\s? [:=] \\s? (?: [0-9]+ (?: [,;)] | $ ) | \\{{ ) ) ) (?! .* {} )",
      kNoFailure);
  static const std::string kDevice = anywhere_behind(kOnDevice);
  rows.push_back({"any.out_of_memory",
                  Sign::maybe_device,
                  "OOM",
                  {kBehind, kDevice},
                  "an error speaks of memory",
                  kBefore,
                  true});
  // Memory that processes share, which is a file system of its own; a kernel's is another.
  static const std::string kSharedBefore = formatted(
      "^ {} (?! .* (?: {} | (?i: gpu | cuda | kernel | block | triton | ptxas ) ) ) (?: .* {} .* | [^A-Za-z]* [A-Z]? ) $",
      kGuess, kNoFailure, kFailure);
  static const std::string kShort = formatted(
      "^ (?= .* (?i: insufficient | notenough | nomore | outof | lackof | nofree ) .{{0,12}} $ ) {}",
      kSharedBefore);
  constexpr std::string_view kOfLoaders =
      R"(^ (?<in_shm> hared ?[Mm]emory ) (?! .* (?i: block | kernel | limit: | required: | multiprocessor ) ))";
  static const std::string kIsShort = formatted(
      "{} .{{0,24}}? (?i: exhausted | isfull | full | insufficient | notenough | toosmall )", kOfLoaders);
  constexpr std::string_view kFull =
      R"(^ (?<in_shm> /dev/shm ) .{0,12}? (?i: isfull | exhausted | nospace | outofspace ))";
  rows.push_back({"any.out_of_memory",
                  Sign::maybe_device,
                  "/dev/shm",
                  {kFull},
                  "an error speaks of shared memory",
                  kSharedBefore,
                  true});
  for (const std::string_view anchor : {"hared memory", "hared Memory"}) {
    rows.push_back({"any.out_of_memory",
                    Sign::maybe_device,
                    anchor,
                    {kOfLoaders},
                    "an error speaks of shared memory",
                    kShort,
                    true});
    rows.push_back({"any.out_of_memory",
                    Sign::maybe_device,
                    anchor,
                    {kIsShort},
                    "an error speaks of shared memory",
                    kSharedBefore,
                    true});
  }
}

constexpr std::string_view kKillers[] = {"OM killer", "OM Killer", "om killer", "om-killer", "OM-killer"};
constexpr std::string_view kOfKiller =
    R"(^ (?<ended_for> (?i: om -? killer ) ) .{0,12}? (?: fired | triggered | activated | (?: has )? killed | terminated ))";

void add_kills(std::vector<MessageRow>& rows) {
  static const std::string kBefore = formatted(
      "^ {} (?! .* (?: (?i: debug ) | (?<! [\\w.-] ) 0 [A-Za-z() /]{{0,30}} $ | (?: is | are ) O? $ ) ) {}{}{}{}",
      kGuess, anywhere_before(kByGroup), anywhere_before(kByDaemon), anywhere_before(kByJob),
      anywhere_before(kBySetLimit));
  static const std::string kFor = formatted("^ {} {}", kGuess, kForMemory);
  static const std::string kOf =
      formatted("^ {} (?<ended_for> (?i: om -? killed ) ) (?! ['\"]? [:=] )", kGuess);
  static const std::string kGroupBehind = anywhere_behind(kByGroup);
  static const std::string kDaemonBehind = anywhere_behind(kByDaemon);
  static const std::string kJobBehind = anywhere_behind(kByJob);
  static const std::string kLimitBehind = anywhere_behind(kBySetLimit);
  static const std::string kOne = formatted("^ (?= .. ) {}", kBefore);  // not the rest of a wrapped sentence
  const auto add = [&](std::string_view anchor, std::string_view first, std::string_view needs) {
    rows.push_back({"any.out_of_memory",
                    Sign::maybe_device,
                    anchor,
                    {first, kGroupBehind, kDaemonBehind, kJobBehind, kLimitBehind},
                    "a process was ended for want of memory",
                    needs,
                    true});
  };
  for (const std::string_view anchor : kKilled) add(anchor, kFor, anchor == "killed" ? kOne : kBefore);
  for (const std::string_view anchor : kKilledForMemory) add(anchor, kOf, kBefore);
  for (const std::string_view anchor : kKillers) add(anchor, kOfKiller, kBefore);
}

}  // namespace

std::vector<MessageRow> general_messages() {
  static const std::string kPlaces = formatted(
      "^ (?! .* (?: {} | (?<! [a-z] ) [Ii]f (?: it | the | you | this | there ) .{{0,24}} $ ) ) {}{}{}{}{}{}{}",
      kNoFailure, anywhere_before(kOnDevice), anywhere_before(kOnHost), anywhere_before(kInProcess),
      anywhere_before(kPinned), anywhere_before(kInCache), anywhere_before(kByGroup),
      anywhere_before(kByJob));
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
  static const std::string kGroupBehind = anywhere_behind(kByGroup);
  static const std::vector<Spelled> kSpelled = every_spelling();  // rows refer to them
  static const std::vector<std::string> kAlone = every_line_of_its_own(kSpelled);
  static const std::vector<std::string> kRest = every_rest(kSpelled, kNothingElse, "");
  static const std::vector<std::string> kRestFails = every_rest(kSpelled, kNothingElse, kFailsBehind);
  static const std::vector<std::string> kRestOfMemory =
      every_rest(kSpelled, kNothingElse + kMemoryBehind, "");
  static std::set<std::string> needed;  // rows refer to these too
  std::vector<MessageRow> rows;
  for (size_t i = 0; i < kSpelled.size(); ++i) {
    const General& general = *kSpelled[i].general;
    const auto row = [&](const std::string& first, std::string_view more) {
      const auto needs = needed.insert(formatted("{}{}{}", kPlaces, general.before, more)).first;
      rows.push_back(MessageRow{"any.out_of_memory",
                                Sign::maybe_device,
                                kSpelled[i].anchor,
                                {first, kDeviceBehind, kHostBehind, kProcessBehind, kPinnedBehind,
                                 kCacheBehind, kGroupBehind, general.says == Says::limit ? kByLimit : kTried,
                                 general.says == Says::host ? kOfHost
                                 : general.behind.empty()   ? std::string_view()
                                                            : kAnyLimit},
                                "an error speaks of memory",
                                *needs,
                                true});
    };
    if (general.says == Says::failure) {
      row(kRestOfMemory[i], "");
      if (!general.before.empty()) row(kRest[i], kMemoryBefore);
    } else if (general.says == Says::both) {
      row(kRest[i], "");
    } else {
      row(kAlone[i], kBareHead);
      row(kRest[i], kFails);
      row(kRestFails[i], "");
    }
  }
  add_words(rows);
  add_kills(rows);
  add_elsewhere(rows);
  return rows;
}

}  // namespace plimsoll::doctor
