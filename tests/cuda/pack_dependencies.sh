#!/usr/bin/env bash
# Gathers what the build and the tests need beside a compiler, CMake and CUDA, for a machine with a GPU that has no
# package registry: Open MPI, HDF5, oneDNN, Highway, CLI11, spdlog, fmt, nlohmann-json, zlib, OpenSSL, GoogleTest,
# Ninja and pkgconf, as this system's package manager has them. Needs apt-get, dpkg and binutils; installs nothing.
#
#   tests/cuda/pack_dependencies.sh [FOLDER]      (build/device_packages)
#
# FOLDER gets three files, to be taken along with the sources:
#
#   root.tar.gz      the packages' files, without what is not needed (documents, static libraries, Fortran, ...)
#   packages.txt     the packages, with versions
#   environment.sh   `. environment.sh` on the other machine unpacks the files once, into FOLDER/root (or where
#                    CONVNET_PACKAGES_ROOT says), and sets PATH, LD_LIBRARY_PATH, CMAKE_PREFIX_PATH and so on
#
# The other machine's own C library, C++ library and compiler stay in use: none of them is packed. They must not be
# older than what the packed libraries ask for, which is printed. Where the packages are as before, it does nothing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-$here/../../build/device_packages}
readonly limit_mb=60
readonly layout=1 # of the packed files: a greater one makes old folders new

# Taken whole: headers, CMake's and pkg-config's files, programs.
named=(openmpi-bin openmpi-common libopenmpi-dev libhdf5-dev libdnnl-dev libhwy-dev libcli11-dev libspdlog-dev
  libfmt-dev nlohmann-json3-dev zlib1g-dev libssl-dev libgtest-dev libgmock-dev ninja-build pkgconf pkgconf-bin)
# Never taken: what belongs to the other machine's system and compiler, and what no shared library comes from.
not_taken='^(libc6.*|libc-.*|libcrypt.*|libnsl.*|libtirpc.*|linux-libc-dev|libstdc\+\+.*|libgcc.*|libgomp.*|gcc.*|g\+\+.*|cpp.*'
not_taken+='|gfortran.*|libgfortran.*|libquadmath.*|libatomic.*|libitm.*|lib[alt]san.*|libubsan.*|libhwasan.*|libcc1.*|binutils.*'
not_taken+='|libbinutils|libctf.*|libgprofng.*|libsframe.*|libisl.*|libmpc.*|libmpfr.*|perl.*|libperl.*|python3.*|libpython.*'
not_taken+='|debconf.*|dpkg.*|tar|adduser|passwd|login.*|base-.*|coreutils|init-.*|install-info|openssh-.*|ssh-.*|sensible-.*'
not_taken+='|ucf|catch2|googletest|hdf5-helpers|rpcsvc-proto|libjs-.*|javascript-.*|mime-support|media-types|openssl'
not_taken+='|ca-certificates|tzdata|libpam.*|libicu.*|libx11-data|libdb5.*|util-linux.*|ncurses-.*|libllvm.*|mawk)$'
# Of Open MPI's plug-ins: those for networks that the other machine does not have, and for what is not used.
plug_ins_left_out='*ucx* *_ofi* *psm* *openib* *_java* *memheap* *scoll* *spml* *sshmem* *atomic_* *romio* *flux* *monitoring*'
programs=(orterun orted opal_wrapper mpicc.openmpi mpic++.openmpi mpicxx.openmpi mpiexec.openmpi mpirun.openmpi
  ompi_info ninja pkgconf pkg-config)

fail() {
  echo "pack_dependencies.sh: $*" >&2
  exit 69
}

for tool in apt-get apt-cache dpkg readelf gzip tar; do
  command -v "$tool" >/dev/null || fail "$tool was not found"
