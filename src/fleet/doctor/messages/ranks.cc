// Several processes of one run: NCCL, MPI and its launchers, and Plimsoll's own ranks.
#include "fleet/doctor/messages.h"

namespace plimsoll::doctor {
namespace {

constexpr std::string_view kStartedByPmix =
    "start the processes with srun --mpi=pmix (srun --mpi=list names what this Slurm has), or by mpirun in the job";

void add_nccl(Failures& failures) {
  constexpr std::string_view kDebug =
      "run it again with NCCL_DEBUG=WARN: what stands behind NCCL WARN failed. In docker that is mostly /dev/shm, "
      "which has 64 MB there: docker run --shm-size=1g or --ipc=host";
  constexpr std::string_view kGone = "look for the rank whose log ends first, and why it does";
  constexpr std::string_view kNetwork =
      "name the network that all machines share (NCCL_SOCKET_IFNAME=eth0; `ip addr` lists them), and open its "
      "ports between them";
  failures.add("nccl.timeout", "Watchdog caught collective operation timeout", "",
               "a collective operation timed out: another rank is late or gone",
               "look for the rank whose log ends first, or that is behind; a longer timeout (ddp_timeout, "
               "init_process_group(timeout=)) only helps where one rank has that much more to do");
  failures.add("nccl.aborted", "Some NCCL operations have failed or timed out", "",
               "a collective operation failed or timed out, so the process ended itself", kGone);
  failures.add("nccl.unhandled_system", "unhandled system error", "",
               "NCCL met an error of the system or the network", kDebug);
  failures.add("nccl.system", "ncclSystemError: System call", "",
               "NCCL met an error of the system or the network", kDebug);
  failures.add("nccl.unhandled_cuda", "unhandled cuda error", "", "a call of CUDA failed within NCCL",
               "run it again with NCCL_DEBUG=WARN: the line behind NCCL WARN names the call");
  failures.add("nccl.duplicate_gpu", "Duplicate GPU detected", R"(^ Duplicate GPU detected : rank)",
               "two ranks have the same GPU, which NCCL refuses",
               "give each rank a GPU of its own: no more processes than GPUs, each with its own "
               "(torch.cuda.set_device(LOCAL_RANK), CUDA_VISIBLE_DEVICES)");
  failures.add("nccl.no_interface", "no socket interface found", "", "NCCL found no network interface",
               kNetwork);
  failures.add("nccl.connect", "Connect: Connect to",
               R"(^ Connect: Connect to .{1,80}? (?: failed | returned ))",
               "NCCL could not connect to another rank: a firewall, another network, or a rank that is gone",
               kNetwork, R"(socket (?: Start | Poll ) $)");
  failures.add("nccl.closed", "Connection closed by remote peer", "", "another rank of NCCL went away", kGone,
               R"((?: NCCL WARN | socketProgress: ) .{0,80} $)");
  failures.add("nccl.remote", "ncclRemoteError", "", "another rank of NCCL went away", kGone,
               R"((?: error .* | Error .* ) $)");
}

void add_nccl_calls(Failures& failures) {
  constexpr std::string_view kDebug =
      "run it again with NCCL_DEBUG=WARN: the line behind NCCL WARN says what failed";
  failures.add(
      "nccl.invalid_usage", "invalid usage", "",
      "NCCL was asked for what it does not do: mostly two ranks have one GPU, or there are fewer GPUs than "
      "processes",
      "start no more processes than GPUs, each with its own (torch.cuda.set_device(LOCAL_RANK)); "
      "NCCL_DEBUG=WARN names the argument",
      R"((?: NCCL | nccl ) .{0,200} $)");
  failures.add(
      "nccl.internal", "ncclInternalError", "",
      "NCCL failed within itself: mostly one rank has another version, or a driver or network that it cannot use",
      "use one version of NCCL on all machines, and run it again with NCCL_DEBUG=WARN: the line behind NCCL "
      "WARN says what failed");
  failures.add(
      "nccl.cuda", "Cuda failure", R"(^ Cuda failure [0-9]* \s* '? (?! out of memory ))",
      "a call of CUDA failed within NCCL",
      "where it is about peers or access between devices: NCCL_P2P_DISABLE=1 takes another way, and shows "
      "whether that is why",
      R"(NCCL WARN $)");
  for (const std::string_view anchor :
       {"NCCL option is not turned on", "Distributed package doesn't have NCCL", "NCCL is not available"})
    failures.add("nccl.not_built", anchor, "", "this build has no NCCL",
                 "install the build of the program for GPUs, or take the backend gloo");
  failures.add("nccl.any", "NCCL error", R"(^ NCCL error (?: in )? :)", "a call of NCCL failed", kDebug);
  for (const std::string_view anchor :
       {"Heartbeat monitor timed out", "watchdog got stuck for", "NCCL monitor thread timeout"})
    failures.add(
        "nccl.stuck", anchor, "",
        "a rank hangs in a call of CUDA or NCCL, or holds Python's lock, so its watchdog ended it",
        "py-spy dump --pid PID shows where a rank stands; look for the rank whose log ends first, and for a "
        "collective operation that not all ranks call");
}

// The sockets by which ranks find each other: torch's store and rendezvous, gloo's pairs.
void add_sockets(Failures& failures) {
  constexpr std::string_view kMeet =
      "start all processes, with the same address and port (--rdzv-endpoint, MASTER_ADDR, MASTER_PORT) and the same "
      "number of them, and try the port from the others: nc -vz ADDRESS PORT";
  constexpr std::string_view kLate =
      "not all processes came to the place where they meet, or the first one went away";
  constexpr std::string_view kPort =
      "end what still listens there (`ss -ltnp` names it), or take another port: torchrun --master-port 29511, or "
      "--standalone on one machine";
  constexpr std::string_view kGone = "look for the rank whose log ends first, and why it does";
  failures.add("port.in_use", "ddress already in use", "", "another process listens on the port", kPort,
               R"((?: rror: | rror : | 98 \] | EADDRINUSE, message: ) \s* [aA] $)");
  failures.add("port.in_use", "failed to listen on any local network address", "",
               "another process listens on the port", kPort);
  failures.add("rendezvous.clients", "waiting for clients", "", kLate, kMeet, R"(Timed out after .{1,20} $)");
  failures.add("rendezvous.connect", "The client socket has timed out after", "", kLate, kMeet);
  failures.add("rendezvous.connect", "The client socket has failed to connect to any network address of", "",
               kLate, kMeet);
  for (const std::string_view anchor :
       {"RendezvousConnectionError", "RendezvousTimeoutError", "RendezvousClosedError", "DistStoreError"})
    failures.add("rendezvous.failed", anchor, "", kLate, kMeet, R"((?: \. | ^ | Error ) $)");
  failures.add("rendezvous.failed", "DistNetworkError",
               R"(^ DistNetworkError (?! : .{0,20} failed to listen ))", kLate, kMeet, R"((?: \. | ^ ) $)");
  failures.add("store.closed", "recv, got 0 bytes", "", "the process with the store, rank 0, went away",
               kGone);
  failures.add(
      "gloo.connect", "Gloo connectFullMesh failed", "",
      "gloo could not connect all ranks: names that mean 127.0.0.1, or several networks",
      "name the network that all machines share (GLOO_SOCKET_IFNAME=eth0; `ip addr` lists them), and have no "
      "line 127.0.1.1 for the machine's own name in /etc/hosts");
  failures.add("gloo.connect", "ss1.ss_family == ss2.ss_family", "",
               "one rank of gloo has an address of IPv4, another one of IPv6",
               "name the network that all machines share: GLOO_SOCKET_IFNAME=eth0 (`ip addr` lists them)");
  failures.add("gloo.any", "gloo/transport/", "",
               "a socket of gloo failed: a network, or another rank that is gone", kGone);
  failures.add("gloo.closed", "onnection closed by peer", "", "another rank of gloo went away", kGone,
               R"(gloo .{0,120} $)");
  failures.add("gloo.closed", "Connection reset by peer", "", "another rank of gloo went away", kGone,
               R"(gloo .{0,160} $)");
  failures.add("gloo.timeout", "operation to complete", "",
               "a collective operation of gloo timed out: another rank is late or gone", kGone,
               R"(Timed out waiting {milliseconds:count} ms for (?: recv | send ) $)");
}

void add_mpi(Failures& failures) {
  constexpr std::string_view kDaemons =
      "try `ssh NODE true` and `ssh NODE which orted` from the first machine; name the network that all share: "
      "mpirun --mca btl_tcp_if_include NETWORK --mca oob_tcp_if_include NETWORK";
  failures.add(
      "mpi.slots", "There are not enough slots available in the system", "",
      "mpirun has fewer slots than processes were asked for",
      "state the slots of each machine (mpirun --host one:4,two:4), or let processes share processors: "
      "mpirun --oversubscribe");
  failures.add("mpi.root", "has detected an attempt to run as root", "",
               "mpirun does not start as root by itself",
               "start it as another user, or in a container with mpirun --allow-run-as-root");
  failures.add("mpi.no_pmi", "but OMPI was not built with SLURM's PMI support", "",
               "srun started the processes without a protocol by which Open MPI finds the others",
               kStartedByPmix);
  failures.add("mpi.no_plugin", "the specified plugin name for mpi/", "",
               "this Slurm lacks that plug-in for MPI", kStartedByPmix, R"(find $)");
  failures.add("mpi.daemon_lost", "has lost communication with a remote daemon", "",
               "mpirun lost its daemon on another machine: that is down, or its network", kDaemons);
  failures.add("mpi.daemon_start", "was unable to reliably start one or more daemons", "",
               "mpirun could not start its daemon on another machine", kDaemons);
  failures.add("mpi.daemon_failed", "daemon has unexpectedly failed after launch", "",
               "mpirun's daemon on another machine ended before it could answer", kDaemons);
  failures.add("mpi.daemon_died", "died unexpectedly with status", "",
               "mpirun's daemon on another machine ended before it could answer", kDaemons,
               R"(daemon \( pid [0-9]+ \) $)");
  failures.add(
      "mpi.unreachable", "of MPI processes are unable to reach each other", "",
      "MPI found no network between two of the processes",
      "name the network that all machines share: mpirun --mca btl_tcp_if_include NETWORK (`ip addr`)");
  failures.add("mpi.abort", "MPI_ABORT was invoked on rank",
               R"(^ MPI_ABORT was invoked on rank {rank:count})", "a rank ended all others",
               "look at what that rank printed before it");
}

void add_own(Failures& failures) {
  failures.add(
      "plimsoll.rank_silent", "has said nothing for", R"(^ has said nothing for {seconds:count} s)",
      "a process of the run did not answer, so all were ended",
      "look at that rank's machine: a process that was stopped (SIGSTOP), a disk or a network folder that "
      "hangs, a GPU that fell off the bus (dmesg); stop.silence says how long is waited. --resume continues",
      R"(rank \s* {rank:count} $)");
  failures.add("plimsoll.launcher_gone", "mpirun is gone: all processes of the run end", "",
               "mpirun ended, and the run's processes with it", "start it again with --resume");
  failures.add("plimsoll.rank_differs", "All processes of a run need the same program, recipe and files", "",
               "the processes of the run were not started with the same things",
               "give all machines the same program, recipe, model and rows under the same paths");
  failures.add("plimsoll.rows_differ", "the ranks have other rows for this step", "",
               "the data changed while the run read it",
               "let no one write to the rows of a run; --resume continues from the last checkpoint");
  failures.add("plimsoll.no_mpi", "several processes need MPI", "",
               "MPI, which connects the processes, is missing",
               "sudo apt install openmpi-bin; plimsoll devices says what was found");
  failures.add("plimsoll.no_nccl", "memory.exchange: nccl: no NCCL was found", "",
               "NCCL, by which the GPUs were to exchange, is missing or too old",
               "pip install nvidia-nccl-cu12 (cu13 for CUDA 13); plimsoll devices says what was found; --set "
               "memory.exchange=staged does without it");
  failures.add("plimsoll.nccl", "(--set memory.exchange=staged) does without it", "",
               "NCCL failed, by which the GPUs exchange",
               "run it again with NCCL_DEBUG=WARN: what stands behind NCCL WARN failed; --resume continues");
  failures.add("plimsoll.no_protocol", "finds the others: start them with srun --mpi=", "",
               "srun started the processes without a protocol by which MPI finds the others", kStartedByPmix);
  failures.add("plimsoll.not_seen", "processes of one machine do not see each other", "",
               "the processes of one machine are in containers of their own",
               "start all processes of a machine in one container, or by plimsoll train --devices N");
}

}  // namespace

std::vector<MessageRow> ranks_messages() {
  Failures failures;
  add_nccl(failures);
  add_nccl_calls(failures);
  add_sockets(failures);
  add_mpi(failures);
  add_own(failures);
  failures.rows.push_back(
      {"plimsoll.rank_ended",
       Sign::killed,
       "the process of rank",
       {R"(^ the process of rank {rank:count} ended)"},
       "a process of the run ended without a word, as one does that is killed, and all others "
       "with it; who ended it is not in the log"});
  failures.rows.push_back(
      {"mpi.copies",
       Sign::warning,
       "Read -1, expected",
       {R"(^ Read -1, expected [0-9]+ , errno = 1)"},
       "the container forbids copies from process to process; Open MPI takes another way with "
       "OMPI_MCA_btl_vader_single_copy_mechanism=none"});
  return failures.rows;
}

}  // namespace plimsoll::doctor
