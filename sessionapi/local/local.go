// Package local runs sandboxes on this machine with bubblewrap. It is the
// default of "make run" and it is for DEVELOPMENT ONLY.
//
// What it does not give: a sandbox shares the host's kernel, sees the host's
// /usr (read-only), and its root is the host's root without most capabilities.
// There is no limit on CPU, memory or disk. It keeps a careless agent away from
// your files, not a determined attacker; for other people's code use the docker
// or kubernetes runtime with a sandboxed container runtime.
//
// What it does give: own mounts, processes, IPC, host name and network. The
// host's /home, /root and /var, its secrets in /etc, the data directory, and
// the host's loopback are out of reach. Everybody else the host can reach, a
// sandbox can reach too: outward traffic goes through pasta (Debian's and
// Ubuntu's package passt). Without pasta a sandbox is offline.
//
// A sandbox is this chain of processes, started as root and without a user
// namespace, so that uid 1000 in it is uid 1000 and podd can become it:
//
//	pasta ── bwrap ── bwrap (init) ── podd ── commands
//
// pasta makes the network and an outer PID namespace whose init is the first
// bwrap; that one makes the inner PID namespace and all mounts. Each dies with
// its parent, so the sandbox is gone when any of the first three is. Offline,
// unshare takes pasta's place. Nothing of it is a child in need of the program
// that started it: sandboxes outlive this process and are found again by
// another.
//
// # Files
//
//	<data>/sockets/<id>-<incarnation>/podd.sock   where podd listens; the guest
//	                                              has no way to this directory
//	<data>/sandboxes/<id>/run.json                see state
//	<data>/sandboxes/<id>/log                     what pasta, bwrap and podd said
//	<data>/sandboxes/<id>/{workspace,home,podd}   what survives a stop
//	<data>/sandboxes/<id>/{run,etc}               made new at each start
package local
