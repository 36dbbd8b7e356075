package caddymodule_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strings"
	"testing"
	"time"
)

// says is a guest that answers each request with the bytes of its query, and of
// more, if there is any.
func says(more string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, r.URL.Query().Get("say")+more)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
	})
}

func TestInformationalResponsesStay(t *testing.T) {
	const hints = "HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=1; Path=/\r\nService-Worker-Allowed: /\r\nLink: </x>; rel=preload\r\nX-Hint: 1\r\n\r\n"
	const answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	e := startEdge(t, says(hints+strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20_000)+"HTTP/1.1 150 Odd\r\n\r\n"+answer), edgeOptions{tls: true, quiet: true})
	panel := e.panel(3000)
	for version, c := range clients(t) {
		t.Run(version, func(t *testing.T) {
			var got []int
			trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				got = append(got, code)
				return nil
			}}
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), "GET", panel+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(body) != "ok" {
				t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
			}
			if len(got) > 0 {
				t.Errorf("%d informational responses came first, such as %d", len(got), got[0])
			}
			for _, name := range []string{"Set-Cookie", "Service-Worker-Allowed", "Link", "X-Hint"} {
				if v := resp.Header.Values(name); v != nil {
					t.Errorf("%s: got %q of a hint", name, v)
				}
			}
		})
	}
}

// TestExpectContinue uploads a body that is not sent before the edge asks for it.
func TestExpectContinue(t *testing.T) {
	e := startEdge(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }), edgeOptions{tls: true})
	panel := e.panel(3000)
	for version, c := range clients(t) {
		h, ok := c.Transport.(*http.Transport)
		if !ok {
			continue // the HTTP/3 client does not wait
		}
		h.ExpectContinueTimeout = time.Hour
		t.Run(version, func(t *testing.T) {
			asked := false
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked = true }})
			r, err := http.NewRequestWithContext(ctx, "POST", panel+"/", strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Expect", "100-continue")
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || string(body) != "body" {
				t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
			}
			if !asked {
				t.Error("the edge did not ask for the body")
			}
		})
	}
}

func TestSenselessStatus(t *testing.T) {
	e := startEdge(t, says(""), edgeOptions{tls: true})
	panel := e.panel(3000)
	lines := map[string]string{
		"below 100": "099 x", "zero": "000 x", "signed": "+12 x", "negative": "-12 x", "four digits": "1000 x", "no number": "abc x",
		"stray 101": "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket", "bare 101": "101 Switching Protocols",
	}
	for version, c := range clients(t) {
		for name, line := range lines {
			t.Run(version+"/"+name, func(t *testing.T) {
				say := strings.NewReplacer(" ", "%20", "\r\n", "%0D%0A", "+", "%2B").Replace("HTTP/1.1 " + line + "\r\nX-Guest: 1\r\n\r\n")
				resp := send(t, c, version, "GET", panel+"/?say="+say, nil)
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 502 || !bytes.Contains(body, []byte("upstream_failed")) || resp.Header.Get("X-Guest") != "" {
					t.Errorf("got %d %q, %v", resp.StatusCode, body, err)
				}
			})
		}
	}
	log, err := os.ReadFile(e.logfile)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(log)); lines.Scan(); {
		if strings.Contains(lines.Text(), "panic") {
			t.Errorf("the edge panics: %.200s", lines.Text())
		}
	}
}

func TestGuestsHearOfNoOtherProxy(t *testing.T) {
	names := []string{"Forwarded", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "X-Original-Url", "X-Rewrite-Url", "X-Forwarded-Port", "X-Forwarded-Server"}
	seen := make(chan http.Header, 1)
	e := startEdge(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }), edgeOptions{})
	var header []string
	for _, name := range append(names, "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto") {
		header = append(header, name, "evil")
	}
	e.get(e.panel(3000)+"/", header...)
	got := <-seen
	for name, values := range got {
		if strings.Contains(strings.Join(values, ","), "evil") {
			t.Errorf("%s: got %q", name, values)
		}
	}
	if got.Get("X-Forwarded-Proto") != "http" {
		t.Errorf("X-Forwarded-Proto: got %q", got.Get("X-Forwarded-Proto"))
	}
}
