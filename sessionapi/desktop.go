package sessionapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/paneltoken"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/internal/session"
)

// The guest's ports that belong to the desktop.
const (
	ViewerPort   = 8080
	TerminalPort = 7681
	CDPPort      = 9222
)

func desktopPort(port int) bool {
	return port == ViewerPort || port == TerminalPort || port == CDPPort
}

// DesktopRequest says how the desktop is wanted. Zero values change nothing.
type DesktopRequest struct {
	Resolution string
	InitialURL string
	// Expires is how long the URLs are good for.
	Expires time.Duration
	// HideCDP leaves port 9222 out.
	HideCDP bool
}

// Desktop is a started desktop and the URLs to it. The CDP fields are zero when
// it is not exposed.
type Desktop struct {
	Status      string
	DesktopURL  string
	TerminalURL string
	CDPURL      string
	Expires     time.Time
}

// ctlMissing is the exit code of our own look for the ctl. The ctl itself knows
// only 0 and 1.
const ctlMissing = 97

// ctlAnswer is the line that the ctl prints.
type ctlAnswer struct {
	Status  string `json:"status"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// StartDesktop brings the sandbox's desktop up, resuming the sandbox when it is
// paused, and gives fresh URLs to it. It can be called at any time and by many
// at once: the ctl starts what is not there, once.
func (s *Service) StartDesktop(ctx context.Context, rec *session.Record, req DesktopRequest) (Desktop, error) {
	if err := req.validate(); err != nil {
		return Desktop{}, err
	}
	if err := s.desktopEnabled(); err != nil {
		return Desktop{}, err
	}
	if rec.State != session.Running {
		var err error
		if rec, err = s.resume(ctx, rec.ID, resumption{}); err != nil {
			return Desktop{}, err
		}
	}
	var args []string
	if req.Resolution != "" {
		args = append(args, "--resolution", req.Resolution)
	}
	if req.InitialURL != "" {
		args = append(args, "--url", req.InitialURL)
	}
	if err := s.startDesktop(ctx, rec, args...); err != nil {
		return Desktop{}, err
	}
	ports := []int{ViewerPort, TerminalPort}
	if !req.HideCDP && !s.opts.HideCDP {
		ports = append(ports, CDPPort)
	}
	minted, err := s.mint(ctx, rec.ID, req.Expires, func(r *session.Record) {
		r.DesktopWanted = true
	}, ports, paneltoken.Control)
	if err != nil {
		return Desktop{}, err
	}
	d := Desktop{Status: "running", Expires: minted.expires}
	d.DesktopURL = s.panelURL(rec.ID, minted.tokens[ViewerPort], "/vnc.html?autoconnect=true&resize=scale")
	d.TerminalURL = s.panelURL(rec.ID, minted.tokens[TerminalPort], "/")
	if t, ok := minted.tokens[CDPPort]; ok {
		d.CDPURL = s.panelURL(rec.ID, t, "/")
	}
	return d, nil
}

// How long startDesktop waits between its tries.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// startDesktop runs the ctl's start, once for all calls that want the same at
// the same time. While the sandbox is paused under it, turns out to have ended
// by itself or to be somewhere else, it resumes the sandbox and tries again, for
// as long as a start may take.
func (s *Service) startDesktop(ctx context.Context, rec *session.Record, args ...string) error {
	key := fmt.Sprintf("desktop %s %d %q", rec.ID, rec.Incarnation, args)
	return s.share(ctx, key, func(ctx context.Context) error {
		retry, cancel := context.WithTimeout(ctx, s.opts.DesktopTimeout)
		defer cancel()
		rec := rec
		for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
			_, err := s.ctl(ctx, rec, "start", args...)
			if err == nil {
				return nil
			}
			code := apierror.From(err).Code
			if code != "stopping" && code != "podd_unreachable" && code != "sandbox_state" {
				return err
			}
			again, rerr := s.resume(retry, rec.ID, resumption{})
			switch {
			case retry.Err() != nil:
				return err
			case rerr != nil:
				return rerr
			case code == "podd_unreachable" && again.Incarnation == rec.Incarnation && again.Endpoint == rec.Endpoint:
				return err
			}
			rec = again
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-retry.Done():
				timer.Stop()
				return err
			}
		}
	})
}

// DesktopStatus gives the ctl's status line.
func (s *Service) DesktopStatus(ctx context.Context, rec *session.Record) (json.RawMessage, error) {
	if err := s.desktopEnabled(); err != nil {
		return nil, err
	}
	rec, err := s.running(ctx, rec)
	if err != nil {
		return nil, err
	}
	return s.ctl(ctx, rec, "status")
}

// StopDesktop stops the desktop and gives the ctl's status line. A wake will
// not bring it back.
func (s *Service) StopDesktop(ctx context.Context, rec *session.Record) (json.RawMessage, error) {
	if err := s.desktopEnabled(); err != nil {
		return nil, err
	}
	rec, err := s.running(ctx, rec)
	if err != nil {
		return nil, err
	}
	line, err := s.ctl(ctx, rec, "stop")
	if err != nil {
		return nil, err
	}
	_, err = s.edit(ctx, rec.ID, func(r *session.Record) error { r.DesktopWanted = false; return nil })
	return line, err
}

func (s *Service) desktopEnabled() error {
	if s.opts.NoDesktop {
		return apierror.New(apierror.Unsupported, "desktop_disabled", "the operator switched desktops off")
	}
	return nil
}

// ctl runs the sandbox's desktop supervisor as the guest user and gives the
// line it printed.
func (s *Service) ctl(ctx context.Context, rec *session.Record, verb string, args ...string) (json.RawMessage, error) {
	podd, err := s.podd(rec)
	if err != nil {
		return nil, err
	}
	words := []string{shellQuote(poddapi.CtlPath), verb}
	for _, a := range args {
		words = append(words, shellQuote(a))
	}
	uid, gid := uint32(poddapi.GuestUID), uint32(poddapi.GuestGID)
	// podd ends the ctl in time, so this only has to outlast its answer.
	rctx, cancel := context.WithTimeout(ctx, s.opts.DesktopTimeout+5*time.Second)
	defer cancel()
	out, err := podd.Run(rctx, poddapi.RunRequest{
		Command:   "[ -e " + shellQuote(poddapi.CtlPath) + " ] || exit " + strconv.Itoa(ctlMissing) + "; exec " + strings.Join(words, " "),
		Workdir:   "/",
		UID:       &uid,
		GID:       &gid,
		TimeoutMS: s.opts.DesktopTimeout.Milliseconds(),
		Separate:  true,
	})
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			return nil, apierror.Wrap(err, apierror.Timeout, "desktop_start_timeout", "the desktop did not answer within %v", s.opts.DesktopTimeout)
		}
		return nil, s.interrupted(ctx, rec, err)
	}
	line, err := s.judge(rec, verb, out)
	if err != nil { // a pause ends the supervisor's work, too
		return nil, s.interrupted(ctx, rec, err)
	}
	return line, nil
}

func (s *Service) judge(rec *session.Record, verb string, out poddapi.RunResponse) (json.RawMessage, error) {
	var stdout, stderr string
	if out.Stdout != nil {
		stdout = strings.TrimSpace(*out.Stdout)
	}
	if out.Stderr != nil {
		stderr = *out.Stderr
	}
	exit := -1
	if out.ExitCode != nil {
		exit = *out.ExitCode
	}
	line := stdout[strings.LastIndexByte(stdout, '\n')+1:]
	var answer ctlAnswer
	parsed := json.Unmarshal([]byte(line), &answer) == nil && answer.Status != ""
	switch {
	case out.TimedOut:
		detail := fmt.Sprintf("the desktop's %s did not end within %v", verb, s.opts.DesktopTimeout)
		if said := lastLine(stderr); said != "" {
			detail += "; it last said: " + said
		}
		return nil, apierror.New(apierror.Timeout, "desktop_start_timeout", "%s", detail)
	case exit == ctlMissing && stdout == "":
		return nil, apierror.New(apierror.Unsupported, "desktop_not_installed", "the sandbox's image does not include the desktop stack")
	case exit == 0 && parsed:
		return json.RawMessage(line), nil
	}
	s.log.Warn("desktop supervisor failed", zap.String("sandbox", string(rec.ID)), zap.String("verb", verb),
		zap.Int("exit_code", exit), zap.String("stderr", tail(stderr, 2000)))
	if parsed && answer.Error != "" {
		if answer.Error == "busy" || strings.HasSuffix(answer.Error, "_timeout") {
			return nil, apierror.New(apierror.Timeout, "desktop_start_timeout", "%s: %s", answer.Error, answer.Message)
		}
		return nil, apierror.New(apierror.BadGateway, "desktop_failed", "%s: %s", answer.Error, answer.Message)
	}
	return nil, apierror.New(apierror.BadGateway, "desktop_failed", "the desktop supervisor ended with exit code %d and without an answer", exit)
}

// lastLine is the end of what a supervisor wrote, fit for a message.
func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.ToValidUTF8(tail(s[strings.LastIndexByte(s, '\n')+1:], 200), "")
}

func tail(s string, n int) string {
	if len(s) > n {
		return s[len(s)-n:]
	}
	return s
}

// shellQuote makes one word of s for a POSIX shell.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var resolutionPattern = regexp.MustCompile(`^([1-9][0-9]{2,3})x([1-9][0-9]{2,3})x24$`)

func (r *DesktopRequest) validate() error {
	if r.Resolution != "" && !validResolution(r.Resolution) {
		return apierror.New(apierror.Invalid, "invalid_resolution", "a resolution is WxHx24, from 320x200x24 to 3840x2160x24")
	}
	if r.InitialURL != "" && !validInitialURL(r.InitialURL) {
		return apierror.New(apierror.Invalid, "invalid_url", "initialUrl is an http or https URL, or about:blank")
	}
	return nil
}

func validResolution(s string) bool {
	m := resolutionPattern.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	w, _ := strconv.Atoi(m[1])
	h, _ := strconv.Atoi(m[2])
	return w >= 320 && w <= 3840 && h >= 200 && h <= 2160
}

func validInitialURL(s string) bool {
	if s == "about:blank" {
		return true
	}
	const longest = 8192
	if len(s) > longest || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}
