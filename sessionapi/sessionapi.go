// Package sessionapi is the session API: it creates sandboxes, hands calls on
// to the daemon in them, and mints the URLs under which the edge shows their
// ports. It keeps no state in memory, so any replica serves any sandbox.
package sessionapi
