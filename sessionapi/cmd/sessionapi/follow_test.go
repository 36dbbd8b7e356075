package main_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// status calls the API with a key.
func (s *server) status(key, method, path, body string) int {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestFilesAreReadAgain(t *testing.T) {
	testutil.NeedProgram(t, "redis-server")
	dir := dataDir(t)
	keys, templates := filepath.Join(dir, "keys"), filepath.Join(dir, "templates")
	line := func(name, key string) string { return fmt.Sprintf("%s sha256:%x\n", name, sha256.Sum256([]byte(key))) }
	write(t, keys, line("one", "cp_one"))
	write(t, templates, "first: {}\n")
	s := start(t, dataDir(t), "--api-keys", keys, "--templates", templates)

	write(t, keys, line("one", "cp_one")+line("two", "cp_two"))
	testutil.Eventually(t, "the new key opens", func() bool { return s.status("cp_two", "GET", "/sandboxes", "") == 200 })
	write(t, keys, line("two", "cp_two"))
	testutil.Eventually(t, "the old key is shut out", func() bool { return s.status("cp_one", "GET", "/sandboxes", "") == 401 })

	// A template that is known cannot start here perhaps, one that is not is 404.
	knows := func(name string) bool {
		return s.status("cp_two", "POST", "/sandboxes", `{"templateID":"`+name+`","timeout":1}`) != 404
	}
	if knows("second") {
		t.Error("it knows what is not in the file")
	}
	write(t, templates, "second: {}\n")
	testutil.Eventually(t, "the new template is known", func() bool { return knows("second") })

	write(t, templates, "third: {memroy: 1GiB}\n")
	write(t, keys, "nonsense\n")
	// The runtime may be missing here, then the warnings are not shown.
	testutil.Eventually(t, "the log tells of bad files", func() bool {
		log := s.log.String()
		return strings.Contains(log, "memroy") && strings.Contains(log, `"setting":"--api-keys"`)
	})
	if status, body := s.get("/ready"); status == 200 && (!strings.Contains(body, "memroy") || !strings.Contains(body, "--api-keys")) {
		t.Errorf("ready: %s", body)
	}
	if knows("third") || !knows("second") || s.status("cp_two", "GET", "/sandboxes", "") != 200 {
		t.Error("the last good files are not in force")
	}
	write(t, templates, "third: {}\n")
	testutil.Eventually(t, "the mended template is known", func() bool { return knows("third") })
}
