#!/usr/bin/env bash
# Trains the demo, shortened, under SLURM twice: undisturbed, and preempted, asked to stop and queued
# again by hand. The runs lie in FOLDER/whole and FOLDER/cut, what they wrote in FOLDER/*.log.
#
#     tests/launch/slurm_cluster.sh CLUSTER tests/launch/slurm_demo.sh FOLDER

set -euo pipefail

mkdir -p "$1"
folder=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# The nodes' names are known to SLURM alone.
port=$((30000 + RANDOM % 2000))
export JAX_PLATFORMS=cpu JAX_COORDINATOR_ADDRESS=127.0.0.1:$port
export TRANSDUCE_CACHE=$folder/cache JAX_COMPILATION_CACHE_DIR=$folder/compiled
# The least that there is to compile.
export JAX_DISABLE_MOST_OPTIMIZATIONS=1
export EXPERIMENT=experiments/phrasebook.py
OPTIONS="--training.steps=150 --training.save-every=1000 --training.log-every=10"
OPTIONS+=" --training.evaluate-every=0 --training.evaluation-sentences=20"
OPTIONS+=" --model.encoder-layers=1 --model.decoder-layers=1 --model.d-model=32 --model.d-ff=64"
OPTIONS+=" --model.heads=2 --model.d-k=16 --model.d-v=16"
OPTIONS+=" --data.rows=8 --data.row-length=32 --model.unroll=1 --search.beam=1"
export OPTIONS

# The job's number, once it is submitted; the options are for a cluster without GPUs.
submit() {
    sbatch --parsable --partition=low --gpus-per-node=0 --cpus-per-task=2 --time=20 \
        --output="$folder/%j.out" launch/slurm.sbatch
}

state() {
    scontrol show job --oneliner "$1" | sed 's/.* JobState=\([A-Z]*\) .*/\1/'
}

going_on() {
    [[ $(state "$1") == @(PENDING|RUNNING|COMPLETING|CONFIGURING) ]]
}

# Until job $1 has recorded update $2 or a later one in WORKDIR.
reached() {
    local step=0
    until ((step >= $2)); do
        if ! going_on "$1"; then
            echo "slurm_demo.sh: job $1 is $(state "$1"); see $folder" >&2
            exit 1
        fi
        sleep 0.2
        if [[ -e $WORKDIR/metrics.jsonl ]]; then
            step=$(sed -n 's/.*"kind": "train", "step": \([0-9]*\),.*/\1/p' \
                "$WORKDIR/metrics.jsonl" | sort -n | tail -n 1)
        fi
    done
    echo "$(date +%T) update $step is recorded"
}

# Until job $1 has ended.
ended() {
    while going_on "$1"; do
        sleep 0.5
    done
    echo "$(date +%T) job $1: $(scontrol show job --oneliner "$1" |
        grep -o 'JobState=[A-Z]*\|Restarts=[0-9]*\|ExitCode=[0-9:]*' | xargs)"
}

echo "$(date +%T) undisturbed"
export WORKDIR=$folder/whole LOG=$folder/whole.log
job=$(submit)
ended "$job"

echo "$(date +%T) cut"
export WORKDIR=$folder/cut LOG=$folder/cut.log
job=$(submit)
reached "$job" 20
echo "$(date +%T) a job of higher priority wants both nodes"
sbatch --parsable --partition=high --nodes=2 --output=/dev/null --wrap='sleep 2' >/dev/null
reached "$job" 60
echo "$(date +%T) SIGTERM to the processes"
scancel --signal=TERM "$job"
reached "$job" 100
echo "$(date +%T) scontrol requeue"
scontrol requeue "$job"
ended "$job"
