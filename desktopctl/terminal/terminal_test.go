package terminal_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/desktopctl/terminal"
)

func TestHandshake(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	tests := []struct {
		name      string
		protocols []string
		origin    string
		status    int
		want      string
	}{
		{"ttyd's page", []string{"tty"}, "", 101, "tty"},
		{"plain", nil, "", 101, ""},
		{"edge", []string{"tty"}, "http://127.0.0.1:7681", 101, "tty"},
		{"page", []string{"tty"}, "https://evil.example", 403, ""},
		{"sandboxed page", []string{"tty"}, "null", 403, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opts := &websocket.DialOptions{Subprotocols: tt.protocols, HTTPHeader: http.Header{}}
			if tt.origin != "" {
				opts.HTTPHeader.Set("Origin", tt.origin)
			}
			c, resp, err := websocket.Dial(t.Context(), srv.URL+"/ws", opts)
			if resp == nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Fatalf("status %d (%v), want %d", resp.StatusCode, err, tt.status)
			}
			if c == nil {
				return
			}
			defer c.CloseNow()
			if got := c.Subprotocol(); got != tt.want {
				t.Errorf("subprotocol %q, want %q", got, tt.want)
			}
		})
	}
}

func TestToken(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	resp, err := srv.Client().Get(srv.URL + "/token")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got map[string]string
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	if token, ok := got["token"]; !ok || token != "" {
		t.Errorf("got %v, want an empty token", got)
	}
}

func TestCharactersPass(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	c := join(t, srv, 80, 24)
	c.enter("echo 'é汉字😀' | od -An -tx1; echo 'é汉字'😀\n")
	c.expect("c3 a9 e6 b1 89 e5 ad 97 f0 9f 98 80 0a")
	c.expect("é汉字😀\r\n")
}

// A viewer that comes back finds the shell it left and sees what it printed.
func TestShellOutlivesReload(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	first := join(t, srv, 80, 24)
	first.enter("kept=here; echo before$((40+2))\n")
	first.expect("before42\r\n")
	first.conn.Close(websocket.StatusNormalClosure, "")

	second := join(t, srv, 80, 24)
	if before := second.expect("before42\r\n"); !strings.HasPrefix(before, "\x1bc") {
		t.Errorf("the replay begins with %q, want a reset", before)
	}
	second.enter("echo still-$kept\n")
	second.expect("still-here\r\n")
}

func TestViewersShareTheShell(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	a := join(t, srv, 80, 24)
	a.enter("n=1; echo a-$n\n")
	a.expect("a-1\r\n")
	b := join(t, srv, 80, 24)
	b.expect("a-1\r\n")
	b.enter("n=2; echo b-$n\n")
	a.expect("b-2\r\n")
	b.expect("b-2\r\n")
	a.enter("echo again-$n\n")
	b.expect("again-2\r\n")
}

// The size is that of the viewer who last typed or resized.
func TestSizeFollowsWhoTypes(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	a := join(t, srv, 90, 30)
	a.enter("stty size\n")
	a.expect("30 90\r\n")
	b := join(t, srv, 100, 40)
	b.expect("30 90\r\n")
	a.enter("stty size; echo a$((1))\n")
	if before := a.expect("a1\r\n"); !strings.Contains(before, "30 90") {
		t.Errorf("a viewer who only looks changed the size: %q", before)
	}
	b.enter("stty size\n")
	b.expect("40 100\r\n")
	a.send("1", map[string]int{"columns": 70, "rows": 20})
	a.enter("stty size\n")
	a.expect("20 70\r\n")
	a.conn.Close(websocket.StatusNormalClosure, "")
	b.expect("20 70\r\n")
	b.enter("stty size\n")
	b.expect("40 100\r\n")
}

// A paste arrives whole though the program is slow to read it.
func TestPaste(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	c := join(t, srv, 80, 24)
	paste := strings.Repeat("0123456789abcde\n", 16<<10) // 256 KiB
	c.enter(fmt.Sprintf("stty raw -echo; echo rea''dy; sleep 0.3; head -c %d | sha256sum; stty sane\n", len(paste)))
	c.expect("ready")
	c.enter(paste)
	c.expect(fmt.Sprintf("%x", sha256.Sum256([]byte(paste))))
}

