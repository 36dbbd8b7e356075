// Package docker runs sandboxes as containers of a Docker engine, 20.10 or
// newer.
//
// A sandbox is
//
//	cubepod-<id>-<incarnation>      its container
//	cubepod-<id>-workspace          a volume at /workspace
//	cubepod-<id>-home               a volume at /home/cubeplex
//	cubepod-<id>-podd               a volume at /var/lib/podd
//
// all with the label cubepod.sandbox. A stop ends the container's processes and
// keeps the container, so that what was installed in it is there after a resume;
// a container that is gone is made anew from the template's image and the
// volumes. The container's name says which incarnation it runs: it is renamed,
// and gets a new token file, while it is stopped. Whoever finds the container
// finds all there is to know, so any program can go on with any sandbox.
//
// podd and podd-init come from a volume that is mounted read-only into all
// sandboxes and filled once for each version, see guestVolume. Root in a
// sandbox has the few capabilities that podd needs and can get no more.
//
// Sandboxes are on a bridge of their own, on which they cannot reach each other.
// That they reach neither the host nor link-local addresses, where clouds keep
// credentials, is up to the host's firewall, see [Firewall].
package docker
