#!/usr/bin/env bash
# Tries device_check.sh without a GPU: every program that it calls is a stand-in of a few lines, which does its work,
# fails or hangs as told. Checks results.json, the log and the exit codes. Exit code 77: there is no python3.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
check=$here/device_check.sh
real_python=$(command -v python3) || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
failures=0

# fake NAME: a program, from stdin.
fake() {
  { echo '#!/usr/bin/env bash'; cat; } >"$work/bin/$1"
  chmod +x "$work/bin/$1"
}

# FAKE_FAIL and FAKE_HANG are patterns: a run of convnet whose options match one fails or hangs.
fake convnet <<'FAKE'
options="$*"
if [ "$1" = convert ]; then echo data >"$3"; exit 0; fi
if [[ -n "${FAKE_HANG:-}" && $options =~ $FAKE_HANG ]]; then sleep 600; fi
if [[ -n "${FAKE_FAIL:-}" && $options =~ $FAKE_FAIL ]]; then echo "convnet: no: a \"quoted\" \\ reason" >&2; exit 70; fi
if [[ ${FAKE_RANKS:-1} -gt 1 && $options == *cuda* && $options != *--share-gpu* && -z "${FAKE_CARELESS:-}" ]]; then
  echo "convnet: ranks 0 and 1 (node) share GPU-12" >&2
  exit 69
fi
log=/dev/null epochs=2 correct=(7230 8153) sum=aa11 loss=2.25 steps=50
while [ $# -gt 0 ]; do
  case $1 in
    --log) log=$2 ;;
    --epochs) epochs=$2 ;;
    --max-steps) steps=$2 ;;
    --recipe) correct=(9800 9890 9931) epochs=3 ;;
    --cuda-graph) if [ "$2" = on ] && [ -n "${FAKE_GRAPH_SUM:-}" ]; then sum=$FAKE_GRAPH_SUM; fi ;;
    --share-gpu) loss=${FAKE_LOSS:-2.25000001} ;;
  esac
  shift
done
echo "convnet 0.1.0: ${FAKE_RANKS:-1} rank on cuda (a GPU)"
for ((i = 1; i <= steps; ++i)); do echo "{\"event\":\"step\",\"epoch\":1,\"step\":$i,\"loss\":$loss,\"loss_rank0\":9}"; done >"$log"
for ((i = 1; i <= epochs; ++i)); do
  echo "{\"event\":\"epoch_end\",\"epoch\":$i,\"test_correct\":${correct[i - 1]:-1},\"images_per_s\":${i}00000.0,\"seconds\":0.6}"
done >>"$log"
echo "{\"event\":\"run_end\",\"weights_sha256\":\"$sum\",\"seconds\":1.5,\"steps\":$steps}" >>"$log"
FAKE

fake nvidia-smi <<'FAKE'
case "$*" in
  *name*) echo "Imaginary GPU" ;;
  *driver_version*) echo 580.1.2 ;;
  *compute_cap*) echo "${FAKE_CAPABILITY-9.0}" ;;
  *) echo "1 unit" ;;
esac
FAKE

fake cmake <<'FAKE'
case "$*" in
  --version) echo "cmake version 9" ;;
  *-B*) echo "$*" >"$CHECK_BUILD/configured" ;;
  *)
    cp "$(command -v convnet)" "$CHECK_BUILD/convnet"
    echo 'echo "convnet 0.1.0: 1 rank on cuda (GPU)"; echo "[  PASSED  ] 2 tests."' >"$CHECK_BUILD/fidelity_test"
    chmod +x "$CHECK_BUILD/fidelity_test"
    ;;
esac
FAKE

fake ctest <<'FAKE'
if [ -n "${FAKE_CTEST:-}" ]; then
  printf '\n50%% tests passed, 1 tests failed out of 2\n\nThe following tests FAILED:\n\t  7 - Replica.Learns (Failed)\n'
  exit 8
fi
[ "${REQUIRE_GPU:-}" = 1 ] && printf '\n100%% tests passed, 0 tests failed out of 2\n'
FAKE

fake mpiexec <<'FAKE'
while [[ $1 == -* ]]; do
  case $1 in
    --version) echo "mpiexec of the test"; exit ;;
    -n) export FAKE_RANKS=$2; shift ;;
    --bind-to) shift ;;
  esac
  shift
