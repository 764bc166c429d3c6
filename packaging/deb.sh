#!/usr/bin/env bash
# Makes the Debian packages of the programs in BIN: annulet_VERSION_ARCH.deb, and the debug symbols apart.
#
# Usage: deb.sh BIN OUT VERSION; SOURCE_DATE_EPOCH is the time of all files.
#
# The same programs give the same bytes: times, owners, modes and the order of the files are fixed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$1 out=$(mkdir -p "$2" && cd "$2" && pwd) version=$3
: "${SOURCE_DATE_EPOCH:?the time of the files}"
export SOURCE_DATE_EPOCH LC_ALL=C
arch=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# The programs without their debug symbols, which go to files named by the build's number.
programs() {
  local root=$1 debug=$2 program id
  for program in annulet annulet-bench; do
    install -D -m 755 "$bin/$program" "$root/usr/bin/$program"
    id=$(readelf -n "$bin/$program" | sed -n 's/.*Build ID: //p')
    [[ -n $id ]] || { echo "$program has no build id" >&2; return 1; }
    mkdir -p "$debug/usr/lib/debug/.build-id/${id:0:2}"
    objcopy --only-keep-debug --compress-debug-sections "$bin/$program" \
      "$debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
    chmod 644 "$debug/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$root/usr/bin/$program"
    echo "$id" >> "$work/build-ids"
  done
}

# What the programs make of themselves, and the files of this folder.
texts() {
  local root=$1 share=$1/usr/share
  "$bin/annulet" man "$share/man/man1"
  gzip -9n "$share"/man/man1/*.1
  install -d "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
  "$bin/annulet" completions bash > "$share/bash-completion/completions/annulet"
  "$bin/annulet" completions zsh > "$share/zsh/vendor-completions/_annulet"
  "$bin/annulet" completions fish > "$share/fish/vendor_completions.d/annulet.fish"
  install -D -m 644 "$here/annulet.service" "$root/lib/systemd/system/annulet.service"
  install -D -m 644 "$here/annulet.toml" "$root/etc/annulet/annulet.toml"
}

# Copyright, changelogs and the licences of the libraries.
documents() {
  local doc=$1/usr/share/doc/annulet
  install -D -m 644 "$here/debian/copyright" "$doc/copyright"
  printf '%s (%s) unstable; urgency=medium\n\n  * CHANGELOG.gz has the changes for users.\n\n -- %s  %s\n' \
    annulet "$version" "$(sed -n 's/^Maintainer: //p' "$here/debian/control")" \
    "$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")" | gzip -9n > "$doc/changelog.gz"
  gzip -9nc "$here/../CHANGELOG.md" > "$doc/CHANGELOG.gz"
  gzip -9nc "${NOTICES:?the licences of the libraries}" > "$doc/NOTICES.gz"
}

# The control files, with the package's size and what depends on the build.
control() {
  local root=$1 template=$2
  install -d "$root/DEBIAN"
  sed -e "s/@VERSION@/$version/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$(du -sk --apparent-size "$root" | cut -f1)/" \
    -e "s/@BUILD_IDS@/$(paste -sd' ' "$work/build-ids")/" -e "s/@LIBRARIES@/$(libraries)/" \
    "$here/debian/$template" > "$root/DEBIAN/control"
  (cd "$root" && find . -type f -not -path './DEBIAN/*' -printf '%P\n' | sort | xargs md5sum) > "$root/DEBIAN/md5sums"
}

# The packages of the shared libraries that the programs need, with the versions of their symbols.
libraries() {
  mkdir -p "$work/shlibs/debian"
  touch "$work/shlibs/debian/control"
  (cd "$work/shlibs" && dpkg-shlibdeps -O "$bin/annulet" "$bin/annulet-bench" 2>/dev/null) |
    sed 's/^shlibs:Depends=//'
}

# Packs a tree by a form of compression.
pack() {
  find "$1" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb --root-owner-group "-Z$2" --build "$1" "$out" >&2
}

bin=$(cd "$bin" && pwd)
main=$work/annulet debug=$work/annulet-dbgsym
mkdir -p "$main" "$debug"
programs "$main" "$debug"
texts "$main"
documents "$main"
control "$main" control
echo /etc/annulet/annulet.toml > "$main/DEBIAN/conffiles"
install -m 755 "$here"/debian/{config,postinst,prerm,postrm} "$main/DEBIAN"
install -m 644 "$here/debian/templates" "$main/DEBIAN"
pack "$main" xz
mkdir -p "$debug/usr/share/doc"
ln -s annulet "$debug/usr/share/doc/annulet-dbgsym"
control "$debug" control-dbgsym
# The symbols are compressed in their files: a stronger form takes minutes and gains nothing.
pack "$debug" gzip
