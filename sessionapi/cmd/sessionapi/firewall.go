package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"

	"github.com/cubeplexai/cubepod/sessionapi/docker"
)

// firewall is the sub-command that sets, checks or removes the rules which
// keep the docker runtime's sandboxes away from their host.
func firewall(ctx context.Context, args []string, getenv func(string) string, out io.Writer) error {
	fs := flag.NewFlagSet("cubepod-sessionapi firewall", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	network := getenv("CUBEPOD_NETWORK")
	if network == "" {
		network = docker.DefaultNetwork
	}
	var deny []netip.Prefix
	fs.StringVar(&network, "network", network, "`name` of the sandboxes' network; environment CUBEPOD_NETWORK")
	fs.Var((*prefixes)(&deny), "deny", "`prefixes`, separated by commas, that sandboxes must not reach besides this host and link-local addresses")
	check := fs.Bool("check", false, "only say whether the rules are in place")
	remove := fs.Bool("remove", false, "take the rules away")
	fs.Usage = func() {}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, "Usage: cubepod-sessionapi firewall [flags]\n\n"+
				"Sets the iptables rules that keep the docker runtime's sandboxes away from this\n"+
				"host and from link-local addresses. Run it as root on the Docker engine's host,\n"+
				"after each start of that host. It may be repeated.\n\n")
			fs.SetOutput(out)
			fs.PrintDefaults()
		}
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	rules := docker.Firewall{Network: network, Deny: deny}
	switch {
	case *check && *remove:
		return errors.New("--check and --remove do not go together")
	case *check:
		if err := rules.Check(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, "The rules are in place.")
	case *remove:
		return rules.Remove(ctx)
	default:
		if err := rules.Apply(ctx); err != nil {
			return err
		}
		return rules.Check(ctx)
	}
	return nil
}
