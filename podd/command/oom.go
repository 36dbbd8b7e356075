package command

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// oomKills counts the processes that the kernel killed in podd's own control
// group and below for want of memory. Without that file it is 0.
func oomKills() int64 {
	f, err := os.Open("/sys/fs/cgroup/memory.events")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if n, ok := strings.CutPrefix(sc.Text(), "oom_kill "); ok {
			kills, _ := strconv.ParseInt(n, 10, 64)
			return kills
		}
	}
	return 0
}
