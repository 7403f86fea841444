#!/bin/bash
# radosgw_stop.sh DIR - stops exactly the processes started by radosgw_start.sh in DIR (by pid, checked against DIR's config).
[ $# = 1 ] && D=$(cd "$1" && pwd) || { echo "usage: $0 DIR" >&2; exit 2; }
mine() { { tr '\0' '\n' < "/proc/$1/environ" | grep -qxF "CEPH_CONF=$D/ceph.conf"; } 2>/dev/null; }   # false for a zombie too
for n in rgw osd mon; do
  [ -s "$D/$n.pid" ] || continue; p=$(cat "$D/$n.pid")
  if mine "$p"; then
    [ $n = osd ] && kill -KILL "$p" || kill -TERM "$p"      # memstore would dump all data to DIR/osd on a clean exit
    for i in $(seq 100); do mine "$p" || break; [ $i = 50 ] && kill -KILL "$p" 2>/dev/null; sleep 0.1; done
  fi; rm -f "$D/$n.pid"; done
