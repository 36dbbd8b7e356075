package runtimetest

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// ActAsPodd makes a test binary that was started under the name "podd" a small
// podd: health, foreground commands and the full token, so that a runtime can be
// tested apart from the real one. Call it first in TestMain; in any other
// process it returns at once.
func ActAsPodd() {
	if filepath.Base(os.Args[0]) != "podd" {
		return
	}
	if err := standIn(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "stand-in podd:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func standIn(args []string) error {
	fs := flag.NewFlagSet("podd", flag.ContinueOnError)
	addr := fs.String("addr", poddapi.Addr, "")
	tokenFile := fs.String("token-file", "", "")
	workdir := fs.String("workdir", poddapi.Workdir, "")
	fs.String("state-dir", "", "")
	if err := fs.Parse(args); err != nil {
		return err
	}
	tokens, err := os.ReadFile(*tokenFile)
	if err != nil {
		return err
	}
	network, address := "tcp", *addr
	if path, ok := strings.CutPrefix(*addr, "unix:"); ok {
		network, address = "unix", path
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(poddapi.Health{Status: "ok", Daemon: "podd", Workdir: *workdir})
	})
	mux.HandleFunc("POST /v1/commands/run", func(w http.ResponseWriter, req *http.Request) {
		shown := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if full, _, _ := strings.Cut(poddapi.TokenFile(shown, ""), "\n"); !strings.HasPrefix(string(tokens), full+"\n") {
			apierror.Write(w, apierror.New(apierror.Unauthorized, "", "wrong token"))
			return
		}
		var run poddapi.RunRequest
		if err := json.NewDecoder(req.Body).Decode(&run); err != nil {
			apierror.Write(w, err)
			return
		}
		out, err := runCommand(run, *workdir)
		if err != nil {
			apierror.Write(w, err)
			return
		}
		_ = json.NewEncoder(w).Encode(out)
	})
	return http.Serve(ln, mux)
}

// runCommand writes output to a file, so that what the command leaves behind
// does not hold it up.
func runCommand(run poddapi.RunRequest, workdir string) (poddapi.RunResponse, error) {
	out, err := os.CreateTemp("", "out-")
	if err != nil {
		return poddapi.RunResponse{}, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	cmd := exec.Command("/bin/sh", "-c", run.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = workdir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if run.UID != nil {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: *run.UID, Gid: poddapi.GuestGID}
	}
	runErr := cmd.Run()
	if cmd.ProcessState == nil {
		return poddapi.RunResponse{}, runErr
	}
	data, err := os.ReadFile(out.Name())
	code := cmd.ProcessState.ExitCode()
	return poddapi.RunResponse{Status: poddapi.Status{ExitCode: &code}, Output: string(data)}, err
}
