#!/bin/bash
# The first process of one machine, in namespaces of its own: it makes the machine's root from the shared one and stays.
# $1 name, $2 run state, $3 shared root; further words are folders of this machine that are there too, at their places
set -euo pipefail
name=$1 state=$2 lower=$3
shift 3
here=$state/machines/$name
hostname "$name"
mkdir -p "$here/upper" "$here/work" "$here/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$here/upper,workdir=$here/work" "$here/root"
cd "$here/root"
mount -t proc proc proc
mount --bind /sys sys
mount -t tmpfs tmpfs sys/fs/cgroup
for place in /sys/fs/cgroup/*/mpijob-slurm; do
  if [ -d "$place" ]; then
    kind=$(basename "$(dirname "$place")")
    mkdir "sys/fs/cgroup/$kind" && mount -t cgroup -o "$kind" cgroup "sys/fs/cgroup/$kind"
  fi
done
mount -t tmpfs -o mode=755,size=1m tmpfs dev
for one in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 nvidia0:1:3 nvidia1:1:3; do
  IFS=: read -r file major minor <<<"$one"
  mknod -m 666 "dev/$file" c "$major" "$minor" # the GPUs are /dev/null by another name: Slurm wants device files
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs -o mode=1777,size=1g tmpfs dev/shm
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for one in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${one%:*}" "dev/${one#*:}"; done
mount -t tmpfs -o mode=1777,size=2g tmpfs tmp
mount -t tmpfs -o mode=755,size=64m tmpfs run
mkdir -m 755 run/munge run/sshd run/slurm run/mysqld run/bed
mkdir -p "$state/spool/$name"
bound() { mkdir -p ".$2" && mount --bind "$1" ".$2"; }
bound "$state/spool/$name" /var/spool/slurm
bound "$state/log" /var/log/slurm
bound "$state/control" /run/bed
for folder; do bound "$folder" "$folder" && mount -o remount,bind,ro ".$folder"; done
if [ "$name" = laptop ]; then
  mkdir -p "$here/home"
  bound "$here/home" /home
else
  bound "$state/home" /home
  bound "$state/etc/slurm" /etc/slurm
fi
cp "$state/etc/hosts" etc/hosts
: >etc/resolv.conf
install -m 400 "$state/etc/munge.key" run/munge-key
mkdir .before
pivot_root . .before
umount -l /.before
rmdir /.before
trap '' TERM INT HUP
touch /run/ready
exec </dev/null >/dev/null 2>&1
while :; do sleep 3600 & wait $! || :; done # bash reaps what loses its parent
