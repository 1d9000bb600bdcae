#!/usr/bin/env bash
# What CUDA's own compiler says of the kernels, with no GPU: it compiles each file for each architecture, prints what
# every kernel uses (registers, shared and local memory, spills, barriers), and fails where
#
#   - a kernel spills registers, or keeps anything in local memory
#   - an architecture lacks a kernel that another has, or a file has none
#   - the library, if one is given, lacks a kernel in the code of an architecture, or the PTX that it should bring
#
#   kernel_resources.sh --architectures LIST [--nvcc PATH] [--include FOLDER]... [--library FILE] FILE.cu...
#
#   LIST  as CMAKE_CUDA_ARCHITECTURES: "80-real;90" is machine code for both, and PTX for the last
set -euo pipefail

nvcc=nvcc
architectures=
library=
includes=()
files=()
while [ $# -gt 0 ]; do
  case $1 in
    --architectures) architectures=$2 && shift 2 ;;
    --nvcc) nvcc=$2 && shift 2 ;;
    --include) includes+=("-I$2") && shift 2 ;;
    --library) library=$2 && shift 2 ;;
    -*)
      echo "kernel_resources.sh: unknown option $1" >&2
      exit 2
      ;;
    *) files+=("$1") && shift ;;
  esac
done
if [ ${#files[@]} -eq 0 ] || [ -z "$architectures" ]; then
  echo "kernel_resources.sh: expected --architectures LIST and files of kernels" >&2
  exit 2
fi
read -ra listed <<<"${architectures//;/ }"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/usage" # a line for each kernel and architecture: name, architecture, six figures
: >"$work/ptx"   # a line for each kernel in PTX: name, architecture
: >"$work/breaches"

complain() {
  echo "kernel_resources.sh: $*" | tee -a "$work/breaches" >&2
}

# Tools of the toolkit lie beside its compiler, or on the path.
toolkit_tool() {
  local beside
  beside=$(dirname "$(command -v "$nvcc")")/$1
  if [ -x "$beside" ]; then echo "$beside"; else command -v "$1" || true; fi
}

demangle() {
  local tool
  tool=$(toolkit_tool cu++filt)
  "${tool:-c++filt}"
}

# What nvcc must be told to make machine code, and PTX where the list says so, for all architectures.
code_options() {
  local entry number
  for entry in "${listed[@]}"; do
    number=${entry%-*}
    case $entry in
      *-real) echo "-gencode=arch=compute_$number,code=sm_$number" ;;
      *-virtual) echo "-gencode=arch=compute_$number,code=compute_$number" ;;
      *) echo "-gencode=arch=compute_$number,code=[sm_$number,compute_$number]" ;;
    esac
  done
}

# Reads what ptxas says under -v; prints, for each kernel: mangled name, architecture, registers, shared memory,
# stack frame, spill stores, spill loads (bytes), barriers.
parse_usage() {
  awk '
    function number(unit) {  # of "128 bytes smem" and the like
      return match($0, "[0-9]+ " unit) ? substr($0, RSTART) + 0 : 0
    }
    /Compiling entry function/ {
      split($0, quoted, "\047"); name = quoted[2]; architecture = quoted[4]
      stack = 0; stores = 0; loads = 0
    }
    /bytes stack frame/ {  # a function called from the kernel counts too
      stack += number("bytes stack frame"); stores += number("bytes spill stores"); loads += number("bytes spill loads")
    }
    /Used [0-9]+ registers/ && name != "" {
      print name, architecture, number("registers"), number("bytes smem"), stack, stores, loads, number("barriers")
      name = ""
    }'
}

compile() {
  local file=$1 folder=$2 options
  mapfile -t options < <(code_options)
  mkdir -p "$folder"
  if ! "$nvcc" -std=c++20 -O3 "${includes[@]}" "${options[@]}" -Xptxas=-v -fatbin --keep --keep-dir "$folder" \
    -o "$folder/kernels.fatbin" "$file" >"$folder/said" 2>&1; then
    grep -v '^ptxas info' "$folder/said" >&2 || true
    complain "$file: nvcc failed"
    return
  fi
  parse_usage <"$folder/said" >"$folder/usage"
  if [ ! -s "$folder/usage" ]; then complain "$file: the compiler saw no kernel in it"; fi
  cat "$folder/usage" >>"$work/usage"
  for entry in "${listed[@]}"; do
    case $entry in *-real) continue ;; esac
    local number=${entry%-*} ptx files
    files=("$folder"/*.compute_"$number".ptx)
    if [ ! -e "${files[0]}" ]; then files=("$folder"/*.ptx); fi # so nvcc names it where it is the only one
    for ptx in "${files[@]}"; do
      sed -n "s/.*\.entry \([A-Za-z0-9_\$]*\).*/\1 sm_$number/p" "$ptx"
    done
  done >>"$work/ptx"
}

# Of each architecture in turn: complains of kernels that are in the list of all, and not in its own.
# Reads lines "name architecture"; $1 says where they come from, the other arguments are the architectures.
compare_architectures() {
  local of=$1 list=$work/compared architecture name
  shift
  cat >"$list"
  if [ ! -s "$list" ]; then complain "$of: no kernel was found"; fi
  cut -d ' ' -f 1 "$list" | sort -u >"$work/all"
  for architecture in "$@"; do
    awk -v wanted="$architecture" '$2 == wanted { print $1 }' "$list" | sort -u >"$work/there"
    while IFS= read -r name; do
      complain "$of: no code for $architecture of $(demangle <<<"$name")"
    done < <(comm -23 "$work/all" "$work/there")
  done
}