done
multiarch=$(cc -print-multiarch 2>/dev/null || gcc -print-multiarch)
[ -n "$multiarch" ] || fail "the compiler does not name a multiarch folder: is this Debian or Ubuntu?"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Name and version of all packages that the named ones need, as on a system with none installed.
resolve() {
  : >"$work/status"
  apt-get install --simulate --no-install-recommends -o Dir::State::status="$work/status" \
    -o Debug::NoLocking=1 "${named[@]}" 2>"$work/apt_errors" |
    sed -n 's/^Inst \([^ ]*\) (\([^ ]*\) .*/\1 \2/p' | sort |
    awk -v not_taken="$not_taken" '{ name = $1; sub(/:.*/, "", name) } name !~ not_taken'
}

# The names of the shared libraries that a file asks for.
needed_by() {
  readelf -d "$1" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
}

is_elf() {
  [ "$(head -c 4 "$1" | tr -d '\177')" = ELF ]
}

# Unpacks the packages in $work/debs: the named ones whole into $work/root, of the others the shared libraries.
unpack() {
  local deb name
  mkdir -p "$work/root/usr/lib" "$work/others"
  for deb in "$work"/debs/*.deb; do
    name=$(basename "$deb")
    name=${name%%_*}
    if printf '%s\n' "${named[@]}" | grep -qxF "$name"; then
      dpkg -x "$deb" "$work/root"
    else
      dpkg -x "$deb" "$work/others"
    fi
  done
  local from
  for from in "$work/root/lib" "$work/others/lib" "$work/others/usr/lib"; do
    if [ -d "$from" ]; then cp -a "$from/." "$work/root/usr/lib/"; fi
  done
  if [ -d "$work/others/usr/share/pmix" ]; then cp -a "$work/others/usr/share/pmix" "$work/root/usr/share/"; fi
  rm -rf "$work/root/lib" "$work/others"
}

# What neither the build nor a run needs, libraries aside.
drop_files() {
  local root=$work/root lib=$work/root/usr/lib/$multiarch program pattern
  rm -rf "$root"/usr/share/{doc,doc-base,man,lintian,bash-completion,zsh,vim,emacs,info,locale,bug,aclocal} "$root/usr/src"
  for program in "$root"/usr/bin/*; do
    printf '%s\n' "${programs[@]}" | grep -qxF "$(basename "$program")" || rm -rf "$program"
  done
  find "$root/usr/lib" -name '*.a' ! -name 'libgtest*' ! -name 'libgmock*' -delete
  find "$root/usr/lib" \( -name '*.la' -o -name '*.mod' -o -name '*.jar' -o -name '*.py' \) -delete
  for pattern in $plug_ins_left_out; do
    find "$lib"/openmpi/lib -name "$pattern" -delete
  done
  find "$lib" -maxdepth 1 \( -name 'libmpi_*' -o -name 'liboshmem*' -o -name 'libompitrace*' -o -name 'libhdf5*cpp*' \
    -o -name 'libhdf5*fortran*' -o -name 'libhdf5*hl*' \) -exec rm -rf {} +
  rm -rf "$lib"/openmpi/lib/*.so "$lib"/fortran "$lib"/hdf5/serial/lib
}

# Deletes those shared libraries that nothing kept asks for. Those that the project links, and plug-ins, are kept.
drop_libraries() {
  local root=$work/root lib=$work/root/usr/lib/$multiarch file name
  local roots='libmpi.so.40 libhdf5_serial.so libdnnl.so libhwy.so libhwy_contrib.so libhwy_test.so libspdlog.so'
  roots+=' libfmt.so libz.so libcrypto.so libssl.so'
  : >"$work/kept"
  : >"$work/missing"
  for name in $roots; do
    if [ -e "$lib/$name" ]; then echo "$lib/$name"; else echo "pack_dependencies.sh: no $name in the packages" >&2; fi
  done >"$work/todo"
  find "$root/usr/bin" -type f >>"$work/todo"
  find "$lib"/openmpi "$lib"/pmix* -name '*.so*' -type f 2>/dev/null >>"$work/todo" || true
  while [ -s "$work/todo" ]; do
    : >"$work/next"
    while IFS= read -r file; do
      file=$(readlink -f "$file")
      if grep -qxF "$file" "$work/kept" || ! is_elf "$file"; then continue; fi
      echo "$file" >>"$work/kept"
      needed_by "$file" | while IFS= read -r name; do
        local found
        found=$(find "$lib" -name "$name" -print -quit)
        if [ -n "$found" ]; then echo "$found"; else echo "$name $file" >>"$work/missing"; fi
      done >>"$work/next"
    done <"$work/todo"
    mv "$work/next" "$work/todo"
  done
  find "$root/usr/lib" -type f -name '*.so*' | while IFS= read -r file; do
    if is_elf "$file" && ! grep -qxF "$file" "$work/kept"; then rm -f "$file"; fi
  done
  find "$root/usr" -xtype l -delete
  find "$root/usr" -depth -type d -empty -delete
}

# Stops where a kept library asks for one that neither is packed nor comes with every compiler.
check_closure() {
  local of_the_system='^(libc|libm|libdl|libpthread|librt|libresolv|libutil|libstdc\+\+|libgcc_s|libgomp|ld-linux[^ ]*'
  of_the_system+='|libcrypt|libnsl)\.so'
  if grep -vE "$of_the_system" "$work/missing" >"$work/unresolved"; then
    sed "s,$work/root/,," "$work/unresolved" >&2
    fail "the libraries above are asked for, and are in no package taken"
  fi
}

# Makes the pkg-config files of a folder say where they are, instead of /usr, which is UP from there.
relocate() {
  local pc_folder=$1 up=$2
  # shellcheck disable=SC2016 # it is pkg-config that knows ${pcfiledir}
  local here='${pcfiledir}'
  if [ -d "$pc_folder" ]; then
    find "$pc_folder" -name '*.pc' -exec sed -i -e "s,^prefix *=.*,prefix=$here/$up," -e "s,= */usr/,=$here/$up/," {} +
  fi
}

