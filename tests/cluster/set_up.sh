#!/usr/bin/env bash
# set_up.sh PROGRAM SOURCE: starts the cluster, and puts what the tests run where both hosts see it: a checkout with the
# program, the job scripts and a small data file, the first 2000 training and 500 test images of MNIST.
set -euo pipefail
program=$1 source=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/cluster/lib.sh
. "$here/lib.sh"

# first COUNT NAME HEADER_BYTES ITEM_BYTES: an IDX file of fewer items; bytes 4 to 7 count them.
first() {
  local whole=$CLUSTER/whole.idx
  gzip --decompress --stdout "$source/data/$2.gz" >"$whole"
  {
    head -c 4 "$whole"
    printf '\0\0%b' "$(printf '\\x%02x\\x%02x' $(($1 / 256)) $(($1 % 256)))"
    head -c $(($3 + $1 * $4)) "$whole" | tail -c +9
  } >"$CLUSTER/small/$2"
  rm "$whole"
}

"$here/two_hosts.sh" up
mkdir -p "$checkout"/{build/release,output} "$CLUSTER/small"
cp "$program" "$checkout/build/release/convnet"
cp -r "$source/jobs" "$here" "$checkout"
first 2000 train-images-idx3-ubyte 16 784
first 2000 train-labels-idx1-ubyte 8 1
first 500 t10k-images-idx3-ubyte 16 784
first 500 t10k-labels-idx1-ubyte 8 1
"$program" convert "$CLUSTER/small" "$checkout/output/mnist.h5"
