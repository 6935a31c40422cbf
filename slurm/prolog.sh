#!/bin/sh
# Slurm's Prolog for Sluice: starts the controller of the job's user on this node, and leaves the plugin a file about
# the job. Arguments go to `sluice controller`. Always exits with 0: a prolog that fails drains the node.
#
# Below /run/sluice/slurm, for the plugin and the epilog:
#   job.ID           three lines: the uid, and the number of the device of /dev/shm; the GPUs, separated by commas;
#                    nothing, `refused REASON` or `fault REASON`
#   controller.UID   the pid of that user's controller; controller.UID.log has what it says

PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
state=/run/sluice/slurm
sluice=$(dirname "$(readlink -f "$0")")/../../bin/sluice
uid=$SLURM_JOB_UID
gpus=${SLURM_JOB_GPUS:-}

# The first job of another user on one of this job's GPUs.
find_other_user() {
  for file in "$state"/job.*; do
    [ -e "$file" ] || continue
    { read -r other_uid _ && read -r other_gpus; } <"$file"
    [ "$other_uid" != "$uid" ] || continue
    for gpu in $(echo "$gpus" | tr , ' '); do
      case ",$other_gpus," in *",$gpu,"*)
        echo "refused GPU $gpu is shared with job ${file##*.} of another user (uid $other_uid), and Sluice gates the" \
          "programs of one user only; take a GPU that no other user has, or run after that job"
        return
        ;;
      esac
    done
  done
}

controller_runs() {
  pid=$(cat "$state/controller.$uid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sluice-controll ]
}

# Starts the controller, if there is none, and waits until clients can attach. Prints a fault.
start_controller() {
  controller_runs && return
  log=$state/controller.$uid.log
  # In a session of its own and without the lock: it outlives this script.
  setsid setpriv --reuid="$uid" --regid="$(id -g "$uid")" --init-groups \
    env -i "$sluice" controller "$@" </dev/null >/dev/null 2>"$log" 9>&- &
  pid=$!
  for _ in $(seq 100); do
    if grep -q '^sluice controller ready' "$log"; then
      echo "$pid" >"$state/controller.$uid"
      return
    fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.05
  done
  kill "$pid" 2>/dev/null
  echo "fault no controller: $(tail -n 1 "$log")"
}

mkdir -p "$state"
exec 9>"$state/lock"
flock 9
said=
if [ -n "$gpus" ]; then
  said=$(find_other_user)
  [ -n "$said" ] || said=$(start_controller "$@")
fi
printf '%s %s\n%s\n%s\n' "$uid" "$(stat -c %d /dev/shm)" "$gpus" "$said" >"$state/job.$SLURM_JOB_ID"
exit 0
