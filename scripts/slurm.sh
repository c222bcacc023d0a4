#!/usr/bin/env bash
# A Slurm of one or several nodes on this machine, for the tests of `plimsoll queue run --backend slurm` and to try it out.
#
#   scripts/slurm.sh install        Debian packages slurm-wlm and munge (root)
#   scripts/slurm.sh start FOLDER   starts munged, slurmctld and slurmd (root); everything of theirs is in FOLDER.
#                                   Programs find it by SLURM_CONF=FOLDER/slurm.conf
#   scripts/slurm.sh stop FOLDER    ends them with all their jobs
#
# The node books memory, and ends jobs that take more than they booked: by control groups (version 1) where it may make
# them, else by looking once a second. It needs no systemd and no accounting database. PLIMSOLL_SLURM_MIB (4000) and
# PLIMSOLL_SLURM_CPUS (2) say how large it is. With PLIMSOLL_SLURM_NODES=2 there are two such nodes, each with a host name
# of its own, so that programs take them for two machines; with PLIMSOLL_SLURM_GPUS=2 each books two GPUs, which are not there.
set -euo pipefail

fail() {
  echo "error: scripts/slurm.sh: $1" >&2
  exit 2
}

install() {
  command -v sbatch >/dev/null && command -v slurmctld >/dev/null && command -v munged >/dev/null && return
  (($(id -u) == 0)) || fail "installing needs root: sudo apt-get install -y --no-install-recommends slurm-wlm munge"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge >/dev/null
}

free_ports() {
  python3 -c '
import os, socket
sockets = [socket.socket() for _ in range(1 + int(os.environ.get("PLIMSOLL_SLURM_NODES", 1)))]
for one in sockets: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))'
}

# Control groups are named after the node: two Slurms of a machine have different ones.
node_of() { echo "node$1"; }

can_make_groups() {
  [[ ${PLIMSOLL_SLURM_GROUPS:-} != no ]] &&
  mkdir /sys/fs/cgroup/memory/plimsoll-slurm-try 2>/dev/null && rmdir /sys/fs/cgroup/memory/plimsoll-slurm-try
}

memory_lines() {
  if $1; then
    echo "TaskPlugin=task/cgroup"
  else
    printf '%s\n' TaskPlugin=task/none JobAcctGatherType=jobacct_gather/linux JobAcctGatherFrequency=task=1 \
      JobAcctGatherParams=OverMemoryKill
  fi
}

# Files of devices that no driver has: Slurm numbers GPUs by them.
make_gpus() {
  local number
  for ((number = 0; number < ${PLIMSOLL_SLURM_GPUS:-0}; ++number)); do
    mknod "$1/gpu$number" c 1 "$((3 + 2 * number))"
    echo "Name=gpu File=$1/gpu$number"
  done >"$1/gres.conf"
}

# write_configuration FOLDER GROUPS
write_configuration() {
  local ports
  read -r -a ports < <(free_ports)
  cat >"$1/slurm.conf" <<CONFIGURATION
ClusterName=plimsoll
SlurmctldHost=localhost
SlurmUser=root
AuthInfo=socket=$1/munge.socket
SlurmctldPort=${ports[0]}
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool/%n
TmpFS=$1/tmp/%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
SlurmctldLogFile=$1/slurmctld.log
SlurmdLogFile=$1/slurmd-%n.log
ProctrackType=proctrack/linuxproc
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
$(memory_lines "$2")
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
KillWait=5
InactiveLimit=0
ReturnToService=2
$(for port in "${ports[@]:1}"; do
    echo "NodeName=$(node_of "$port") NodeHostname=localhost NodeAddr=127.0.0.1 Port=$port CPUs=${PLIMSOLL_SLURM_CPUS:-2} RealMemory=${PLIMSOLL_SLURM_MIB:-4000} Gres=gpu:${PLIMSOLL_SLURM_GPUS:-0} State=UNKNOWN"
  done)
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONFIGURATION
  printf '%s\n' CgroupPlugin=cgroup/v1 CgroupAutomount=no ConstrainRAMSpace=yes >"$1/cgroup.conf"
}

# With everything that says why where the node does not come up.
start_daemons() {
  export SLURM_CONF=$1/slurm.conf
  slurmctld -f "$SLURM_CONF" >"$1/start.log" 2>&1
  local node nodes
  mapfile -t nodes < <(sed -n 's/^NodeName=\([^ ]*\).*/\1/p' "$SLURM_CONF")
  for node in "${nodes[@]}"; do
    mkdir -p "$1/spool/$node" "$1/tmp/$node"
    if ((${#nodes[@]} > 1)); then
      unshare --uts sh -c 'hostname "$1" && exec slurmd -f "$2" -N "$1"' sh "$node" "$SLURM_CONF" >>"$1/start.log" 2>&1
    else
      slurmd -f "$SLURM_CONF" -N "$node" >>"$1/start.log" 2>&1
    fi
  done
  for _ in $(seq 200); do
    [[ $(sinfo -h -N -o %t 2>/dev/null | sort -u) == idle && $(sinfo -h -N -o %N | wc -l) == "${#nodes[@]}" ]] && return
    sleep 0.1
  done
  tail -n 20 "$1/start.log" "$1/slurmctld.log" "$1"/slurmd-*.log >&2
  return 1
}

start() {
  (($(id -u) == 0)) || fail "start needs root"
  local folder
  mkdir -p "$1/state" "$1/spool"
  folder=$(cd "$1" && pwd)
  head -c 1024 /dev/urandom >"$folder/key"
  chmod 600 "$folder/key"
  chmod 755 "$folder"
  munged --force --socket="$folder/munge.socket" --key-file="$folder/key" --pid-file="$folder/munge.pid" \
    --log-file="$folder/munge.log" --seed-file="$folder/seed" --num-threads=2
  local groups=false
  can_make_groups && groups=true
  make_gpus "$folder"
  write_configuration "$folder" $groups
  if ! start_daemons "$folder"; then
    stop "$folder"
    fail "the node did not become idle"
  fi
  echo "SLURM_CONF=$folder/slurm.conf"
}

stop() {
  local file pid
  SLURM_CONF=$1/slurm.conf scancel --quiet --user="$(id -un)" 2>/dev/null || true
  for file in "$1"/slurmd-*.pid "$1/slurmctld.pid" "$1/munge.pid"; do
    pid=$(cat "$file" 2>/dev/null) || continue
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  done
}

case "${1:-}" in
  install) install ;;
  start) start "${2:?FOLDER}" ;;
  stop) stop "${2:?FOLDER}" ;;
  *) fail "expected install, start FOLDER or stop FOLDER" ;;
esac
