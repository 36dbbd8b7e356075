package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"time"

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
	keep := fs.Bool("keep", false, "stay, and put the rules back when they are gone")
	remove := fs.Bool("remove", false, "take the rules away")
	fs.Usage = func() {}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(out, "Usage: cubepod-sessionapi firewall [flags]\n\n"+
				"Sets the iptables rules that keep the docker runtime's sandboxes away from this\n"+
				"host and from link-local addresses. Run it as root on the Docker engine's host,\n"+
				"after each start of that host, or let it stay with --keep. It may be repeated.\n\n")
			fs.SetOutput(out)
			fs.PrintDefaults()
		}
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	rules := docker.Firewall{Network: network, Deny: deny}
	if (*check && *remove) || (*check && *keep) || (*remove && *keep) {
		return errors.New("--check, --keep and --remove do not go together")
	}
	switch {
	case *check:
		if err := rules.Check(ctx); err != nil {
			return err
		}
		fmt.Fprintln(out, "The rules are in place.")
		return nil
	case *remove:
		return rules.Remove(ctx)
	}
	if err := setRules(ctx, rules); err != nil || !*keep {
		return err
	}
	fmt.Fprintln(out, "The rules are in place, and are put back when they are gone.")
	return keepRules(ctx, rules, out)
}

func setRules(ctx context.Context, rules docker.Firewall) error {
	if err := rules.Apply(ctx); err != nil {
		return err
	}
	return rules.Check(ctx)
}

// keepTick is how long the rules may be gone, after a reload of the host's own
// firewall, say. Nothing tells of that for all versions of iptables.
const keepTick = 5 * time.Second

// keepRules looks after the rules until ctx ends.
func keepRules(ctx context.Context, rules docker.Firewall, out io.Writer) error {
	tick := time.NewTicker(keepTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		gone := rules.Check(ctx)
		if gone == nil || ctx.Err() != nil {
			continue
		}
		if err := setRules(ctx, rules); err != nil {
			fmt.Fprintf(out, "The rules cannot be put back: %v\n", err)
			continue
		}
		fmt.Fprintf(out, "The rules are put back: %v\n", gone)
	}
}
