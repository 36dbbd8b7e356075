package caddymodule

import (
	"crypto/rand"
	"regexp"
	"strings"
	"testing"
)

// jwsPattern says in another way what redactTokens looks for.
var jwsPattern = regexp.MustCompile(`e[wy][A-Za-z0-9_-]{14,}(?:\.|%2[Ee])[A-Za-z0-9_-]{16,}(?:\.|%2[Ee])[A-Za-z0-9_-]*`)

func FuzzRedact(f *testing.F) {
	f.Add("/panel/" + aToken + "/x?y=panel%2F" + aToken)
	f.Add(strings.Repeat("ey", 30) + "." + strings.Repeat("ey", 30) + "." + aToken)
	f.Add("e")
	f.Fuzz(func(t *testing.T, s string) {
		got := redactTokens(s)
		if want := jwsPattern.ReplaceAllLiteralString(s, redacted); got != want {
			t.Errorf("%q: got %q, want %q", s, got, want)
		}
	})
}

func TestRedactKeys(t *testing.T) {
	key := "cp_" + rand.Text()
	for in, want := range map[string]string{
		key:                                   "REDACTED",
		"/x?key=" + key + "&to=%2F" + key:     "/x?key=REDACTED&to=%2FREDACTED",
		`{"key":"` + key + `","t":"` + aToken: `{"key":"REDACTED","t":"REDACTED`,
		"cp_short tcp_some_long_name_of_a_metric": "cp_short tcp_some_long_name_of_a_metric",
	} {
		if got := redact(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// FuzzRewriting tries what guests may send: a rebased address stays what it is,
// and a cookie stays below the panel.
func FuzzRewriting(f *testing.F) {
	for _, s := range []string{"/x", "//h/x", "https://panels.example/x", `/\evil`, "a=1; Path=/; Domain=x", "5; url=/x", "0;URL='http://localhost:3000'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		once := testRebaser.location(s)
		if again := testRebaser.location(once); again != once {
			t.Errorf("%q: once %q, twice %q", s, once, again)
		}
		if strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") && !strings.HasPrefix(once, "/panel/t") {
			t.Errorf("%q leaves the panel: %q", s, once)
		}
		testRebaser.refresh(s)
		path := ""
		for part := range strings.SplitSeq(testRebaser.cookie(s), ";") {
			switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); strings.ToLower(strings.TrimSpace(name)) {
			case "path":
				path = value
			}
		}
		if !strings.HasPrefix(path, "/panel/t") {
			t.Errorf("%q: the cookie's path is %q", s, path)
		}
	})
}

func FuzzSplitPanelPath(f *testing.F) {
	f.Add("/panel/t/x?y")
	f.Add("/panel/")
	f.Fuzz(func(t *testing.T, uri string) {
		p, ok := splitPanelPath(uri, "/panel")
		if ok && p.prefix+p.rest != uri {
			t.Errorf("%q: got %+v", uri, p)
		}
		if ok != strings.HasPrefix(uri, "/panel/") || strings.ContainsAny(p.token, "/?") {
			t.Errorf("%q: got %+v, %v", uri, p, ok)
		}
	})
}
