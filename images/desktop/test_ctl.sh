#!/bin/bash
# Checks the supervisor inside its image, as root of a fresh container. It
# prints a line for each check and ends with 1 if one has failed.
set -u

ctl=/opt/cubepod/desktop/cubepod-desktop-ctl
run=/run/cubepod/desktop
profile=/home/cubeplex/.config/chromium
failed=0

check() { # what command…
	local what=$1
	shift
	if "$@"; then
		echo "ok   $what"
	else
		echo "FAIL $what"
		failed=1
	fi
}
quietly() { "$@" >/dev/null 2>&1; }
as_guest() { setpriv --reuid=1000 --regid=1000 --clear-groups -- "$@"; }
field() { sed -n "s/.*\"$1\":\"\\{0,1\\}\\([^\",}]*\\).*/\\1/p"; } # key: the value of a string or number
pids() { sed -n 's/.*"pids":{\([^}]*\)}.*/\1/p'; }
one_line() { [ "$(wc -l)" = 1 ]; }
status_is() { [ "$($ctl status | field status)" = "$1" ]; }
owned() { [ "$(stat -c %u "$1")" = "$2" ]; }
processes() { pgrep -c -x 'Xvfb|openbox|chromium|x11vnc|X0tigervnc|ttyd|cubepod-desktop' || :; }

check "podd is not part of the image" test ! -e /opt/cubepod/bin
check "the guest's user" test "$(id cubeplex)" = "uid=1000(cubeplex) gid=1000(cubeplex) groups=1000(cubeplex)"
check "the guest owns its folders" owned /workspace 1000
check "no suid program of ours" test -z "$(find /opt/cubepod /usr/local -perm /6000)"
for lang in zh-cn zh-tw ja ko und-zsye; do
	check "a font for $lang" test -n "$(fc-list ":lang=$lang")"
done
check "fonts are in the cache that the browser finds" as_guest sh -c 'FC_DEBUG=16 fc-list 2>&1 | grep -q "cache scan" && exit 1; exit 0'
check "no manuals" test -z "$(find /usr/share/man /usr/share/info -type f 2>/dev/null | head -n 1)"

check "nothing runs at first" test "$(processes)" = 0
check "status of nothing" status_is stopped
check "status is one line" eval "$ctl status | one_line"

first=$($ctl start 2>/tmp/start.log) || cat /tmp/start.log
check "start by root" test "$(echo "$first" | field status)" = running
check "start is one line" eval "echo '$first' | one_line"
check "all runs as the guest" test -z "$(ps -eo uid=,comm= | awk '$1 != 1000 && $2 ~ /^(Xvfb|openbox|chromium|x11vnc|X0tigervnc|ttyd|cubepod-desktop)$/')"
check "the run directory is the guest's" owned $run 1000
check "the profile is the guest's" owned $profile 1000
check "a second start changes no pid" test "$(as_guest $ctl start 2>/dev/null | pids)" = "$(echo "$first" | pids)"
check "start-browser.sh by root" quietly start-browser.sh
check "start-browser.sh by the guest" quietly as_guest start-browser.sh
check "screenshot" quietly as_guest $ctl screenshot /tmp/screen.png
for url in 'http://127.0.0.1:8080/?usr=u&pwd=p&embed=1' 'http://127.0.0.1:8080/vnc.html?autoconnect=true&resize=scale' \
	http://127.0.0.1:7681/ http://127.0.0.1:9222/json/version; do
	check "$url" curl -fsS -o /dev/null "$url"
	check "$url for no stranger's page" test "$(curl -s -o /dev/null -w '%{http_code}' -H 'Origin: https://evil.example' "$url")" = 403
	check "$url for no name that leads here" test "$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: evil.example' "$url")" = 403
done
# A caller that brings its own terminal up, as root and for the guest, finds
# ours; start-stop-daemon needs CAP_SYS_PTRACE for that, as a sandbox has it.
their_ttyd() {
	start-stop-daemon --start --oknodo --background --make-pidfile --pidfile /tmp/ttyd.pid --exec /usr/bin/ttyd -- \
		--port 7681 --writable setpriv --reuid=1000 --regid=1000 --clear-groups -- bash
}
before=$(pgrep -x ttyd)
check "another's start of ttyd is content" quietly their_ttyd
check "and starts none" test "$(pgrep -x ttyd) $(cat /tmp/ttyd.pid)" = "$before $before"
check "the VNC server is the image's choice" quietly pgrep -x X0tigervnc
check "stop" test "$($ctl stop 2>/dev/null | field status)" = stopped
check "stop once more" test "$($ctl stop 2>/dev/null | field status)" = stopped
check "nothing is left" test "$(processes)" = 0

# And the other way round: theirs was first, and is root's.
quietly their_ttyd
curl -fsS --retry 100 --retry-delay 1 --retry-connrefused -o /dev/null http://127.0.0.1:7681/ 2>/dev/null
theirs=$(cat /tmp/ttyd.pid)
for by in root guest; do
	as=
	[ $by = root ] || as=as_guest
	started=$($as $ctl start 2>/tmp/start.log)
	check "start by $by beside another's ttyd" test "$(echo "$started" | field status) $(echo "$started" | field ttyd)" = "running $theirs" || echo "$started"
	check "status of it" test "$($as $ctl status | field status)" = running
	$as $ctl stop >/dev/null 2>&1
	check "stop by $by leaves it alone" kill -0 "$theirs"
done
kill "$theirs"
rm /tmp/ttyd.pid

# What a caller may set.
as_guest env CUBEPOD_PROFILE_DIR=/workspace/.profile CUBEPOD_RESOLUTION=1280x900x24 start-browser.sh >/tmp/set.json 2>/dev/null
check "another size of the screen" test "$(field resolution </tmp/set.json)" = 1280x900x24
check "a profile elsewhere" test -d /workspace/.profile/Default
$ctl stop >/dev/null 2>&1

# What a dead stack, here or on another host, leaves behind.
for owner in elsewhere-32 "$(hostname)-$$"; do
	for name in SingletonLock SingletonCookie SingletonSocket; do
		as_guest ln -sfn "$owner" $profile/$name
	done
	printf '%10d\n' $$ >/tmp/.X99-lock
	chown 1000:1000 /tmp/.X99-lock
	printf '9223\n/devtools/browser/none\n' >$profile/DevToolsActivePort
	chown 1000:1000 $profile/DevToolsActivePort
	check "start over the locks of $owner" test "$(as_guest $ctl start 2>/dev/null | field status)" = running
	$ctl stop >/dev/null 2>&1
done

for i in $(seq 20); do
	as_guest $ctl start >/tmp/start.$i 2>/dev/null &
done
wait
check "twenty starts at once all say running" test "$(cat /tmp/start.* | field status | sort | uniq -c | tr -s ' ')" = " 20 running"
check "and name the same processes" test "$(cat /tmp/start.[0-9]* | pids | sort -u | wc -l)" = 1
check "of which there is one each" test "$(pgrep -c -x Xvfb)" = 1
$ctl stop >/dev/null 2>&1

exit $failed
