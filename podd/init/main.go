// Command podd-init is process 1 of a container: it runs podd, passes signals
// on to it, and reaps what podd leaves behind.
//
//	podd-init [podd's settings]   run podd, which is beside podd-init
//	podd-init copy DIR            put podd and podd-init into DIR
//
// A podd that crashes is started again, since nothing in the sandbox can be
// reached without it; the new one knows what the old one has run. A crash is
// any end but status 0 or 1, which podd chose itself and explained, or by a
// signal that was passed on. After too many crashes in a row podd-init gives
// up, so that the container's runtime sees it. It ends with podd's status,
// 128+n when that was signal n.
//
// With CUBEPOD_ROOTFS_UPPER set, everything that changes in the root file
// system goes to that directory, see overlay.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/guest"
)

const usage = `podd-init is process 1 of a sandbox.

  podd-init [podd's settings]   run podd, which is beside podd-init; see podd --help
  podd-init copy DIR            put podd and podd-init into DIR, for init containers

Settings (environment, default):
  CUBEPOD_ROOTFS_UPPER   directory that takes all changes to the root file system,
                         by an overlay; needs the right to mount (default: none)
`

// Mounts, the root directory and children belong to a thread; the main
// goroutine keeps the main one, which the whole container goes by.
func init() { runtime.LockOSThread() }

func main() {
	logger := log.New(os.Stderr, "[podd-init] ", 0)
	self, err := os.Executable()
	if err != nil {
		fatal(logger, err)
	}
	bin := filepath.Dir(self)
	switch args := os.Args[1:]; {
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help"):
		fmt.Print(usage)
	case len(args) > 0 && args[0] == "copy":
		if len(args) != 2 {
			logger.Print("copy wants one directory")
			os.Exit(2)
		}
		if err := copyPrograms(bin, args[1]); err != nil {
			fatal(logger, err)
		}
	default:
		os.Exit(run(filepath.Join(bin, "podd"), args, logger))
	}
}

func fatal(logger *log.Logger, err error) {
	logger.Print(err)
	os.Exit(1)
}

// run prepares the guest and attends podd until its end.
func run(podd string, args []string, logger *log.Logger) int {
	syscall.Umask(0o022)
	state := "ready"
	if upper := os.Getenv("CUBEPOD_ROOTFS_UPPER"); upper != "" {
		state = "overlay"
		if err := overlay(upper); err != nil {
			logger.Printf("no overlay on %s: %v; changes to the root file system are lost with the container", upper, err)
			state = "no_overlay"
		}
	}
	guest.Prepare(poddapi.Workdir, logger)
	s := &supervisor{path: podd, args: args, env: append(os.Environ(), "CUBEPOD_INIT_STATE="+state), log: logger}
	return s.run()
}
