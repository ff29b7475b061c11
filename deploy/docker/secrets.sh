#!/bin/sh
# The secrets of compose.yaml, each in a file; those that are there already stay as they are.
# Only this user may enter the folder. The files themselves can be read by all: each program runs as a user of its own.
set -eu
folder="${1:-$(dirname "$0")/../secrets}"
umask 022
mkdir -p "$folder"
chmod 700 "$folder"

keep() { # keep NAME VALUE
    [ -s "$folder/$1" ] || printf '%s\n' "$2" >"$folder/$1"
}

password() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

keep postgres_password "$(password)"
keep database_url "postgresql://ett:$(cat "$folder/postgres_password")@postgres:5432/ett"
keep grafana_password "$(password)"
keep pages_url http://127.0.0.1:9/change-me
keep tickets_url http://127.0.0.1:9/change-me
# commands of the service fill these
for name in metrics_token reader_password; do
    [ -e "$folder/$name" ] || : >"$folder/$name"
done
echo "secrets are in $folder: put the addresses that alerts go to into pages_url and tickets_url"
