package images_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/remote"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// A desktop that nobody asks for costs nothing: no process of it runs, and
// podd is all there is in memory.
func TestIdleGuest(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	g.idle()
	// Each process by itself: what two share counts as a part of either.
	pss := g.run("root", "sh", "-c", `for p in /proc/[0-9]*; do
		case $(cat $p/comm 2>/dev/null) in podd*) sed -n 's/^Pss: *\([0-9]*\) kB/\1/p' $p/smaps_rollup ;; esac
	done`)
	total := 0
	for _, kib := range strings.Fields(pss) {
		n, err := strconv.Atoi(kib)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	t.Logf("PSS of an idle guest: %d KiB", total)
	if total == 0 || total >= 25<<10 {
		t.Errorf("an idle guest has a PSS of %d KiB, want less than 25 MiB", total)
	}
}

// Who only looks whether a port is open starts nothing, and neither does a
// request that is none, or is refused.
func TestPortScan(t *testing.T) {
	t.Parallel()
	g := newGuest(t)
	g.run("1000:1000", programsDir+"/inside", "scan", "127.0.0.1:9222")
	g.idle()
}

// scanPort is what scanners do to an address. It reads each connection to its
// end: then it was dealt with.
func scanPort(args []string) error {
	for _, say := range []string{
		"",
		"\r\n",
		"GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:9222\r\n", // half of it
		"GET / HTTP/1.0\r\n\r\n",
		"GET /json/version HTTP/1.1\r\nHost: sandbox.example\r\nConnection: close\r\n\r\n",
		"GET /json/version HTTP/1.1\r\nHost: 127.0.0.1:9222\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n",
		"OPTIONS * RTSP/1.0\r\n\r\n",
		"SSH-2.0-OpenSSH_9.9\r\n",
		"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
		"\x00\x00\x00\x00\xff\xff\xff\xff",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		conn, err := net.DialTimeout("tcp", args[0], testutil.Patience)
		if err != nil {
			return err
		}
		_, err = io.WriteString(conn, say)
		err = errors.Join(err, conn.SetDeadline(time.Now().Add(testutil.Patience)), conn.(*net.TCPConn).CloseWrite())
		answer, readErr := io.ReadAll(conn)
		conn.Close()
		if err = errors.Join(err, readErr); err != nil {
			return fmt.Errorf("%q: %w", say, err)
		}
		if strings.Contains(string(answer), "200 OK") {
			return fmt.Errorf("%q: answered %q", say, answer)
		}
	}
	return nil
}

// The first request of a client starts the desktop and is answered by it.
func TestFirstRequest(t *testing.T) {
	const (
		endpoint = "http://127.0.0.1:9222"
		title    = "the first page"
		page     = "data:text/html,<title>" + title + "</title>"
		node     = "/clients/node_modules/.bin/node"
	)
	for name, c := range map[string]struct {
		npm     bool // made with the packages in testdata/clients
		command []string
		want    string
	}{
		// curl tries once, with one connection.
		"curl":          {false, []string{"curl", "-fsS", "-o", "/dev/null", "-w", "%{num_connects}", endpoint + "/json/version/"}, "1"},
		"chromedp":      {false, []string{programsDir + "/inside", "chromedp", endpoint, page}, title},
		"playwright":    {true, []string{node, "/clients/playwright.js", endpoint, page}, title},
		"puppeteer":     {true, []string{node, "/clients/puppeteer.js", endpoint, page}, title},
		"agent-browser": {true, []string{node, "/clients/agent-browser.js", "9222", page}, title},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needImage(t)
			var options []string
			if c.npm {
				options = []string{"--volume", clients(t) + ":/clients:ro"}
			}
			g := newGuest(t, options...)
			g.idle()
			if got := strings.TrimSpace(g.run("1000:1000", c.command...)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if status := g.run("1000:1000", ctl, "status"); !strings.Contains(status, `"status":"running"`) {
				t.Errorf("the desktop is not all there: %s", status)
			}
		})
	}
}

// chromedpTitle opens a page and prints its title.
func chromedpTitle(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	alloc, cancelAlloc := remote.NewAllocator(ctx, args[0])
	defer cancelAlloc()
	tab, cancelTab := chromedp.NewContext(alloc)
	defer cancelTab()
	if err := chromedp.Do(tab, chromedp.Navigate(args[1])); err != nil {
		return err
	}
	title, err := chromedp.Run(tab, chromedp.Title())
	fmt.Println(title)
	return err
}

// installed are the clients of npm, and a Node for the guest, installed once.
var installed struct {
	sync.Mutex
	dir string
}

// clients gives the directory of the clients that are npm packages, as
// testdata/clients names them.
func clients(t *testing.T) string {
	t.Helper()
	npm := testutil.NeedProgram(t, "npm")
	installed.Lock()
	defer installed.Unlock()
	if installed.dir != "" {
		return installed.dir
	}
	dir := filepath.Join(programs.dir, "clients")
	if err := os.CopyFS(dir, os.DirFS("testdata/clients")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), npm, "install", "--no-audit", "--no-fund", "--ignore-scripts")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		testutil.Skip(t, "npm cannot install the clients: "+string(out))
	}
	installed.dir = dir
	return dir
}
