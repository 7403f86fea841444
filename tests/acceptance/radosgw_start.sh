#!/bin/bash
# radosgw_start.sh DIR PORT  - one-node Ceph object gateway on 127.0.0.1:PORT; all state, logs and pids in DIR.
# Packages (Debian 12, 16.2.15+ds-0+deb12u2): radosgw ceph-mon ceph-osd  (--no-install-recommends).  No mgr, no systemd, cephx off.
# Ports used: PORT (S3), PORT+1 (mon msgr2), PORT+10..PORT+40 (osd).  Data lives in RAM (memstore); DIR only holds mon db and logs.
# Env: S3_ACCESS_KEY S3_SECRET_KEY S3_MEM_BYTES.   Prints ENDPOINT=/ACCESS_KEY=/SECRET_KEY= lines (also DIR/env) when ready.
set -euo pipefail
[ $# = 2 ] || { echo "usage: $0 DIR PORT" >&2; exit 2; }
mkdir -p "$1"; D=$(cd "$1" && pwd); PORT=$2; MON=$((PORT+1))
AK=${S3_ACCESS_KEY:-testaccesskey}; SK=${S3_SECRET_KEY:-testsecretkey}; MEM=${S3_MEM_BYTES:-8589934592}
export CEPH_CONF=$D/ceph.conf; unset CEPH_ARGS
mine() { { tr '\0' '\n' < "/proc/$1/environ" | grep -qxF "CEPH_CONF=$D/ceph.conf"; } 2>/dev/null; }   # false for a zombie too
for p in mon osd rgw; do
  if [ -s "$D/$p.pid" ] && mine "$(cat "$D/$p.pid")"; then echo "already running: $D/$p.pid" >&2; exit 1; fi; done
for q in $PORT $MON; do if (exec 3<>"/dev/tcp/127.0.0.1/$q") 2>/dev/null; then echo "port $q in use" >&2; exit 1; fi; done
rm -rf "$D"/{mon,osd,rgw,run,log,monmap,env} "$D"/*.pid; mkdir -p "$D"/{mon,osd,rgw,run,log}
FSID=$(cat /proc/sys/kernel/random/uuid); OSDU=$(cat /proc/sys/kernel/random/uuid)
cat > "$D/ceph.conf" <<C
[global]
fsid = $FSID
mon host = v2:127.0.0.1:$MON
public addr = 127.0.0.1
cluster addr = 127.0.0.1
public network = 127.0.0.0/8
ms bind ipv6 = false
ms bind msgr1 = false
ms bind port min = $((PORT+10))
ms bind port max = $((PORT+40))
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc secure
run dir = $D/run
admin socket = $D/run/\$name.asok
log file = $D/log/\$name.log
mon cluster log file = $D/log/cluster.log
log to syslog = false
log to stderr = false
crash dir = $D/log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pgp num = 4
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon max pg per osd = 1000
mon allow pool delete = true
paxos propose interval = 0.05
rados mon op timeout = 60
rados osd op timeout = 60
[mon]
mon data = $D/mon
mon warn on pool no redundancy = false
mon data avail warn = 2
mon data avail crit = 1
[osd]
osd data = $D/osd
osd objectstore = memstore
memstore device bytes = $MEM
osd class update on start = false
osd memory target = 939524096
[client]
rgw data = $D/rgw
rgw frontends = beast endpoint=127.0.0.1:$PORT tcp_nodelay=1
rgw thread pool size = 32
rgw override bucket index max shards = 1
rgw dynamic resharding = false
rgw enable usage log = false
rgw enable ops log = false
rgw enable lc threads = false
rgw enable quota threads = false
rgw gc obj min wait = 5
rgw gc processor period = 10
rgw gc processor max time = 10
C
bg() { local n=$1; shift; setsid "$@" </dev/null >"$D/log/$n.out" 2>&1 & echo $! > "$D/$n.pid"; }   # setsid execs: pid is the daemon's
alive() { kill -0 "$(cat "$D/$1.pid")" 2>/dev/null || { echo "$1 died; see $D/log" >&2; tail -5 "$D/log/$1.out" >&2; "$(dirname "$0")/radosgw_stop.sh" "$D"; exit 1; }; }
fail() { echo "$1" >&2; "$(dirname "$0")/radosgw_stop.sh" "$D"; exit 1; }
monmaptool --create --fsid "$FSID" --addv a "v2:127.0.0.1:$MON" "$D/monmap" >"$D/log/monmap.out" 2>&1
ceph-mon --mkfs -i a --monmap "$D/monmap" >"$D/log/mkfs-mon.out" 2>&1
bg mon ceph-mon -f -i a
timeout 60 ceph osd new "$OSDU" >"$D/log/osdnew.out" 2>&1 || { alive mon; fail "mon not answering"; }
ceph-osd --mkfs -i 0 --osd-uuid "$OSDU" >"$D/log/mkfs-osd.out" 2>&1
bg osd ceph-osd -f -i 0
timeout 60 radosgw-admin user create --uid=test --display-name=test --access-key="$AK" --secret="$SK" >"$D/log/user.out" 2>&1 || { alive osd; fail "user create failed; see $D/log/user.out"; }
bg rgw radosgw -f -n client.rgw
for i in $(seq 600); do
  (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && { ok=1; break; }; alive rgw; sleep 0.1; done
[ "${ok:-}" ] || fail "radosgw not listening"
printf 'ENDPOINT=127.0.0.1:%s\nACCESS_KEY=%s\nSECRET_KEY=%s\n' "$PORT" "$AK" "$SK" | tee "$D/env"
