package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/testutil"
	"github.com/cubeplexai/cubepod/podd/server"
)

// bytesOf gives the bytes that a text answer stands for.
func bytesOf(t *testing.T, text, b64 string) []byte {
	t.Helper()
	if b64 == "" {
		return []byte(text)
	}
	raw, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// readAll reads a command's logs from at to the end, and fails when valid text
// shows a torn character.
func (p *podd) readAll(id string, at int64, valid bool) []byte {
	p.t.Helper()
	var all []byte
	for {
		l := p.logs(id, query("cursor", strconv.FormatInt(at, 10)))
		if valid && strings.Contains(l.Content, "\uFFFD") {
			p.t.Errorf("at %d: U+FFFD in valid text", at)
		}
		got := bytesOf(p.t, l.Content, l.ContentB64)
		if len(got) == 0 {
			return all
		}
		all, at = append(all, got...), l.Cursor
	}
}

func TestACursorTearsNoCharacter(t *testing.T) {
	p := start(t, server.Options{})
	const text = "aé汉😀\u2028z\U0010FFFF"
	r := p.run(poddapi.RunRequest{Command: "printf %s '" + text + "'"})
	if r.Output != text {
		t.Fatalf("got %q", r.Output)
	}
	for at := range len(text) + 1 {
		if got := p.readAll(r.ID, int64(at), true); string(got) != text[at:] {
			t.Errorf("at %d: got %q", at, got)
		}
	}
	for limit := 1; limit <= len(text); limit++ {
		r := p.run(poddapi.RunRequest{Command: "printf %s '" + text + "'; printf %s '" + text + "' > /dev/stderr", OutputLimit: int64(limit), Separate: true})
		if strings.Contains(r.Output+*r.Stdout+*r.Stderr, "\uFFFD") || !strings.HasPrefix(text, *r.Stdout) || !strings.HasPrefix(text+text, r.Output) || r.Cursor != int64(len(r.Output)) {
			t.Errorf("limit %d: got %+v", limit, r)
		}
	}
}

// Where the middle of a long output is gone, the text on either side is whole.
func TestAGapTearsNoCharacter(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: "printf x; yes 汉😀é | head -c 20000000", OutputLimit: 1})
	const head, tail, total = 8 << 20, 8 << 20, 20_000_001
	for _, at := range []int64{0, 1, head - 5, head - 1, head, head + 1, total - tail - 1, total - tail, total - tail + 1, total - 1} {
		l := p.logs(r.ID, query("cursor", strconv.FormatInt(at, 10)))
		if strings.Contains(l.Content, "\uFFFD") && at != total-1 { // head -c tore the last one
			t.Errorf("at %d: got %d bytes that begin with %.9q", at, len(l.Content), l.Content)
		}
		if gone := at >= head && at < total-tail; gone && (!l.Truncated || l.Cursor <= total-tail) {
			t.Errorf("at %d: got %+v", at, l.Status)
		}
	}
	if got := p.readAll(r.ID, 0, false); len(got) != head+tail {
		t.Errorf("got %d bytes", len(got))
	}
}

func TestAnyBytes(t *testing.T) {
	p := start(t, server.Options{})
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for name, want := range map[string][]byte{
		"every byte":  bytes.Repeat(every, 300),
		"line breaks": []byte("a\n\n  b\r10%\r20%\x00end"),
		"no text":     bytes.Repeat([]byte{0xff, 0xc0, 0x80}, 1000),
		"nothing":     nil,
	} {
		path := worldDir(t) + "/f"
		p.do("PUT", "/v1/files"+query("path", path), string(want))
		r := p.run(poddapi.RunRequest{Command: "cat " + path})
		if got := bytesOf(t, r.Output, r.OutputB64); !bytes.Equal(got, want) || r.Cursor != int64(len(want)) {
			t.Errorf("%s: got %d bytes, want %d", name, len(got), len(want))
		}
		if _, _, got := p.do("GET", "/v1/commands/"+r.ID+"/logs?format=raw", nil); !bytes.Equal(got, want) {
			t.Errorf("%s, raw: got %d bytes, want %d", name, len(got), len(want))
		}
		if _, _, got := p.do("GET", "/v1/files"+query("path", path), nil); !bytes.Equal(got, want) {
			t.Errorf("%s, file: got %d bytes, want %d", name, len(got), len(want))
		}
	}
}

