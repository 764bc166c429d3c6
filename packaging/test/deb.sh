#!/usr/bin/env bash
# The life of the Debian package in a chroot: installed, started under a supervisor, upgraded while it runs, removed
# with its data kept, purged with and without an answer.
#
# Usage: deb.sh OUT VERSION, with the packages of two versions: VERSION and VERSION+next
# Needs root, debootstrap, lintian and systemd-analyze. ANNULET_CHROOT names a folder with a minimal Debian to copy;
# without it debootstrap makes one from the sources of this machine.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=$(cd "$1" && pwd) version=$2
arch=$(dpkg --print-architecture)
first=annulet_${version}_$arch.deb next=annulet_${version}+next_$arch.deb
debug=annulet-dbgsym_${version}_$arch.deb
work=$(mktemp -d)
root=$work/chroot
node=
cleanup() {
  if [[ -n $node ]]; then kill "$node" 2>/dev/null || true; fi
  wait
  umount "$root/proc" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT

step() { echo "== $*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
inside() { DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$root" "$@"; }

step "a minimal Debian"
if [[ -n ${ANNULET_CHROOT:-} ]]; then
  cp -a "$ANNULET_CHROOT" "$root"
else
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | sed -n 1p)
  debootstrap --variant=minbase --include=adduser,debconf bookworm "$root" "$mirror" > "$work/debootstrap.log"
fi
mount -t proc proc "$root/proc"
cp "$out/$first" "$out/$next" "$root/root/"

step "lintian: no errors"
lintian --fail-on error --suppress-tags no-manual-page "$out/$first" "$out/$debug" > "$work/lintian" ||
  { cat "$work/lintian"; fail "lintian"; }
grep -c '^W:' "$work/lintian" | sed 's/$/ warnings/' || true

step "install"
inside dpkg --install "/root/$first" 2>&1 | tee "$work/install"
grep -q 'systemctl enable --now annulet' "$work/install" || fail "the installation does not say how to start"
[[ $(inside stat -c '%U %G %a' /var/lib/annulet) == "annulet annulet 750" ]] || fail "the data folder"
inside test -z "$(inside pidof annulet || true)" || fail "the node was started by its installation"
inside dpkg-query --show --showformat '${Conffiles}' annulet | grep -q /etc/annulet/annulet.toml || fail "conffile"

step "unit"
# The units that it names are those of this machine, its program is that of the chroot.
sed "s|=/usr/bin/annulet|=$root/usr/bin/annulet|" "$root/lib/systemd/system/annulet.service" > "$work/annulet.service"
systemd-analyze verify --man=no "$work/annulet.service" 2> "$work/verify" || { cat "$work/verify"; fail "verify"; }
[[ ! -s $work/verify ]] || { cat "$work/verify"; fail "the unit has warnings"; }
systemd-analyze security --offline=true --threshold=30 "$root/lib/systemd/system/annulet.service" |
  tail -1 || fail "the unit's exposure is above 3.0"

step "manual pages and completions"
for page in "$root"/usr/share/man/man1/annulet*.1.gz; do
  MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -l "$page" 2>> "$work/man" >/dev/null
done
[[ ! -s $work/man ]] || { head -5 "$work/man"; fail "manual pages have warnings"; }
bash -n "$root/usr/share/bash-completion/completions/annulet"

step "start under a supervisor"
"$here/supervise.py" "$root" "$work/notices" &
node=$!
for _ in $(seq 300); do grep -q READY=1 "$work/notices" 2>/dev/null && break; sleep 0.1; done
grep -q READY=1 "$work/notices" || fail "the node is not ready"
inside annulet kv put books dune sand
[[ $(inside annulet kv get books dune) == sand ]] || fail "a read"
program() { readlink "/proc/$(pgrep --oldest -f '/usr/bin/annulet serve')/exe"; }

step "upgrade while it runs"
before=$(pgrep --oldest -f '/usr/bin/annulet serve')
inside dpkg --install "/root/$next" 2>&1 | tee "$work/upgrade"
grep -q 'goes on with the version before' "$work/upgrade" || fail "the upgrade does not say how to restart"
[[ $(pgrep --oldest -f '/usr/bin/annulet serve') == "$before" ]] || fail "the upgrade restarted the node"
[[ $(program) == *"(deleted)" ]] || fail "the node does not run the program before"
[[ $(inside annulet kv get books dune) == sand ]] || fail "a read during the upgrade"

step "stop"
kill "$node"
wait "$node" || true
node=
grep -q STOPPING=1 "$work/notices" || fail "the supervisor was not told of the stop"

step "remove: the data stays"
echo '# changed by an operator' >> "$root/etc/annulet/annulet.toml"
inside dpkg --remove annulet
[[ -e $root/var/lib/annulet/shard-000 && ! -e $root/usr/bin/annulet ]] || fail "the removal took the data"
grep -q 'changed by an operator' "$root/etc/annulet/annulet.toml" || fail "the removal took the configuration"

step "purge without an answer: the data stays"
inside dpkg --purge annulet 2>&1 | tee "$work/purge"
grep -q 'is kept' "$work/purge" || fail "the purge does not say that it keeps the data"
[[ -e $root/var/lib/annulet/shard-000 && ! -e $root/etc/annulet/annulet.toml ]] || fail "an unattended purge"

step "purge with the answer yes: the data goes"
inside dpkg --install "/root/$first" >/dev/null 2>&1
echo 'annulet annulet/purge-data boolean true' | inside debconf-set-selections
inside dpkg --purge annulet
[[ ! -e $root/var/lib/annulet ]] || fail "the purge kept the data"
inside getent passwd annulet >/dev/null && fail "the user is still there"
echo "1 passed, 0 failed"
