#!/bin/bash
# Run a command on the first of several machines that share one file system: node-a, node-b, … Each is a network, a host
# name and an ssh server of its own, in namespaces that end with the command.
#   NODES=2                how many
#   ON_A, ON_B='commands'  what is broken there before anything starts (B stands for all but the first)
#   SSHD='options'         of the ssh servers; SSHD=off starts none
#   SSH='lines'            of the client's configuration, besides the key
#   LATER='commands'       run on node-b some seconds after the start
set -u
if [ -z "${INSIDE_NODES:-}" ]; then
  exec env INSIDE_NODES=1 unshare --net --uts --mount --pid --fork --kill-child --mount-proc "$0" "$@"
fi
count=${NODES:-2}
mkdir -p /run/sshd
here=$(mktemp -d -p /run) place=$PWD
mkdir -p "$here/ssh" "$here/etc" "$here/place"
mount --bind "$place" "$here/place"  # a /tmp of their own: launchers stumble over the folders of earlier runs
mount -t tmpfs none /tmp && chmod 1777 /tmp
mkdir -p "$place" && mount --bind "$here/place" "$place" && cd "$place" || exit 97
ssh-keygen -q -t ed25519 -N '' -f "$here/ssh/id_ed25519"
ssh-keygen -q -t ed25519 -N '' -f "$here/host_key"
cp "$here/ssh/id_ed25519.pub" "$here/ssh/authorized_keys"
printf 'Host *\n%bLogLevel ERROR\nStrictHostKeyChecking no\nConnectTimeout 4\n' "${SSH:+$SSH\\n}" > "$here/ssh/config"
chmod 600 "$here/ssh/"*
printf '127.0.0.1 localhost\n' > "$here/etc/hosts"
names=(a b c d)
for i in $(seq 0 $((count - 1))); do printf '10.90.0.%d node-%s\n' $((i + 1)) "${names[$i]}" >> "$here/etc/hosts"; done
mkdir -p /root/.ssh
mount --bind "$here/ssh" /root/.ssh
mount --bind "$here/etc/hosts" /etc/hosts
printf 'HostKey %s\nPidFile none\nUsePAM no\nPermitRootLogin yes\nStrictModes no\nLogLevel QUIET\nPermitUserEnvironment yes\n' \
  "$here/host_key" > "$here/sshd_config"
hostname node-a
ip link set lo up
ip link add bridge type bridge && ip link set bridge up && ip addr add 10.90.0.1/24 dev bridge
serve() { [ "${SSHD:-}" = off ] || /usr/sbin/sshd -f "$here/sshd_config" ${SSHD:-} -p 22; }
export -f serve; export here SSHD
for i in $(seq 1 $((count - 1))); do
  name=${names[$i]}
  ip link add "v$name" type veth peer name "w$name"
  unshare --net --uts --mount bash -c "echo \$\$ > '$here/pid-$name'; while [ ! -e '$here/go-$name' ]; do sleep 0.05; done
    hostname node-$name; ip link set lo up; ip link set w$name name eth0; ip addr add 10.90.0.$((i + 1))/24 dev eth0; ip link set eth0 up
    eval \"\${ON_B:-}\"; serve; touch '$here/up-$name'; exec sleep infinity" &
  disown $!  # its end is no news
  while [ ! -s "$here/pid-$name" ]; do sleep 0.05; done
  ip link set "w$name" netns "$(cat "$here/pid-$name")"
  ip link set "v$name" master bridge && ip link set "v$name" up
  touch "$here/go-$name"
done
for i in $(seq 1 $((count - 1))); do while [ ! -e "$here/up-${names[$i]}" ]; do sleep 0.05; done; done
serve
eval "${ON_A:-}"
if [ -n "${LATER:-}" ]; then
  (sleep "${AFTER:-3}"; nsenter -t "$(cat "$here/pid-b")" -n -u -m bash -c "$LATER") > /dev/null 2>&1 &
fi
"$@"
code=$?
umount "$place" "$here/place" 2> /dev/null
rm -rf "$here/ssh" "$here/etc" "$here/"[gpu]?-* "$here/"*key* "$here/sshd_config" "$here/place"
rmdir "$here" 2> /dev/null
exit $code
