package console_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// panelRequest is what a panel was asked for with.
type panelRequest struct {
	Port             int
	Path, Mode       string
	ExpiresInSeconds int
}

func (f *fakeAPI) servePorts(api *http.ServeMux) {
	api.HandleFunc("GET /sandboxes/{id}/ports", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		ports := []map[string]int{}
		for _, port := range slices.Sorted(maps.Keys(f.ports)) {
			ports = append(ports, map[string]int{"port": port})
		}
		answer(w, http.StatusOK, map[string]any{"ports": ports})
	})
	api.HandleFunc("PUT /sandboxes/{id}/ports/{port}", func(w http.ResponseWriter, r *http.Request) {
		port, _ := strconv.Atoi(r.PathValue("port"))
		f.change(func() { f.ports[port] = true })
		answer(w, http.StatusOK, map[string]int{"port": port})
	})
	api.HandleFunc("DELETE /sandboxes/{id}/ports/{port}", func(w http.ResponseWriter, r *http.Request) {
		port, _ := strconv.Atoi(r.PathValue("port"))
		f.change(func() { delete(f.ports, port) })
		w.WriteHeader(http.StatusNoContent)
	})
	api.HandleFunc("POST /sandboxes/{id}/panels/revoke", func(w http.ResponseWriter, _ *http.Request) {
		f.change(func() { f.revoked++ })
		w.WriteHeader(http.StatusNoContent)
	})
	api.HandleFunc("POST /sandboxes/{id}/panels", f.panel)
}

func (f *fakeAPI) panel(w http.ResponseWriter, r *http.Request) {
	var req panelRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Port == 0 {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_body", "want a port as JSON"))
		return
	}
	f.change(func() {
		f.ports[req.Port] = true
		f.panelsOut = append(f.panelsOut, req)
		address := fmt.Sprintf("%s/panel/token-p%d%s", f.panels.URL, len(f.panelsOut), req.Path)
		if f.panelAddress != "" {
			address = f.panelAddress
		}
		answer(w, http.StatusCreated, map[string]string{
			"url":       address,
			"token":     fmt.Sprintf("token-p%d", len(f.panelsOut)),
			"expiresAt": time.Now().Add(time.Duration(req.ExpiresInSeconds) * time.Second).UTC().Format(time.RFC3339),
		})
	})
}

// lastPanel is what the last panel was asked for with.
func (f *fakeAPI) lastPanel() panelRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.panelsOut) == 0 {
		return panelRequest{}
	}
	return f.panelsOut[len(f.panelsOut)-1]
}

// socketTable is one of the kernel's tables of sockets.
func (f *fakeAPI) socketTable(name string) (string, bool) {
	if name == "/proc/net/tcp6" {
		return "  sl  local_address remote_address st\n", true
	}
	if name != "/proc/net/tcp" {
		return "", false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out strings.Builder
	out.WriteString("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n")
	// A connection is no listener.
	out.WriteString("   0: 0100007F:1F91 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 1 1\n")
	for _, port := range slices.Sorted(maps.Keys(f.listening)) {
		fmt.Fprintf(&out, "   1: 0100007F:%04X 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 2 1\n", port)
	}
	return out.String(), true
}
