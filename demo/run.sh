#!/usr/bin/env bash
# The demo: plan a run to the byte, see it refused where it does not fit, run it where it does, and compare.
# Everything it writes goes to demo/work/.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly plimsoll=${PLIMSOLL:-build/plimsoll}
readonly facts=demo/work/facts reverse=demo/work/reverse judge=demo/work/judge
readonly too_little=1MiB # less than the table of words and what one op works on
readonly unlimited=demo/work/unlimited tight=demo/work/tight tight_mib=128

bold='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi

say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }
run() {
  printf '$ plimsoll %s\n' "$*"
  "$plimsoll" "$@"
}

# Runs a command that must end with the given exit code.
expect_exit() {
  local wanted=$1 status=0
  shift
  run "$@" || status=$?
  if ((status != wanted)); then
    echo "error: expected exit code $wanted, got $status" >&2
    exit 1
  fi
}

# Trains with the peak of the process counted by the kernel, beside what the program says.
measured_train() {
  local output=$1
  shift
  printf '$ plimsoll train %s\n' "$*"
  python3 demo/report.py measure "$output.peak" "$plimsoll" train "$@"
}

# Answers the questions of a file, and stops the demo when less than the given percentage is right.
ask() {
  local run_folder=$1 task=$2 least=$3 answers
  answers=demo/work/answers-$(basename "$run_folder")-$task.jsonl
  run generate "$run_folder" --data "demo/data/$task/heldout.parquet" --out "$answers"
  python3 demo/report.py answers "$answers" "$least"
}

rm -rf demo/work
mkdir -p demo/work

say '1. The plan: every byte of the run, before anything is loaded.'
run plan demo/recipes/full.yaml

say "2. The same run in $too_little: refused at once (exit code 3), with what is missing and what would fit."
expect_exit 3 plan demo/recipes/full.yaml --memory "$too_little"

say '3. The promise: 26 million parameters, all of them trained; once with all the memory that it takes ...'
mkdir -p demo/work/larger
cp demo/model/* demo/work/larger/
cp demo/larger.json demo/work/larger/config.json
measured_train "$unlimited" demo/recipes/larger.yaml

say "... and once within ${tight_mib} MiB for the whole process, with the rest on disk."
run plan demo/recipes/larger.yaml --memory "${tight_mib}MiB" --disk 2GiB
measured_train "$tight" demo/recipes/larger.yaml --memory "${tight_mib}MiB" --disk 2GiB --set "output=$tight"
echo
python3 demo/report.py promise "$unlimited" "$tight" "$tight_mib"

say '4. Training from random weights on 1,936 questions and repetitions.'
run train demo/recipes/full.yaml

say '5. Held-out questions: each fact and each phrasing was trained, but never this pair.'
ask "$facts" facts 90

say '6. A second task, the other way round (a capital, which country?): the model does not know it yet.'
ask "$facts" reverse 0

say '7. A LoRA adapter learns it, with the first model frozen; planned first, then run.'
run plan demo/recipes/lora.yaml
run train demo/recipes/lora.yaml

say '8. The same questions, with the adapter.'
ask "$reverse" reverse 85

say '9. A reward model on top of the first: which of two answers is right?'
run train demo/recipes/judge.yaml
run score "$judge" --prompt 'What is the capital of Peru?' --response Lima --response Paris

say '10. It judges pairs whose questions it has never seen.'
run eval "$judge" --data demo/data/judge/heldout.parquet
"$plimsoll" eval "$judge" --data demo/data/judge/heldout.parquet --json >demo/work/judged.json
python3 demo/report.py judged demo/work/judged.json 90

say '11. Planned beside measured.'
python3 demo/report.py memory "$facts/run.json" "$reverse/run.json" "$judge/run.json"
