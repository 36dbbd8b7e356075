package sessionapi

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/session"
)

// desktopView is a started desktop on the wire.
type desktopView struct {
	Status      string    `json:"status"`
	DesktopURL  string    `json:"desktopUrl"`
	TerminalURL string    `json:"terminalUrl"`
	CDPURL      string    `json:"cdpUrl,omitempty"`
	CDPPort     int       `json:"cdpPort,omitempty"`
	ExpiresAt   time.Time `json:"expiresAt"`
}

func (a *api) desktopStart(w http.ResponseWriter, r *http.Request, rec *session.Record) (err error) {
	defer func() { a.metrics.activated(err) }()
	var body struct {
		Resolution string `json:"resolution"`
		InitialURL string `json:"initialUrl"`
		Expires    *int64 `json:"expiresInSeconds"`
		ExposeCDP  *bool  `json:"exposeCdp"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	expires, err := expiryOf(body.Expires)
	if err != nil {
		return err
	}
	d, err := a.StartDesktop(r.Context(), rec, DesktopRequest{
		Resolution: body.Resolution,
		InitialURL: body.InitialURL,
		Expires:    expires,
		HideCDP:    body.ExposeCDP != nil && !*body.ExposeCDP,
	})
	if err != nil {
		return err
	}
	v := desktopView{Status: d.Status, DesktopURL: d.DesktopURL, TerminalURL: d.TerminalURL, CDPURL: d.CDPURL, ExpiresAt: d.Expires}
	if d.CDPURL != "" {
		v.CDPPort = CDPPort
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *api) desktopStatus(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	line, err := a.DesktopStatus(r.Context(), rec)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, line)
}

func (a *api) desktopStop(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	line, err := a.StopDesktop(r.Context(), rec)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, line)
}

// portView is a registered port on the wire.
type portView struct {
	Port    int    `json:"port"`
	Address string `json:"address,omitempty"`
}

func portViewOf(port int, p session.Port) portView {
	v := portView{Port: port}
	if p.Address.IsValid() {
		v.Address = p.Address.String()
	}
	return v
}

func (a *api) ports(w http.ResponseWriter, _ *http.Request, rec *session.Record) error {
	views := []portView{}
	for _, port := range sortedPorts(rec) {
		views = append(views, portViewOf(port, rec.Ports[port]))
	}
	return writeJSON(w, http.StatusOK, map[string]any{"ports": views})
}

func (a *api) putPort(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	port, err := pathPort(r)
	if err != nil {
		return err
	}
	var body struct {
		Address *string `json:"address"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	var address netip.AddrPort
	if body.Address != nil {
		if address, err = netip.ParseAddrPort(*body.Address); err != nil || address.Port() == 0 {
			return apierror.New(apierror.Invalid, "invalid_address", "an address is a numeric IP and a port, such as 10.1.2.3:8000")
		}
	}
	if err := a.RegisterPort(r.Context(), rec.ID, port, address); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, portViewOf(port, session.Port{Address: address}))
}

func (a *api) deletePort(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	port, err := pathPort(r)
	if err != nil {
		return err
	}
	return noContent(w, a.UnregisterPort(r.Context(), rec.ID, port))
}

func (a *api) panel(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	var body struct {
		Port    int    `json:"port"`
		Path    string `json:"path"`
		Expires *int64 `json:"expiresInSeconds"`
		Mode    string `json:"mode"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	expires, err := expiryOf(body.Expires)
	if err != nil {
		return err
	}
	p, err := a.MintPanel(r.Context(), rec.ID, PanelRequest{
		Port: body.Port, Path: body.Path, Expires: expires, Mode: paneltoken.Mode(body.Mode),
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, map[string]any{"url": p.URL, "token": p.Token, "expiresAt": p.Expires})
}

func (a *api) revoke(w http.ResponseWriter, r *http.Request, rec *session.Record) error {
	return noContent(w, a.RevokePanels(r.Context(), rec.ID))
}

func (a *api) wakeUp(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	noteOf(r.Context()).sandbox = id
	token := bearer(r)
	if token == "" {
		return apierror.New(apierror.Unauthorized, "", "a panel token is needed, in Authorization: Bearer")
	}
	ready, err := a.Wake(r.Context(), id, token)
	if err != nil {
		return err
	}
	if !ready {
		return writeJSON(w, http.StatusAccepted, map[string]string{"status": "in_progress"})
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}
