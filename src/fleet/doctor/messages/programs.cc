// Programs other than the training loop: compilers of extensions, databases, heaps of languages, small runtimes. Most
// have a remedy of their own: no batch is small enough for them.
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

struct Rows {
  std::vector<MessageRow> rows;
  void add(std::string_view name, Sign sign, std::string_view anchor, std::string_view first,
           std::string_view words, std::string_view remedy = {}, std::string_view needs = {}) {
    rows.push_back({name, sign, anchor, {first}, words, needs, false, remedy});
  }
};

void add_compilers(Rows& rows) {
  constexpr std::string_view kFewer =
      "build with fewer compilers at a time, each of which takes gigabytes: MAX_JOBS=2 before pip install or the "
      "run that builds an extension, -j2 for make and ninja; or install a package that is built already";
  constexpr std::string_view kKilled = "a compiler was ended by SIGKILL, mostly for want of memory";
  constexpr std::string_view kRefused = "the system refused memory to a compiler";
  rows.add("compiler.killed", Sign::killed, "Killed signal terminated program", "", kKilled, kFewer);
  rows.add("compiler.killed", Sign::killed, "died due to signal 9", R"(^ died due to signal 9 (?! [0-9] ))",
           kKilled, kFewer);
  rows.add(
      "compiler.killed", Sign::killed, "neuronx-cc was forcibly killed", "", kKilled,
      "compile on a machine with more memory, or a smaller graph: fewer layers at a time, shorter sequences");
  rows.add("compiler.refused", Sign::host_refused, "out of memory allocating",
           R"(^ out of memory allocating {tried:count} bytes after)", kRefused, kFewer);
  rows.add("compiler.refused", Sign::host_refused, "virtual memory exhausted:", "", kRefused, kFewer);
  rows.add("compiler.refused", Sign::host_refused, "Memory allocation failure", "", kRefused, {},
           R"((?: ptxas | nvlink | ^ ) \s* fatal : $)");
  rows.add("compiler.refused", Sign::host_refused, "LLVM ERROR: out of memory", "", kRefused, kFewer);
}

void add_heaps(Rows& rows) {
  constexpr std::string_view kSpark =
      "raise spark.executor.memory and spark.memory.fraction, or give each task less: more partitions";
  rows.add("spark.acquire", Sign::software_cap, "Unable to acquire",
           R"(^ Unable to acquire {tried:count} bytes of memory, got)", "Spark's own heap is full", kSpark);
  rows.add("spark.result", Sign::software_cap, "is bigger than spark.driver.maxResultSize", "",
           "more came back to Spark's driver than it may take",
           "write the result to files, or raise spark.driver.maxResultSize and spark.driver.memory");
  rows.add("r.limit", Sign::software_cap, "memory exhausted (limit reached?)", "",
           "R reached its own limit on memory",
           "raise R_MAX_VSIZE (in .Renviron, 100Gb), or work on the data in parts");
  rows.add("php.limit", Sign::software_cap, "Allowed memory size of",
           R"(^ Allowed memory size of {allowed:count} bytes exhausted)", "PHP reached its own limit",
           "raise memory_limit");
  rows.add("matlab.array", Sign::software_cap, "array exceeds maximum array size preference", "",
           "MATLAB allows no array of that size",
           "raise the limit in its preferences (Workspace), or work on the array in parts");
  rows.add("wasm.limit", Sign::software_cap, "Aborted(OOM)", "",
           "a WebAssembly program reached the limit of its memory",
           "a smaller model, or a build with a larger limit (MAXIMUM_MEMORY; 4 GiB with 32 bits)");
  rows.add("julia.host", Sign::host_refused, "OutOfMemoryError()", "", "Julia was refused memory", {},
           R"((?: ^ | rror: ) $)");
}

