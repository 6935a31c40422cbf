#!/bin/sh
# Slurm's Prolog for Sluice: leaves the plugin a file about the job. If the node service does not run on this node, the
# prolog also starts the controller of the job's user. Arguments go to `sluice controller`. SLUICE_NODE_DIR is the folder
# of the node service, as for programs. Always exits with 0: a prolog that fails drains the node.
#
# Below /run/sluice/slurm, for the plugin and the epilog:
#   job.ID           three lines: the uid, the number of the device of /dev/shm, and the folder of the node service or
#                    nothing; the GPUs, separated by commas; nothing, `refused REASON` or `fault REASON`
#   controller.UID   the pid of that user's controller; controller.UID.log has what it says

PATH=/usr/sbin:/usr/bin:/sbin:/bin
umask 022
state=/run/sluice/slurm
sluice=$(dirname "$(readlink -f "$0")")/../../bin/sluice
uid=$SLURM_JOB_UID
gpus=${SLURM_JOB_GPUS:-}

# Programs believe only a service of root, in a folder that is no link. A socket without a process counts too: the service manager starts the service
# again, and the programs attach then.
node=${SLUICE_NODE_DIR-/run/sluice}
[ -n "$node" ] && [ -S "$node/node.sock" ] && [ -O "$node" ] && [ ! -L "$node" ] || node=

# `refused` and why, if this job would share a GPU with the job of this file, of $other_uid, on the board $other_node.
why_not_with() {
  if [ "$other_node" != "$node" ]; then
    echo "refused GPU $1 is shared with job $2 (uid $other_uid), and only one of the two jobs uses the node service;" \
      "run after that job"
  elif [ -z "$node" ] && [ "$other_uid" != "$uid" ]; then
    echo "refused GPU $1 is shared with job $2 of another user (uid $other_uid), and Sluice gates the programs of one" \
      "user only without the node service; take a GPU that no other user has, or run after that job"
  fi
}

# The first job on one of this job's GPUs that has another board.
find_other_board() {
  for file in "$state"/job.*; do
    [ -e "$file" ] || continue
    { read -r other_uid _ other_node && read -r other_gpus; } <"$file"
    for gpu in $(echo "$gpus" | tr , ' '); do
      case ",$other_gpus," in *",$gpu,"*)
        said=$(why_not_with "$gpu" "${file##*.}")
        [ -z "$said" ] || { echo "$said" && return; }
        ;;
      esac
    done
  done
}

controller_runs() {
  pid=$(cat "$state/controller.$uid" 2>/dev/null) && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sluice-controll ] &&
    [ "$(stat -c %u "/proc/$pid")" = "$uid" ]
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
  said=$(find_other_board)
  [ -n "$said" ] || [ -n "$node" ] || said=$(start_controller "$@")
fi
printf '%s %s %s\n%s\n%s\n' "$uid" "$(stat -c %d /dev/shm)" "$node" "$gpus" "$said" >"$state/job.$SLURM_JOB_ID"
exit 0
