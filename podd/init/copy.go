package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cubeplexai/cubepod/podd/files"
)

// copyPrograms puts the programs in bin into the directory to, which is made
// when it is missing. Each is replaced as a whole, and left alone when it is
// the same already: it may be running.
func copyPrograms(bin, to string) error {
	to, err := filepath.Abs(to)
	if err != nil {
		return err
	}
	owner := files.Owner{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	for _, name := range []string{"podd", "podd-init"} {
		data, err := os.ReadFile(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if same, err := holds(path, data); err != nil || same {
			if err != nil {
				return err
			}
			continue
		}
		if _, err := files.Write(path, owner, 0o755, bytes.NewReader(data)); err != nil {
			return fmt.Errorf("copy %s: %w", name, err)
		}
	}
	return nil
}

// holds reports whether the program at path is data and can be run by all.
func holds(path string, data []byte) (bool, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || fi.Mode() != 0o755 || fi.Size() != int64(len(data)) {
		return false, err
	}
	have, err := os.ReadFile(path)
	return bytes.Equal(have, data), err
}
