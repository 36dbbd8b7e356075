package command_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestCommandsOutliveTheManager(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir)
	var ids, outs []string
	var exits []int
	for i, command := range []string{
		"printf 'a\\0\\377b'; exit 3",
		"true",
		"yes | head -c 100000",
	} {
		s, out := run(t, m, poddapi.RunRequest{Command: command, IdempotencyKey: fmt.Sprint("key", i)})
		ids, outs, exits = append(ids, s.ID), append(outs, out), append(exits, exit(s))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // also after two restarts
		m = open(t, dir)
		for i, id := range ids {
			c, err := m.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			if s := c.Status(); s.Running || exit(s) != exits[i] || all(t, c) != outs[i] || s.Cursor != int64(len(outs[i])) {
				t.Errorf("got %+v and %d bytes, want exit %d and %d bytes", s, len(all(t, c)), exits[i], len(outs[i]))
			}
			if wasRunning, err := c.Kill(); wasRunning || err != nil {
				t.Errorf("kill: %v, %v", wasRunning, err)
			}
		}
		c, _, err := m.Run(poddapi.RunRequest{Command: "true", IdempotencyKey: "key1"})
		if err != nil || c.ID() != ids[1] {
			t.Errorf("by key: got %v, %v", c, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	m = open(t, dir)
	defer m.Close()
	s, _ := run(t, m, poddapi.RunRequest{Command: "true"})
	for _, id := range ids {
		if s.ID == id {
			t.Errorf("id %s is given again", id)
		}
	}
}

func TestACutJournalCostsItsLastRecord(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir)
	first, _ := run(t, m, poddapi.RunRequest{Command: "echo first"})
	m.Close()
	m = open(t, dir)
	last, _ := run(t, m, poddapi.RunRequest{Command: "echo last"})
	m.Close()
	names, _ := filepath.Glob(dir + "/journal-*")
	if len(names) != 2 {
		t.Fatalf("got %v", names)
	}
	fi, err := os.Stat(names[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(names[1], fi.Size()-3); err != nil {
		t.Fatal(err)
	}
	m = open(t, dir)
	defer m.Close()
	if c, err := m.Get(first.ID); err != nil || all(t, c) != "first\n" {
		t.Errorf("got %v", err)
	}
	if _, err := m.Get(last.ID); code(err) != "command_not_found" {
		t.Errorf("got %v", err)
	}
}

func TestACommandWhoseManagerCrashed(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir)
	c := start(t, m, poddapi.RunRequest{Command: "echo so far; exec sleep 300", Background: true})
	await(t, c, "so far\n")
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	crashed := t.TempDir()
	if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	m.Close()
	m = open(t, crashed)
	defer m.Close()
	old, err := m.Get(c.ID())
	if err != nil {
		t.Fatal(err)
	}
	if s := old.Status(); s.Running || s.ExitCode != nil || all(t, old) != "so far\n" {
		t.Errorf("got %+v, %q", s, all(t, old))
	}
	next, _ := run(t, m, poddapi.RunRequest{Command: "true"})
	if next.ID == c.ID() {
		t.Error("its id is given again")
	}
}

// A long output keeps its head and its tail, and says what is missing.
func TestLongOutput(t *testing.T) {
	const head, tail, total = 8 << 20, 8 << 20, 20_000_000
	dir := t.TempDir()
	m := open(t, dir)
	// Lines of ten bytes, each its own number: any offset says what is there.
	s, _ := func() (poddapi.Status, string) {
		c := start(t, m, poddapi.RunRequest{Command: fmt.Sprintf("seq -f %%09.0f 0 %d", total/10-1)})
		<-c.Done()
		return c.Status(), ""
	}()
	check := func() {
		c, err := m.Get(s.ID)
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Status(); !s.Truncated || s.Cursor != total {
			t.Errorf("got %+v", s)
		}
		var got bytes.Buffer
		skipped := int64(0)
		for at := int64(0); ; {
			p, from, err := c.Read(at, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if len(p) == 0 {
				break
			}
			if from > at {
				if at != head || from != total-tail {
					t.Errorf("a gap from %d to %d", at, from)
				}
				skipped += from - at
			}
			got.Write(p)
			at = from + int64(len(p))
		}
		if skipped != total-head-tail || got.Len() != head+tail {
			t.Fatalf("skipped %d, got %d", skipped, got.Len())
		}
		want := func(at int64) string { return fmt.Sprintf("%09d\n", at/10)[at%10:] }
		for _, at := range []int64{0, 10, head - 100, total - tail + 3, total - tail + 5_000_000, total - 10} {
			p, from, err := c.Read(at, 5)
			if w := want(at)[:min(5, len(want(at)))]; err != nil || from != at || !strings.HasPrefix(string(p), w) {
				t.Errorf("at %d: got %q from %d, %v, want %q", at, p, from, err, w)
			}
		}
	}
	check()
	m.Close()
	m = open(t, dir)
	defer m.Close()
	check()
}

func TestOldCommandsAreForgotten(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir)
	long := start(t, m, poddapi.RunRequest{Command: "exec sleep 300", Background: true})
	first, _ := run(t, m, poddapi.RunRequest{Command: "yes | head -c 100000"})
	for range 1100 {
		c := start(t, m, poddapi.RunRequest{Command: ":"})
		<-c.Done()
	}
	testutil.Eventually(t, "the oldest is forgotten", func() bool { _, err := m.Get(first.ID); return err != nil })
	// The one that runs, and one or two that have ended this very moment.
	if n := len(m.List()); n > 1005 {
		t.Errorf("%d are remembered", n)
	}
	if c, err := m.Get(long.ID()); err != nil || !c.Running() {
		t.Errorf("the one that runs: %v", err)
	}
	if names, _ := filepath.Glob(dir + "/output/*"); len(names) > 0 {
		t.Errorf("outputs are left: %v", names)
	}
	m.Close()
	m = open(t, dir)
	defer m.Close()
	if n := len(m.List()); n < 900 || n > 1001 {
		t.Errorf("%d are remembered after a restart", n)
	}
}

func TestOneStateDirectoryHasOneManager(t *testing.T) {
	dir := t.TempDir()
	a := open(t, dir)
	defer a.Close()
	b := open(t, dir) // falls back to a directory of its own
	defer b.Close()
	s, _ := run(t, b, poddapi.RunRequest{Command: "true"})
	if _, err := a.Get(s.ID); code(err) != "command_not_found" {
		t.Errorf("got %v", err)
	}
}

func TestRead(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{Command: "printf 0123456789"})
	<-c.Done()
	for _, q := range []struct {
		at, limit int64
		want      string
		from      int64
	}{
		{0, 100, "0123456789", 0}, {3, 4, "3456", 3}, {9, 1, "9", 9}, {10, 5, "", 10}, {99, 5, "", 10}, {0, 0, "", 0},
	} {
		p, from, err := c.Read(q.at, q.limit)
		if err != nil || string(p) != q.want || from != q.from {
			t.Errorf("%d, %d: got %q from %d, %v", q.at, q.limit, p, from, err)
		}
	}
}

func TestWait(t *testing.T) {
	m := manager(t)
	c := start(t, m, poddapi.RunRequest{Command: "cat", StdinOpen: true, Background: true})
	woken := make(chan string)
	go func() {
		c.Wait(t.Context(), 0)
		p, _, _ := c.Read(0, 10)
		woken <- string(p)
	}()
	if err := c.Input(t.Context(), strings.NewReader("hi"), false); err != nil {
		t.Fatal(err)
	}
	if got := <-woken; got != "hi" {
		t.Errorf("got %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.Wait(ctx, 2) // returns
	go func() {
		c.Wait(t.Context(), 2)
		woken <- ""
	}()
	c.Kill()
	<-woken
}

// A disk that is full, or becomes so, takes the end of an output and leaves its
// beginning.
func TestOutputOnAFullDisk(t *testing.T) {
	testutil.NeedRoot(t)
	const wrote = 300_000
	for name, free := range map[string]int64{"nothing": 0, "less than memory": 8 << 10, "some of it": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "none", dir).CombinedOutput(); err != nil {
				testutil.Skip(t, fmt.Sprintf("mount: %s", out))
			}
			t.Cleanup(func() { exec.Command("umount", "-l", dir).Run() })
			m := open(t, dir)
			t.Cleanup(func() { m.Close() })                // which may not find room either
			run(t, m, poddapi.RunRequest{Command: "true"}) // ids are written down in advance
			filler := make([]byte, 1<<20)
			_ = os.WriteFile(dir+"/filler", filler, 0o600) // as much as there is room for
			if s, err := os.Stat(dir + "/filler"); err != nil || os.Truncate(dir+"/filler", s.Size()-free) != nil {
				t.Fatalf("the disk was not filled: %v", err)
			}

			c := start(t, m, poddapi.RunRequest{Command: fmt.Sprintf("seq 1000000 | head -c %d", wrote)})
			<-c.Done()
			s := c.Status()
			out, _, err := c.Read(0, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if !s.Truncated || s.Cursor != wrote || exit(s) != 0 {
				t.Errorf("got %+v", s)
			}
			var want bytes.Buffer
			for i := 1; want.Len() < wrote; i++ {
				fmt.Fprintln(&want, i)
			}
			least := max(32<<10, int(free)/2)
			if len(out) < least || len(out) >= wrote || !bytes.HasPrefix(want.Bytes(), out) {
				t.Errorf("%d bytes are left of %d, want the first %d at least", len(out), wrote, least)
			}
		})
	}
}
