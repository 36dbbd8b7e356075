package server

import (
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/files"
)

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// putEnv replaces the file that new interactive shells source.
func (s *Server) putEnv(w http.ResponseWriter, r *http.Request) error {
	var req poddapi.EnvRequest
	if err := s.body(w, r, &req); err != nil {
		return err
	}
	script, err := exports(req.Envs)
	if err != nil {
		return err
	}
	if _, err := files.Write(s.o.EnvFile, files.Owner{}, 0o644, strings.NewReader(script)); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// exports is a shell script that sets envs, whatever their values hold.
func exports(envs map[string]string) (string, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(envs)) {
		value := envs[name]
		if !variable.MatchString(name) || strings.Contains(value, "\x00") {
			return "", apierror.New(apierror.Invalid, "invalid_envs", "%q is no variable's name, or its value has NUL in it", name)
		}
		b.WriteString("export " + name + "='" + strings.ReplaceAll(value, "'", `'\''`) + "'\n")
	}
	return b.String(), nil
}
