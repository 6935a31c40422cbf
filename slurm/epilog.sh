#!/bin/sh
# Slurm's Epilog for Sluice: ends the controller of the job's user with the user's last job on this node. Always exits
# with 0: an epilog that fails drains the node. See the prolog for the files.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
state=/run/sluice/slurm
uid=$SLURM_JOB_UID

[ -e "$state/lock" ] || exit 0
exec 9>"$state/lock"
flock 9
# The third word is the folder of the node service.
read -r _ _ node <"$state/job.$SLURM_JOB_ID" && [ -n "$node" ] && rm -f "$node/ceilings/job_$SLURM_JOB_ID"
rm -f "$state/job.$SLURM_JOB_ID"
for file in "$state"/job.*; do
  [ -e "$file" ] && read -r other _ <"$file" && [ "$other" = "$uid" ] && exit 0
done
# If that controller has ended, its pid may be that of another user's.
pid=$(cat "$state/controller.$uid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sluice-controll ] &&
  [ "$(stat -c %u "/proc/$pid")" = "$uid" ] && kill "$pid"
rm -f "$state/controller.$uid" "$state/controller.$uid.log"
exit 0
