package x11_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cubeplexai/cubepod/desktopctl/boxtest"
	"github.com/cubeplexai/cubepod/desktopctl/x11"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func TestSpareKeys(t *testing.T) {
	xvfb := testutil.NeedProgram(t, "Xvfb")
	if !boxtest.Enter(t) {
		return
	}
	if err := os.Mkdir(filepath.Dir(x11.SocketPath(display)), 0o777); err != nil {
		t.Fatal(err)
	}
	run(t, exec.Command(xvfb, display, "-nolisten", "tcp", "-noreset"))
	var c *x11.Conn
	testutil.Eventually(t, "the server's answer", func() bool {
		var err error
		c, err = x11.Dial(t.Context(), display)
		return err == nil
	})
	defer c.Close()
	if err := c.FreeKeys(); err != nil {
		t.Fatal(err)
	}
	var spare x11.SpareKeys
	// some are n ideographs, those of another first being others.
	some := func(first, n int) []uint32 {
		symbols := make([]uint32, n)
		for i := range symbols {
			symbols[i] = uint32(0x1004e00 + first + i)
		}
		return symbols
	}
	const capital = 0x6f0 // of a Cyrillic letter, whose small one is not asked for
	for _, step := range []struct {
		name    string
		symbols []uint32
		changed bool
	}{
		{"none", nil, false},
		{"a capital", []uint32{capital}, true},
		{"it again", []uint32{capital}, false},
		{"one twice", []uint32{0xe9, 0xe9}, true},
		{"many", some(0, 40), true},
		{"other ones", some(40, 40), true},
		{"all of these", some(0, 80), false},
		{"more than there is room for", some(100, 40), true},
		{"those that were asked for last", some(40, 40), false},
		{"those that had to go", some(0, 40), true},
	} {
		changed, err := spare.Give(c, step.symbols)
		if err != nil || changed != step.changed {
			t.Errorf("%s: changed %t, %v; want %t", step.name, changed, err, step.changed)
		}
	}
	if _, err := spare.Give(c, some(0, 200)); err == nil {
		t.Error("more keys than there are")
	}
	if err := c.FreeKeys(); err != nil {
		t.Fatal(err)
	}
	if changed, err := spare.Give(c, some(0, 1)); err != nil || !changed {
		t.Errorf("after all keys were freed: changed %t, %v", changed, err)
	}
}
