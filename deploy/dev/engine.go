package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dockerNetworks is where Docker's networks are, as far as one can know: an
// operator can have them anywhere.
const dockerNetworks = "172.16.0.0/12 192.168.0.0/16 10.0.0.0/8"

// toolGrace is how long a program that was told to end may go on.
const toolGrace = 10 * time.Second

// images are those of the built-in templates.
var images = []string{"base", "desktop"}

// prepareDocker has all that the docker runtime needs: an engine that answers,
// the images, and the firewall's rules. An engine that it starts ends with the
// stack; images and rules stay.
func (s *stack) prepareDocker(ctx context.Context, out io.Writer) error {
	if err := s.needEngine(ctx, out); err != nil {
		return err
	}
	if err := s.needImages(ctx, out); err != nil {
		return err
	}
	api := filepath.Join(s.cfg.BinDir, "cubepod-sessionapi")
	fmt.Fprintln(out, "setting firewall rules (iptables), so that sandboxes do not reach this machine; to take them away: "+api+" firewall --remove")
	return runTool(ctx, nil, api, "firewall")
}

// needEngine starts an engine unless one answers.
func (s *stack) needEngine(ctx context.Context, out io.Writer) error {
	err := engineAnswers(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if os.Getenv("DOCKER_HOST") != "" {
		return fmt.Errorf("the engine at DOCKER_HOST does not answer: %w", err)
	}
	fmt.Fprintln(out, "starting a Docker engine, which ends with this")
	removeStale("/var/run/docker.pid")
	c, err := s.spawn("engine", "dockerd", nil, nil)
	if err != nil {
		return err
	}
	return s.waitFor(ctx, c, "docker version", engineAnswers)
}

func engineAnswers(ctx context.Context) error {
	return runTool(ctx, nil, "docker", "version")
}

// removeStale removes a pid file whose process is gone, which a machine that
// was switched off leaves: the daemon would take it for that of another one.
func removeStale(pidfile string) {
	text, err := os.ReadFile(pidfile)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		os.Remove(pidfile)
	}
}

// needImages builds the images that are missing.
func (s *stack) needImages(ctx context.Context, out io.Writer) error {
	var missing []string
	for _, name := range images {
		if runTool(ctx, nil, "docker", "image", "inspect", "cubepod/"+name+":dev") != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	fmt.Fprintln(out, "building images, which takes some minutes the first time:", strings.Join(missing, ", "))
	return runTool(ctx, out, filepath.Join(s.cfg.ImagesDir, "build.sh"), missing...)
}

// runTool runs a program to its end. What it says goes to out, or into the error
// when out is nil.
func runTool(ctx context.Context, out io.Writer, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	// In a group of its own: Ctrl-C ends it by ctx, with what it has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = toolGrace
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, out
	if out == nil {
		cmd.Stdout, cmd.Stderr = &said, &said
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}