# What the alternatives of an installed package do, and names by which CMake's FindHDF5 looks.
add_links() {
  local root=$work/root lib=$work/root/usr/lib/$multiarch name
  for name in mpicc mpic++ mpicxx mpiexec mpirun; do ln -sf "$name.openmpi" "$root/usr/bin/$name"; done
  if [ -e "$root/usr/bin/pkgconf" ]; then ln -sf pkgconf "$root/usr/bin/pkg-config"; fi
  ln -sf libmpi.so.40 "$lib/libmpi.so"
  ln -sf libhdf5_serial.so "$lib/libhdf5.so"
  # pkg-config's files name /usr: let them find themselves.
  relocate "$root/usr/lib/$multiarch/pkgconfig" ../../..
  relocate "$root/usr/share/pkgconfig" ../..
}

# The newest version of a symbol, such as GLIBC_2.34, that the packed files ask for.
newest_asked_for() {
  while IFS= read -r file; do readelf -VW "$file" 2>/dev/null; done <"$work/kept" |
    grep -oE "\b$1_[0-9.]+" | sort -uV | tail -n 1
}

write_environment() {
  sed "s,@multiarch@,$multiarch,g" >"$folder/environment.sh" <<'ENVIRONMENT'
# Made by tests/cuda/pack_dependencies.sh. To be sourced by bash: unpacks root.tar.gz beside it, once, and sets the
# variables with which compilers, CMake, pkg-config and Open MPI find what is in it.
convnet_packages=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
convnet_root=${CONVNET_PACKAGES_ROOT:-$convnet_packages/root}
# Of common libraries this machine's own copies, where it has them, take the place of those packed: its own tools find
# them on LD_LIBRARY_PATH too. Those that the project itself uses must fit each other, and stay.
convnet_prefer_own() {
  local name path own='^lib(mpi|open-|pmix|hwloc|event|hdf5|dnnl|hwy|spdlog|fmt|pkgconf)'
  PATH="$PATH:/sbin:/usr/sbin" ldconfig -p | awk '/\(libc6,/ && / => / { print $1, $NF }' | while read -r name path; do
    if [ -e "$1/$name" ] && [ -e "$path" ] && ! [[ $name =~ $own ]]; then ln -sf "$path" "$1/$name"; fi
  done
}
if [ ! -e "$convnet_root/unpacked" ] || [ "$convnet_packages/root.tar.gz" -nt "$convnet_root/unpacked" ]; then
  mkdir -p "$convnet_root" && tar -xzf "$convnet_packages/root.tar.gz" -C "$convnet_root" &&
    convnet_prefer_own "$convnet_root/usr/lib/@multiarch@" && touch "$convnet_root/unpacked"
fi
convnet_usr=$convnet_root/usr
convnet_lib=$convnet_usr/lib/@multiarch@
export PATH="$convnet_usr/bin:$PATH"
export LD_LIBRARY_PATH="$convnet_lib:$convnet_lib/pmix2/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LIBRARY_PATH="$convnet_lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
export CPATH="$convnet_usr/include:$convnet_usr/include/@multiarch@${CPATH:+:$CPATH}"
export CMAKE_PREFIX_PATH="$convnet_usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
export CMAKE_LIBRARY_PATH="$convnet_lib${CMAKE_LIBRARY_PATH:+:$CMAKE_LIBRARY_PATH}"
export CMAKE_INCLUDE_PATH="$convnet_usr/include/hdf5/serial${CMAKE_INCLUDE_PATH:+:$CMAKE_INCLUDE_PATH}"
export CMAKE_INCLUDE_PATH="$convnet_usr/include/@multiarch@:$CMAKE_INCLUDE_PATH"
export PKG_CONFIG_PATH="$convnet_lib/pkgconfig:$convnet_usr/share/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}"
# Open MPI and PMIx look for their plug-ins and texts where they were installed, unless told.
export OPAL_PREFIX="$convnet_usr" OPAL_SYSCONFDIR="$convnet_root/etc"
export PMIX_PREFIX="$convnet_lib/pmix2" PMIX_EXEC_PREFIX="$convnet_lib/pmix2" PMIX_LIBDIR="$convnet_lib/pmix2/lib"
export PMIX_DATADIR="$convnet_lib/pmix2/share" PMIX_SYSCONFDIR="$convnet_root/etc"
export OMPI_MCA_plm_rsh_agent=/bin/false OMPI_MCA_plm=isolated  # one machine: needs no ssh
unset convnet_packages convnet_root convnet_usr convnet_lib
unset -f convnet_prefer_own
ENVIRONMENT
}