// Readers at the same offset get the same bytes, also while more are written.
func TestReadersAgree(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: "seq -f 'line %.0f 汉' 200000", Background: true})
	got := make([][]byte, 4)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			for at := int64(0); ; {
				l := p.logs(r.ID, query("cursor", strconv.FormatInt(at, 10), "wait_ms", "60000"))
				if len(l.Content) == 0 && !l.Running {
					return
				}
				got[i] = append(got[i], l.Content...)
				at = l.Cursor
			}
		})
	}
	all.Wait()
	for i := range got {
		if !bytes.Equal(got[i], got[0]) || !bytes.HasSuffix(got[i], []byte("\nline 200000 汉\n")) {
			t.Errorf("reader %d has %d bytes", i, len(got[i]))
		}
	}
}

// stalled sends a request and does not read its answer.
func (p *podd) stalled(path string) net.Conn {
	p.t.Helper()
	c, err := net.Dial("tcp", p.http.Listener.Addr().String())
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+fullToken+"\r\nConnection: close\r\n\r\n")
	return c
}

func TestAReaderThatStopsDisturbsNobody(t *testing.T) {
	p := start(t, server.Options{})
	r := p.run(poddapi.RunRequest{Command: "yes", Background: true})
	for _, q := range []string{"?follow=1", "?follow=1", "?format=raw", ""} {
		p.stalled("/v1/commands/" + r.ID + "/logs" + q)
	}
	at := int64(0)
	testutil.Eventually(t, "the command writes on", func() bool {
		l := p.logs(r.ID, query("cursor", strconv.FormatInt(at, 10), "wait_ms", "1000"))
		at = l.Cursor
		return call[poddapi.Status](p, "GET", "/v1/commands/"+r.ID+"/status", nil).Cursor > 100<<20
	})
	if r := p.run(poddapi.RunRequest{Command: "echo hi"}); r.Output != "hi\n" {
		t.Errorf("got %+v", r)
	}
	if k := call[poddapi.Killed](p, "POST", "/v1/commands/"+r.ID+"/kill", nil); k.Status != "killed" {
		t.Errorf("got %+v", k)
	}
}

// A transfer whose other side stalls is given up.
func TestAStalledTransferEnds(t *testing.T) {
	p := start(t, server.Options{Patience: 50 * time.Millisecond})
	dir := t.TempDir()
	p.do("PUT", "/v1/files"+query("path", dir+"/big"), strings.Repeat("x", 64<<20))
	for i, path := range []string{"/v1/files" + query("path", dir+"/big"), "/v1/archive" + query("path", dir)} {
		over := func(n int) func() bool { return func() bool { return p.answered.Load() == int64(n) } }
		testutil.Eventually(t, "earlier calls are over", over(i+1))
		c := p.stalled(path)
		// The end shows to a reader that comes back.
		testutil.Eventually(t, "podd gives up", over(i+2))
		if n, err := io.Copy(io.Discard, c); n >= 64<<20 {
			t.Errorf("%s: got all, %v", path, err)
		}
	}
	c, err := net.Dial("tcp", p.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "PUT /v1/files"+query("path", dir+"/half")+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+fullToken+"\r\nContent-Length: 100\r\n\r\nhalf")
	answer, _ := io.ReadAll(c)
	if !bytes.Contains(answer, []byte(" 400 ")) || !bytes.Contains(answer, []byte(`"body_incomplete"`)) {
		t.Errorf("got %s", answer)
	}
	if status, _, data := p.do("GET", "/v1/files/list"+query("path", dir), nil); status != 200 || bytes.Contains(data, []byte("half")) || bytes.Contains(data, []byte(".podd-")) {
		t.Errorf("got %d %s", status, data)
	}
	// One that moves takes longer than that, as long as it likes.
	p = start(t, server.Options{Patience: 2 * time.Second})
	slow, w := io.Pipe()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range 30 {
			io.WriteString(w, strings.Repeat("y", 1000))
			<-tick.C
		}
		w.Close()
	}()
	req, _ := http.NewRequestWithContext(context.Background(), "PUT", p.http.URL+"/v1/files"+query("path", dir+"/slow"), slow)
	req.Header.Set("Authorization", "Bearer "+fullToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if e := call[poddapi.Entry](p, "GET", "/v1/files/stat"+query("path", dir+"/slow"), nil); resp.StatusCode != 200 || e.Size != 30_000 {
		t.Errorf("got %s, %+v", resp.Status, e)
	}
}
