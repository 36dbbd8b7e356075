package docker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Firewall are rules of the engine's host, for iptables:
//
//	INPUT        from the sandboxes' bridge: a chain of ours, which lets answers
//	             pass and drops what sandboxes begin. So they do not reach any
//	             address of the host.
//	DOCKER-USER  from the bridge: a chain of ours, which drops what goes to
//	             link-local addresses, to those in Deny, and to ports of the
//	             host that lead elsewhere, as those that containers publish.
//
// Everywhere else sandboxes may go, and they resolve names with the resolver
// that the engine has in each. What its own rules do, such as keeping its
// networks apart, is left alone. Each network has chains of its own, so that
// those of several do not meet.
type Firewall struct {
	// Network is the sandboxes' network, [DefaultNetwork] by default.
	Network string
	// Deny are further prefixes that sandboxes must not reach.
	Deny []netip.Prefix
}

// userChain is the chain that the engine leaves to its operator and visits
// before its own rules. The engine keeps what is in it.
const userChain = "DOCKER-USER"

// forwardJump leads to it. It is the engine's work, and ours where the engine
// has not started yet, or writes its rules with another tool than this
// program's: the kernel goes by the rules of both.
var forwardJump = []string{"FORWARD", "-j", userChain}

func (f Firewall) bridge() string { return bridge(cmp.Or(f.Network, DefaultNetwork)) }

// A chain's name has at most 28 bytes, and a bridge's 15.
func (f Firewall) inputChain() string   { return "CUBEPOD-IN-" + f.bridge() }
func (f Firewall) forwardChain() string { return "CUBEPOD-FWD-" + f.bridge() }

// rules are the chains of ours with their rules, written as iptables lists
// them.
func (f Firewall) rules(v6 bool) []string {
	const answers = " -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN"
	in, forward := "-A "+f.inputChain(), "-A "+f.forwardChain()
	out := []string{in + answers, in + " -j DROP", forward + answers}
	if v6 { // the sandboxes' network has none, so whatever comes is not theirs to send
		return append(out, forward+" -j DROP")
	}
	out = append(out, forward+" -d 169.254.0.0/16 -j DROP", forward+" -m conntrack --ctstate DNAT -j DROP")
	for _, p := range f.Deny {
		if p.Addr().Is4() {
			out = append(out, forward+" -d "+p.Masked().String()+" -j DROP")
		}
	}
	return out
}

// jumps are where packets come to our chains from.
func (f Firewall) jumps(v6 bool) [][]string {
	from := userChain
	if v6 {
		from = "FORWARD" // the engine has no chain there unless it has IPv6
	}
	return [][]string{
		{"INPUT", "-i", f.bridge(), "-j", f.inputChain()},
		{from, "-i", f.bridge(), "-j", f.forwardChain()},
	}
}

