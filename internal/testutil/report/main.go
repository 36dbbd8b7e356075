// Command report reads the output of `go test -json` and prints it for people:
// a line for each package, the output of what failed, and at the end what was
// skipped and why. It exits with 1 when anything failed, when no test ran, and
// under CUBEPOD_TEST_NO_SKIP when anything was skipped.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

// event is a line of test2json, see `go doc test2json`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

func main() {
	if !report(os.Stdin, os.Stdout, os.Getenv(testutil.NoSkipEnv) != "") {
		os.Exit(1)
	}
}

func report(in io.Reader, out io.Writer, noSkip bool) bool {
	var (
		passed, failed int
		skipped        []string
		broken         bool
		output         = map[string]*strings.Builder{} // by package and test
	)
	sc := bufio.NewScanner(in)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil { // what go itself says, such as a failed download
			fmt.Fprintln(out, sc.Text())
			continue
		}
		key := e.Package + " " + e.Test
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "output":
			if output[key] == nil {
				output[key] = new(strings.Builder)
			}
			output[key].WriteString(e.Output)
		case "pass", "fail", "skip":
			text := ""
			if b := output[key]; b != nil {
				text = b.String()
				delete(output, key)
			}
			switch {
			case e.Test == "" && e.Action == "skip": // no test files
			case e.Test == "":
				broken = broken || e.Action == "fail"
				fmt.Fprintf(out, "%-5s %s (%.1f s)\n", e.Action, e.Package, e.Elapsed)
				if e.Action == "fail" {
					fmt.Fprint(out, text)
				}
			case e.Action == "pass":
				passed++
			case e.Action == "fail":
				failed++
				fmt.Fprintf(out, "\n--- %s %s\n%s\n", e.Package, e.Test, text)
			case e.Action == "skip":
				skipped = append(skipped, e.Package+" "+e.Test+": "+reason(text))
			}
		}
	}
	if err := sc.Err(); err != nil {
		fmt.Fprintln(out, "read the tests' output:", err)
		broken = true
	}
	if len(skipped) > 0 {
		fmt.Fprintln(out, "\nnot run on this machine:")
		for _, s := range skipped {
			fmt.Fprintln(out, "  "+s)
		}
	}
	if noSkip && len(skipped) > 0 {
		fmt.Fprintln(out, "nothing may be skipped here")
		broken = true
	}
	fmt.Fprintf(out, "\n%d passed, %d failed, %d skipped\n", passed, failed, len(skipped))
	return !broken && failed == 0 && passed > 0
}

// reason finds what a test said when it was skipped: the line after its file
// and line number.
func reason(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if _, after, ok := strings.Cut(line, ".go:"); ok {
			if _, why, ok := strings.Cut(after, ": "); ok {
				return why
			}
		}
	}
	return "no reason given"
}
