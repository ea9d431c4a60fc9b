#!/usr/bin/env bash
# Trains on all GPUs of one host, and goes on after a crash, a hang or a reboot.
#
#     launch/gpu_host.sh [--dry-run] install|run|unit
#
#     install   what the GPUs need, into .venv
#     run       trains under supervise.sh until the run is at its end
#     unit      prints a systemd unit that does so from now on and after every boot
#
# Set these, here or in the environment; CUDA_VISIBLE_DEVICES chooses among the GPUs.

set -euo pipefail

: "${EXPERIMENT:=experiments/wmt14_ende_base.py}"
: "${WORKDIR:=runs/$(basename "$EXPERIMENT" .py)}"
: "${OPTIONS:=}" # of transduce train, such as --mesh.fsdp=8
: "${LOG:=}"     # of the run; by default WORKDIR.log

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=launch/commands.sh
source launch/commands.sh

if [[ ${1-} == --dry-run ]]; then
    dry_run=yes
    shift
fi
case $WORKDIR in
    *://*) : "${LOG:=transduce.log}" ;;
    *) : "${LOG:=$WORKDIR.log}" ;;
esac
read -ra options <<<"$OPTIONS"

case ${1-} in
    install)
        carry_out make .venv/.ready
        carry_out .venv/bin/python -m pip install -c constraints.txt -e '.[cuda]'
        ;;
    run)
        carry_out mkdir -p "$(dirname "$LOG")"
        become env "LOG=$LOG" launch/supervise.sh "$WORKDIR" \
            .venv/bin/transduce train "$EXPERIMENT" --workdir "$WORKDIR" "${options[@]}"
        ;;
    unit)
        environment=("EXPERIMENT=$EXPERIMENT" "WORKDIR=$WORKDIR" "OPTIONS=$OPTIONS" "LOG=$LOG")
        for name in CUDA_VISIBLE_DEVICES TRANSDUCE_DATA TRANSDUCE_CACHE STUCK_SECONDS GRACE_SECONDS \
            RESTARTS FAILURES; do
            [[ -z ${!name-} ]] || environment+=("$name=${!name}")
        done
        cat <<UNIT
[Unit]
Description=transduce train $EXPERIMENT
Wants=network-online.target
After=network-online.target

[Service]
User=$(id -un)
WorkingDirectory=$PWD
Environment=$(printf '"%s" ' "${environment[@]}")
ExecStart=$PWD/launch/gpu_host.sh run
# The supervisor alone is asked to stop, and has time to let the run save.
KillMode=mixed
TimeoutStopSec=240
SuccessExitStatus=75
# The supervisor starts the run again; systemd starts the supervisor again.
Restart=on-abnormal

[Install]
WantedBy=multi-user.target
UNIT
        ;;
    *)
        echo "usage: gpu_host.sh [--dry-run] install|run|unit" >&2
        exit 2
        ;;
esac
