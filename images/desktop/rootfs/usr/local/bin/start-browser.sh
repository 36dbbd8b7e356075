#!/bin/sh
# Starts the desktop, or what of it is dead, for callers that know this name.
# It ends with 0 only when viewer, terminal and DevTools answer. Both root and
# the guest's user may call it.
exec /opt/cubepod/desktop/cubepod-desktop-ctl start "$@"
