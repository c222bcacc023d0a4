// Crashes, disks and devices that fail: a run that ended of one of these did not run out of memory.
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

// Matches the text before the code that a process ended with: "exits with return code = ", "(exitcode: ", "Exit Code: ".
constexpr std::string_view kBeforeCode =
    R"((?: [Ee]xit(?:s|ed)? (?: with )? (?: return )? [\s_]* (?: [Cc]ode | [Ss]tatus ) | return [\s_]? code ) ['"]? (?: = | : | of | is )? ['"]? $)";

// Codes of signals, as the system numbers them and as shells do.
struct CrashCode {
  std::string_view name, code, first, words, remedy;
  Sign sign = Sign::other_failure;
};

void add_fault_exits(std::vector<MessageRow>& rows) {
  constexpr std::string_view kSegmentation = "a crash (segmentation fault)";
  constexpr std::string_view kIllegal = "a crash: an instruction that this processor lacks, or damaged code";
  constexpr std::string_view kBuild =
      "compare what the build was compiled for with the processor (lscpu): another machine, or a build for older ones";
  constexpr std::string_view kAborted = "the program ended itself (abort): what it printed before says why";
  constexpr std::string_view kBus =
      "a crash on memory that the system could not give (SIGBUS): mostly /dev/shm is full, at times a file that was "
      "cut while it was mapped, or a disk that fails";
  constexpr std::string_view kShm =
      "a larger /dev/shm: docker run --shm-size=8g or --ipc=host; in Kubernetes an emptyDir of medium Memory";
  const CrashCode crashes[] = {{"exit.sigsegv", "-11", R"(^ -11 (?= [^0-9.] | $ ))", kSegmentation, {}},
                               {"exit.139", "139", R"(^ 139 (?= [^0-9.] | $ ))", kSegmentation, {}},
                               {"exit.illegal", "-4", R"(^ -4 (?= [^0-9.] | $ ))", kIllegal, kBuild},
                               {"exit.illegal", "132", R"(^ 132 (?= [^0-9.] | $ ))", kIllegal, kBuild},
                               {"exit.sigsegv", "3221225477", "", kSegmentation, {}},
                               {"exit.sigsegv", "-1073741819", "", kSegmentation, {}},
                               {"child.aborted", "-6", R"(^ -6 (?= [^0-9.] | $ ))", kAborted, {}},
                               {"child.aborted", "134", R"(^ 134 (?= [^0-9.] | $ ))", kAborted, {}},
                               {"exit.bus", "-7", R"(^ -7 (?= [^0-9.] | $ ))", kBus, kShm, Sign::killed},
                               {"exit.bus", "135", R"(^ 135 (?= [^0-9.] | $ ))", kBus, kShm, Sign::killed}};
  for (const CrashCode& crash : crashes)
    rows.push_back(
        {crash.name, crash.sign, crash.code, {crash.first}, crash.words, kBeforeCode, false, crash.remedy});
  rows.push_back({"exit.bus",
                  Sign::killed,
                  "Bus error",
                  {R"(^ Bus error (?: \( core dumped \) .* )? $)"},
                  kBus,
                  R"(^ (?: [\w./-]+ : line [0-9]+ : \s* [0-9]+ )? $)",
                  true,
                  kShm});
  rows.push_back(
      {"exit.illegal", Sign::other_failure, "Illegal instruction", {}, kIllegal, {}, false, kBuild});
}

void add_fault_crashes(Failures& failures) {
  for (const std::string_view anchor :
       {"double free or corruption", "malloc(): ", "free(): invalid", "corrupted size vs. prev_size",
        "corrupted double-linked list", "munmap_chunk(): invalid pointer"})
    failures.add(
        "crash.heap", anchor, "",
        "a crash: something wrote outside of its memory, which is a bug and not want of memory",
        "look for libraries of versions that do not match (pip check), and whether it fails at the same place "
        "each time");
  failures.add("crash.assertion", "Assertion `", R"(^ Assertion ` .{1,300}? ' failed)",
               "a check within a library failed, which is a bug or a state that it did not expect",
               "what the line names, and the lines above it, say which library and what it looked at");
  failures.add(
      "crash.python", "Fatal Python error:", R"(^ Fatal Python error: (?! Segmentation ))",
      "Python itself crashed",
      "the stack below it names the place; py-spy and PYTHONFAULTHANDLER=1 show that of all threads");
}

void add_fault_disks(Failures& failures) {
  constexpr std::string_view kRoom =
      "`df -h` and `df -i` of the folder that it writes into; keep fewer checkpoints, or write them elsewhere";
  constexpr std::string_view kBroken = "`dmesg -T` names the disk, or the network folder that went away";
  for (const std::string_view anchor : {"PytorchStreamWriter failed writing", ": file write failed"})
    failures.add("disk.write", anchor, "", "a file could not be written: mostly the disk or a quota is full",
                 kRoom);
  failures.add("disk.write", "write(): fd", R"(^ write\( \): fd [0-9]+ failed with)",
               "a file could not be written: mostly the disk or a quota is full", kRoom);
  failures.add("disk.write",
               "Error while serializing:", R"(^ Error while serializing: .{0,60}? os error (?! 28 | 122 ))",
               "the disk or network folder refused a checkpoint", kRoom);
  failures.add("disk.write", "unexpected pos", R"(^ unexpected pos [0-9]+ vs [0-9]+)",
               "a file could not be written: mostly the disk or a quota is full", kRoom);
  failures.add("disk.open", "cannot be opened", R"(^ cannot be opened)",
               "a file could not be made: its folder is missing, belongs to another, or the disk is full",
               kRoom, R"(File .{1,200} $)");
  for (const std::string_view anchor :
       {"nough free disk space", "nough disk space", "nsufficient disk space"})
    failures.add("disk.full", anchor, "", "the disk has not the room that a program asks for", kRoom);
  failures.add("disk.full", "no space left on device", "", "the disk is full", kRoom, R"(: $)");
  for (const std::string_view anchor :
       {"[Errno 28]", "(os error 28)", "kind: StorageFull", "[WinError 112]", "(os error 112)"})
    failures.add("disk.full", anchor, R"(^ (?! .{0,100}? /dev/shm/ ))", "the disk is full", kRoom);
  for (const std::string_view anchor : {"(os error 122)", "[Errno 122]", "FilesystemQuotaExceeded"})
    failures.add("disk.quota", anchor, "", "the disk quota is used up", kRoom);
  failures.add("disk.full", "torage limit exceeded", "", "the disk is full: the service allows no more",
               kRoom);
  failures.add("disk.write", "buffer nbytes != file bytes", "",
               "a file that holds offloaded states is shorter than what was written: mostly its disk is full",
               kRoom);
  failures.add("disk.write", "iostream error", "",
               "a file could not be written: mostly the disk or a quota is full", kRoom,
               R"(basic_ios::clear: $)");
  constexpr std::string_view kPod =
      "give the pod more of the node's disk (resources.limits.ephemeral-storage), or write into a volume of its own";
  for (const std::string_view anchor :
       {"ephemeral local storage usage exceeds", "low on resource: ephemeral-storage",
        "had condition: [DiskPressure]"})
    failures.add("disk.pod", anchor, "", "the pod was evicted: it or its node had no disk left", kPod);
  failures.add("disk.broken", "Input/output error", "", "the disk or a network folder failed", kBroken,
               R"((?: Errno 5 \] | rror: | os error 5 \) : ) $)");
  failures.add("disk.broken", "Stale file handle", "", "a network folder went away", kBroken);
  failures.add("disk.broken", "Transport endpoint is not connected", "", "a network folder went away",
               kBroken);
  failures.add("disk.read_only", "Read-only file system", "", "the disk or folder may only be read",
               "write into another folder, or mount it for writing", R"((?: Errno 30 \] | rror: | : ) $)");
}

void add_fault_devices(Failures& failures) {
  constexpr std::string_view kLost =
      "`dmesg -T | grep -i xid` has the driver's error; restart the machine, and watch power and temperature "
      "(nvidia-smi -q -d POWER,TEMPERATURE) when it comes back";
  for (const std::string_view anchor :
       {"RESULT_ERROR_DEVICE_LOST", "PI_ERROR_DEVICE_LOST", "VK_ERROR_DEVICE_LOST", "ErrorDeviceLost",
        "has fallen off the bus", "Unable to determine the device handle for", "GPU is lost"})
    failures.add("device.lost", anchor, "",
                 "a GPU no longer answers: it fell off the bus, or its driver stopped", kLost);
  failures.add(
      "device.xid", "NVRM: Xid", R"(^ NVRM: Xid \( PCI: .{1,20}? \) : {xid:count})",
      "the driver reports an error of the device (Xid)",
      "NVIDIA's list of Xid errors says what the number means: 13 and 31 are mostly the program's, 48, 63, 64, "
      "94 and 95 the device's memory, 79 a device that is gone");
  for (const std::string_view anchor :
       {"CUDA error: unknown error", "cudaErrorUnknown", "CUDA_ERROR_UNKNOWN", "cuda runtime error (30)"})
    failures.add("cuda.unknown", anchor, "", "the driver failed and does not say of what", kLost);
  for (const std::string_view anchor :
       {"CUDA error(719)", "cudaErrorLaunchFailure", "CUDA_ERROR_LAUNCH_FAILED"})
    failures.add("cuda.unspecified_launch", anchor, "", "a kernel crashed",
                 "CUDA_LAUNCH_BLOCKING=1 names the right place; compute-sanitizer COMMAND names what it did");
  failures.add(
      "cuda.any", "CUDA error",
      R"(^ CUDA error (?: \( [0-9]+ \) | [0-9]+ at .{0,80}? : | : ) (?! .{0,40} (?: out of memory | CUBLAS_ | CUDNN_ | CUFFT_ | CUSOLVER_ | NVML_ | MemoryAllocation )))",
      "a call of CUDA failed, and not for want of memory", "CUDA_LAUNCH_BLOCKING=1 names the right place");
  failures.add("cuda.any", "== cudaSuccess", R"(^ == cudaSuccess [.(]? (?! 2 vs ) [0-9]+ vs)",
               "a call of CUDA failed, and not for want of memory",
               "CUDA_LAUNCH_BLOCKING=1 names the right place");
  failures.add("cuda.any", "cuda runtime error", R"(^ cuda runtime error \( (?! 2 \) ) [0-9]+ \) :)",
               "a call of CUDA failed, and not for want of memory",
               "CUDA_LAUNCH_BLOCKING=1 names the right place");
}

// Memory on a chip, which kernels share out among their blocks: another size of them, however full the device is.
void add_fault_chips(Failures& failures) {
  constexpr std::string_view kBlocks =
      "smaller blocks in the kernel (Pallas, attention), or another limit: "
      "LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=KIB";
  constexpr std::string_view kCore =
      "a kernel needs more of a core's own memory (vmem) than a core has, however much HBM is free";
  failures.add("xla.vmem", "Ran out of memory in memory space",
               R"(^ Ran out of memory in memory space (?: vmem | smem ))", kCore, kBlocks);
  failures.add("xla.vmem", "exceeded scoped vmem limit", "", kCore, kBlocks);
  failures.add(
      "kernel.shared_memory", "uses too much shared data", "",
      "a kernel needs more shared memory than a multiprocessor has, however much of the device is free",
      "smaller tiles or fewer stages in the kernel");
}

void add_fault_limits(Failures& failures) {
  constexpr std::string_view kFewer =
      "raise the limit (ulimit -u; docker run --pids-limit=-1; pids.max of the control group), or start fewer: "
      "OMP_NUM_THREADS=1, OPENBLAS_NUM_THREADS=1, fewer loader processes";
  constexpr std::string_view kWords =
      "the system refused another thread or process: their number has a limit";
  failures.add(
      "limit.processes", "Resource temporarily unavailable", "", kWords, kFewer,
      R"((?: pthread_create .{0,40}? | creation failed: | fork: (?: retry: )* | 11 \] | what\(\): ) :? $)");
  failures.add("limit.processes", "can't start new thread", "", kWords, kFewer);
  failures.add("limit.processes", "System unable to allocate necessary resources for OMP thread", "", kWords,
               kFewer);
  failures.add("limit.processes", "unable to create new native thread", "", kWords, kFewer);
  failures.add("limit.processes", "unable to create native thread", "", kWords, kFewer);
}

void add_fault_files(Failures& failures) {
  constexpr std::string_view kFiles =
      "ulimit -n 65536 before the run; fewer loader processes, or "
      "torch.multiprocessing.set_sharing_strategy('file_system')";
  failures.add("files.too_many", "received 0 items of ancdata", "", "too many files are open (ulimit -n)",
               kFiles);
  failures.add(
      "files.shared_object", "unable to open shared memory object",
      R"(^ unable to open shared memory object (?! .{0,120}? (?: Too many open files | No space left | Cannot allocate ) ))",
      "a loader's process could not share a batch: mostly too many files are open (ulimit -n)", kFiles);
}

// Programs that report another one which failed.
void add_fault_children(Failures& failures) {
  constexpr std::string_view kChild = "another process of the run failed, and its own error stands before it";
  constexpr std::string_view kLook =
      "look for the first traceback above it, or in the log of the rank that it names";
  failures.add("child.failed", "Engine core initialization failed", "", kChild, kLook);
  failures.add("child.failed", "ChildFailedError", "", kChild, kLook);
  failures.add("child.failed", "ProcessRaisedException", "", kChild, kLook);
  failures.add("child.failed", "ExecuteUserScriptError", "", kChild, kLook);
  failures.add("child.failed", "returned non-zero exit status 1",
               R"(^ returned non-zero exit status 1 (?! [0-9]))", kChild, kLook);
}

}  // namespace

std::vector<MessageRow> fault_messages() {
  Failures failures;
  add_fault_exits(failures.rows);
  add_fault_crashes(failures);
  add_fault_disks(failures);
  add_fault_devices(failures);
  add_fault_chips(failures);
  add_fault_limits(failures);
  add_fault_files(failures);
  add_fault_children(failures);
  return failures.rows;
}

}  // namespace plimsoll::doctor
