package files

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"golang.org/x/sys/unix"
)

// Pack writes the directory at path, or the one file there, to w as a tar
// stream with names relative to it. Sockets, devices and pipes are left out.
// ready is called before the first byte, when it is known that path can be
// read.
func Pack(path string, w io.Writer, ready func()) error {
	if err := valid(path); err != nil {
		return err
	}
	path = filepath.Clean(path)
	fi, err := os.Stat(path)
	if err != nil {
		return absent(err, path)
	}
	dir, first := path, "."
	if !fi.IsDir() {
		if !fi.Mode().IsRegular() {
			return notRegular(nil, path)
		}
		dir, first = filepath.Split(path)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return absent(err, path)
	}
	defer root.Close()
	ready()
	tw := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), first, func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it vanished meanwhile
		}
		if err != nil || name == "." {
			return err
		}
		return pack(tw, root, name)
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", path, err)
	}
	return tw.Close()
}

func pack(tw *tar.Writer, root *os.Root, name string) error {
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	link := ""
	var body io.Reader
	switch mode := fi.Mode(); {
	case mode.IsDir():
	case mode.Type() == fs.ModeSymlink:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	case mode.IsRegular():
		f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		if fi, err = f.Stat(); err != nil || !fi.Mode().IsRegular() {
			return err
		}
		body = f
	default:
		return nil
	}
	h, err := tar.FileInfoHeader(fi, link)
	if err != nil {
		return err
	}
	h.Name, h.Format = name, tar.FormatPAX
	h.Uname, h.Gname = "", "" // names mean nothing elsewhere
	if fi.IsDir() {
		h.Name += "/"
	}
	if err := tw.WriteHeader(h); err != nil || body == nil {
		return err
	}
	// A file that grows is cut where it was. One that shrank breaks the
	// archive off, and the caller notices.
	_, err = io.CopyN(tw, body, h.Size)
	return err
}

// Unpack makes what the tar stream r holds in the directory at path, which is
// made when it is missing. Everything belongs to owner. Nothing is made or
// changed outside of that directory, whatever names and links the archive or
// the directory have.
func Unpack(path string, owner Owner, r io.Reader) (files int, bytes int64, err error) {
	fd, err := openDir(path, &owner)
	if err != nil {
		return 0, 0, public(err, path)
	}
	defer unix.Close(fd)
	root, err := os.OpenRoot(byFD(fd))
	if err != nil {
		return 0, 0, public(err, path)
	}
	defer root.Close()
	u := &unpacker{root: root, owner: owner}
	src := &source{r: r}
	for tr := tar.NewReader(src); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = u.entry(h, tr)
		}
		if err != nil {
			if src.err != nil {
				err = src.err
			}
			if errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = apierror.Wrap(err, apierror.Invalid, "invalid_archive", "the body is no tar archive, or not all of one")
			}
			return u.files, u.bytes, public(err, path)
		}
	}
	if err := u.times(); err != nil {
		return u.files, u.bytes, public(err, path)
	}
	// What follows the archive's end is read to the end: a body that is left
	// in part would end the caller's connection.
	if _, err := io.Copy(io.Discard, src); err != nil {
		return u.files, u.bytes, src.err
	}
	return u.files, u.bytes, nil
}

type unpacker struct {
	root  *os.Root
	owner Owner
	files int
	bytes int64
	dirs  []*tar.Header // whose times are set last, when nothing is added any more
}

func (u *unpacker) entry(h *tar.Header, body io.Reader) error {
	name := filepath.Clean(strings.TrimSuffix(h.Name, "/"))
	if !filepath.IsLocal(name) {
		return apierror.New(apierror.Invalid, "unsafe_path", "the archive's entry %q leads out of its directory", h.Name)
	}
	if name == "." {
		return nil
	}
	if err := u.parents(filepath.Dir(name)); err != nil {
		return u.explain(err, h)
	}
	return u.explain(u.make(name, h, body), h)
}

// explain says of an entry what os.Root refused.
func (u *unpacker) explain(err error, h *tar.Header) error {
	if err != nil && strings.Contains(err.Error(), "path escapes") { // os has no value for it
		return apierror.Wrap(err, apierror.Invalid, "unsafe_path", "the archive's entry %q leads out of its directory", h.Name)
	}
	return err
}

func (u *unpacker) make(name string, h *tar.Header, body io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.parents(name); err != nil {
			return err
		}
		u.dirs = append(u.dirs, h)
		return u.root.Chmod(name, fs.FileMode(h.Mode&0o777))
	case tar.TypeReg:
		return u.file(name, h, body)
	case tar.TypeSymlink:
		if err := u.clear(name); err != nil {
			return err
		}
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		u.files++
		return u.chown(name)
	case tar.TypeLink:
		target := filepath.Clean(h.Linkname)
		if !filepath.IsLocal(target) {
			return apierror.New(apierror.Invalid, "unsafe_path", "the archive's entry %q links out of its directory", h.Name)
		}
		if target == name {
			return nil
		}
		if err := u.clear(name); err != nil {
			return err
		}
		u.files++
		return u.root.Link(target, name)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return apierror.New(apierror.Invalid, "unsupported_entry", "the archive's entry %q is no file, directory or link", h.Name)
}

// file makes the file anew, so that neither a link in its place nor a hard
// link to it is written through.
func (u *unpacker) file(name string, h *tar.Header, body io.Reader) error {
	if err := u.clear(name); err != nil {
		return err
	}
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.Copy(f, body)
	u.bytes += n
	if err != nil {
		return err
	}
	u.files++
	if err := finish(f, u.owner, uint32(h.Mode&0o777)); err != nil {
		return err
	}
	return u.root.Chtimes(name, h.ModTime, h.ModTime)
}

// clear removes what is at name, except a directory.
func (u *unpacker) clear(name string) error {
	fi, err := u.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && fi.IsDir() {
		return apierror.New(apierror.Conflict, "is_directory", "%s is a directory already", name)
	}
	if err == nil {
		err = u.root.Remove(name)
	}
	return err
}

// parents makes the directory name and those above it.
func (u *unpacker) parents(name string) error {
	if name == "." {
		return nil
	}
	switch fi, err := u.root.Stat(name); {
	case err == nil && fi.IsDir():
		return nil
	case err == nil:
		return unix.ENOTDIR
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := u.parents(filepath.Dir(name)); err != nil {
		return err
	}
	if err := u.root.Mkdir(name, 0o755); err != nil {
		return err
	}
	return u.chown(name)
}

func (u *unpacker) chown(name string) error {
	if unix.Geteuid() != 0 {
		return nil
	}
	return u.root.Lchown(name, int(u.owner.UID), int(u.owner.GID))
}

func (u *unpacker) times() error {
	for _, h := range u.dirs {
		name := filepath.Clean(strings.TrimSuffix(h.Name, "/"))
		if err := u.root.Chtimes(name, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	return nil
}
