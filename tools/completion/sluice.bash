# Completion of `sluice` for bash. Commands and options are those that --help prints, so nothing is listed twice.

_sluice_commands() {
  sluice --help 2>/dev/null | sed -n '/^Examples/q; s/^  \([a-z][a-z_-]*\)  *[a-z].*/\1/p'
}

_sluice_options() {
  sluice "$1" --help 2>/dev/null | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr ',' '\n' | sed -n 's/^\(--[a-z0-9-]*\).*/\1/p'
}

_sluice_clients() {
  sluice status --json 2>/dev/null | sed -n 's/^      "name": "\([^"]*\)",$/\1/p'
}

_sluice() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} place words=""
  for ((place = 2; place < COMP_CWORD; place++)); do
    if [[ ${COMP_WORDS[place]} == -- ]]; then # what follows is a command of the user
      mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
      return
    fi
  done
  if ((COMP_CWORD == 1)); then
    words=$(_sluice_commands)
  elif [[ $word == -* ]]; then
    words=$(_sluice_options "$command")
  elif [[ $command == set ]] && ((COMP_CWORD == 2)); then
    words=$(_sluice_clients)
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o filenames -F _sluice sluice