resolve >"$work/packages" || { cat "$work/apt_errors" >&2; fail "apt-get cannot resolve the packages"; }
if [ ! -s "$work/packages" ]; then
  cat "$work/apt_errors" >&2
  fail "apt-get cannot resolve the packages (has apt-get update been run?)"
fi
{ echo "layout $layout"; cat "$work/packages"; } >"$work/packages.txt"
if [ -s "$folder/root.tar.gz" ] && cmp -s "$work/packages.txt" "$folder/packages.txt"; then
  write_environment
  echo "$folder: $(wc -l <"$work/packages") packages, as before: $(du -m "$folder/root.tar.gz" | cut -f 1) MB"
  exit 0
fi

echo "Downloading $(wc -l <"$work/packages") packages"
mkdir "$work/debs"
chmod 755 "$work" # apt's own user must reach the folder
(cd "$work/debs" && awk '{ print $1 "=" $2 }' "$work/packages" | xargs apt-get download -q) \
  >/dev/null 2>"$work/apt_errors" || { cat "$work/apt_errors" >&2; fail "apt-get download failed"; }
unpack
drop_files
drop_libraries
check_closure
add_links

tar -C "$work/root" --sort=name --owner=0 --group=0 --mtime=@0 -cf - . | gzip -n -6 >"$work/root.tar.gz"
size_mb=$(du -m "$work/root.tar.gz" | cut -f 1)
echo "Packed: $size_mb MB, unpacked $(du -sm "$work/root" | cut -f 1) MB: $(wc -l <"$work/kept") libraries and programs"
echo "The other machine needs at least $(newest_asked_for GLIBC), $(newest_asked_for GLIBCXX)"
[ "$size_mb" -lt "$limit_mb" ] || fail "$size_mb MB are too many: expected less than $limit_mb MB"
mv "$work/root.tar.gz" "$folder/root.tar.gz"
write_environment
mv "$work/packages.txt" "$folder/packages.txt"
echo "Ready in $folder"
