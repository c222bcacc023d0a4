// The Linux kernel and what watches memory before it: dmesg, journals, memory.events.
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

const std::vector<std::string_view> kVictim = {
    R"(total-vm: {total_vm:size})", R"(anon-rss: {anon_rss:size})",
    R"(file-rss: {file_rss:size})", R"(shmem-rss: {shmem_rss:size})",
    R"(UID: {uid:count})",          R"(^ .{0,120}? or (?<sacrifices> sacrifice child))"};

std::vector<std::string_view> with_victim(std::string_view first) {
  std::vector<std::string_view> fields = {first};
  fields.insert(fields.end(), kVictim.begin(), kVictim.end());
  return fields;
}

}  // namespace

std::vector<MessageRow> kernel_messages() {
  return {
      {"kernel.cgroup_killed", Sign::cgroup_kill, "Memory cgroup out of memory: Kill",
       with_victim(
           R"(^ Memory cgroup out of memory: Kill(?:ed)? process {pid:count} \( (?<process> [^)]* ) \))"),
       "the kernel killed at a control group's limit"},
      {"kernel.killed", Sign::kernel_kill, "Out of memory",
       with_victim(
           R"(^ Out of memory (?: \( oom_kill_allocating_task \) )? : Kill(?:ed)? process {pid:count} \( (?<process> [^)]* ) \))"),
       "the kernel killed: the machine had no memory left"},
      {"kernel.cgroup_trace",
       Sign::cgroup_kill,
       "mem_cgroup_",
       {R"(^ mem_cgroup_ (?: oom_synchronize | out_of_memory ) \+ 0x)"},
       "the kernel looked for a process to end at a control group's limit"},
      {"kernel.reaper",
       Sign::host_refused,
       "oom_reaper: reaped process",
       {R"(^ oom_reaper: reaped process {pid:count} \( (?<process> [^)]* ) \))"},
       "the kernel killed a process for want of memory, of the machine or of a control group"},
      {"kernel.invoked",
       Sign::host_refused,
       "invoked oom-killer",
       {R"(^ invoked oom-killer: gfp_mask)"},
       "the kernel looked for a process to end: memory was used up, of the machine or of a control group",
       R"((?<process> [^\]\ :]+ ) $)"},
      {"kernel.victim", Sign::detail, "Killed process",
       with_victim(
           R"(^ Killed process {pid:count} \( (?<process> [^)]* ) \) ,? (?: UID [0-9]+ , )? total-vm)"),
       "the process that the kernel ended", R"(^ $)"},
      {"kernel.constraint_memcg",
       Sign::cgroup_kill,
       "oom-kill:constraint=CONSTRAINT_MEMCG",
       {R"(^ oom-kill:constraint=CONSTRAINT_MEMCG)", R"(oom_memcg= (?<group> [^,]+ ) ,)",
        R"(,task= (?<process> [^,]+ ) ,pid= {pid:count})"},
       "the kernel killed at a control group's limit"},
      {"kernel.constraint_none",
       Sign::kernel_kill,
       "oom-kill:constraint=CONSTRAINT_NONE",
       {R"(^ oom-kill:constraint=CONSTRAINT_NONE)", R"(,task= (?<process> [^,]+ ) ,pid= {pid:count})"},
       "the kernel killed: the machine had no memory left"},
      {"kernel.constraint_node",
       Sign::kernel_kill,
       "oom-kill:constraint=CONSTRAINT_",
       {R"(^ oom-kill:constraint=CONSTRAINT_ (?<constraint> CPUSET | MEMORY_POLICY ) )",
        R"(,task= (?<process> [^,]+ ) ,pid= {pid:count})"},
       "the kernel killed: the memory nodes that the process may use were full"},
      {"kernel.cgroup_usage",
       Sign::detail,
       "memory: usage",
       {R"(^ memory: usage {usage:size} , limit {limit:size} (?: , failcnt {failures:count} )?)"},
       "a control group's use and limit"},
      {"kernel.cgroup_task",
       Sign::cgroup_kill,
       "killed as a result of limit of",
       {R"(^ killed as a result of limit of (?<group> /[\w./:-]* ))"},
       "the kernel killed at a control group's limit",
       R"(Task in .* $)"},
      {"cgroup.events",
       Sign::cgroup_kill,
       "oom_kill",
       {R"(^ oom_kill (?<oom_kills> 0* [1-9] [0-9]* ) $)"},
       "memory.events of the control group counts kills",
       R"(^ $)",
       true},
      {"kernel.overcommit",
       Sign::host_refused,
       "not enough memory for the allocation",
       {R"(^ not enough memory for the allocation)"},
       "the kernel refused address space: more than it lets a process promise itself",
       R"(__vm_enough_memory: pid: {pid:number} ,comm: (?<process> .+? ) , (?: bytes: {tried:number} | no ) $)"},
      {"systemd.oom_kill",
       Sign::cgroup_kill,
       "Failed with result 'oom-kill'",
       {R"(^ Failed with result 'oom-kill')"},
       "systemd: the unit was ended by the kernel for want of memory"},
      {"systemd.killed_by_oom",
       Sign::cgroup_kill,
       "has been killed by the OOM killer",
       {R"(^ has been killed by the OOM killer)"},
       "systemd: a process of the unit was ended for want of memory",
       R"(A process of this unit $)"},
      {"systemd.oomd",
       Sign::daemon_kill,
       "due to memory pressure for",
       {R"(^ due to memory pressure for (?<group> [\w./:@\\-]*? ) being {pressure:share} > {threshold:share})"},
       "systemd-oomd killed a control group under pressure",
       R"(Killed .* $)"},
      {"systemd.oomd_swap",
       Sign::daemon_kill,
       "due to memory used",
       {R"(^ due to memory used \( {used:count} \) / total \( {total:count} \) and swap used)"},
       "systemd-oomd killed a control group: memory and swap were used up",
       R"(Killed .* $)"},
      {"earlyoom.low",
       Sign::daemon_kill,
       "low memory! at or below SIG",
       {R"(^ low memory! at or below SIG (?: TERM | KILL ) limits: mem {mem_limit:share})"},
       "earlyoom ended the largest process"},
      {"earlyoom.sending",
       Sign::daemon_kill,
       "sending SIG",
       {R"(^ sending SIG (?: TERM | KILL ) to process {pid:count} uid [0-9]+ " (?<process> [^"]* ) " : .{0,40}? VmRSS {anon_rss:size})"},
       "earlyoom ended the largest process"},
  };
}

}  // namespace plimsoll::doctor
