#!/usr/bin/env bash
# install_test.sh BUILD: installs BUILD into a fresh prefix, moves that, and builds the examples against it as a user
# would: by find_package and by pkg-config, in C++ and in C alone, with the shared and with the static library, on the CPU
# and on OpenCL where there is a driver. Then the Debian packages: built, unpacked into a root of their own, used, removed.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
scratch=$build/install_test
rm -rf "$scratch"
mkdir -p "$scratch"
export FALTUNG_STORE=$scratch/store POCL_CACHE_DIR=$build/test_pocl
unset FALTUNG_WORKER

fail() {
  echo "install_test.sh: $*" >&2
  exit 1
}

# A program's libraries: libfaltung as its kind says, never Highway.
check_linked() {
  local kind=$1 program=$2 linked
  linked=$(LD_LIBRARY_PATH=${3:-} ldd "$program")
  if grep -q libhwy <<<"$linked"; then fail "$program needs libhwy"; fi
  case $kind in
    shared) grep -q libfaltung <<<"$linked" || fail "$program is not linked with the shared library" ;;
    static) ! grep -q libfaltung <<<"$linked" || fail "$program is not linked with the static library" ;;
  esac
}

cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"  # nothing may remember where it was installed
prefix=$scratch/prefix
library=$(dirname "$(find "$prefix" -name libfaltung.a)")
project() { cmake -S "$1" -B "$2" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release "${@:3}" >/dev/null && cmake --build "$2" >/dev/null; }

for language in cpp c; do
  for kind in shared static; do
    folder=$scratch/$language-$kind
    echo "== examples/$language, find_package, $kind"
    case $kind in
      shared) project "$source/examples/$language" "$folder" ;;  # what is had without asking
      static) project "$source/examples/$language" "$folder" -DBUILD_SHARED_LIBS=OFF ;;
    esac
    "$folder/example"
    check_linked $kind "$folder/example"
  done
done

echo "== a component by its name, another version"
mkdir "$scratch/component"
cat >"$scratch/component/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(component LANGUAGES C)
find_package(faltung 0.2 QUIET)
if(faltung_FOUND)
  message(FATAL_ERROR "0.2 is another ABI")
endif()
find_package(faltung 0.1 QUIET COMPONENTS nothing_of_ours)
if(faltung_FOUND)
  message(FATAL_ERROR "there is no such component")
endif()
find_package(faltung 0.1 REQUIRED COMPONENTS static)
add_executable(example ${EXAMPLE})
target_link_libraries(example PRIVATE faltung::faltung)
CMAKE
project "$scratch/component" "$scratch/component/build" -DEXAMPLE="$source/examples/c/example.c"
check_linked static "$scratch/component/build/example"

echo "== examples/c, pkg-config"
export PKG_CONFIG_PATH=$library/pkgconfig
if pkg-config --cflags faltung | grep -q -- -D; then fail "Cflags define macros: $(pkg-config --cflags faltung)"; fi
# Unquoted: pkg-config prints words.
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$source/examples/c/example.c" -o "$scratch/shared" \
  $(pkg-config --cflags --libs faltung)
LD_LIBRARY_PATH=$library "$scratch/shared"
mkdir "$scratch/static_only"
cp "$library/libfaltung.a" "$scratch/static_only"
cc -std=c99 "$source/examples/c/example.c" -o "$scratch/static" -L"$scratch/static_only" \
  $(pkg-config --static --cflags --libs faltung | sed "s#-L[^ ]*##")
"$scratch/static"
check_linked static "$scratch/static"

echo "== the installed command"
"$prefix/bin/faltung" --version
if [ -n "$(find "$build/bench/peers" -name 'faltung-peer-*' -type f 2>/dev/null)" ]; then
  "$prefix/bin/faltung" bench fwd:n1c8h6w6k8r3s3 --vs onednn --min-time 1ms --repeat 1 --csv - | grep onednn
fi
test -f "$prefix/share/faltung/workloads/lux_relu.csv"

echo "== README's program and the tutorial, as they are printed"
pages() { PATH=$prefix/bin:$PATH CMAKE_PREFIX_PATH=$prefix FALTUNG_STORE=$scratch/store_pages "$source/tests/run_page.py" "$@"; }
pages "$source/README.md" --only 'Use it' --folder "$scratch/readme"
project "$scratch/readme" "$scratch/readme/build"
"$scratch/readme/build/readme"
pages "$source/docs/tutorial.md" --without Install --without 'On a GPU, or PoCL' --folder "$scratch/tutorial"

echo "== the manual and completion"
manual=$prefix/share/man/man1/faltung.1
for words in 'faltung bench' 'faltung store export' '\\-\\-workspace' 'EXIT STATUS'; do
  grep -q -- "$words" "$manual" || fail "the manual has no $words"
done
if command -v groff >/dev/null; then
  warnings=$(groff -man -Tutf8 -ww -z "$manual" 2>&1)
  [ -z "$warnings" ] || fail "the manual: $warnings"
fi
completed() {  # what bash proposes for the last word
  bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _faltung; echo "${COMPREPLY[*]}"' \
    "$prefix/share/bash-completion/completions/faltung" "$@"
}
expect_completed() {
  local expected=$1 got
  shift
  got=$(completed "$@")
  [ "$got" = "$expected" ] || fail "$*: '$got' is proposed, and not '$expected'"
}
expect_completed bench faltung be
expect_completed "list export import clear --help" faltung store ""
expect_completed --workspace faltung find fwd:n1c8h9w8k8r3s3 --work
expect_completed "--lock" faltung store export --l
expect_completed "" faltung bench nothing
zsh_file=$prefix/share/zsh/site-functions/_faltung fish_file=$prefix/share/fish/vendor_completions.d/faltung.fish
grep -q -- "'--workspace:" "$zsh_file" || fail "zsh does not learn of --workspace"
grep -q -- "-l workspace" "$fish_file" || fail "fish does not learn of --workspace"
if command -v zsh >/dev/null; then zsh -n "$zsh_file"; fi
if command -v fish >/dev/null; then fish -n "$fish_file"; fi

