package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reclaim frees the System V shared memory that the last run of name made and
// nobody uses any more. The kernel keeps it when its maker is killed and has
// room for 4096 pieces, of which an x11vnc takes about 90: after some tens of
// kills no VNC server would start.
func (d Dir) Reclaim(name string) error {
	p := d.fromFile(name)
	if p == nil {
		return nil
	}
	// Pieces of a process that has the pid by now would be its own.
	if s, err := readStat(p.Pid); err == nil && (s.start != p.start || !s.zombie()) {
		return nil
	}
	f, err := os.Open("/proc/sysvipc/shm")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var failed error
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// key, id, mode, size, its maker's pid, its last user's, users now, …
		w := strings.Fields(lines.Text())
		if len(w) < 7 || w[4] != strconv.Itoa(p.Pid) || w[6] != "0" {
			continue
		}
		id, err := strconv.Atoi(w[1])
		if err == nil {
			_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
		}
		if err != nil {
			failed = fmt.Errorf("free shared memory %s: %w", w[1], err)
		}
	}
	return errors.Join(failed, lines.Err())
}