// ZeRO's swapping to NVMe.
void add_swapping(Rows& rows) {
  constexpr std::string_view kWords =
      "DeepSpeed's buffers for swapping, whose size its file fixes, are too small";
  rows.add(
      "deepspeed.buffers", Sign::software_cap, "Not enough buffers",
      R"(^ Not enough buffers [0-9]+ for swapping)", kWords,
      "raise buffer_count of offload_param and offload_optimizer in DeepSpeed's file: each buffer takes buffer_size "
      "of pinned memory of the host");
  rows.add(
      "deepspeed.buffers", Sign::software_cap, "More elements", R"(^ More elements [0-9]+ than buffer size)",
      kWords,
      "raise buffer_size of offload_param in DeepSpeed's file above the number that stands before it: the largest "
      "parameter must fit one buffer");
}

void add_databases(Rows& rows) {
  rows.add("postgres.context", Sign::host_refused, "Failed on request of size",
           R"(^ Failed on request of size {tried:count} in memory context)", "PostgreSQL was refused memory",
           "lower work_mem and the number of connections, or ask for fewer rows at a time");
  rows.add("mysql.sort", Sign::software_cap, "Out of sort memory", "",
           "MySQL's buffer for sorting is too small", "raise sort_buffer_size, or sort by an index");
  rows.add("clickhouse.limit", Sign::software_cap, "exceeded: would use",
           R"(^ exceeded: would use {tried_total:size} .{0,90}? maximum: {allowed:size})",
           "ClickHouse reached its own limit",
           "raise max_memory_usage, or let it use the disk (max_bytes_before_external_sort)",
           R"(Memory limit .{0,40} $)");
  rows.add("redis.limit", Sign::software_cap, "OOM command not allowed when used memory", "",
           "Redis reached its own limit", "raise maxmemory, or let it forget old keys (maxmemory-policy)");
  rows.add("elastic.limit", Sign::software_cap, "Data too large, data for", "",
           "Elasticsearch's circuit breaker refused a request", "smaller requests, or a larger heap (-Xmx)",
           R"(circuit_?breaking .* $)");
}

void add_small_runtimes(Rows& rows) {
  constexpr std::string_view kArena = "a pool of memory, whose size the program fixes, is too small";
  constexpr std::string_view kLarger =
      "give the runtime a larger pool: it is the program that fixes its size";
  rows.add("tflite.arena", Sign::software_cap, "Failed to resize buffer. Requested:", "", kArena, kLarger);
  rows.add("executorch.pool", Sign::software_cap, "Memory allocation failed:",
           R"(^ Memory allocation failed: {tried:count} B requested .{0,60}? {free:count} B available)",
           kArena, kLarger);
  rows.add("vulkan.allocate", Sign::device_refused, "vkAllocateMemory failed",
           R"(^ vkAllocateMemory failed \s* -2 (?! [0-9] ))",
           "the driver (Vulkan) had no memory left on the device");
  rows.add("vulkan.allocate", Sign::host_refused, "vkAllocateMemory failed",
           R"(^ vkAllocateMemory failed \s* -1 (?! [0-9] ))",
           "the driver (Vulkan) was refused memory of the host");
  rows.add("poplar.tile", Sign::device_refused, "Out of memory on tile", "",
           "the program needs more memory than a tile of the device has");
  rows.add("metalium.bank", Sign::device_refused, "Not enough space to allocate",
           R"(^ Not enough space to allocate {tried:count} B (?: DRAM | L1 ) buffer across)",
           "a device of Tenstorrent had no memory left in its banks");
  rows.add("android.low_memory", Sign::daemon_kill, "lowmemorykiller: Kill", "",
           "Android ended the process: memory was short");
  rows.add("ios.terminated", Sign::daemon_kill, "Terminated due to memory issue", "",
           "iOS ended the process: memory was short");
}

}  // namespace

std::vector<MessageRow> program_messages() {
  Rows rows;
  add_compilers(rows);
  add_heaps(rows);
  add_databases(rows);
  add_swapping(rows);
  add_small_runtimes(rows);
  return rows.rows;
}

}  // namespace plimsoll::doctor
