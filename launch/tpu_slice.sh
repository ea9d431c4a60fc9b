#!/usr/bin/env bash
# Trains on a Cloud TPU slice that is asked for as a queued resource, and goes on after preemptions.
#
#     launch/tpu_slice.sh [--dry-run] VERB
#
#     keep      all of the below: trains to the end, on a new slice after each preemption
#     create    asks for the slice
#     wait      returns when it is there
#     install   copies what is committed in this repository to every worker, and installs it
#     start     starts the run on every worker, under supervise.sh
#     status    the state of the request, and of the run on every worker
#     log       the newest lines of the first worker's log, and those that come
#     stop      asks the run to save and to end
#     delete    gives the slice back
#
# Set these, here or in the environment.

set -euo pipefail

: "${PROJECT:=}"                 # of Google Cloud
: "${ZONE:=}"                    # one that has the accelerator, such as us-west4-a
: "${WORKDIR:=}"                 # gs://BUCKET/FOLDER
: "${EXPERIMENT:=experiments/wmt14_ende_base.py}"
: "${OPTIONS:=}"                 # of transduce train, such as --mesh.fsdp=16
: "${DATA:=}"                    # gs:// folder that becomes $TRANSDUCE_DATA on every worker, if any
: "${NAME:=transduce}"           # of the request and of the slice
: "${ACCELERATOR:=v5litepod-16}" # v5p-32, v6e-16, ...
: "${RUNTIME:=}"                 # its software; by default the one for ACCELERATOR
: "${TIER:=spot}"                # or on-demand, reserved
: "${VALID_FOR:=}"               # such as 12h: gives up when there is no slice by then
: "${SERVICE_ACCOUNT:=}"         # that may write to WORKDIR; by default the project's
: "${POLL_SECONDS:=60}"
: "${ATTEMPTS:=10}"              # to start the run or to reach it, in a row, before keep gives up
: "${STUCK_SECONDS:=1800}"       # see supervise.sh

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/commands.sh
source launch/commands.sh

if [[ ${1-} == --dry-run ]]; then
    dry_run=yes
    shift
fi
verb=${1-}
case $verb in
    keep | create | wait | install | start | status | log | stop | delete) ;;
    *)
        sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
        exit 2
        ;;
esac
require PROJECT ZONE WORKDIR
if [[ $WORKDIR != gs://* ]]; then
    echo "tpu_slice.sh: WORKDIR is $WORKDIR: it must be gs://BUCKET/FOLDER, which outlives slices" >&2
    exit 2
fi
case $ACCELERATOR in
    v5litepod-*) : "${RUNTIME:=v2-alpha-tpuv5-lite}" ;;
    v5p-*) : "${RUNTIME:=v2-alpha-tpuv5}" ;;
    v6e-*) : "${RUNTIME:=v2-alpha-tpuv6e}" ;;
    *) : "${RUNTIME:=tpu-ubuntu2204-base}" ;;
esac
case $TIER in
    spot) tier=(--spot) ;;
    reserved) tier=(--reserved) ;;
    on-demand) tier=() ;;
    *)
        echo "tpu_slice.sh: TIER is $TIER: it must be spot, on-demand or reserved" >&2
        exit 2
        ;;
esac
place=(--project="$PROJECT" --zone="$ZONE")
read -ra options <<<"$OPTIONS"
number_of_worker=http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number
train=(.venv/bin/transduce train "$EXPERIMENT" --workdir "$WORKDIR" "${options[@]}")

say() {
    echo "tpu_slice.sh: $(date '+%F %T') $*" >&2
}

# A command on the workers in $1, as their shells read it.
remotely() {
    carry_out gcloud compute tpus tpu-vm ssh "$NAME" "${place[@]}" --quiet --worker="$1" \
        --command="$2"
}

# Of the request: ACTIVE, WAITING_FOR_RESOURCES, SUSPENDED, ...; empty: there is none.
state() {
    carry_out gcloud compute tpus queued-resources list "${place[@]}" \
        --filter="name~/$NAME\$" --format='value(state.state)'
}

create() {
    carry_out gcloud compute tpus queued-resources create "$NAME" --node-id="$NAME" "${place[@]}" \
        --accelerator-type="$ACCELERATOR" --runtime-version="$RUNTIME" "${tier[@]}" \
        ${VALID_FOR:+--valid-until-duration="$VALID_FOR"} \
        ${SERVICE_ACCOUNT:+--service-account="$SERVICE_ACCOUNT"} \
        --scopes=https://www.googleapis.com/auth/cloud-platform
}

