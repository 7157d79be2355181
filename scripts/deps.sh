#!/bin/sh
# Installs the Debian packages that the demo and the tests use, if they are missing.
# Their services must not start: a policy-rc.d that says no is put in place for the time of the installation.
set -eu
want="gcc libc6-dev iproute2 iputils-ping iperf3 tcpdump ethtool openssl openvswitch-switch openvswitch-common dpdk-dev python3-openvswitch python3-scapy python3-venv"
missing=""
for p in $want; do
    dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
    echo "missing packages:$missing" >&2
    echo "run as root, or: sudo apt-get install$missing" >&2
    exit 1
fi
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT INT TERM
fi
echo "installing:$missing"
apt-get update -q
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
