#!/usr/bin/env bash
# Installs a build into an empty place and uses it from an outside project: with find_package, and with pkg-config and a
# plain compiler call.
# Usage: install_test.sh BUILD_DIR SCRATCH_DIR CXX CC static|shared
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$1 scratch=$2 cxx=$3 cc=$4 kind=$5
prefix=$scratch/prefix
expected="3 of 5, then 1"

expect() {  # WHAT EXPECTED ACTUAL
  if [[ $3 != "$2" ]]; then
    echo "$1: expected \"$2\", got \"$3\"" >&2
    exit 1
  fi
  echo "$1: $3"
}
expect_file() {
  if [[ ! -e $1 ]]; then
    echo "not installed: $1" >&2
    find "$prefix" >&2
    exit 1
  fi
}

rm -rf "$scratch"
mkdir -p "$scratch"
cmake --install "$build" --prefix "$prefix" >"$scratch/install.log"
libdir=$(dirname "$(find "$prefix" -name 'libheadgate.*' -print -quit)")
expect_file "$prefix/include/headgate/limiter.h"
expect_file "$libdir/cmake/headgate/headgateConfig.cmake"
expect_file "$libdir/pkgconfig/headgate.pc"
if [[ $kind == shared ]]; then
  soname=$(objdump -p "$libdir/libheadgate.so" | awk '$1 == "SONAME" {print $2}')
  expect_file "$libdir/$soname"
  if [[ ! $soname =~ ^libheadgate\.so\.[0-9]+\.[0-9]+$ ]]; then
    echo "unexpected soname: $soname" >&2
    exit 1
  fi
  export LD_LIBRARY_PATH=$libdir
else
  expect_file "$libdir/libheadgate.a"
fi
# Headers that belong to the library's insides must stay inside.
expect "headers outside include/headgate" "" "$(find "$prefix/include" -type f -not -path '*/include/headgate/*')"
if grep -rlE 'headgate_flags|-Werror' "$libdir/cmake" "$libdir/pkgconfig"; then
  echo "the flags of our own build leak into the package" >&2
  exit 1
fi

cmake -S "$here/consumer" -B "$scratch/consumer" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_PREFIX_PATH="$prefix" \
  >"$scratch/consumer.log"
cmake --build "$scratch/consumer" >>"$scratch/consumer.log"
expect "find_package" "$expected" "$("$scratch/consumer/consumer")"

export PKG_CONFIG_PATH=$libdir/pkgconfig
for static in "" --static; do
  # shellcheck disable=SC2046,SC2086
  "$cxx" -std=c++20 "$here/consumer/consumer.cc" -o "$scratch/with-pkg-config" \
    $(pkg-config --cflags --libs $static headgate)
  expect "pkg-config $static" "$expected" "$("$scratch/with-pkg-config")"
  # shellcheck disable=SC2046,SC2086
  "$cc" -std=c11 "$here/consumer/consumer.c" -o "$scratch/from-c" $(pkg-config --cflags --libs $static headgate)
  expect "pkg-config $static, from C" "$expected" "$("$scratch/from-c")"
done

if [[ -x $prefix/bin/headgate ]]; then
  for made in man/man1/headgate.1 bash-completion/completions/headgate zsh/site-functions/_headgate \
    fish/vendor_completions.d/headgate.fish headgate/headgate.yaml; do
    expect_file "$prefix/share/$made"
    expect "lines of $made" yes "$([[ $(wc -l <"$prefix/share/$made") -gt 50 ]] && echo yes || echo no)"
  done
  expect_file "$prefix/share/headgate/headgate.service"
  version=$("$prefix/bin/headgate" --version)
  expect "headgate --version says the package's version" yes \
    "$([[ $version == *"$(pkg-config --modversion headgate)"* ]] && echo yes || echo "$version")"
fi
