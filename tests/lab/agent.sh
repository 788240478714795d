#!/usr/bin/env bash
# agent.sh HOST COMMAND...: what a remote shell is elsewhere: runs a command on a host of the lab.
set -euo pipefail
host=$1
shift
exec ip netns exec "$host" unshare --uts bash -c "hostname $host; $*"
