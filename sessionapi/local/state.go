package local

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/cubeplexai/cubepod/internal/session"
)

// state is run.json: what is known of a sandbox' last start. It is replaced by
// rename. There are three forms of it:
//
//	Starting              written before the first process is made
//	Supervisor            the sandbox runs while that process does
//	neither               stopped
//
// A program that died in Starting leaves the supervisor to be found by its
// arguments; see Runtime.supervisor.
type state struct {
	Incarnation int64    `json:"incarnation"`
	Deployment  string   `json:"deployment"`
	Starting    bool     `json:"starting,omitempty"`
	Supervisor  *procRef `json:"supervisor,omitempty"`
	// Init is the first bwrap of the chain, once podd has answered.
	Init *procRef `json:"init,omitempty"`
	Boot string   `json:"boot,omitempty"`
}

const stateFile = "run.json"

// readState reports os.ErrNotExist if the runtime has nothing of id. A sandbox
// without a readable state is a stopped one: a start or a delete was broken off
// by a crash of the machine.
func (r *Runtime) readState(id session.ID) (state, error) {
	var st state
	if _, ok := session.ParseID(string(id)); !ok {
		return st, os.ErrNotExist
	}
	data, err := os.ReadFile(filepath.Join(r.dir(id), stateFile))
	if errors.Is(err, os.ErrNotExist) {
		_, err = os.Stat(r.dir(id))
		return st, err
	}
	if err != nil {
		return st, err
	}
	if json.Unmarshal(data, &st) != nil {
		return state{}, nil
	}
	return st, nil
}

func (r *Runtime) writeState(id session.ID, st state) error {
	st.Boot = bootID()
	data, err := json.Marshal(st)
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir(id), stateFile)
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// supervisor holds the first process of the sandbox' chain. It reports
// os.ErrProcessDone if that does not run.
func (r *Runtime) supervisor(id session.ID, st state) (*process, error) {
	switch {
	case st.Boot != bootID():
		return nil, os.ErrProcessDone
	case st.Supervisor != nil:
		return reopenProcess(*st.Supervisor)
	case !st.Starting:
		return nil, os.ErrProcessDone
	}
	pids, err := processesWithArg(r.mark(id))
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		// The rest of the chain carries the mark too, in namespaces of its own.
		if inOurPIDNamespace(pid) {
			return openProcess(pid)
		}
	}
	return nil, os.ErrProcessDone
}
