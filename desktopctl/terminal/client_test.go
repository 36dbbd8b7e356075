package terminal_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/cubeplexai/cubepod/desktopctl/terminal"
	"github.com/cubeplexai/cubepod/internal/loopback"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// serve runs a terminal behind its guard, as the ctl does. Unless told
// otherwise its shell is bash with a home of its own.
func serve(t *testing.T, opts terminal.Options) (*httptest.Server, *terminal.Terminal) {
	t.Helper()
	testutil.NeedProgram(t, "bash")
	if opts.Env == nil {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("PS1='$ '\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		opts.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "HISTFILE="}
	}
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.EnvFile == "" {
		opts.EnvFile = "/nonexistent"
	}
	term := terminal.New(opts)
	srv := httptest.NewServer(loopback.Guard(7681, term))
	srv.Client().Transport.(*http.Transport).DisableKeepAlives = true
	t.Cleanup(func() {
		term.Close()
		srv.Close()
	})
	return srv, term
}

// client is a viewer as its page would be.
type client struct {
	t    *testing.T
	conn *websocket.Conn
	text string // what was shown and not yet expected
}

// join opens a viewer of the given size.
func join(t *testing.T, srv *httptest.Server, cols, rows int) *client {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), srv.URL+"/ws", &websocket.DialOptions{Subprotocols: []string{"tty"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.CloseNow() })
	conn.SetReadLimit(-1)
	c := &client{t: t, conn: conn}
	c.send("", map[string]any{"AuthToken": "", "columns": cols, "rows": rows})
	return c
}

// send sends a message of the given type.
func (c *client) send(kind string, data any) {
	c.t.Helper()
	text, ok := data.(string)
	if !ok {
		b, err := json.Marshal(data)
		if err != nil {
			c.t.Fatal(err)
		}
		text = string(b)
	}
	if err := c.conn.Write(c.t.Context(), websocket.MessageBinary, []byte(kind+text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) enter(input string) { c.t.Helper(); c.send("0", input) }

// read takes the next message; output is added to text.
func (c *client) read() error {
	_, msg, err := c.conn.Read(c.t.Context())
	if err == nil && len(msg) > 0 && msg[0] == '0' {
		c.text += string(msg[1:])
	}
	return err
}

// expect reads until want was shown, and gives what came before it.
func (c *client) expect(want string) string {
	c.t.Helper()
	for {
		if before, after, ok := strings.Cut(c.text, want); ok {
			c.text = after
			return before
		}
		if err := c.read(); err != nil {
			c.t.Fatalf("waiting for %q: %v; shown: %q", want, err, tail(c.text))
		}
	}
}

// ended reads until the connection's end and gives its close code.
func (c *client) ended() websocket.StatusCode {
	for {
		if err := c.read(); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-500):] }