done
case $1 in */fidelity_test) exec bash "$@" ;; esac
exec "$@"
FAKE

fake compute-sanitizer <<'FAKE'
while [[ $1 != */convnet ]]; do
  if [ "$1" = --tool ]; then tool=$2; fi
  if [ "$1" = --kernel-regex ] && [ -n "${FAKE_OLD:-}" ]; then echo "unrecognised option" >&2; exit 1; fi
  shift
done
"$@"
case $tool in
  racecheck) echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)" ;;
  *) echo "========= ERROR SUMMARY: ${FAKE_ERRORS:-0} errors" ;;
esac
FAKE

fake ncu <<'FAKE'
echo "==PROF== Connected to process 7"
echo '"ID","Process ID","Process Name","Kernel Name","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed","sm__warps_active.avg.pct_of_peak_sustained_active"'
echo '"","","","","%","ns","register/thread","%","%"'
echo '"0","7","convnet","void gather_kernel<float>(int, float *)","10.0","1,000","20","30.0","50.0"'
echo '"1","7","convnet","void gather_kernel<float>(int, float *)","30.0","3,000","20","50.0","70.0"'
echo '"2","7","convnet","sgd_kernel","1.5","2,000","18","2.5","3.5"'
FAKE

fake python3 <<'FAKE'
if [ -n "${FAKE_NO_TORCH:-}" ]; then exit 1; fi
case "$*" in
  *roofline.py*) echo 50.00 ;;
  *pytorch_speed.py*) echo '{"mode":"graph","ms_per_step":0.2}' ;;
  *__version__*) echo 2.11 ;;
esac
FAKE

# A compiler, a library and cuobjdump, as kernel_resources.sh asks them.
fake nvcc <<'FAKE'
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit; fi
echo "ptxas info    : Compiling entry function 'kernel' for 'sm_90'"
echo "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
echo "ptxas info    : Used 10 registers, used 0 barriers"
FAKE
fake cuobjdump <<'FAKE'
printf 'arch = sm_90\nFUNC LOCAL DEFAULT ENTRY kernel\n'
FAKE

# start FOLDER OPTION...: device_check.sh with these programs; its exit code is in $status.
start() {
  local folder=$work/$1
  shift
  mkdir -p "$folder/build"
  echo 'int code[4] __attribute__((section(".nv_fatbin"))) = {1};' | cc -shared -fPIC -x c - -o "$folder/build/libconvnet_cuda.so"
  status=0
  env PATH="$work/bin:$PATH" OUT="$folder/out" CHECK_BUILD="$folder/build" CHECK_WORK="$folder/work" CHECK_PACKAGES=/nonexistent \
    "$check" "$@" >"$folder/said" 2>&1 || status=$?
  results=$folder/out/results.json
}

# expect WHAT TEXT: a Python expression of r, the results, has this value.
expect() {
  local got
  got=$("$real_python" -c 'import json, sys; r = json.load(open(sys.argv[1])); s = r["stages"]; print(eval(sys.argv[2]))' "$results" "$1" 2>&1) || true
  if [ "$got" != "$2" ]; then
    echo "device_check_test.sh: $1 is $got: expected $2 ($results)" >&2
    failures=$((failures + 1))
  fi
}

expect_status() {
  if [ "$status" -ne "$1" ]; then
    echo "device_check_test.sh: exit code $status: expected $1" >&2
    cat "$(dirname "$(dirname "$results")")/said" >&2
    failures=$((failures + 1))
  fi
}

statuses='" ".join(n + ":" + v["status"] for n, v in s.items())'

