package console_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// realAPI is the program itself, with its own Redis and the local runtime.
type realAPI struct {
	url, key string
}

// startRealAPI skips t where no sandboxes can be run.
func startRealAPI(t *testing.T) *realAPI {
	t.Helper()
	if browser == nil {
		testutil.Skip(t, "needs chromium")
	}
	testutil.NeedRoot(t)
	for _, program := range []string{"bwrap", "pasta", "redis-server", "setpriv", "perl"} {
		testutil.NeedProgram(t, program)
	}
	dir, err := os.MkdirTemp("", "console") // short enough for the sockets in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for target, pkg := range map[string]string{"sessionapi": "../cmd/sessionapi", "guest/podd": "../../podd"} {
		if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, target), pkg).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", pkg, err, out)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var log safeBuffer
	data := filepath.Join(dir, "data")
	cmd := exec.Command(filepath.Join(dir, "sessionapi"), "--data", data, "--guest-dir", dir, "--runtime", "local",
		"--listen", address, "--metrics-listen", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it pauses its sandboxes
		if err := cmd.Wait(); err != nil {
			t.Errorf("the API ended with %v", err)
		}
		if t.Failed() {
			t.Logf("the API said:\n%s", log.String())
		}
	})
	r := &realAPI{url: "http://" + address}
	testutil.Eventually(t, "the API is ready", func() bool {
		resp, err := http.Get(r.url + "/ready")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	key, err := os.ReadFile(filepath.Join(data, "keys", "admin-key"))
	if err != nil {
		t.Fatal(err)
	}
	r.key = strings.TrimSpace(string(key))
	return r
}

// safeBuffer is a bytes.Buffer for two goroutines.
type safeBuffer struct {
	mu sync.Mutex // guards the field below
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// run types a command and waits for how it ended.
func (p *page) run(command, outcome string) {
	p.t.Helper()
	p.click("Commands")
	before := p.eval("document.querySelectorAll('.history li').length")
	p.write("#command", command+kb.Enter)
	p.until(fmt.Sprintf("document.querySelectorAll('.history li').length > %s", before))
	p.sees(".result .outcome", outcome)
}

// TestARealSandbox does with a real sandbox what a person would: what the fakes
// of the other tests get wrong shows here.
func TestARealSandbox(t *testing.T) {
	api := startRealAPI(t)
	p := newPage(t)
	p.open(api.url + "/#key=" + api.key)
	p.sees(".line", "Live")
	p.click("New sandbox")
	p.until("document.querySelector('dialog[open]') !== null")
	p.eval("document.querySelector('[value=base]').click()")
	p.write("#name", "a real one")
	p.click("Create")
	p.sees(".badge", "ends in 59 minutes")
	p.sees("dl.facts", "a real one")

	p.write("#command", `mkfifo /workspace/go; printf 'one\n'; read < /workspace/go; printf '\033[1;32mtwo\033[0m \377\n'; exit 3`+kb.Enter)
	p.sees(".output", "one")
	p.sees(".result .outcome", "Running")
	p.run("echo > /workspace/go; rm /workspace/go", "Succeeded")
	p.eval("[...document.querySelectorAll('.history button')].at(-1).click()")
	p.sees(".result .outcome", "Failed with exit code 3")
	p.until(`document.querySelector('.output pre').textContent === 'one\ntwo \ufffd\n'`)

	testRealFiles(p)

	p.run(`perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 3456, Listen => 5) or die; print "up\n"; $| = 1; sleep 600'`, "Running")
	p.click("Ports")
	p.sees(".ports .row", "3456")
	p.click("Register")
	p.sees(".ports .row", "Listening, registered")
	p.click("Commands")
	p.click("Kill")
	p.sees(".result .outcome", "Killed")
	p.click("Ports")
	p.sees(".ports .row", "Nobody listens, registered")
	p.click("Unregister")
	p.until("!document.querySelector('.ports .row')")

	p.click("Time")
	p.eval("document.querySelector('#extend').value = '14400'")
	p.click("Set")
	p.sees(".badge", "ends in 3 hours 59 minutes")
	p.click("Pause")
	p.sees(".badge", "Paused")
	p.sees(".badge", "just now")
	p.click("Files")
	p.sees(".files .stage", "The sandbox is not running")
	p.click("Resume")
	p.sees(".badge", "Running")
	p.sees(".listing", "kept.bin")
	p.click("Delete")
	p.sees("dialog", "cannot be undone")
	p.click("Delete")
	p.sees(".empty", "No sandboxes")
}

func testRealFiles(p *page) {
	p.t.Helper()
	p.run(`cd /workspace; printf x > $'new\nline'; printf y > '<b>"%41#?&+ ü.txt'; printf z > $'no\377text'; ln -s /etc link; ln -s nowhere broken`, "Succeeded")
	p.openFiles(`new\nline`)
	p.sees(".listing", "Its name is not UTF-8")
	p.catchDownloads()
	p.click(`Download new\nline`)
	p.until("saved[0]?.text === 'x'")
	p.click(`Download <b>"%41#?&+ ü.txt`)
	p.until("saved[1]?.text === 'y'")

	// Every byte, several times over, so that it comes in pieces.
	p.eval(`(() => {
		const bytes = new Uint8Array(1_000_000).map((_, n) => n * 7 + (n >> 8));
		const data = new DataTransfer();
		data.items.add(new File([bytes], 'kept.bin'));
		data.items.add(new File(['plus'], 'a+b & "c" %2F #d?.txt'));
		window.bytes = bytes;
		document.querySelector('.files').dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: data}));
	})()`)
	p.sees(".listing", "kept.bin")
	p.sees(".listing", `a+b & "c" %2F #d?.txt`)
	p.run(`cd /workspace; stat -c '%s %u %a' kept.bin; cat 'a+b & "c" %2F #d?.txt'`, "Succeeded")
	p.sees(".output", "1000000 1000 644")
	p.sees(".output", "plus")
	p.click("Files")
	p.eval("HTMLAnchorElement.prototype.click = async function () { window.back = new Uint8Array(await blobs.get(this.href).arrayBuffer()); }")
	p.click("Download kept.bin")
	p.until("window.back?.length === bytes.length && back.every((b, n) => b === bytes[n])")

	p.click("New folder")
	p.write("#folder", "in % here"+kb.Enter)
	p.sees(".listing", "in % here")
	p.click("in % here")
	p.sees(".files .stage", "This folder is empty")
	p.click("Up to the parent folder")
	p.click("broken")
	p.sees(".files .problem", "broken leads nowhere")
	p.click("link")
	p.sees(".listing", "passwd")
	p.click("workspace")
	for _, name := range []string{`new\nline`, `<b>"%41#?&+ ü.txt`, "in % here", "link"} {
		p.click("Delete " + name)
		p.sees("dialog", "cannot be undone")
		p.click("Delete")
		p.until(fmt.Sprintf("![...document.querySelectorAll('.listing .open')].some((n) => n.innerText === %q)", name))
	}
	p.sees(".listing", "kept.bin")
}
