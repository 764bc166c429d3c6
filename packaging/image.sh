#!/usr/bin/env bash
# Makes the container image of the program in BIN without a daemon: the tree of its files, the image `annulet` as an
# archive, and the compose file of three nodes.
#
# Usage: image.sh BIN OUT VERSION; SOURCE_DATE_EPOCH is the time of all files.
#
# The image has the program, the shared libraries that it names, their licences, and nothing else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$1 out=$(mkdir -p "$2/image" && cd "$2" && pwd) version=$3
: "${SOURCE_DATE_EPOCH:?the time of the files}"
export LC_ALL=C
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
root=$work/root
USER_ID=10001           # of the Containerfile, too
STORAGE=(--storage-driver vfs --root "$out/storage" --runroot "$work/run")

install -D -m 755 "$bin/annulet" "$root/usr/bin/annulet"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/annulet"

# The libraries at the paths where the program's loader looks for them, and the licence of each.
ldd "$bin/annulet" | grep -o '/[^ ]*' | while read -r library; do
  file=$(readlink -f "$library")
  install -D -m 755 "$file" "$root$library"
  # Packages may have the file under /lib, which is a link to /usr/lib.
  package=$( (dpkg -S "$file" || dpkg -S "${file#/usr}") 2>/dev/null | cut -d: -f1)
  install -D -m 644 "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
done
install -D -m 644 "${NOTICES:?the licences of the libraries}" "$root/usr/share/doc/annulet/NOTICES"
install -D -m 644 "$here/../LICENSE" "$root/usr/share/doc/annulet/LICENSE"

# Names of hosts are looked up in the file, then by the resolver.
install -d "$root/etc"
echo 'hosts: files dns' > "$root/etc/nsswitch.conf"
echo "annulet:x:$USER_ID:$USER_ID::/var/lib/annulet:/nonexistent" > "$root/etc/passwd"
echo "annulet:x:$USER_ID:" > "$root/etc/group"

fixed=(--sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner --format=gnu)
tar "${fixed[@]}" --owner=0 --group=0 -C "$root" -cf "$out/image/root.tar" .
# The folders that the node writes are its user's.
install -d -m 750 "$work/data/var/lib/annulet" "$work/data/certs"
tar "${fixed[@]}" --owner=$USER_ID --group=$USER_ID -C "$work/data" -cf "$out/image/data.tar" var/lib/annulet certs
cp "$here/container/Containerfile" "$out/image/Containerfile"
sed "s/@VERSION@/$version/" "$here/container/compose.yaml" > "$out/compose.yaml"

rm -rf "$out/storage"
buildah "${STORAGE[@]}" bud --isolation chroot --format docker --timestamp "$SOURCE_DATE_EPOCH" \
  --tag "annulet:$version" "$out/image"
rm -f "$out/annulet-image.tar"
buildah "${STORAGE[@]}" push "annulet:$version" "docker-archive:$out/annulet-image.tar:annulet:$version"
rm -rf "$out/storage"
