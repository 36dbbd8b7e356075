package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

type command struct {
	status poddapi.Status
	text   string
	output []byte
}

// print adds to a command's output.
func (f *fakeAPI) print(id, text string) {
	f.change(func() { f.commands[id].output = append(f.commands[id].output, text...) })
}

// end ends a command.
func (f *fakeAPI) end(id string, code int) {
	f.change(func() {
		c, now := f.commands[id], time.Now()
		c.status.Running, c.status.ExitCode, c.status.EndedAt = false, &code, &now
	})
}

func (f *fakeAPI) listCommands(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.find(w, r) == nil {
		return
	}
	all := poddapi.Commands{Commands: []poddapi.Status{}}
	for _, c := range f.commands {
		all.Commands = append(all.Commands, c.status)
	}
	answer(w, http.StatusOK, all)
}

func (f *fakeAPI) runCommand(w http.ResponseWriter, r *http.Request) {
	var req poddapi.RunRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || !req.Background {
		apierror.Write(w, apierror.New(apierror.Invalid, "invalid_body", "want a background command as JSON"))
		return
	}
	f.change(func() {
		if f.find(w, r) == nil {
			return
		}
		c := f.newCommand(req.Command)
		answer(w, http.StatusOK, poddapi.RunResponse{Status: c.status})
	})
}

// newCommand wants the lock.
func (f *fakeAPI) newCommand(text string) *command {
	n := len(f.commands) + 1
	c := &command{text: text, status: poddapi.Status{
		ID: "proc-" + strconv.Itoa(n), PID: 40 + n, Running: true, StartedAt: time.Now(), UID: 1000, GID: 1000,
	}}
	f.commands[c.status.ID] = c
	return c
}

// firstPart makes answers come in several parts, as long output does.
const firstPart = 64 << 10

func (f *fakeAPI) logs(w http.ResponseWriter, r *http.Request) {
	cursor, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event string, data any) {
		line, _ := json.Marshal(data) // plain values
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, line)
		_ = http.NewResponseController(w).Flush()
	}
	for {
		f.mu.Lock()
		c, changed, cut := f.commands[r.PathValue("cmd")], f.changed, f.cut
		if c == nil {
			f.mu.Unlock()
			apierror.Write(w, apierror.New(apierror.NotFound, "command_not_found", "there is no such command"))
			return
		}
		status, output := c.status, c.output[min(cursor, len(c.output)):]
		f.mu.Unlock()
		output = output[:min(firstPart, len(output))]
		switch {
		case len(output) > 0:
			cursor += len(output)
			send("output", map[string]any{"content": string(output), "cursor": cursor})
			if cut {
				f.change(func() { f.cut = false })
				panic(http.ErrAbortHandler) // as a network that goes away
			}
		case !status.Running:
			send("end", status)
			return
		default:
			fmt.Fprint(w, ": still running\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
		}
	}
}

func (f *fakeAPI) kill(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("cmd")
	f.change(func() {
		c, code, now := f.commands[id], 137, time.Now()
		c.status.Running, c.status.ExitCode, c.status.Signal, c.status.EndedAt = false, &code, "SIGKILL", &now
	})
	answer(w, http.StatusOK, poddapi.Killed{Status: "killed", ID: id})
}
