package server

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/procfs"
)

// listPorts gives the TCP sockets that listen and who listens.
func (s *Server) listPorts(w http.ResponseWriter, _ *http.Request) error {
	listeners, err := procfs.Listeners()
	if err != nil {
		return err
	}
	owners := owners(listeners)
	ports := make([]poddapi.ListeningPort, 0, len(listeners))
	for _, l := range listeners {
		p := poddapi.ListeningPort{Port: int(l.Addr.Port()), Address: l.Addr.Addr().String(), Family: "ipv4"}
		if l.Addr.Addr().Is6() {
			p.Family = "ipv6"
		}
		if o, ok := owners[l.Inode]; ok {
			p.PID, p.Command = o.PID, o.Comm
		}
		ports = append(ports, p)
	}
	return s.reply(w, poddapi.Ports{Ports: ports})
}

// owners finds for each listener the first process that holds its socket.
func owners(listeners []procfs.Listener) map[uint64]procfs.Process {
	found := map[uint64]procfs.Process{}
	wanted := map[uint64]bool{}
	for _, l := range listeners {
		wanted[l.Inode] = true
	}
	all, _ := procfs.All() // without processes the ports are still true
	for _, p := range all {
		if p.Zombie() {
			continue
		}
		inodes, _ := procfs.Sockets(p.PID)
		for _, inode := range inodes {
			if _, ok := found[inode]; wanted[inode] && !ok {
				found[inode] = p
			}
		}
	}
	return found
}

// tunnel carries a port's bytes; see package tunnel.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) error {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return apierror.New(apierror.Invalid, "invalid_port", "%q is no TCP port", r.PathValue("port"))
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "tcp") || !hasToken(r.Header.Values("Connection"), "upgrade") {
		return apierror.New(apierror.Invalid, "upgrade_required", "a tunnel wants Connection: Upgrade and Upgrade: tcp")
	}
	return s.tunnels.Serve(w, r, int(port))
}

func hasToken(values []string, token string) bool {
	for _, v := range values {
		for item := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(item), token) {
				return true
			}
		}
	}
	return false
}