func TestShellIsReplaced(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	c := join(t, srv, 80, 24)
	c.enter("exit 3\n")
	c.expect("the shell exited with code 3")
	c.enter("echo new$((1+1))\n")
	c.expect("new2\r\n")
	// What keeps the terminal open in the background holds nothing up.
	c.enter("sleep 1000 & kill -KILL $$\n")
	c.expect("the shell was ended by signal SIGKILL")
	again := join(t, srv, 80, 24)
	again.expect("the shell was ended")
	again.enter("echo newer$((1+1))\n")
	again.expect("newer2\r\n")
}

// Everything printed before the exit is shown before the notice.
func TestLastWords(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	c := join(t, srv, 80, 24)
	c.enter("stty -echo\n")
	c.enter("seq 1 20000; exec seq 20001 30000\n")
	before := c.expect("the shell exited")
	for _, want := range []string{"\r\n1\r\n", "\r\n20001\r\n", "\r\n30000\r\n"} {
		if !strings.Contains(before, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// Each new shell reads the user's own ~/.bashrc and the sandbox's environment
// as it is then.
func TestEnvironment(t *testing.T) {
	home := t.TempDir()
	dir := t.TempDir()
	envFile := filepath.Join(t.TempDir(), "it's.sh")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, ".bashrc"), "mine=yes; token=old; ll() { echo function; }\n")
	write(envFile, "export token=one\n")
	srv, _ := serve(t, terminal.Options{
		EnvFile: envFile, Dir: dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HISTFILE=", "TERM=dumb"},
	})
	c := join(t, srv, 200, 24)
	c.enter("echo [$mine $token $(ll) $TERM $LANG $PWD $-]; [ -e /dev/fd/3 ] || echo closed''3; shopt -q login_shell || echo no''login\n")
	c.expect("[yes one function xterm-256color C.UTF-8 " + dir + " himBHs]")
	c.expect("closed3")
	c.expect("nologin")
	write(envFile, "export token=two\n")
	c.enter("exit\n")
	c.expect("the shell exited")
	c.enter("echo [$token]\n")
	c.expect("[two]")
}

func TestFolderThatCannotBeEntered(t *testing.T) {
	home := t.TempDir()
	srv, _ := serve(t, terminal.Options{
		Dir: filepath.Join(home, "absent"),
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home},
	})
	c := join(t, srv, 200, 24)
	c.enter("echo [$PWD]\n")
	c.expect("[" + home + "]")
}

// A lone viewer is shown all of a long output, at its own pace.
func TestShellWaitsForALoneViewer(t *testing.T) {
	srv, _ := serve(t, terminal.Options{Scrollback: 4 << 10})
	c := join(t, srv, 80, 24)
	c.enter("stty -echo -onlcr; printf 'begin\\n'; seq 1 200000; echo end\n")
	c.expect("begin\n")
	got := c.expect("end\n")
	var want strings.Builder
	for i := range 200000 {
		want.WriteString(strconv.Itoa(i+1) + "\n")
	}
	if got != want.String() {
		t.Errorf("%d bytes of %d arrived in order", len(got), want.Len())
	}
}

// A viewer that does not read is dropped; the others and the shell go on.
func TestSlowViewerIsDropped(t *testing.T) {
	srv, _ := serve(t, terminal.Options{Scrollback: 64 << 10})
	fast, slow := join(t, srv, 80, 24), join(t, srv, 80, 24)
	slow.expect("$ ")
	fast.enter("stty -opost; head -c 48000000 /dev/zero | tr '\\0' x; echo; echo do''ne\n")
	for !strings.Contains(fast.text, "done\n") {
		fast.text = tail(fast.text) // 48 MB need not be kept
		if err := fast.read(); err != nil {
			t.Fatal(err)
		}
	}
	// If it reads again soon enough it is told why; otherwise it is cut off.
	if got := slow.ended(); got != websocket.StatusTryAgainLater && got != -1 {
		t.Errorf("closed with %v, want %v", got, websocket.StatusTryAgainLater)
	}
	if t.Context().Err() != nil {
		t.Error("the slow viewer was not dropped")
	}
	join(t, srv, 80, 24).expect("done\n")
}

func TestPause(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	a, b := join(t, srv, 80, 24), join(t, srv, 80, 24)
	a.expect("$ ")
	b.expect("$ ")
	a.send("2", "")
	a.enter("echo paused$((1))\n")
	b.expect("paused1\r\n")
	a.send("3", "")
	a.expect("paused1\r\n")
}

