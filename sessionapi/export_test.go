package sessionapi

import "net/http"

// Patterns are the patterns of all routes.
func Patterns() []string {
	a := &api{console: http.NotFoundHandler()}
	var out []string
	for _, rt := range a.routes() {
		out = append(out, rt.pattern)
	}
	return out
}
