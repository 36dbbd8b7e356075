package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// root is the repository's root, seen from this package.
const root = "../.."

// running is a stack that a test started, as `make run` does, with the shipped
// Caddyfile on ports of its own.
type running struct {
	ConsoleURL  string
	APIURL      string
	EdgeURL     string
	APIKey      string
	SandboxID   string
	DesktopURL  string
	TerminalURL string
	CDPURL      string

	data string
	cmd  *exec.Cmd
	out  *bytes.Buffer
	done chan struct{}
}

// needStack skips t where the stack cannot run, and builds what it runs.
func needStack(t *testing.T) {
	t.Helper()
	testutil.NeedRoot(t)
	for _, p := range []string{"redis-server", "bwrap", "pasta", "chromium", "Xvfb", "x11vnc", "openbox"} {
		testutil.NeedProgram(t, p)
	}
	if out, err := exec.Command(root + "/deploy/build.sh").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
}

// startStack starts a stack over data and returns once it says that it is
// ready. It is ended with t.
func startStack(t *testing.T, data string, more ...string) *running {
	t.Helper()
	args := append(more, "--data", data, "--caddyfile", filepath.Join(root, "Caddyfile"), "--images", filepath.Join(root, "images"))
	for _, f := range []string{"console-port", "panel-port", "console-tls-port", "panel-tls-port"} {
		args = append(args, "--"+f, strconv.Itoa(freePort(t)))
	}
	for _, f := range []string{"api", "metrics"} {
		args = append(args, "--"+f, "127.0.0.1:"+strconv.Itoa(freePort(t)))
	}
	r := &running{data: data, out: new(bytes.Buffer), done: make(chan struct{})}
	r.cmd = exec.Command(root+"/bin/dev", args...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = r.cmd.Stdout
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() { // ends with the program's output
		defer close(r.done)
		sc := bufio.NewScanner(pipe)
		for sc.Scan() {
			fmt.Fprintln(r.out, sc.Text())
			if strings.HasPrefix(sc.Text(), "ready: ") {
				ready <- true
			}
		}
		r.cmd.Wait()
		close(ready)
	}()
	t.Cleanup(func() { r.stop(t) })
	if !<-ready {
		t.Fatalf("the stack did not come up:\n%s", r.out)
	}
	doc, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(doc, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// stop ends the stack as a SIGTERM does and waits for it.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cmd.Process.Signal(syscall.SIGTERM) // one that has ended is fine too
	<-r.done
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the stack ended with %d:\n%s", code, r.out)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// call calls the API and decodes its answer into out, unless that is nil.
func (r *running) call(t *testing.T, method, path string, in, out any) int {
	t.Helper()
	var body io.Reader
	if in != nil {
		doc, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(doc)
	}
	req, err := http.NewRequest(method, r.APIURL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-Key", r.APIKey)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	doc, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(doc, out); err != nil {
			t.Fatalf("%s %s: %s: %s", method, path, resp.Status, doc)
		}
	}
	return resp.StatusCode
}

type result struct {
	Output   string `json:"output"`
	ExitCode *int   `json:"exit_code"`
}

// sh runs a command in a sandbox, as its user, and gives its output.
func (r *running) sh(t *testing.T, sandbox, command string) string {
	t.Helper()
	var res result
	status := r.call(t, "POST", "/sandboxes/"+sandbox+"/commands/run", map[string]any{"command": command, "timeout_ms": 30000}, &res)
	if status != 200 {
		t.Fatalf("run %q: status %d", command, status)
	}
	return res.Output
}

// status is the HTTP status of a GET without any header of a browser.
func status(t *testing.T, url string) int {
	t.Helper()
	code, _ := get(t, url)
	return code
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// process is one process of this machine, told from later ones of its pid by
// its start time.
type process struct {
	pid     int
	state   string
	started string
	command string
}

// descendants are all processes below pid.
func descendants(t *testing.T, pid int) []process {
	t.Helper()
	children := map[int][]process{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		if p, ppid, ok := readStat(path); ok {
			children[ppid] = append(children[ppid], p)
		}
	}
	var all []process
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, p := range children[todo[0]] {
			all = append(all, p)
			todo = append(todo, p.pid)
		}
	}
	return all
}

func readStat(path string) (p process, ppid int, ok bool) {
	data, err := os.ReadFile(path)
	if err != nil {
		return p, 0, false // it has ended
	}
	text := string(data)
	name := text[strings.IndexByte(text, '(')+1 : strings.LastIndexByte(text, ')')]
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
	ppid, _ = strconv.Atoi(f[1])
	return process{pid: pid, state: f[0], started: f[19], command: name}, ppid, true
}

// alive reports whether the very process still runs. One that has ended and
// that the machine's init has not reaped yet does not.
func (p process) alive() bool {
	now, _, ok := readStat(fmt.Sprintf("/proc/%d/stat", p.pid))
	return ok && now.started == p.started && now.state != "Z"
}
