#!/usr/bin/env bash
# Installs the Debian packages that convnet is built from, for Debian 12, Ubuntu 24.04 and newer.
#
#   jobs/install_dependencies.sh [--tests] [--checks] [--no-install]
#
#   --tests       also what the tests need
#   --checks      also what the checks of .ci/run need
#   --no-install  install nothing: name what is missing and exit with 69
#
# Where nothing is missing, it does nothing and needs no network. Where there is no apt-get, it names what to install.
set -euo pipefail

packages=(g++ cmake ninja-build make pkg-config
  libopenmpi-dev openmpi-bin libhdf5-dev libdnnl-dev libhwy-dev libcli11-dev libspdlog-dev nlohmann-json3-dev
  zlib1g-dev libssl-dev)
test_packages=(libgtest-dev libgmock-dev dataset-fashion-mnist
  slurmctld slurmd slurm-client munge iproute2 util-linux procps mpich libsimgrid-dev valgrind)
check_packages=(git clang-format clang-tidy-16 libomp-16-dev shellcheck)
readonly unavailable=69

may_install=true
for argument in "$@"; do
  case $argument in
    --tests) packages+=("${test_packages[@]}") ;;
    --checks) packages+=("${check_packages[@]}") ;;
    --no-install) may_install=false ;;
    *)
      echo "install_dependencies.sh: unknown option $argument (there are --tests, --checks and --no-install)" >&2
      exit 2
      ;;
  esac
done

if ! command -v apt-get >/dev/null; then
  echo "This system has no apt-get. What is needed, by the names of Debian's packages: ${packages[*]}"
  echo "Going on with what is there; the configure step stops at the first that it misses."
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "All ${#packages[@]} packages needed are installed."
  exit 0
fi
if [ $may_install = false ]; then
  echo "Missing packages: ${missing[*]}" >&2
  echo "Install them with: apt-get install ${missing[*]}" >&2
  exit $unavailable
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2
    exit $unavailable
  fi
  as_root=(sudo)
fi
echo "Installing packages: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
