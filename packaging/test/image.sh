#!/usr/bin/env bash
# The container image, run without a daemon: its size and its settings, a node in it, and the nodes of the compose file.
#
# Usage: image.sh OUT VERSION
# Needs root, buildah and python3-yaml.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(cd "$1" && pwd) version=$2
SIZE_MAX=$((30 << 20))
work=$(mktemp -d)
buildah=(buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run")
cleanup() {
  "${buildah[@]}" rm --all >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT

step() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }

step "image from its archive"
container=$("${buildah[@]}" from "docker-archive:$out/annulet-image.tar")
tree=$("${buildah[@]}" mount "$container")
size=$(du -sb "$tree" | cut -f1)
echo "$size bytes"
((size <= SIZE_MAX)) || fail "the image is larger than $SIZE_MAX bytes"

step "settings"
settings=$("${buildah[@]}" inspect "$container")
for setting in 10001:10001 SIGTERM wait-for-service /var/lib/annulet; do
  [[ $settings == *"$setting"* ]] || fail "$setting is not in the image's settings"
done
[[ $(stat -c '%u %g %a' "$tree/var/lib/annulet") == "10001 10001 750" ]] || fail "the data folder"
[[ -z $(find "$tree" -perm /6000) ]] || fail "programs of other users"
! readelf -S "$tree/usr/bin/annulet" | grep -q '\.symtab' || fail "the program has its symbols"

step "compose file: three nodes by their names"
"$here/compose.py" "$out/compose.yaml" "$tree"
echo "1 passed, 0 failed"
