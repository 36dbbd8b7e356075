package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

type namedPort struct {
	flag string
	what string
	port int
}

func (c Config) ports() []namedPort {
	return []namedPort{
		{"console-port", "console and API", c.ConsolePort},
		{"panel-port", "panels", c.PanelPort},
		{"console-tls-port", "console and API over HTTPS", c.ConsoleTLS},
		{"panel-tls-port", "panels over HTTPS", c.PanelTLS},
	}
}

// checkPorts reports the first port of the stack that somebody else holds,
// before anything is started.
func checkPorts(c Config) error {
	for _, l := range []struct{ flag, what, addr string }{
		{"api", "session API", c.API},
		{"metrics", "session API's metrics", c.Metrics},
	} {
		if err := checkAddr(l.flag, l.what, l.addr); err != nil {
			return err
		}
	}
	for _, p := range c.ports() {
		if err := checkAddr(p.flag, p.what, net.JoinHostPort("localhost", strconv.Itoa(p.port))); err != nil {
			return err
		}
	}
	return nil
}

func checkAddr(flag, what, addr string) error {
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		_, port, _ := net.SplitHostPort(addr)
		return fmt.Errorf("port %s is in use, but the %s needs it: end what holds it, or choose another with --%s (make run ARGS=\"--%s …\")", port, what, flag, flag)
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", flag, err)
	}
	return l.Close()
}
