package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	tests := []struct {
		name, in string
		noSkip   bool
		ok       bool
		want     []string
	}{
		{"a skip is listed with its reason", `{"Action":"output","Package":"p","Test":"TestA","Output":"    skip.go:20: needs the program ttyd\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}
{"Action":"pass","Package":"p"}`, false, true, []string{"p TestA: needs the program ttyd", "1 passed, 0 failed, 1 skipped"}},
		{"a skip fails where none is allowed", `{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB"}`, true, false, []string{"nothing may be skipped here"}},
		{"a failure shows its output", `{"Action":"output","Package":"p","Test":"TestA","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`, false, false, []string{"got 1, want 2", "0 passed, 1 failed"}},
		{"a package that does not build fails", `{"Action":"build-output","ImportPath":"p","Output":"p.go:1: undefined: x\n"}
{"Action":"pass","Package":"q","Test":"TestA"}
{"Action":"fail","Package":"p"}`, false, false, []string{"undefined: x"}},
		{"no test is no success", ``, false, false, []string{"0 passed"}},
		{"what go says is passed on", "go: download failed\n", false, false, []string{"go: download failed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if got := report(strings.NewReader(tt.in), &out, tt.noSkip); got != tt.ok {
				t.Errorf("got %v, want %v", got, tt.ok)
			}
			for _, w := range tt.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("%q is not in\n%s", w, out.String())
				}
			}
		})
	}
}