# All goes well.
start good
expect_status 0
expect '" ".join(s)' "facts build tests golden seed deterministic onecycle speed launches pytorch ranks sanitizer profile kernels"
expect '{v["status"] for v in s.values()}' "{'passed'}"
expect 's["facts"]["facts"]["gpu"]' "Imaginary GPU"
expect 's["build"]["facts"]["architecture"]' "90-real"
expect 's["tests"]["facts"]["total"], s["tests"]["facts"]["failed"]' "(2, 0)"
expect 's["golden"]["facts"]["passed"], s["golden"]["facts"]["on_gpu"]' "(2, True)"
expect '[(i["test_correct"], i["pytorch"]) for i in s["seed"]["items"]]' "[(7230, 7230), (8153, 8153)]"
expect '[i["run"] for i in s["deterministic"]["items"]]' "['once', 'again', 'graph', 'eager']"
expect 's["onecycle"]["items"][2]["test_correct"]' 9931
expect 'len(s["speed"]["items"]), s["speed"]["items"][0]["ms_per_step"], s["speed"]["items"][-1]["ms_per_step"]' "(30, 0.5, 2.5)"
expect 'len(s["launches"]["items"]), [i["ms_per_step"] for i in s["launches"]["items"]][0::8]' "(16, [0.5, 2.5])"
expect '[i["options"].split("launch ")[-1][:2] for i in s["launches"]["items"]][1:4]' "['1 ', '8 ', '32']"
expect '[(i["roofline_ms"], i["roofline_share"]) for i in s["launches"]["items"]][0]' "(0.05, 0.1)"
expect 's["pytorch"]["items"][0]["ms_per_step"]' 0.2
expect 's["ranks"]["facts"]["refused_with"], s["ranks"]["facts"]["steps"]' "(69, 50)"
expect '[i["errors"] for i in s["sanitizer"]["items"]]' "[0, 0, 0]"
expect '[(i["launches"], i["duration"], i["dram_percent"], i["registers"]) for i in s["profile"]["items"]]' "[(2, 2000.0, 20.0, 20), (1, 2000.0, 1.5, 18)]"
if ! grep -q '^=== kernels: passed' "$work/good/out/device_check.log"; then
  echo "device_check_test.sh: the log lacks a stage" >&2
  failures=$((failures + 1))
fi

# Mistakes are recorded, each at its stage, and the others go on.
export FAKE_CTEST=1 FAKE_GRAPH_SUM=bb22 FAKE_FAIL='--kernels cudnn' FAKE_ERRORS=3 FAKE_OLD=1 FAKE_NO_TORCH=1 FAKE_LOSS=2.2502 FAKE_CARELESS=1
start bad
unset FAKE_CTEST FAKE_GRAPH_SUM FAKE_FAIL FAKE_ERRORS FAKE_OLD FAKE_NO_TORCH FAKE_LOSS FAKE_CARELESS
expect_status 1
expect "$statuses" "facts:passed build:passed tests:failed golden:passed seed:passed deterministic:failed onecycle:passed speed:failed launches:passed pytorch:skipped ranks:failed sanitizer:failed profile:passed kernels:passed"
expect '[i["failed"] for i in s["tests"]["items"]]' "['Replica.Learns']"
expect 's["deterministic"]["failures"]' "['graph: other weights than before']"
expect 'sum("error" in i for i in s["speed"]["items"]), sum("ms_per_step" in i for i in s["speed"]["items"])' "(12, 18)"
expect 's["speed"]["items"][2]["error"]' 'convnet: no: a "quoted" \ reason'
expect 'len(s["ranks"]["failures"])' 3
expect '[i["errors"] for i in s["sanitizer"]["items"]]' "[3, 0, 3]"

# A stage that hangs ends at its limit, with all that it started; single stages keep what was known of the others.
export FAKE_HANG='--log-steps' CHECK_STAGE_SECONDS=2
start good seed onecycle
unset FAKE_HANG CHECK_STAGE_SECONDS
expect_status 1
expect 's["seed"]["status"], s["seed"]["exit_code"], s["onecycle"]["status"], s["tests"]["status"]' "('timed_out', 124, 'passed', 'passed')"

# No time is left, the GPU is unknown, the golden losses come from the CPU.
export CHECK_SECONDS=2
start late tests
unset CHECK_SECONDS
expect_status 1
expect 's["tests"]["status"]' out_of_time
FAKE_CAPABILITY='' start nameless build
expect_status 1
expect 's["build"]["failures"][0]' "nvidia-smi names no compute capability: "
start bad facts no_such_stage
expect_status 2

# A dry run builds nothing, and shrinks all.
export CONVNET_CHECK_PROGRAM=$work/bin/convnet
start dry --dry-run build seed speed ranks kernels
expect_status 0
expect 'r["dry_run"], len(s["speed"]["items"]), s["ranks"]["facts"]["steps"], s["kernels"]["status"]' "(True, 30, 3, 'skipped')"

if [ "$failures" -gt 0 ]; then exit 1; fi
echo "device_check.sh records what passes, fails, hangs and is skipped."
