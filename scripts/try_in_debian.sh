#!/usr/bin/env bash
# What is given to others in a bare Debian: no compiler, no library of Plimsoll's. Needs root and debootstrap.
#
#   scripts/try_in_debian.sh [--suite NAME] [--keep FOLDER] WHEEL ARCHIVE.tar.gz
#   scripts/try_in_debian.sh [--suite NAME] [--keep FOLDER] GPU-CARRY.tar.gz
#
# Makes the system with debootstrap (or uses the one in FOLDER): bookworm (Debian 12, Python 3.11), or another suite with glibc 2.34 or newer,
# such as trixie (Debian 13, Python 3.13). Of the wheel and of the archive: --version, a plan, a short training, an
# answer; of the wheel also its Python package and the demo. Of what make gpu-carry packed: the emulated card's calls, a case of an op, a training beside the CPU's, a section of gpu-first, and
# what is said where there is no driver.
set -euo pipefail
cd "$(dirname "$0")/.."
root=''
suite=bookworm
if [[ ${1:-} == --suite ]]; then suite=$2 && shift 2; fi
if [[ ${1:-} == --keep ]]; then root=$2 && shift 2; fi
if (($# != 1 && $# != 2)); then sed -n '2,11s/^# \{0,1\}//p' "$0" >&2 && exit 2; fi
for tool in debootstrap chroot; do
  command -v "$tool" >/dev/null || { echo "error: $tool is missing (apt-get install debootstrap)" >&2 && exit 2; }
done

clean() { umount "$root/proc" 2>/dev/null || true; }
if [[ -z $root ]]; then
  root=$(mktemp -d)
  trap 'clean; rm -rf "$root"' EXIT
else
  trap clean EXIT
fi
[[ -x $root/bin/sh ]] || debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,make "$suite" "$root" >/dev/null
mkdir -p "$root/proc" "$root/trial"
mount -t proc proc "$root/proc"
rm -rf "$root"/trial/*
cp "$@" "$root/trial"

if (($# == 1)); then
  cat >"$root/trial/try.sh" <<'TRY'
set -eu
cd /trial
export PLIMSOLL_NO_PROBE=1 LC_ALL=C.UTF-8
if command -v gcc g++ cc c++; then echo "error: a compiler is here" >&2; exit 1; fi
tar xf ./*.tar.gz
cd */
echo "== $(bin/plimsoll --version) on Debian $(cat /etc/debian_version)"
bin/plimsoll_card_check calls --device emulated >calls.jsonl
python3 tests/gpu/check.py --plimsoll bin/plimsoll --tool bin/plimsoll_card_check --device emulated --cases swiglu --parts ops,runs --runs LoRA --out check.json
make gpu-first GPU_TOOLS=bin GPU_DEVICE=emulated GPU_SECTIONS=f
code=0
make gpu-first GPU_TOOLS=bin 2>said.txt || code=$?
grep -q "no NVIDIA driver was found" said.txt || { echo "error: exit $code without a driver:" >&2 && cat said.txt >&2 && exit 1; }
TRY
  chroot "$root" sh /trial/try.sh
  echo "the carried folder starts in a bare Debian ($(cat "$root/etc/debian_version"))"
  exit
fi

cp -r demo examples "$root/trial"
cp "$1" "$root/tmp"
# The Dockerfile's own line.
sed -n 's/^RUN \(python3 -m venv .*\)$/\1/p' examples/docker/Dockerfile >"$root/trial/install.sh"
rm -rf "$root/trial/demo/work"
cat >"$root/trial/try.sh" <<'TRY'
set -eu
cd /trial
export PLIMSOLL_NO_PROBE=1 LC_ALL=C.UTF-8
if command -v gcc g++ cc c++; then echo "error: a compiler is here" >&2; exit 1; fi
rm -rf /opt/plimsoll
grep -q . install.sh
sh -e install.sh >/dev/null
tar xf ./*.tar.gz
for plimsoll in /opt/plimsoll/bin/plimsoll plimsoll-*-linux-x86_64/bin/plimsoll; do
  echo "== $plimsoll $($plimsoll --version) on Debian $(cat /etc/debian_version)"
  $plimsoll plan examples/qwen2.5-0.5b-lora/recipe.yaml --memory 8GiB >plan.txt
  head -3 plan.txt
  $plimsoll train demo/recipes/full.yaml --overwrite --quiet --set schedule.max_steps=4 --set output=/trial/run
  $plimsoll report run | head -1
  $plimsoll generate run --prompt 'What is the capital of Peru?' --max-new-tokens 2 >answer.txt
done
# The package, with a home folder that nothing can be written to.
HOME=/nowhere /opt/plimsoll/bin/python - <<'PYTHON'
import plimsoll_ml as pm
assert pm.fit("qwen2.5-0.5b", gpu="T4", lengths=[512], methods=["lora"])
seen = []
run = pm.train("demo/recipes/full.yaml", overwrite=True, set={"schedule.max_steps": 3, "output": "/trial/run"}, callbacks=[lambda run, row: seen.append(row["step"])])
assert (run.status, seen) == ("finished", [1, 2, 3]), (run.status, seen)
print("== plimsoll_ml trains:", run)
PYTHON
/opt/plimsoll/bin/plimsoll demo --steps 3 >demo.txt
TRY
chroot "$root" sh /trial/try.sh
echo "both run in a bare Debian ($(cat "$root/etc/debian_version"), $(chroot "$root" python3 --version))"
