package caddymodule_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

var update = flag.Bool("update", false, "rewrite testdata/adapt")

// TestAdapt compares what Caddyfiles become with what they became before: a
// file, a line of dashes, and the JSON or the error.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	const line = "\n----------\n"
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want, _ := strings.Cut(string(text), line)
			got := adapt(t, in)
			if *update {
				if err := os.WriteFile(file, []byte(in+line+got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestShippedCaddyfile(t *testing.T) {
	text, err := os.ReadFile("../Caddyfile")
	if err != nil {
		t.Fatal(err)
	}
	got := adapt(t, string(text))
	for _, want := range []string{`"127.0.0.1:8444"`, `"127.0.0.1:8101"`, `"127.0.0.1:8443"`, `"127.0.0.1:8100"`, `"handler": "cubepod_panel"`, `"status_code": 421`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	t.Setenv("CUBEPOD_PANEL_SITE", "https://panels.example.com")
	if got := adapt(t, string(text)); !strings.Contains(got, `"panels.example.com"`) {
		t.Error("CUBEPOD_PANEL_SITE does not count")
	}
}

func adapt(t *testing.T, caddyfile string) string {
	t.Helper()
	js, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), nil)
	if err != nil {
		return err.Error() + "\n"
	}
	var out bytes.Buffer
	if err := json.Indent(&out, js, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}
