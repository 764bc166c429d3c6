#!/usr/bin/env bash
# The unit under a real systemd, in a container of systemd-nspawn: start, watchdog, upgrade, removal.
#
# Usage: systemd.sh OUT VERSION, with the packages of two versions: VERSION and VERSION+next
# Needs root, debootstrap and systemd-nspawn. ANNULET_SYSTEMD_ROOT names a folder with a minimal Debian with systemd to
# copy; without it debootstrap makes one from the sources of this machine.
set -euo pipefail
out=$(cd "$1" && pwd) version=$2
arch=$(dpkg --print-architecture)
BOOT_MAX=240            # seconds until a container that hangs is ended
work=$(mktemp -d)
root=$work/root
trap 'rm -rf "$work"' EXIT

if [[ -n ${ANNULET_SYSTEMD_ROOT:-} ]]; then
  cp -a "$ANNULET_SYSTEMD_ROOT" "$root"
else
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | sed -n 1p)
  debootstrap --variant=minbase --include=adduser,debconf,systemd,systemd-sysv,dbus bookworm "$root" "$mirror" \
    > "$work/debootstrap.log"
fi
cp "$out/annulet_${version}_$arch.deb" "$root/root/first.deb"
cp "$out/annulet_${version}+next_$arch.deb" "$root/root/next.deb"

# What happens in the container, as root. Its last line is the result.
cat > "$root/root/steps" <<'STEPS'
set -ex
export DEBIAN_FRONTEND=noninteractive
of() { systemctl show --property="$1" --value annulet; }
until_is() { for _ in $(seq 300); do [ "$(of "$1")" = "$2" ] && return; sleep 0.2; done; return 1; }

dpkg --install /root/first.deb
[ "$(of ActiveState)" = inactive ]
# A shorter period, so that the test sees its end.
mkdir -p /run/systemd/system/annulet.service.d
printf '[Service]\nWatchdogSec=8\nRestartSec=1\n' > /run/systemd/system/annulet.service.d/test.conf
systemctl daemon-reload
systemctl enable --now annulet
[ "$(of ActiveState) $(of StatusText)" = "active serves clients" ]
[ "$(of LimitNOFILE)" = 1048576 ]
annulet admin wait-for-service
annulet kv put books dune sand
[ "$(stat -c %a /run/annulet)" = 750 ]

# A process that stands still is killed and started again; one that turns is not.
sleep 20
[ "$(of NRestarts)" = 0 ]
kill -STOP "$(of MainPID)"
until_is NRestarts 1
until_is ActiveState active
[ "$(annulet kv get books dune)" = sand ]

before=$(of MainPID)
dpkg --install /root/next.deb
[ "$(of MainPID)" = "$before" ]
systemctl restart annulet
[ "$(of MainPID)" != "$before" ]
dpkg --remove annulet
[ -e /var/lib/annulet/shard-000 ]
! pidof annulet
echo "1 passed, 0 failed"
STEPS
cat > "$root/etc/systemd/system/steps.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/bin/sh /root/steps
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=file:/root/log
StandardError=inherit
TimeoutStartSec=200
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../steps.service "$root/etc/systemd/system/multi-user.target.wants/steps.service"
timeout "$BOOT_MAX" \
  systemd-nspawn --quiet --register=no --keep-unit --directory="$root" --boot > "$work/console" 2>&1 ||
  { tail -20 "$work/console"; tail -40 "$root/root/log"; exit 1; }
tail -1 "$root/root/log" | grep -q passed || { tail -40 "$root/root/log"; exit 1; }
tail -1 "$root/root/log"
