#!/usr/bin/env bash
# A SLURM cluster of two nodes on this machine, for as long as a command runs in it.
#
#     tests/launch/slurm_cluster.sh FOLDER COMMAND [ARGUMENT ...]
#
# As root, with Debian's slurmctld, slurmd, slurm-client and munge. All that it writes lies in FOLDER,
# all that it starts ends with it. The partitions `low` and `high` have both nodes; jobs of `high`
# take them from those of `low`, which are queued again.

set -euo pipefail

if (($# < 2)); then
    echo "usage: slurm_cluster.sh FOLDER COMMAND [ARGUMENT ...]" >&2
    exit 2
fi
PATH+=:/usr/sbin:/sbin
mkdir -p "$1"
folder=$(realpath "$1")
shift
mkdir -p "$folder"/{state,spool}
host=$(hostname -s)
socket=$folder/munge.socket
port=$((20000 + RANDOM % 10000))
export SLURM_CONF=$folder/slurm.conf

cat >"$SLURM_CONF" <<CONF
ClusterName=private
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmctldPidFile=$folder/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdSpoolDir=$folder/spool/%n
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmdLogFile=$folder/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=2,bf_interval=2
ReturnToService=2
MpiDefault=none
# From SIGTERM to SIGKILL.
KillWait=60
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=2
NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=2
PartitionName=low Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
CONF

daemons=()
finish() {
    trap '' TERM INT
    scancel --quiet --signal=KILL --user=root 2>/dev/null || true
    scancel --quiet --user=root 2>/dev/null || true
    for ((tries = 0; tries < 30; tries++)); do
        [[ $(squeue --noheader 2>/dev/null) ]] || break
        sleep 0.5
    done
    kill "${daemons[@]}" 2>/dev/null || true
    wait
}
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

(umask 077 && head -c 1024 /dev/urandom >"$folder/munge.key")
munged --foreground --force --socket="$socket" --key-file="$folder/munge.key" \
    --log-file="$folder/munged.log" --pid-file="$folder/munged.pid" \
    --seed-file="$folder/munge.seed" 2>"$folder/munged.err" &
daemons+=($!)
until [[ -S $socket ]]; do sleep 0.1; done
slurmctld -D -f "$SLURM_CONF" >/dev/null 2>&1 &
daemons+=($!)
for node in n1 n2; do
    slurmd -D -N "$node" -f "$SLURM_CONF" >/dev/null 2>&1 &
    daemons+=($!)
done

for ((tries = 0; tries < 60; tries++)); do
    if [[ $(sinfo --noheader --states=idle --format=%D --partition=low 2>/dev/null) -eq 2 ]]; then
        break
    fi
    sleep 1
done
if ((tries == 60)); then
    echo "slurm_cluster.sh: no two idle nodes after a minute; see the logs in $folder" >&2
    exit 1
fi
# In the background, so that a signal is heard at once.
"$@" &
wait $!