// A replay after much output begins with a whole line and whole characters,
// and asks the terminal nothing: its answers would appear at the prompt.
func TestReplay(t *testing.T) {
	srv, _ := serve(t, terminal.Options{Scrollback: 16 << 10})
	c := join(t, srv, 80, 24)
	c.enter("stty -echo; for i in {1..3000}; do printf '字%d字\\n' $i; done\n")
	c.expect("字3000字")
	questions := []string{
		`\e[c`, `\e[0c`, `\e[>c`, `\e[>0;0c`, `\e[=c`, `\e[6n`, `\e[?6n`, `\e[5n`, `\e[?25$p`, `\e[4$p`, `\e[18t`, `\e[21t`,
		`\e[>q`, `\e[>0q`, `\e[?u`, `\e]10;?\a`, `\e]11;?\e\\`, `\e]4;1;?\a`, `\eP+q544e\e\\`, `\eP$qm\e\\`,
	}
	for i, q := range questions {
		c.enter(fmt.Sprintf("printf 'q%d<%s>'; echo end''%d\n", i, q, i))
		c.expect(fmt.Sprintf("end%d", i))
	}
	c.enter("printf 'kept<\\e[31m\\e[2J\\e[?25h\\e]0;title\\a>'; echo fin''ished\n")
	c.expect("finished")

	replay := join(t, srv, 80, 24).expect("finished")
	rest, ok := strings.CutPrefix(replay, "\x1bc字")
	if !ok || !utf8.ValidString(replay) {
		t.Errorf("the replay begins with %q, want a reset and a whole line", replay[:20])
	}
	for i, q := range questions {
		if want := fmt.Sprintf("q%d<>", i); !strings.Contains(rest, want) {
			t.Errorf("question %s is asked again", q)
		}
	}
	if want := "kept<\x1b[31m\x1b[2J\x1b[?25h\x1b]0;title\a>"; !strings.Contains(rest, want) {
		t.Errorf("%q is missing from the replay", want)
	}
}

// Of several terminals that answer a program's question, one is heard.
func TestOneAnswerIsEnough(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	a, b := join(t, srv, 80, 24), join(t, srv, 80, 24)
	b.expect("$ ")
	a.enter("stty raw -echo; echo rea''dy; head -c 6 | od -An -tx1; head -c 6 | od -An -tx1; stty sane\n")
	a.expect("ready")
	b.expect("ready")
	b.enter("\x1b[24;80R")
	b.enter("\x1b[?1;2c")
	a.enter("\x1b[5;6R")
	a.expect("1b 5b 35 3b 36 52")
	// A key of b's is no answer, whatever it looks like.
	b.enter("\x1b[1;2R")
	b.expect("1b 5b 31 3b 32 52")
}

func TestBadMessages(t *testing.T) {
	srv, _ := serve(t, terminal.Options{})
	tests := []struct {
		name, kind, data string
		want             websocket.StatusCode
	}{
		{"unknown type", "9", "x", websocket.StatusProtocolError},
		{"resize without JSON", "1", "80x24", websocket.StatusProtocolError},
		{"resize of another type", "1", `{"columns":"80"}`, websocket.StatusProtocolError},
		{"too big", "0", strings.Repeat("x", 1<<20), websocket.StatusMessageTooBig},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := join(t, srv, 80, 24)
			c.send(tt.kind, tt.data)
			if got := c.ended(); got != tt.want {
				t.Errorf("closed with %v, want %v", got, tt.want)
			}
		})
	}
}

// Close ends the shell, also one that ignores the hang-up.
func TestClose(t *testing.T) {
	for _, trap := range []string{"", "trap '' HUP; "} {
		srv, term := serve(t, terminal.Options{})
		c := join(t, srv, 80, 24)
		c.enter(trap + "echo pid''=$$.\n")
		c.expect("pid=")
		pid, err := strconv.Atoi(c.expect("."))
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan struct{})
		go func() { defer close(closed); term.Close() }()
		if got := c.ended(); got != websocket.StatusGoingAway {
			t.Errorf("closed with %v, want %v", got, websocket.StatusGoingAway)
		}
		<-closed
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the shell is still there after Close: %v", err)
		}
		_, resp, _ := websocket.Dial(t.Context(), srv.URL+"/ws", nil)
		if resp == nil || resp.StatusCode != 503 {
			t.Errorf("a handshake after Close: %v, want 503", resp)
		}
	}
}

func TestShellThatDoesNotStart(t *testing.T) {
	srv, _ := serve(t, terminal.Options{Command: []string{"/nonexistent"}})
	if got := join(t, srv, 80, 24).ended(); got != websocket.StatusInternalError {
		t.Errorf("closed with %v, want %v", got, websocket.StatusInternalError)
	}
}
