#!/bin/bash
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=8 --cpus-per-task=64 --time=24:00:00
# A build on the nodes of a Slurm job, the words of glit build behind it:
#   sbatch docs/deploy/slurm.sh /shared/photos -o /shared/dataset -r flism
# If the time limit ends the job, submit it again: it goes on with what is done.
set -eu
export RAY_AUTH_MODE=disabled
head=$SLURMD_NODENAME
port=${RAY_PORT:-6379}
ray_on() { srun --nodes="$1" --ntasks="$1" "${@:2}" --num-cpus "$SLURM_CPUS_PER_TASK" --block; }
ray_on 1 -w "$head" ray start --head --port "$port" &
until ray health-check --address "$head:$port" 2>/dev/null; do sleep 1; done
if [ "$SLURM_NNODES" -gt 1 ]; then
    ray_on $((SLURM_NNODES - 1)) --exclude="$head" ray start --address "$head:$port" &
fi
glit build "$@" --ray-address "$head:$port" --quiet
