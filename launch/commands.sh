# shellcheck shell=bash
# For the scripts beside it: a command is carried out, or printed where --dry-run was given.

dry_run=''

# A command as it would be typed.
quoted() {
    local word line=''
    for word in "$@"; do
        [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word=${word@Q}
        line+=${line:+ }$word
    done
    echo "$line"
}

carry_out() {
    if [[ $dry_run ]]; then
        quoted "$@"
    else
        "$@"
    fi
}

# The same, in place of this script, so that signals to it come to the command.
become() {
    if [[ $dry_run ]]; then
        quoted "$@"
    else
        exec "$@"
    fi
}

# Ends the script when one of the named variables is empty.
require() {
    local name missing=''
    for name in "$@"; do
        [[ ${!name} ]] || missing+=" $name"
    done
    if [[ $missing ]]; then
        echo "${0##*/}: not set:$missing" >&2
        exit 2
    fi
}
