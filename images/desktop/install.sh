#!/bin/sh
# Installs the desktop's packages on Debian or Ubuntu while the image is built.
# It cleans up behind itself: it is one layer of the image.
set -eu
export DEBIAN_FRONTEND=noninteractive
. /etc/os-release

# No manuals; a slim base has these lines already.
cat >/etc/dpkg/dpkg.cfg.d/cubepod <<'DPKG'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
DPKG

install() { apt-get install -y --no-install-recommends "$@"; }

# The last line is for people and agents at the terminal. The fonts: Latin,
# Greek and Cyrillic, Chinese, Japanese and Korean, and emoji.
common='
	xvfb openbox x11vnc
	fonts-dejavu-core fonts-liberation fonts-wqy-microhei fonts-noto-color-emoji
	ca-certificates bash procps less curl xclip'

# Debian 12 and 13 have no ttyd; Debian testing has, and nothing else may come
# from there. A mirror of testing often lags behind the date that its index
# promises.
ttyd_from_testing() {
	site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | head -n 1)
	echo "deb [check-valid-until=no] $site testing main" >/etc/apt/sources.list.d/testing.list
	cat >/etc/apt/preferences.d/testing <<-'PIN'
		Package: *
		Pin: release a=testing
		Pin-Priority: -10

		Package: ttyd
		Pin: release a=testing
		Pin-Priority: 500
	PIN
	apt-get update
	install ttyd
	rm /etc/apt/sources.list.d/testing.list /etc/apt/preferences.d/testing
}

# TigerVNC's x0vncserver knows any character on the clipboard, since 1.14. Its
# package wants all of Perl for a script around it: only the program is taken.
x0vncserver() {
	(cd /tmp && apt-get download tigervnc-scraping-server)
	dpkg-deb --fsys-tarfile /tmp/tigervnc-scraping-server_*.deb | tar -x -C / ./usr/bin/X0tigervnc
	rm /tmp/tigervnc-scraping-server_*.deb
	if ldd /usr/bin/X0tigervnc | grep 'not found'; then
		return 1
	fi
	if X0tigervnc --help 2>&1 | grep -q SendCutText; then
		mkdir -p /etc/cubepod
		echo 'CUBEPOD_VNC=x0vncserver' >/etc/cubepod/desktop.conf
	else
		rm /usr/bin/X0tigervnc
	fi
}

# Playwright's build is a Chrome for Testing, which has its policies elsewhere.
# Playwright refuses Ubuntu 24.04's Node 18, so that one only fetches another.
browser_from_playwright() {
	install nodejs npm
	PLAYWRIGHT_BROWSERS_PATH=/opt/cubepod/browsers npx --yes \
		--package "node-linux-$(node -p process.arch)@24" --package playwright@1 -- \
		playwright install --with-deps --no-shell chromium
	apt-get purge -y nodejs npm
	apt-get autoremove -y --purge
	rm -rf /root/.npm
	mkdir -p /etc/opt/chrome_for_testing
	ln -s ../../chromium/policies /etc/opt/chrome_for_testing/policies
}

apt-get update
# shellcheck disable=SC2086 # a list of words
install $common
case $ID in
ubuntu)
	install ttyd
	browser_from_playwright
	;;
*)
	install chromium
	x0vncserver
	ttyd_from_testing
	;;
esac

# The cache of fonts is good while the folders are as old as it says, and an
# image's layers keep whole seconds only. A browser that finds no good one reads
# every font at its first start.
find /usr/share/fonts -type d -exec touch -d '2000-01-01 UTC' {} +
fc-cache -f

# X refuses to make this as anybody but root.
mkdir -p /tmp/.X11-unix
chmod 1777 /tmp/.X11-unix

# A third of all there is would be Mesa's drivers and their compiler, for a GPU
# that no guest has: Chromium brings a renderer of its own, X does without GLX.
# And Vulkan's layers for people who debug drivers.
lib=/usr/lib/$(uname -m)-linux-gnu
rm -f "$lib"/libLLVM* "$lib"/libgallium* "$lib"/libz3.so* /usr/lib/llvm-*/lib/libLLVM* \
	/usr/lib/chromium/libVkLayer_* /usr/lib/chromium/libVkICD_mock_icd.so

rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb \
	/var/cache/debconf/*-old /var/log/apt /var/log/*.log \
	/usr/share/doc/*/changelog* /usr/share/man /usr/share/info /usr/share/lintian
