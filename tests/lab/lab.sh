# shellcheck shell=bash
# Several hosts on this machine: each is a network namespace (h1, h2, ...) with one interface, eth0,
# on one bridge. To be sourced:
#
#   source lab.sh
#   lab_need ip mpirun.openmpi      # else: exit code 77, a skip for ctest
#   lab_enter "$@"                  # from here on in namespaces of this script's own
#   lab_up 2                        # 2 hosts
#   lab_mtu 9000
#   lab_rate 1gbit                  # of every host's interface; none: as fast as the kernel
#   lab_mpirun 1 PROGRAM ARGUMENT...  # one rank per host
#   lab_counter h1 tx_bytes         # what its interface has counted
#
# lab_enter starts the script again as the first process of its own process, network, mount and host
# name namespaces. When it ends, however it does, the kernel ends all that was started in there and
# takes down every host: nothing has a name outside, so that several labs can run at once.
# Root, or a user who may make user namespaces.

lab_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

lab_skip() {
  printf '%s: skipped\n' "$*"
  exit 77
}

lab_need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || lab_skip "the lab needs $tool, which is not installed"
  done
}

# The comment at the head of the script that sources this, as its usage.
lab_usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}

# Returns only inside. Outside: waits, and ends with the exit code of the script inside.
lab_enter() {
  if [[ -n ${LAB_INSIDE-} ]]; then
    unset LAB_INSIDE
    mount -t tmpfs lab /run
    mkdir -p /run/netns /run/tmp
    export TMPDIR=/run/tmp
    return
  fi
  local own=(unshare --mount --net --pid --uts --fork --kill-child --mount-proc)
  [[ $(id -u) == 0 ]] || own+=(--user --map-root-user)
  lab_need unshare setpriv ip tc
  "${own[@]}" mount -t tmpfs lab /run 2>/dev/null ||
    lab_skip "the lab needs root or user namespaces"
  # Dies with this shell, even when that is killed; and with it everything inside.
  LAB_INSIDE=1 setpriv --pdeathsig KILL "${own[@]}" bash "$0" "$@" &
  local inside=$! status=0
  trap 'kill -KILL '"$inside"' 2>/dev/null; exit 130' INT
  trap 'kill -KILL '"$inside"' 2>/dev/null; exit 143' TERM HUP
  wait "$inside" || status=$?
  exit "$status"
}

# lab_up HOSTS
lab_up() {
  local count=$1 i
  lab_hosts=()
  # No router advertisements: the counters show what the ranks send.
  sysctl -qw net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true
  ip link add bridge type bridge
  ip link set bridge up
  echo '127.0.0.1 localhost' >/run/hosts
  for ((i = 1; i <= count; ++i)); do
    ip netns add "h$i"
    ip link add "port$i" type veth peer name eth0 netns "h$i"
    ip link set "port$i" master bridge up
    ip -n "h$i" addr add "10.0.0.$i/24" dev eth0
    ip -n "h$i" link set lo up
    ip -n "h$i" link set eth0 up
    echo "10.0.0.$i h$i" >>/run/hosts
    lab_hosts+=("h$i")
  done
  mount --bind /run/hosts /etc/hosts
}

# lab_mtu BYTES
lab_mtu() {
  local host
  ip link set bridge mtu "$1"
  for host in "${lab_hosts[@]}"; do
    ip link set "port${host#h}" mtu "$1"
    ip -n "$host" link set eth0 mtu "$1"
  done
}

# lab_frames wire|kernel: whether packets leave the hosts as frames of at most one MTU, as on a wire,
# or as the kernel hands them over: up to 64 KiB with one header, which the interface counts so.
lab_frames() {
  local host segments=65535
  [[ $1 == kernel ]] || segments=1
  for host in "${lab_hosts[@]}"; do ip -n "$host" link set eth0 gso_max_segs "$segments"; done
}

# lab_rate RATE [BURST]: RATE as tc writes it, such as 500mbit, or none.
lab_rate() {
  local rate=$1 burst=${2-256kb} host
  for host in "${lab_hosts[@]}"; do
    tc -n "$host" qdisc del dev eth0 root 2>/dev/null || true
    [[ $rate == none ]] ||
      tc -n "$host" qdisc add dev eth0 root tbf rate "$rate" burst "$burst" latency 50ms
  done
}

# Open MPI asks the receiver for each message beyond its eager limit, and with several in flight both
# ways these requests wait behind the data of the other direction: two ranks that send to each other
# then share the rate of one. Without put, and with messages of up to 2 MiB sent at once, both
# directions are used in full.
lab_mpi_settings=(--mca btl_tcp_flags 1 --mca btl_tcp_eager_limit 2097152
  --mca btl_tcp_max_send_size 2097152)

# lab_mpirun RANKS_PER_HOST PROGRAM [ARGUMENT...]
lab_mpirun() {
  local per_host=$1 slots
  shift
  slots=$(printf "%s:$per_host," "${lab_hosts[@]}")
  # Ranks are not bound: each host would give its first rank the same core.
  local command=(mpirun.openmpi --allow-run-as-root --bind-to none
    -n $((per_host * ${#lab_hosts[@]})) --host "${slots%,}"
    --mca plm_rsh_agent "$lab_folder/agent.sh" --mca pml ob1 --mca btl "self,vader,tcp"
    --mca btl_vader_backing_directory /run/tmp
    --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0
    "${lab_mpi_settings[@]}" "$@")
  "$lab_folder/agent.sh" "${lab_hosts[0]}" "exec$(printf ' %q' "${command[@]}")"
}

# lab_counter HOST tx_bytes|rx_bytes|tx_packets|...
lab_counter() { ip netns exec "$1" cat "/sys/class/net/eth0/statistics/$2"; }