wait_for() {
    local now
    while true; do
        if [[ $dry_run ]]; then
            state
            return
        fi
        now=$(state) || now=unknown
        say "the request is ${now:-gone}"
        case $now in
            ACTIVE) return ;;
            '' | FAILED | SUSPENDING | SUSPENDED | DELETING) return 1 ;;
        esac
        sleep "$POLL_SECONDS"
    done
}

install() {
    local archive
    archive=${TMPDIR:-/tmp}/transduce-$NAME.tar.gz
    carry_out git archive --format=tar.gz --output="$archive" HEAD
    carry_out gcloud compute tpus tpu-vm scp "$archive" "$NAME:transduce.tar.gz" "${place[@]}" \
        --quiet --worker=all
    carry_out rm "$archive"
    # The machines' own Python is too old; uv brings one.
    remotely all 'set -e; rm -rf transduce; mkdir transduce; '\
'tar -xzf transduce.tar.gz -C transduce; cd transduce; python3 -m pip install --quiet --user uv; '\
'~/.local/bin/uv venv --quiet --python=3.12; '\
'~/.local/bin/uv pip install --quiet --constraints=constraints.txt --editable=".[tpu]" gcsfs'
    if [[ $DATA ]]; then
        remotely all "mkdir -p data && gcloud storage rsync --recursive ${DATA@Q} data"
    fi
}

start() {
    # A service, so that a worker that shuts down asks its run to save. Only the first worker's log
    # grows: on the others nothing is taken for stuck, and they end when the first one does.
    remotely all "sudo systemctl stop transduce 2>/dev/null; \
sudo systemctl reset-failed transduce 2>/dev/null; \
number=\$(curl --silent --fail --header Metadata-Flavor:Google $number_of_worker) || exit; \
if [ \$number = 0 ]; then stuck=$STUCK_SECONDS; else stuck=0; fi; \
sudo systemd-run --unit=transduce --remain-after-exit --uid=\$(id -u) \
--working-directory=\$HOME/transduce --setenv=TRANSDUCE_DATA=\$HOME/data \
--setenv=STUCK_SECONDS=\$stuck --property=KillMode=mixed --property=TimeoutStopSec=240 \
\$HOME/transduce/launch/supervise.sh $(quoted "$WORKDIR" "${train[@]}")"
}

# Of the run: dead (a worker has none), failed (for good, on one), running, or exited: it is at its
# end on all of them.
outcome() {
    local states
    states=$(remotely all 'systemctl show transduce --property=SubState --value') || return
    if [[ $dry_run ]]; then
        echo "$states"
        return
    fi
    for state in dead failed running exited; do
        if grep -qx "$state" <<<"$states"; then
            echo "$state"
            return
        fi
    done
    return 1
}

# What the run said last; on a worker that is going away there is nothing to be had.
last_lines() {
    remotely 0 'tail -n 100 transduce/transduce.log' || say "no log to be had"
}

delete() {
    carry_out gcloud compute tpus queued-resources delete "$NAME" "${place[@]}" --force --quiet
}

keep() {
    local now run troubles=0
    while true; do
        if ((troubles >= ATTEMPTS)); then
            say "gives up after $troubles attempts in a row"
            last_lines
            delete
            return 1
        fi
        now=$(state) || now=unknown
        say "the request is ${now:-not made}"
        case $now in
            '') create ;;
            FAILED | SUSPENDED) delete ;;
            ACTIVE)
                run=$(outcome) || run=unknown
                say "the run is $run"
                troubles=$((troubles + 1))
                case $run in
                    running) troubles=0 ;;
                    dead)
                        # In processes of their own, where the first fault ends each. It may be a
                        # preemption.
                        if ! { launch/tpu_slice.sh install && launch/tpu_slice.sh start; }; then
                            say "could not be started"
                        fi
                        ;;
                    exited | failed)
                        last_lines
                        delete
                        [[ $run == exited ]]
                        return
                        ;;
                esac
                ;;
        esac
        sleep "$POLL_SECONDS"
    done
}

case $verb in
    create) create ;;
    wait) wait_for ;;
    install) install ;;
    start) start ;;
    status)
        state
        remotely all 'systemctl show transduce --property=SubState --value; '\
'tail -n 2 transduce/transduce.log'
        ;;
    log) remotely 0 'tail -n 20 -F transduce/transduce.log' ;;
    stop) remotely all 'sudo systemctl stop transduce' ;;
    delete) delete ;;
    keep)
        if [[ $dry_run ]]; then
            # What it does with a slice that is never preempted.
            state && create && state && outcome && install && start && outcome && last_lines &&
                delete
        else
            keep
        fi
        ;;
esac
