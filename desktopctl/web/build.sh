#!/bin/sh
# Builds the viewer's and the terminal's page into OUTDIR/viewer and
# OUTDIR/terminal: one page, one script and one style each.
#
#   desktopctl/web/build.sh OUTDIR
#
# noVNC comes from Debian's package novnc (or NOVNC_DIR), xterm.js from
# node-xterm and libjs-xterm (or XTERM_DIR, an unpacked npm package of any
# version since 3).
set -eu

[ $# -eq 1 ] || { echo "usage: $0 OUTDIR" >&2; exit 2; }
src=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1/viewer" "$1/terminal"
out=$(cd "$1" && pwd)
cd "$src/../.." # the module that pins esbuild

fail() { echo "$0: $*" >&2; exit 1; }

# first prints the first of its arguments that is a file.
first() {
	for f; do
		[ -f "$f" ] && { echo "$f"; return; }
	done
	return 1
}

novnc=${NOVNC_DIR:-/usr/share/novnc}
[ -f "$novnc/core/rfb.js" ] || fail "no noVNC in $novnc: install the package novnc, or set NOVNC_DIR"

xterm=${XTERM_DIR:-/usr/share/nodejs/xterm}
xterm_js=$(first "$xterm/lib/public/Terminal.js" "$xterm/lib/xterm.js") ||
	fail "no xterm.js in $xterm: install the package node-xterm, or set XTERM_DIR"
xterm_css=$(first "$xterm/css/xterm.css" "$xterm/dist/xterm.css" /usr/share/javascript/xterm/xterm.css) ||
	fail "no xterm.css: install the package libjs-xterm, or set XTERM_DIR"

esbuild() { go tool esbuild --bundle --minify --target=es2020 --legal-comments=eof --log-level=warning "$@"; }

# A classic script works in any frame. noVNC since 1.6 awaits at its top level,
# which only a module may.
viewer() {
	esbuild "$src/viewer/viewer.js" --alias:novnc="$novnc" --outfile="$out/viewer/viewer.js" \
		--banner:js='/*! Contains noVNC, https://novnc.com, under the MPL 2.0. */' "$@"
}
if grep -rqE '^[[:alpha:]].*\bawait\b' "$novnc/core"; then
	viewer --format=esm --target=es2022
	sed 's|<script src="viewer.js" defer>|<script src="viewer.js" type="module">|' "$src/viewer/index.html" >"$out/viewer/index.html"
else
	viewer --format=iife
	cp "$src/viewer/index.html" "$out/viewer/index.html"
fi
esbuild "$src/viewer/viewer.css" --outfile="$out/viewer/viewer.css"

esbuild "$src/terminal/terminal.js" --format=iife --alias:xterm="$xterm_js" --outfile="$out/terminal/terminal.js" \
	--banner:js='/*! Contains xterm.js, https://xtermjs.org, under the MIT licence. */'
esbuild "$src/terminal/terminal.css" --alias:xterm.css="$xterm_css" --outfile="$out/terminal/terminal.css"
cp "$src/terminal/index.html" "$out/terminal/index.html"
