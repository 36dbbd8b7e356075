package sessionapi

import (
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// sandboxView is a sandbox on the wire. The upper part is E2B's.
type sandboxView struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias"`
	ClientID    string            `json:"clientID"`
	EnvdVersion string            `json:"envdVersion"`
	Domain      *string           `json:"domain"`
	State       session.State     `json:"state"`
	CPUCount    int64             `json:"cpuCount"`   // 0 without a limit
	MemoryMB    int64             `json:"memoryMB"`   // likewise
	DiskSizeMB  int64             `json:"diskSizeMB"` // there is no limit
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	Metadata    map[string]string `json:"metadata"`

	Reason        string    `json:"reason,omitempty"`
	StateSince    time.Time `json:"stateSince,omitzero"`
	CreatedAt     time.Time `json:"createdAt"`
	Runtime       string    `json:"runtime"`
	Gen           int64     `json:"gen"`
	Incarnation   int64     `json:"incarnation"`
	AutoPause     bool      `json:"autoPause"`
	IdleTimeout   int64     `json:"idleTimeout"`
	DesktopWanted bool      `json:"desktopWanted"`
	Ports         []int     `json:"ports"`
}

// What E2B's clients want to see filled in: there is no such client id here,
// and no envd, whose version decides which of its calls they use.
const (
	clientID    = "cubepod"
	envdVersion = "0.1.0"
)

func (a *api) view(rec *session.Record) sandboxView {
	tmpl, _ := a.template(rec.Template) // one that is gone has no limits to show
	v := sandboxView{
		SandboxID:     string(rec.ID),
		TemplateID:    rec.Template,
		Alias:         rec.Template,
		ClientID:      clientID,
		EnvdVersion:   envdVersion,
		State:         rec.State,
		CPUCount:      int64(math.Ceil(tmpl.CPUs)),
		MemoryMB:      tmpl.Memory >> 20,
		StartedAt:     rec.StartedAt,
		EndAt:         rec.EndAt,
		Metadata:      rec.Metadata,
		Reason:        rec.Reason,
		StateSince:    rec.StateSince,
		CreatedAt:     rec.CreatedAt,
		Runtime:       rec.Runtime,
		Gen:           rec.Gen,
		Incarnation:   rec.Incarnation,
		AutoPause:     rec.AutoPause,
		IdleTimeout:   rec.IdleSeconds,
		DesktopWanted: rec.DesktopWanted,
		Ports:         sortedPorts(rec),
	}
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	if v.Ports == nil {
		v.Ports = []int{}
	}
	return v
}

func (a *api) create(w http.ResponseWriter, r *http.Request, caller Caller) error {
	var body struct {
		TemplateID  string            `json:"templateID"`
		Timeout     *int64            `json:"timeout"`
		IdleTimeout *int64            `json:"idleTimeout"`
		Metadata    map[string]string `json:"metadata"`
		EnvVars     map[string]string `json:"envVars"`
		AutoPause   bool              `json:"autoPause"`

		// Security settings that no runtime here can honour.
		AllowInternetAccess  *bool                      `json:"allow_internet_access"`
		AllowInternetAccess2 *bool                      `json:"allowInternetAccess"`
		Network              map[string]json.RawMessage `json:"network"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	for _, allow := range []*bool{body.AllowInternetAccess, body.AllowInternetAccess2} {
		if allow != nil && !*allow {
			return apierror.New(apierror.Invalid, "unsupported", "the runtime %q cannot cut a sandbox off from the internet", a.runtime.Name())
		}
	}
	if len(body.Network) > 0 {
		return apierror.New(apierror.Invalid, "unsupported", "the runtime %q has no network rules", a.runtime.Name())
	}
	if body.TemplateID == "" {
		return apierror.New(apierror.Invalid, "invalid_template", "templateID is needed")
	}
	req := CreateRequest{Template: body.TemplateID, Metadata: body.Metadata, Envs: body.EnvVars, AutoPause: body.AutoPause}
	var err error
	if req.Timeout, err = timeoutOf(body.Timeout, defaultTimeout); err != nil {
		return err
	}
	if body.IdleTimeout != nil && *body.IdleTimeout != 0 {
		if req.Idle, err = timeoutOf(body.IdleTimeout, 0); err != nil {
			return err
		}
	}
	if err := checkMetadata(req.Metadata); err != nil {
		return err
	}
	if err := checkEnvs(req.Envs); err != nil {
		return err
	}
	rec, err := a.Create(r.Context(), caller, req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, a.view(rec))
}

func (a *api) listV1(w http.ResponseWriter, r *http.Request, caller Caller) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	if !q.Has("limit") { // its clients know of no pages
		q.Set("limit", "1000")
	}
	return a.list(w, r, caller, q)
}

func (a *api) listV2(w http.ResponseWriter, r *http.Request, caller Caller) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	return a.list(w, r, caller, q)
}

func (a *api) list(w http.ResponseWriter, r *http.Request, caller Caller, q map[string][]string) error {
	f, token, limit, err := listQuery(q)
	if err != nil {
		return err
	}
	recs, next, err := a.List(r.Context(), caller, f, token, limit)
	if err != nil {
		return err
	}
	if next != "" {
		w.Header().Set("X-Next-Token", next)
	}
	views := make([]sandboxView, len(recs))
	for i, rec := range recs {
		views[i] = a.view(rec)
	}
	return writeJSON(w, http.StatusOK, views)
}

func (a *api) get(w http.ResponseWriter, _ *http.Request, rec *session.Record) error {
	return writeJSON(w, http.StatusOK, a.view(rec))
}

func (a *api) delete(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	return noContent(w, a.Delete(r.Context(), rec.ID))
}

func (a *api) pause(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	return noContent(w, a.Pause(r.Context(), rec))
}

func (a *api) resume(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	var body struct {
		Timeout   *int64 `json:"timeout"`
		AutoPause *bool  `json:"autoPause"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	timeout, err := timeoutOf(body.Timeout, 0)
	if err != nil {
		return err
	}
	rec, err = a.Resume(r.Context(), rec, timeout, body.AutoPause)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, a.view(rec))
}

func (a *api) connect(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	timeout, err := timeoutOf(body.Timeout, 0)
	if err != nil {
		return err
	}
	rec, resumed, err := a.Connect(r.Context(), rec, timeout)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if resumed {
		status = http.StatusCreated
	}
	return writeJSON(w, status, a.view(rec))
}

func (a *api) timeout(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	var body struct {
		Timeout *int64 `json:"timeout"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.Timeout == nil {
		return apierror.New(apierror.Invalid, "invalid_timeout", "timeout is needed")
	}
	timeout, err := timeoutOf(body.Timeout, 0)
	if err != nil {
		return err
	}
	return noContent(w, a.SetTimeout(r.Context(), rec, timeout))
}

func (a *api) refresh(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	var body struct {
		Duration *int64 `json:"duration"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	d, err := timeoutOf(body.Duration, 0)
	if err != nil {
		return err
	}
	return noContent(w, a.Refresh(r.Context(), rec, d))
}
