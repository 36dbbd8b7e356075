package cgroup_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/cgroup"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGroup(t *testing.T) {
	testutil.NeedRoot(t)
	name := fmt.Sprintf("podd-cgroup-test-%d", os.Getpid())
	tree, err := cgroup.Open(name)
	if err != nil {
		testutil.Skip(t, "no control groups: "+err.Error())
	}
	defer tree.Close()
	g, err := tree.New("one")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tree.New("one"); err == nil {
		t.Error("a group is made twice")
	}
	fd, err := g.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := g.PIDs(); !slices.Equal(got, []int{cmd.Process.Pid}) {
		t.Errorf("got %v", got)
	}
	if n, known := g.OOMKills(); n != 0 {
		t.Errorf("got %d, %v", n, known)
	}
	again, err := cgroup.Open(name) // as a podd that was started again
	if err != nil || !slices.Equal(again.Names(), []string{"one"}) {
		t.Errorf("got %v, %v", again.Names(), err)
	}
	if tree.Close(); g.Remove() {
		t.Error("a group with a process in it is gone")
	}
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("got %v", err)
	}
	testutil.Eventually(t, "the group is empty", g.Remove)
	if !g.Remove() || len(g.PIDs()) != 0 || len(tree.Names()) != 0 {
		t.Errorf("left are %v", tree.Names())
	}
}
