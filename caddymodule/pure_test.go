package caddymodule

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestSplitPanelPath(t *testing.T) {
	tests := []struct {
		uri, token, rest string
		ok               bool
	}{
		{"/panel/t/", "t", "/", true},
		{"/panel/t/a%2Fb?x=/y", "t", "/a%2Fb?x=/y", true},
		{"/panel/t//a", "t", "//a", true},
		{"/panel/t/?", "t", "/?", true},
		{"/panel/t", "t", "", true},
		{"/panel/t?a=b", "t", "?a=b", true},
		{"/panel/", "", "", true},
		{"/panel", "", "", false},
		{"/PANEL/t/", "", "", false},
		{"/%70anel/t/", "", "", false},
		{"//panel/t/", "", "", false},
		{"/panelx/t/", "", "", false},
	}
	for _, tt := range tests {
		p, ok := splitPanelPath(tt.uri, "/panel")
		if ok != tt.ok || p.token != tt.token || p.rest != tt.rest {
			t.Errorf("%s: got %+v, %v", tt.uri, p, ok)
		}
	}
}

var testRebaser = rebaser{prefix: "/panel/t", host: "panels.example", target: &target{port: 3000}}

func TestRebaseLocation(t *testing.T) {
	tests := map[string]string{
		"/":                                 "/panel/t/",
		"/login?next=/x#y":                  "/panel/t/login?next=/x#y",
		"/panel/t/login":                    "/panel/t/login",
		"/panel/t":                          "/panel/t",
		"/panel/t?x":                        "/panel/t?x",
		"/panel/tx":                         "/panel/t/panel/tx",
		"/panel/other/x":                    "/panel/t/panel/other/x",
		"login":                             "login",
		"?a=b":                              "?a=b",
		"":                                  "",
		"#top":                              "#top",
		"//cdn.example/x":                   "//cdn.example/x",
		"//panels.example/x":                "/panel/t/x",
		"https://panels.example/x?y":        "/panel/t/x?y",
		"http://PANELS.example":             "/panel/t/",
		"http://localhost:3000/a":           "/panel/t/a",
		"http://127.0.0.1:3000?x":           "/panel/t/?x",
		"http://localhost:3001/a":           "http://localhost:3001/a",
		"https://panels.example.evil/x":     "https://panels.example.evil/x",
		"https://panels.example@evil/x":     "https://panels.example@evil/x",
		"https://panels.example/panel/t/ok": "/panel/t/ok",
		`/\evil.example`:                    `/panel/t/\evil.example`,
		"mailto:a@b":                        "mailto:a@b",
	}
	for in, want := range tests {
		got := testRebaser.location(in)
		if got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if again := testRebaser.location(got); again != got {
			t.Errorf("%q: twice gives %q, once %q", in, again, got)
		}
	}
}

