package command

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// Identity is who a process runs as, or who a file belongs to.
type Identity struct {
	UID, GID uint32
	Groups   []uint32 // supplementary

	name, home, shell string
}

// Accounts answers from /etc/passwd and /etc/group, which it reads again only
// when they change: os/user would parse them for every command.
type Accounts struct {
	passwd, group string

	mu     sync.Mutex // guards the fields below
	stamps [2]stamp
	users  []account
	member map[string][]uint32 // user name to supplementary groups
}

type account struct {
	uid, gid          uint32
	name, home, shell string
}

type stamp struct {
	mtime time.Time
	size  int64
}

// NewAccounts reads the files of that form at passwd and group.
func NewAccounts(passwd, group string) *Accounts { return &Accounts{passwd: passwd, group: group} }

// Identify settles who is meant: a user by name, or by numbers of which absent
// ones take their defaults. A uid without a gid takes that user's group, and
// where there is no such user the group of the same number, never group 0.
func (a *Accounts) Identify(name string, uid, gid *uint32) (Identity, error) {
	if name != "" && (uid != nil || gid != nil) {
		return Identity{}, apierror.New(apierror.Invalid, "invalid_user", "user excludes uid and gid")
	}
	const none = ^uint32(0) // the kernel's "leave it as it is"
	if uid != nil && *uid == none || gid != nil && *gid == none {
		return Identity{}, apierror.New(apierror.Invalid, "invalid_user", "4294967295 is no id")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refresh()
	if name != "" {
		i := slices.IndexFunc(a.users, func(u account) bool { return u.name == name })
		if i < 0 {
			return Identity{}, apierror.New(apierror.Invalid, "invalid_user", "no user %q in passwd", name)
		}
		return a.identity(a.users[i], a.users[i].gid), nil
	}
	want := uint32(poddapi.GuestUID)
	if uid != nil {
		want = *uid
	}
	u := account{uid: want, gid: want, home: "/", shell: "/bin/sh"}
	if i := slices.IndexFunc(a.users, func(u account) bool { return u.uid == want }); i >= 0 {
		u = a.users[i]
	}
	group := u.gid
	switch {
	case gid != nil:
		group = *gid
	case uid == nil:
		group = poddapi.GuestGID
	}
	return a.identity(u, group), nil
}

// identity has the user's supplementary groups only together with the user's
// own group: who asks for another one wants that one.
func (a *Accounts) identity(u account, gid uint32) Identity {
	id := Identity{UID: u.uid, GID: gid, name: u.name, home: u.home, shell: u.shell}
	if gid == u.gid {
		id.Groups = a.member[u.name]
	}
	return id
}

func (a *Accounts) refresh() {
	now := [2]stamp{stampOf(a.passwd), stampOf(a.group)}
	if a.users != nil && now == a.stamps {
		return
	}
	a.stamps, a.users, a.member = now, []account{}, map[string][]uint32{}
	eachLine(a.passwd, 7, func(f []string) {
		uid, err1 := strconv.ParseUint(f[2], 10, 32)
		gid, err2 := strconv.ParseUint(f[3], 10, 32)
		if err1 == nil && err2 == nil {
			u := account{uid: uint32(uid), gid: uint32(gid), name: f[0], home: f[5], shell: f[6]}
			if u.home == "" {
				u.home = "/"
			}
			if u.shell == "" {
				u.shell = "/bin/sh"
			}
			a.users = append(a.users, u)
		}
	})
	eachLine(a.group, 4, func(f []string) {
		gid, err := strconv.ParseUint(f[2], 10, 32)
		if err != nil {
			return
		}
		for name := range strings.SplitSeq(f[3], ",") {
			if name != "" {
				a.member[name] = append(a.member[name], uint32(gid))
			}
		}
	})
}

func stampOf(path string) stamp {
	fi, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{fi.ModTime(), fi.Size()}
}

// eachLine calls f with the fields of every line that has n of them. A file
// that is absent has no lines: a guest need not know users.
func eachLine(path string, n int, f func([]string)) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	for br := bufio.NewReader(file); ; {
		line, err := br.ReadString('\n')
		if fields := strings.Split(strings.TrimRight(line, "\n"), ":"); len(fields) == n {
			f(fields)
		}
		if err != nil {
			return
		}
	}
}
