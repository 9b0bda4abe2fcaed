#!/bin/sh
# Takes ten turns on the key `ledger`; start it several times at once.
# take-turns.sh LEDGER, with the servers in TICKETING_SERVERS.
set -eu

for turn in 1 2 3 4 5 6 7 8 9 10; do
    ticketing lock ledger -- sh -eu -c '
        ledger=$1
        [ -e "$ledger" ] || touch "$ledger"
        last=$(tail -n 1 "$ledger")
        set -- ${last:-0 0}
        if [ "$TICKETING_TOKEN" -le "$2" ]; then
            echo "token $TICKETING_TOKEN is out of date: the ledger has seen $2" >&2
            exit 1
        fi
        echo "$(($1 + 1)) $TICKETING_TOKEN shell" >> "$ledger"
    ' sh "$1"
done
