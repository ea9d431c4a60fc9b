#!/usr/bin/env bash
# Runs a command that trains, and starts it again when it dies or is stuck.
#
#     launch/supervise.sh WORKDIR COMMAND [ARGUMENT ...]
#
# WORKDIR is the one that COMMAND trains into. README.md says which exit statuses start it again,
# what counts as progress and as stuck. SIGTERM, SIGINT and SIGHUP are handed on to COMMAND, which
# saves, and end it all.

set -uo pipefail
# Each job in a process group of its own, so that all of it can be ended, and with SIGINT unblocked.
set -m

: "${LOG:=transduce.log}"          # what COMMAND writes is added to it, and what this script says
: "${STUCK_SECONDS:=1800}"         # without a sign of life: stuck; 0: never
: "${STEADY_SECONDS:=1800}"        # into a cloud, a run that lasted so long has made progress
: "${GRACE_SECONDS:=180}"          # from SIGTERM to SIGKILL
: "${RESTARTS:=5}"                 # in a row without progress, after the death of the command
: "${FAILURES:=2}"                 # the same, after status 1 and others that are no signal's
: "${BACKOFF_SECONDS:=10}"         # before the first restart, twice as long before each other one
: "${LONGEST_BACKOFF_SECONDS:=300}"

if (($# < 2)); then
    echo "usage: supervise.sh WORKDIR COMMAND [ARGUMENT ...]" >&2
    exit 2
fi
workdir=$1
shift
case $workdir in
    *://*) remote=yes heartbeat=$LOG ;;
    *) remote='' heartbeat=$workdir/metrics.jsonl ;;
esac

asked='' # the signal that asked this script for the end
pid=''   # of the command, while it runs

say() {
    echo "supervise: $(date '+%F %T') $*" >>"$LOG"
}

# The number of the newest checkpoint; 0 where there is none, or none that can be seen from here.
newest() {
    local path name number=0
    for path in "$workdir"/checkpoints/*; do
        name=${path##*/}
        if [[ $name =~ ^[0-9]+$ ]] && ((10#$name > number)); then
            number=$((10#$name))
        fi
    done
    echo "$number"
}

size() {
    if [[ -e $1 ]]; then
        wc -c <"$1"
    else
        echo 0
    fi
}

# A sleep that a signal ends, and the end of the command if it runs.
doze() {
    local nap
    sleep "$1" &
    nap=$!
    {
        wait -n "$nap" ${pid:+"$pid"}
        kill "$nap"
        wait "$nap"
    } 2>/dev/null # where the shell says which of its jobs a signal ended
}

hand_on() {
    asked=$1
    if [[ $pid ]]; then
        say "SIG$1 is handed on"
        kill -s "$1" "$pid" 2>/dev/null
        deadline=$((SECONDS + GRACE_SECONDS))
    fi
}
trap 'hand_on TERM' TERM HUP
trap 'hand_on INT' INT

# Runs the command to its end. Sets `status`, and `stuck` to what made it look so.
run() {
    local before now quiet
    stuck='' deadline=''
    before=$(size "$heartbeat") quiet=$SECONDS
    "$@" </dev/null >>"$LOG" 2>&1 &
    pid=$!
    if [[ $asked ]]; then
        hand_on "$asked" # it came while the command was being started
    fi
    while kill -0 "$pid" 2>/dev/null; do
        doze 1
        now=$(size "$heartbeat")
        if [[ $now != "$before" ]]; then
            before=$now quiet=$SECONDS
        elif ((STUCK_SECONDS && SECONDS - quiet >= STUCK_SECONDS)) && [[ ! $deadline ]]; then
            stuck="nothing new in $heartbeat for $STUCK_SECONDS s"
            say "$stuck: SIGTERM"
            kill -s TERM "$pid" 2>/dev/null
            deadline=$((SECONDS + GRACE_SECONDS))
        fi
        if [[ $deadline ]] && ((SECONDS >= deadline)); then
            say "still there $GRACE_SECONDS s after SIGTERM: SIGKILL"
            kill -s KILL -- "-$pid" 2>/dev/null
            deadline=$((SECONDS + GRACE_SECONDS))
        fi
    done
    wait "$pid" 2>/dev/null
    status=$?
    # What it started may hold memory of the accelerators.
    kill -s KILL -- "-$pid" 2>/dev/null
    pid=''
}

again=0 # restarts in a row without progress
while true; do
    saved=$(newest) began=$SECONDS
    say "starts: $*"
    run "$@"
    say "ended with status $status${stuck:+; it was stuck}"
    if [[ $asked ]]; then
        exit "$status"
    fi
    case $status in
        0 | 2 | 126 | 127 | 130 | 141) exit "$status" ;;
        75 | 134 | 137 | 139 | 143) limit=$RESTARTS ;;
        *) limit=$FAILURES ;;
    esac
    if (($(newest) > saved)); then
        again=0
    elif [[ $remote && ! $stuck ]] && ((SECONDS - began >= STEADY_SECONDS)); then
        again=0
    fi
    if ((again >= limit)); then
        ((limit == 0)) || say "gives up after $again restarts without progress"
        exit "$status"
    fi
    delay=$((BACKOFF_SECONDS << (again < 10 ? again : 10)))
    delay=$((delay < LONGEST_BACKOFF_SECONDS ? delay : LONGEST_BACKOFF_SECONDS))
    again=$((again + 1))
    say "again in $delay s (restart $again of $limit without progress)"
    doze "$delay"
    if [[ $asked ]]; then
        exit 75
    fi
done
