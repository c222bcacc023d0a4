#!/usr/bin/env bash
# The wheel and the archive in a bare Debian 12: no compiler, no library of Plimsoll's. Needs root and debootstrap.
#
#   scripts/try_in_debian.sh [--keep FOLDER] WHEEL ARCHIVE.tar.gz
#
# Makes the system with debootstrap (or uses the one in FOLDER), then for each: --version, a plan, a short training, an answer.
set -euo pipefail
cd "$(dirname "$0")/.."
root=''
if [[ ${1:-} == --keep ]]; then root=$2 && shift 2; fi
if (($# != 2)); then sed -n '2,6s/^# \{0,1\}//p' "$0" >&2 && exit 2; fi
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
[[ -x $root/bin/sh ]] || debootstrap --variant=minbase --include=python3,python3-venv,python3-pip bookworm "$root" >/dev/null
mkdir -p "$root/proc" "$root/trial"
mount -t proc proc "$root/proc"
rm -rf "$root"/trial/*
cp "$1" "$2" "$root/trial"
cp -r demo examples "$root/trial"
rm -rf "$root/trial/demo/work"

cat >"$root/trial/try.sh" <<'TRY'
set -eu
cd /trial
export PLIMSOLL_NO_PROBE=1 LC_ALL=C.UTF-8
if command -v gcc g++ cc c++; then echo "error: a compiler is here" >&2; exit 1; fi
python3 -m venv env
env/bin/pip install --quiet --no-index ./*.whl
tar xf ./*.tar.gz
for plimsoll in env/bin/plimsoll plimsoll-*-linux-x86_64/bin/plimsoll; do
  echo "== $plimsoll $($plimsoll --version) on Debian $(cat /etc/debian_version)"
  $plimsoll plan examples/qwen2.5-0.5b-lora/recipe.yaml --memory 8GiB >plan.txt
  head -3 plan.txt
  $plimsoll train demo/recipes/full.yaml --overwrite --quiet --set schedule.max_steps=4 --set output=/trial/run
  $plimsoll report run | head -1
  $plimsoll generate run --prompt 'What is the capital of Peru?' --max-new-tokens 2 >answer.txt
done
TRY
chroot "$root" sh /trial/try.sh
echo "both run in a bare Debian 12"