# A user's program with the shared library: the worker lies beside that, in PATH, or nowhere, which is said once.
opencl=$("$prefix/bin/faltung" devices 2>/dev/null | grep -oE '^opencl:[0-9]+' | head -1) || true
if [ -n "$opencl" ]; then
  echo "== $opencl"
  program=$scratch/users/programs/device  # beside nothing of ours: the build folder has a command, too
  mkdir -p "$(dirname "$program")"
  cc -std=c99 -Wall -Wextra -Werror "$source/tests/install/device.c" -o "$program" $(pkg-config --cflags --libs faltung)
  LD_LIBRARY_PATH=$library "$program" "$opencl"
  mkdir "$scratch/alone"
  cp -a "$library"/libfaltung.so* "$scratch/alone"
  export FALTUNG_STORE=$scratch/store_path
  PATH=$prefix/bin:$PATH LD_LIBRARY_PATH=$scratch/alone "$program" "$opencl"
  export FALTUNG_STORE=$scratch/store_alone
  if LD_LIBRARY_PATH=$scratch/alone "$program" "$opencl" 2>"$scratch/alone/said"; then
    fail "kernels were used that nothing had tried"
  fi
  cat "$scratch/alone/said"
  [ "$(grep -c . "$scratch/alone/said")" = 1 ] || fail "that is more than one line"
  grep -q 'install the faltung command' "$scratch/alone/said" || fail "it does not say what to do"
  export FALTUNG_STORE=$scratch/store
else
  echo "== no OpenCL device: left out"
fi

echo "== the shared library exports the public interface alone, under its SONAME"
extra=$(nm -D --defined-only "$library/libfaltung.so" | grep -vE \
  ' ([TR] faltung_[a-z_]+|[TDBVW] (_ZNK?7faltung(6Engine|10MemoryPool|7Network|11NetworkPlan|4Plan|7Problem)|_ZN7faltung(5adopt|5bytes|5sizes|7devices|4name|13parse_problem|9to_string|8validate|7version)|_ZT[ISV]N7faltung5ErrorE)[^ ]*|A FALTUNG_[0-9.]+)(@@FALTUNG_[0-9.]+)?$' || true)
[ -z "$extra" ] || fail "exported by accident: $extra"
soname=$(objdump -p "$library/libfaltung.so" | awk '$1 == "SONAME" { print $2 }')
version=$("$prefix/bin/faltung" --version | grep -oE '[0-9]+\.[0-9]+')
[ "$soname" = "libfaltung.so.$version" ] || fail "the SONAME is $soname, the version $version"
if objdump -p "$library/libfaltung.so" | grep NEEDED | grep -vE 'lib(stdc\+\+|m|gcc_s|c)\.so|ld-linux'; then fail "needs more than it should"; fi

if ! command -v dpkg-shlibdeps >/dev/null; then
  echo "== no dpkg-dev: the Debian packages are left out"
  exit 0
fi
echo "== Debian packages"
(cd "$build" && cpack --config CPackConfig.cmake -B "$scratch/packages") >"$scratch/cpack.log" 2>&1 || { cat "$scratch/cpack.log"; exit 1; }
root=$scratch/root
mkdir -p "$root/var/lib/dpkg/"{info,updates,triggers} && touch "$root/var/lib/dpkg/"{status,available}
mkdir "$scratch/stub" && printf '#!/bin/sh\n' >"$scratch/stub/ldconfig" && chmod +x "$scratch/stub/ldconfig"  # the machine's is not ours to run
packages() {
  PATH=$scratch/stub:$PATH dpkg --root="$root" --force-depends --force-not-root --force-script-chrootless --log=/dev/null "$@" \
    >"$scratch/dpkg.log" 2>&1 || { cat "$scratch/dpkg.log"; exit 1; }
}
packages --install "$scratch/packages/"*.deb
dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Package} ${Version} ${Installed-Size} KB, depends on ${Depends}\n'
for file in usr/bin/faltung usr/share/man/man1/faltung.1 usr/share/doc/faltung/docs/tutorial.md usr/lib/libfaltung.so usr/lib/"$soname" usr/include/faltung/faltung.h usr/lib/pkgconfig/faltung.pc; do
  [ -e "$root/$file" ] || fail "no /$file in the packages"
done
for file in usr/lib/"$soname" usr/bin/faltung; do
  nm "$root/$file" 2>&1 | grep -q 'no symbols' || fail "the packaged $file is not stripped"
done
expect_depends() {
  local package=$1 expected=$2 got
  got=$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Depends}' "$package" | sed 's/ *([^)]*)//g')
  [ "$got" = "$expected" ] || fail "$package depends on '$got', and not on '$expected'"
}
expect_depends "libfaltung$version" "libc6, libgcc-s1, libstdc++6"
expect_depends faltung "libc6, libgcc-s1, libstdc++6"
expect_depends libfaltung-dev "libfaltung$version"
prefix=$root/usr
project "$source/examples/c" "$scratch/packaged"
"$scratch/packaged/example"
packages --purge faltung libfaltung-dev libfaltung0.1
left=$(find "$root" -path "$root/var" -prune -o ! -type d -print)
[ -z "$left" ] || fail "left behind: $left"
