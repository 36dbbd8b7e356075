package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// child is one program of the stack. A goroutine owned by it waits for its end.
type child struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when the program has ended
	err  error         // its exit, after done
}

// startChild starts a program with its output in <data>/logs/<name>.log. The
// program gets a process group of its own, so that a Ctrl-C at the terminal
// reaches only this one, which ends the others in their order. Should this one
// be killed, the kernel asks the program to end. It must be called on the main
// goroutine, which keeps the main thread.
func startChild(data, name, path string, args, env []string) (*child, error) {
	c := &child{name: name, log: filepath.Join(data, "logs", name+".log"), done: make(chan struct{})}
	f, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := giveToCaller(c.log); err != nil {
		return nil, err
	}
	c.cmd = exec.Command(path, args...)
	c.cmd.Stdout, c.cmd.Stderr = f, f
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// stop asks the program to end and waits for it, with force after grace.
func (c *child) stop(grace time.Duration) error {
	c.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is fine too
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
		c.cmd.Process.Kill()
		<-c.done
		return fmt.Errorf("%s did not end within %v and was killed; its log is %s", c.name, grace, c.log)
	}
}

// died is the error of a program that ended by itself, with the end of its log.
func (c *child) died() error {
	return fmt.Errorf("%s ended: %w\n%s", c.name, errors.Join(c.err, errors.New("its log is "+c.log)), tail(c.log, 15))
}

// tail gives the last n lines of a file.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		if len(l) > 300 {
			lines[i] = l[:300] + "…"
		}
	}
	return "  " + strings.Join(lines, "\n  ")
}