// Apply puts the rules in place, before all others of their chains. It may be
// repeated. It wants root, on the engine's host.
func (f Firewall) Apply(ctx context.Context) error {
	return families(func(tool string, v6 bool) error {
		var in bytes.Buffer
		fmt.Fprintf(&in, "*filter\n:%s - [0:0]\n:%s - [0:0]\n", f.inputChain(), f.forwardChain())
		for _, rule := range f.rules(v6) {
			fmt.Fprintln(&in, rule)
		}
		fmt.Fprintln(&in, "COMMIT")
		// In one step: there is no moment without the old or the new rules.
		if _, err := iptables(ctx, &in, tool+"-restore", "-w", "--noflush"); err != nil {
			return err
		}
		if !v6 {
			if err := ensureUserChain(ctx, tool); err != nil {
				return err
			}
		}
		for _, jump := range f.jumps(v6) {
			// The new one first, then the old one away from wherever it was.
			had := has(ctx, tool, jump)
			if _, err := iptables(ctx, nil, tool, slices.Concat([]string{"-w", "-I", jump[0], "1"}, jump[1:])...); err != nil {
				return err
			}
			if had {
				if err := dropLast(ctx, tool, jump); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ensureUserChain makes the engine's chain, and the way to it, where the engine
// has not.
func ensureUserChain(ctx context.Context, tool string) error {
	if _, err := iptables(ctx, nil, tool, "-w", "-S", userChain); err != nil {
		if _, err := iptables(ctx, nil, tool, "-w", "-N", userChain); err != nil {
			return err
		}
	}
	if has(ctx, tool, forwardJump) {
		return nil
	}
	_, err := iptables(ctx, nil, tool, slices.Concat([]string{"-w", "-I", forwardJump[0], "1"}, forwardJump[1:])...)
	return err
}

func has(ctx context.Context, tool string, jump []string) bool {
	_, err := iptables(ctx, nil, tool, slices.Concat([]string{"-w", "-C"}, jump)...)
	return err == nil
}

// dropLast removes all of equal jumps but the first.
func dropLast(ctx context.Context, tool string, jump []string) error {
	out, err := iptables(ctx, nil, tool, "-w", "-S", jump[0])
	if err != nil {
		return err
	}
	var at []int
	n := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "-A ") {
			n++
			if strings.TrimSpace(line) == "-A "+strings.Join(jump, " ") {
				at = append(at, n)
			}
		}
	}
	for _, i := range slices.Backward(at[min(1, len(at)):]) {
		if _, err := iptables(ctx, nil, tool, "-w", "-D", jump[0], fmt.Sprint(i)); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes the rules away. The engine's chain stays.
func (f Firewall) Remove(ctx context.Context) error {
	return families(func(tool string, v6 bool) error {
		for _, jump := range f.jumps(v6) {
			for has(ctx, tool, jump) {
				if _, err := iptables(ctx, nil, tool, slices.Concat([]string{"-w", "-D"}, jump)...); err != nil {
					return err
				}
			}
		}
		out, err := iptables(ctx, nil, tool, "-w", "-S")
		if err != nil {
			return err
		}
		for _, chain := range []string{f.inputChain(), f.forwardChain()} {
			if !strings.Contains(out, "-N "+chain+"\n") {
				continue
			}
			for _, op := range []string{"-F", "-X"} {
				if _, err := iptables(ctx, nil, tool, "-w", op, chain); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Check reports what is missing of the rules. More may be there.
func (f Firewall) Check(ctx context.Context) error {
	if host := os.Getenv("DOCKER_HOST"); host != "" && !strings.HasPrefix(host, "unix:") {
		return errors.New("the firewall of another host cannot be seen from here")
	}
	return families(func(tool string, v6 bool) error {
		out, err := iptables(ctx, nil, tool, "-w", "-S")
		if err != nil {
			return fmt.Errorf("the firewall cannot be seen: %w", err)
		}
		have := strings.Split(out, "\n")
		want := f.rules(v6)
		if !v6 { // without it ours are never visited
			want = append(want, "-A "+strings.Join(forwardJump, " "))
		}
		for _, jump := range f.jumps(v6) {
			want = append(want, "-A "+strings.Join(jump, " "))
		}
		for _, rule := range want {
			if !slices.Contains(have, rule) {
				return fmt.Errorf("the rule %q of %s is missing", rule, tool)
			}
		}
		return nil
	})
}

// families calls do for IPv4, and for IPv6 where the host has it.
func families(do func(tool string, v6 bool) error) error {
	if err := do("iptables", false); err != nil {
		return err
	}
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return nil
	}
	return do("ip6tables", true)
}

func iptables(ctx context.Context, in *bytes.Buffer, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	if in != nil {
		cmd.Stdin = in
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// firewallCheck looks at the rules now and then.
type firewallCheck struct {
	rules Firewall

	mu     sync.Mutex // guards the fields below
	looked time.Time
	err    error
}

// lookAgain is how old an answer may be.
const lookAgain = 10 * time.Second

func (c *firewallCheck) check(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) > lookAgain {
		err := c.rules.Check(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.looked, c.err = time.Now(), err
	}
	return c.err
}