func TestRebaseRefresh(t *testing.T) {
	for in, want := range map[string]string{
		"5":                            "5",
		"0; url=/x":                    "0; url=/panel/t/x",
		`3;URL="/x"`:                   "3; url=/panel/t/x",
		"1; url=https://other.example": "1; url=https://other.example",
		"1; nonsense":                  "1; nonsense",
	} {
		if got := testRebaser.refresh(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestConfineCookie(t *testing.T) {
	for in, want := range map[string]string{
		"a=1":                                "a=1; Path=/panel/t/",
		"a=1; Path=/":                        "a=1; Path=/panel/t/",
		"a=1; path=/app; Secure":             "a=1; Secure; Path=/panel/t/app",
		"a=1;Domain=.example.com;HttpOnly":   "a=1;HttpOnly; Path=/panel/t/",
		"a=1; Path=/; Path=/panel/other/":    "a=1; Path=/panel/t/panel/other/",
		"a=1; Path=relative":                 "a=1; Path=/panel/t/",
		"a=1; Path=/panel/t/x; SameSite=Lax": "a=1; SameSite=Lax; Path=/panel/t/x",
		"a=x=y; Max-Age=3":                   "a=x=y; Max-Age=3; Path=/panel/t/",
	} {
		if got := testRebaser.cookie(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

const aToken = "eyJhbGciOiJIUzI1NiJ9.eyJzaWQiOiJhYmNkZWZnaGlqIn0.c2lnbmF0dXJl_-x"

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"/panel/" + aToken + "/x?y=" + aToken:                                       "/panel/REDACTED/x?y=REDACTED",
		"https://a/panel/eyJhbGciOiJIUzI1NiJ9%2EeyJzaWQiOiJhYmNkZWZnaGlqIn0%2ec2ln": "https://a/panel/REDACTED",
		"https://eye.example.com/ewok.tar.gz":                                       "https://eye.example.com/ewok.tar.gz",
		"nothing":                                                                   "nothing",
		"panel%2F" + aToken + "%2Fx":                                                "panel%2FREDACTED%2Fx",
		`"a\n` + aToken + `"`:                                                       `"a\nREDACTED"`,
		aToken + aToken:                                                             "REDACTED." + strings.SplitN(aToken, ".", 2)[1],
		strings.Repeat("ey", 40) + "." + strings.Repeat("ew", 40):                   strings.Repeat("ey", 40) + "." + strings.Repeat("ew", 40),
	} {
		if got := redact(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestTokenFilter(t *testing.T) {
	var f TokenFilter
	if got := f.Filter(zap.String("uri", "/panel/"+aToken+"/")); got.String != "/panel/REDACTED/" {
		t.Errorf("text: got %q", got.String)
	}
	in := zap.Array("Referer", caddyhttp.LoggableStringArray{"x", aToken})
	enc := zapcore.NewMapObjectEncoder()
	f.Filter(in).AddTo(enc)
	if got := enc.Fields["Referer"].([]any); got[0] != "x" || got[1] != "REDACTED" {
		t.Errorf("array: got %v", got)
	}
}

func TestAddressAllowed(t *testing.T) {
	every, err := parsePrefixes([]string{"0.0.0.0/0 ::/0"})
	if err != nil {
		t.Fatal(err)
	}
	some, err := parsePrefixes([]string{"10.1.0.0/16", "fd00::7", "127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		ip          string
		every, some bool
	}{
		{"10.1.2.3", true, true},
		{"10.2.0.1", true, false},
		{"fd00::7", true, true},
		{"fd00::8", true, false},
		{"127.0.0.1", false, true}, // loopback has to be named
		{"::1", false, false},
		{"169.254.169.254", false, false},
		{"fe80::1", false, false},
		{"224.0.0.1", false, false},
		{"255.255.255.255", false, false},
		{"0.0.0.0", false, false},
		{"::", false, false},
	}
	for _, tt := range tests {
		ip := netip.MustParseAddr(tt.ip)
		if got := addressAllowed(every, ip); got != tt.every {
			t.Errorf("%s in everything: got %v", tt.ip, got)
		}
		if got := addressAllowed(some, ip); got != tt.some {
			t.Errorf("%s in some: got %v", tt.ip, got)
		}
	}
}

func TestWithoutFrameAncestors(t *testing.T) {
	for in, want := range map[string]string{
		"frame-ancestors 'none'":                           "",
		"default-src 'self'; Frame-Ancestors https://x; a": "default-src 'self'; a",
		"a b; c, frame-ancestors x, d":                     "a b; c, d",
	} {
		if got := withoutFrameAncestors(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// frame makes an unmasked frame.
func frame(op byte, n int) []byte {
	h := []byte{0x80 | op}
	switch {
	case n < 126:
		h = append(h, byte(n))
	case n < 1<<16:
		h = append(h, 126, byte(n>>8), byte(n))
	default:
		h = append(h, 127, 0, 0, 0, 0, 0, byte(n>>16), byte(n>>8), byte(n))
	}
	return append(h, bytes.Repeat([]byte("x"), n)...)
}

func noDeadline(time.Time) error { return nil }

func TestFrameWriterClosesBetweenFrames(t *testing.T) {
	for _, size := range []int{0, 1, 125, 126, 200, 70_000} {
		for _, cut := range []int{1, 2, 3, 9, 64} {
			whole := frame(2, size)
			if cut >= len(whole) {
				continue
			}
			var out bytes.Buffer
			f := newFrameWriter(out.Write, noDeadline)
			if _, err := f.Write(append(frame(1, 5), whole[:cut]...)); err != nil {
				t.Fatal(err)
			}
			caddys := closeFrame(closeGoingAway, "")
			if _, err := f.Write(caddys); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(append(whole[cut:], frame(1, 3)...)); err == nil {
				t.Errorf("size %d, cut %d: goes on after the close frame", size, cut)
			}
			want := append(append(frame(1, 5), whole...), caddys...)
			if !bytes.Equal(out.Bytes(), want) {
				t.Errorf("size %d, cut %d: got %d bytes, want %d", size, cut, out.Len(), len(want))
			}
			if _, err := f.Write([]byte("more")); err == nil {
				t.Error("writes after the close frame")
			}
		}
	}
}

func TestFrameWriterLeavesTheGuestsClose(t *testing.T) {
	var out bytes.Buffer
	f := newFrameWriter(out.Write, noDeadline)
	theirs := closeFrame(1000, "bye")
	if _, err := f.Write(theirs); err != nil {
		t.Fatal(err)
	}
	f.close(closePolicy, "revoked")
	if !bytes.Equal(out.Bytes(), theirs) {
		t.Errorf("got %q", out.Bytes())
	}
}
