# Completion of `sluice` for fish. Commands and options are those that --help prints.
function __sluice_commands
    sluice --help 2>/dev/null | sed -n '/^Examples/q; s/^  \([a-z][a-z_-]*\)  *\([a-z].*\)/\1\t\2/p'
end

function __sluice_options
    set -l words (commandline -opc)
    sluice $words[2] --help 2>/dev/null | sed -n 's/^  \(-[^ ]*\).*/\1/p' | tr ',' '\n' |
        sed -n 's/^\(--[a-z0-9-]*\).*/\1/p'
end

complete -c sluice -n 'test (count (commandline -opc)) -eq 1' -f -a '(__sluice_commands)'
complete -c sluice -n 'test (count (commandline -opc)) -gt 1' -a '(__sluice_options)'
