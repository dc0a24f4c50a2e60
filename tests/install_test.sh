#!/usr/bin/env bash
# install_test.sh BUILD: installs BUILD into a fresh prefix, moves that, and builds the examples against it as a user
# would: by find_package and by pkg-config, with the static and with the shared library.
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
build=$1
scratch=$build/install_test
rm -rf "$scratch"
mkdir -p "$scratch"
export FALTUNG_STORE=$scratch/store

cmake --install "$build" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/prefix"  # nothing may remember where it was installed
prefix=$scratch/prefix
library=$(dirname "$(find "$prefix" -name libfaltung.a)")

for shared in OFF ON; do
  for language in cpp c; do
    folder=$scratch/$language-shared-$shared
    echo "== examples/$language, find_package, BUILD_SHARED_LIBS=$shared"
    cmake -S "$source/examples/$language" -B "$folder" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=$shared >/dev/null
    cmake --build "$folder" >/dev/null
    "$folder/example"
    linked=$(ldd "$folder/example" | grep -c libfaltung || true)
    if [ "$shared" = ON ] && [ "$linked" = 0 ] || [ "$shared" = OFF ] && [ "$linked" != 0 ]; then
      echo "the example is linked with the wrong kind of library" >&2
      exit 1
    fi
  done
done

echo "== examples/c, pkg-config"
export PKG_CONFIG_PATH=$library/pkgconfig
# Unquoted: pkg-config prints words.
cc -std=c99 -Wall -Wextra -Wpedantic -Werror "$source/examples/c/example.c" -o "$scratch/shared" \
  $(pkg-config --cflags --libs faltung)
LD_LIBRARY_PATH=$library "$scratch/shared"
mkdir "$scratch/static_only"
cp "$library/libfaltung.a" "$scratch/static_only"
cc -std=c99 "$source/examples/c/example.c" -o "$scratch/static" -L"$scratch/static_only" \
  $(pkg-config --static --cflags --libs faltung | sed "s#-L[^ ]*##")
"$scratch/static"

echo "== the installed command"
"$prefix/bin/faltung" --version
if [ -n "$(find "$build/bench/peers" -name 'faltung-peer-*' -type f 2>/dev/null)" ]; then
  "$prefix/bin/faltung" bench fwd:n1c8h6w6k8r3s3 --vs onednn --min-time 1ms --repeat 1 --csv - | grep onednn
fi
test -f "$prefix/share/faltung/workloads/lux_relu.csv"

echo "== the shared library exports the public interface alone"
extra=$(nm -DC --defined-only "$library/libfaltung.so" | grep -E ' [TDB] ' | grep -vE \
  ' (faltung_[a-z_]+|faltung::(Engine|MemoryPool|Plan|Problem)::.*|faltung::(adopt|bytes|devices|name|parse_problem|to_string|validate|version)\b.*)$' || true)
if [ -n "$extra" ]; then
  echo "exported by accident: $extra" >&2
  exit 1
fi
