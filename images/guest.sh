#!/bin/sh
# What every guest image has, run while it is built: the guest's user
# cubeplex, uid and gid 1000, who owns /home/cubeplex and /workspace.
set -eu

uid=1000 name=cubeplex
# Ubuntu's image gives the number to a user of its own.
other=$(getent passwd $uid | cut -d: -f1)
case $other in
'' | "$name") ;;
*) userdel --remove "$other" 2>/dev/null ;;
esac
getent group $uid >/dev/null || groupadd --gid $uid $name
getent passwd $uid >/dev/null || useradd --uid $uid --gid $uid --create-home --shell /bin/bash $name
install -d -o $uid -g $uid -m 0755 /workspace
