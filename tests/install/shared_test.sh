#!/usr/bin/env bash
# Builds the library once more, as a shared one, and runs the install test on that.
# Usage: shared_test.sh SOURCE_DIR SCRATCH_DIR CXX CC
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source=$1 scratch=$2 cxx=$3 cc=$4

mkdir -p "$scratch"
cmake -S "$source" -B "$scratch/build" -G Ninja -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_UNITY_BUILD=ON -DBUILD_SHARED_LIBS=ON -DHEADGATE_TESTS=OFF -DHEADGATE_ENGINE=OFF -DHEADGATE_CLI=OFF \
  >"$scratch/configure.log"
cmake --build "$scratch/build"
exec "$here/install_test.sh" "$scratch/build" "$scratch/installed" "$cxx" "$cc" shared
