# shellcheck shell=bash
# Sourced by setup.sh and build.sh: how a long step shows that it lives, and how many compilers a machine can bear.

readonly plain_line_every_seconds=${PLAIN_LINE_EVERY_SECONDS:-20}
readonly kilobytes_per_compiler=2000000 # A source that includes torch takes 1.8 GB to compile.

# follow WHAT DESCRIBE LOG COMMAND...: runs COMMAND with its output in LOG. Meanwhile one line says WHAT, what the function
# DESCRIBE makes of LOG, and the time: kept up to date on a terminal, anew every 20 seconds elsewhere. Returns COMMAND's status.
follow() {
  local what=$1 describe=$2 log=$3 child status=0 started=$SECONDS shown_at=$SECONDS text
  shift 3
  "$@" >"$log" 2>&1 </dev/null &
  child=$!
  # The shell starts a background command deaf to Ctrl-C: it is told here.
  trap 'kill -TERM '"$child"' 2>/dev/null || sudo -n kill -TERM '"$child"' 2>/dev/null; wait '"$child"' 2>/dev/null; printf "\n%s: interrupted\n" "'"$what"'" >&2; exit 130' INT TERM
  while [ -e "/proc/$child" ]; do # Of sudo, which is root, an ordinary account may not ask by a signal.
    sleep 0.5
    if [ -t 1 ]; then
      text="$what: $("$describe" "$log"), $((SECONDS - started)) s"
      printf '\r\033[K%.*s' "$(($(tput cols 2>/dev/null || echo 80) - 1))" "$text"
    elif [ $((SECONDS - shown_at)) -ge "$plain_line_every_seconds" ]; then
      shown_at=$SECONDS
      printf '%s: %s, %d s\n' "$what" "$("$describe" "$log")" "$((SECONDS - started))"
    fi
  done
  [ ! -t 1 ] || printf '\r\033[K'
  wait "$child" || status=$?
  trap - INT TERM
  return "$status"
}

# The last line of a log, for `follow`.
last_line() { tail -n 1 "$1" 2>/dev/null | tr -d '\r' | cut -c1-100; }

# Compiled of all, from ninja's log, for `follow`.
ninja_steps() {
  local steps
  steps=$(grep -o '^\[[0-9]*/[0-9]*\]' "$1" 2>/dev/null | tail -n 1) || steps='[...]'
  printf '%s' "$steps"
}

# Kilobytes that new processes may take: the machine's, or what the container's limit leaves.
available_kilobytes() {
  local available limit used
  available=$(awk '/^MemAvailable:/ {print $2}' "${PROC_MEMINFO:-/proc/meminfo}")
  if limit=$(cat "${CGROUP:-/sys/fs/cgroup}/memory.max" 2>/dev/null) && [ "$limit" != max ]; then
    used=$(cat "${CGROUP:-/sys/fs/cgroup}/memory.current" 2>/dev/null || echo 0)
    limit=$(((limit - used) / 1024))
    [ "$limit" -ge "$available" ] || available=$limit
  fi
  printf '%s' "$available"
}

# $JOBS, else as many compilers as there are cores and memory for, at least one.
count_jobs() {
  local cores fit
  if [ -n "${JOBS:-}" ]; then
    printf '%s' "$JOBS"
    return
  fi
  cores=$(nproc)
  fit=$(($(available_kilobytes) / kilobytes_per_compiler))
  [ "$fit" -ge 1 ] || fit=1
  printf '%s' "$((fit < cores ? fit : cores))"
}
