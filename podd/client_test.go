package main_test

import (
	"encoding/json"
	"net/http"
	"testing"
)

// get asks for what the client has no method for.
func (p *podd) get(t *testing.T, path string, v any) { p.call(t, http.MethodGet, path, v) }

func (p *podd) post(t *testing.T, path string) { p.call(t, http.MethodPost, path, &struct{}{}) }

func (p *podd) call(t *testing.T, method, path string, v any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://podd"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := p.rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s", method, path, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Fatal(err)
	}
}
