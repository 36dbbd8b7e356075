package web_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/desktopctl/terminal"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

func newTerminal(t *testing.T) *terminal.Terminal {
	t.Helper()
	home := t.TempDir()
	for _, name := range []string{"notes.txt", "run.sh", "archive.tar.gz", "photo.png", "汉字.md"} {
		if err := os.WriteFile(filepath.Join(home, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(home, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte(`PS1='\[\e[1;32m\]cubeplex\[\e[0m\]:\[\e[1;34m\]\w\[\e[0m\]\$ '; alias ls='ls --color=always'`), 0o644); err != nil {
		t.Fatal(err)
	}
	term := terminal.New(terminal.Options{
		WebDir:  filepath.Join(pages(t), "terminal"),
		Dir:     home,
		Env:     []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HISTFILE="},
		EnvFile: "/nonexistent",
	})
	t.Cleanup(func() { term.Close() })
	return term
}

func TestTerminalPage(t *testing.T) {
	e := newEdge(t, 7681, newTerminal(t))
	tb := e.browse(t, "")
	out := filepath.Join(t.TempDir(), "out")

	if focused := tb.text(`document.activeElement === document.body`); focused != "true" {
		t.Error("the page takes the focus at load")
	}
	if origin := tb.text(`self.origin`); origin != "null" {
		t.Errorf("the page runs in the origin %s, want an opaque one", origin)
	}
	tb.do(chromedp.MouseClickXY(300, 300), chromedp.KeyEvent("ls; printf '\\e[31mred \\e[32mgreen \\e[33myellow \\e[34mblue \\e[35mmagenta \\e[36mcyan\\e[0m \\e[1mbold\\e[0m \\e[7mreverse\\e[0m\\n'\r"))
	tb.paste("echo '汉字 é ß 😀 Кириллица ┌─┐'; stty size > " + out + "; echo é汉😀 >> " + out)
	tb.do(chromedp.KeyEvent("\r"))
	testutil.Eventually(t, "the shell wrote its file", func() bool {
		data, _ := os.ReadFile(out)
		return strings.HasSuffix(string(data), "é汉😀\n")
	})
	// The shell has the size that is shown, and that fills the frame.
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var rows, cols int
	if _, err := fmt.Sscan(string(data), &rows, &cols); err != nil {
		t.Fatal(err)
	}
	if rows < 20 || cols < 80 {
		t.Errorf("the shell has %dx%d, which does not fill 960x600", cols, rows)
	}
	tb.until(shown, "")
	tb.picture("terminal")

	// A frame that grows takes the shell along.
	tb.do(chromedp.EmulateViewport(1400, 900))
	testutil.Eventually(t, "the shell has grown", func() bool {
		tb.do(chromedp.KeyEvent("stty size > " + out + "\r"))
		var r, c int
		data, _ := os.ReadFile(out)
		fmt.Sscan(string(data), &r, &c)
		return r > rows && c > cols
	})
}

func TestTerminalPageWhenRefused(t *testing.T) {
	for _, tt := range refused {
		t.Run(tt.err.Code, func(t *testing.T) {
			term := newTerminal(t)
			e := newEdge(t, 7681, term)
			tb := e.browse(t, "")
			tb.until(`document.title.slice(0, 4)`, "bash") // connected
			e.refuse.Store(tt.err)
			term.Close()
			tb.until(shown, tt.want)
			tb.picture("terminal-" + tt.err.Code)
			if n := e.navigations.Load(); n != 1 {
				t.Errorf("the page navigated %d times by itself", n-1)
			}
			if tt.err.Code == "sandbox_paused" {
				tb.do(chromedp.MouseClickXY(100, 100))
				testutil.Eventually(t, "the click navigates", func() bool { return e.navigations.Load() == 2 })
			}
		})
	}
}