print_table() {
  local shown=$1
  printf '%9s %7s %6s %7s %6s %9s  %s\n' registers shared local stores loads barriers "kernel ($shown; bytes)"
  local name registers shared stack stores loads barriers
  while read -r name _ registers shared stack stores loads barriers; do
    printf '%9d %7d %6d %7d %6d %9d  %s\n' "$registers" "$shared" "$stack" "$stores" "$loads" "$barriers" \
      "$(demangle <<<"$name" | sed 's/(anonymous namespace)::\|_GLOBAL__N__[0-9a-zA-Z_]*:://g; s/(.*//')"
  done < <(awk -v wanted="$shown" '$2 == wanted' "$work/usage") | sort -k 7
}

complain_of_spills() {
  local name architecture stack stores loads
  while read -r name architecture _ _ stack stores loads _; do
    if [ "$((stack + stores + loads))" -gt 0 ]; then
      complain "$(demangle <<<"$name") for $architecture keeps $stack bytes in local memory" \
        "(spills: $stores stored, $loads loaded)"
    fi
  done <"$work/usage"
}

# Lists the code in a library's section of device code: kind (1: PTX, 2: ELF), architecture, offset, size.
# It holds regions of magic 0xba55ed50, each a header (size of header at byte 6, of all entries at 8) and entries
# (kind at byte 0, size of header at 4, of code at 8, architecture at 28).
list_device_code() {
  od -An -v -tu4 -w4 "$1" | awk '
    { word[NR - 1] = $1 }
    END {
      for (at = 0; at * 4 < NR * 4; ) {
        if (word[at] != 3126193488) { ++at; continue }
        header = int(word[at + 1] / 65536) / 4; end = at + header + word[at + 2] / 4
        for (entry = at + header; entry < end; entry += size) {
          kind = word[entry] % 65536; size = (word[entry + 1] + word[entry + 2]) / 4
          if (size <= 0) break
          print kind, word[entry + 7], (entry * 4) + word[entry + 1], word[entry + 2]
        }
        at = int(end)
      }
    }'
}

# Lines "name architecture" of all kernels in the machine code of a library.
kernels_in_library() {
  local cuobjdump kind architecture offset size
  cuobjdump=$(toolkit_tool cuobjdump)
  if [ -n "$cuobjdump" ]; then
    "$cuobjdump" -symbols "$library" | awk '/^arch = / { of = $3 } /FUNC/ && /ENTRY/ { print $NF, of }'
    return
  fi
  while read -r kind architecture offset size; do
    if [ "$kind" != 2 ]; then continue; fi
    dd if="$work/device_code" of="$work/elf" iflag=skip_bytes,count_bytes skip="$offset" count="$size" status=none
    # Of a kernel's symbol readelf says that its "other" byte is 0x10.
    readelf -sW "$work/elf" 2>/dev/null |
      awk -v of="sm_$architecture" '$4 == "FUNC" && /<other>: 10\]/ { print $NF, of }'
  done <"$work/code"
}

# Demangles names, with one word for all unnamed namespaces.
plain_names() {
  demangle | sed 's/_GLOBAL__N__[0-9a-zA-Z_]*::/(anonymous namespace)::/' | sort -u
}

check_library() {
  local entry architectures_of_code=() name
  if ! objcopy -O binary --only-section=.nv_fatbin --set-section-flags .nv_fatbin=alloc \
    "$library" "$work/device_code" || [ ! -s "$work/device_code" ]; then
    complain "$library holds no device code"
    return
  fi
  list_device_code "$work/device_code" >"$work/code"
  for entry in "${listed[@]}"; do
    case $entry in
      *-virtual) ;;
      *) architectures_of_code+=("sm_${entry%-*}") ;;
    esac
    case $entry in
      *-real) ;;
      *) grep -q "^1 ${entry%-*} " "$work/code" || complain "$library: no PTX for ${entry%-*}" ;;
    esac
  done
  kernels_in_library >"$work/in_library"
  compare_architectures "$library" "${architectures_of_code[@]}" <"$work/in_library"
  # Two compilations name the unnamed namespace of a file differently: plain names are compared.
  cut -d ' ' -f 1 "$work/in_library" | plain_names >"$work/have"
  cut -d ' ' -f 1 "$work/usage" | plain_names >"$work/want"
  while IFS= read -r name; do
    complain "$library: there is no $name in it"
  done < <(comm -13 "$work/have" "$work/want")
}

number=0
for file in "${files[@]}"; do
  number=$((number + 1))
  compile "$file" "$work/$number"
done

machine=()
virtual=()
for entry in "${listed[@]}"; do
  case $entry in *-virtual) ;; *) machine+=("sm_${entry%-*}") ;; esac
  case $entry in *-real) ;; *) virtual+=("sm_${entry%-*}") ;; esac
done
shown=${machine[0]:-}
for architecture in "${machine[@]}"; do
  if [ "$architecture" = sm_90 ]; then shown=sm_90; fi
done
print_table "$shown"
complain_of_spills
cut -d ' ' -f 1,2 "$work/usage" | compare_architectures "machine code" "${machine[@]}"
if [ ${#virtual[@]} -gt 0 ]; then
  # Every kernel of the machine code must be in the PTX too.
  { cat "$work/ptx"; cut -d ' ' -f 1 "$work/usage" | sed 's/$/ machine/'; } | compare_architectures PTX "${virtual[@]}"
fi
if [ -n "$library" ]; then check_library; fi

kernels=$(cut -d ' ' -f 1 "$work/usage" | sort -u | wc -l)
if [ -s "$work/breaches" ]; then exit 1; fi
echo "$kernels kernels, each for ${machine[*]}${virtual[*]:+ and in PTX for ${virtual[*]}}: none uses local memory"
if [ -n "$library" ]; then echo "All of them are in $library."; fi
