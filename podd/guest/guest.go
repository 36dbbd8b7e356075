// Package guest makes the directories that everything in a sandbox expects.
// podd does so at its start, and podd-init before it.
package guest

import (
	"log"
	"os"

	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// Prepare makes /run/cubepod and, when that is workdir, /workspace. What is
// there stays as it is. A guest that is read-only or whose podd is not root
// does without.
func Prepare(workdir string, logger *log.Logger) {
	if os.Geteuid() != 0 {
		return
	}
	makeDir(poddapi.RunDir, 0o755, 0, 0, logger)
	makeDir(poddapi.RunDir+"/desktop", 0o700, poddapi.GuestUID, poddapi.GuestGID, logger)
	if workdir == poddapi.Workdir {
		makeDir(workdir, 0o755, poddapi.GuestUID, poddapi.GuestGID, logger)
	}
}

func makeDir(path string, mode os.FileMode, uid, gid int, logger *log.Logger) {
	err := os.Mkdir(path, mode)
	if os.IsExist(err) {
		return
	}
	if err == nil {
		err = os.Chown(path, uid, gid)
	}
	if err != nil {
		logger.Printf("make %s: %v", path, err)
	}
}
