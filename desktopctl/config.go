package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/cdpfront"
)

// Fixed points of a guest: a client of the desktop knows them without asking.
const (
	display      = ":99"
	viewerPort   = 8080
	terminalPort = 7681
	frontPort    = cdpfront.Port
	cdpPort      = 9223 // Chromium's own, behind the front

	guestUser = "cubeplex"
	guestHome = "/home/cubeplex"
	guestUID  = 1000
	guestGID  = 1000

	// guestPath finds the desktop's programs, whoever calls us.
	guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Config is what can be set, by environment or by a file in the image: an
// environment is lost on the way through sudo, podd and the like.
type Config struct {
	RunDir     string     // lock, pid files, logs, sockets
	ProfileDir string     // the browser's user data directory
	Resolution Resolution // of a screen that was not told another
	VNC        string     // which VNC server, one of vncServers
	Chromium   string     // the browser's program; empty means look for one
	WebDir     string     // the viewer's and the terminal's pages

	Locale []string // LANG and the like, as VAR=value
	Log    io.Writer
}

// setting is one environment variable of ours.
type setting struct {
	name, value, help string
}

func settings() []setting {
	return []setting{
		{"CUBEPOD_RUN_DIR", "/run/cubepod/desktop", "lock, pid files and logs"},
		{"CUBEPOD_PROFILE_DIR", guestHome + "/.config/chromium", "the browser's profile"},
		{"CUBEPOD_RESOLUTION", "1280x800x24", "the screen's first size"},
		{"CUBEPOD_VNC", "x11vnc", "the VNC server: x11vnc, or x0vncserver (TigerVNC's, 1.14 or later)"},
		{"CUBEPOD_CHROMIUM", "", "the browser's program; looked for when empty"},
		{"CUBEPOD_WEB_DIR", "", "pages of viewer and terminal; the folder web beside this program when empty"},
	}
}

// localeVariables are handed on to the desktop; nothing else of the caller's
// environment is.
var localeVariables = []string{"LANG", "LANGUAGE", "LC_ALL", "TZ"}

func printUsage(w io.Writer) {
	io.WriteString(w, usage)
	for _, s := range settings() {
		fmt.Fprintf(w, "  %-20s %s\n  %-20s default %q\n", s.name, s.help, "", s.value)
	}
	fmt.Fprintf(w, "  %-20s handed on to the desktop\n", strings.Join(localeVariables, ", "))
	fmt.Fprintf(w, "\nThe file %s may hold the same, a line each: NAME=value.\n", settingsFile)
}

// settingsFile holds settings of an image. The environment wins.
const settingsFile = "/etc/cubepod/desktop.conf"

// readSettings reads a file of lines NAME=value; '#' starts a line that is for
// people. No file is no settings.
func readSettings(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	values := make(map[string]string)
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, apierror.New(apierror.Invalid, "invalid_settings", "%s, line %d: want NAME=value", path, n)
		}
		values[name] = strings.Trim(value, `"'`)
	}
	return values, nil
}

// loadConfig reads the settings.
func loadConfig(environment func(string) string, file string, log io.Writer) (Config, error) {
	set, err := readSettings(file)
	if err != nil {
		return Config{}, err
	}
	getenv := func(name string) string { return cmp.Or(environment(name), set[name]) }
	value := make(map[string]string)
	for _, s := range settings() {
		value[s.name] = getenv(s.name)
		if value[s.name] == "" {
			value[s.name] = s.value
		}
	}
	resolution, err := ParseResolution(value["CUBEPOD_RESOLUTION"])
	if err != nil {
		return Config{}, err
	}
	cfg := Config{
		RunDir:     value["CUBEPOD_RUN_DIR"],
		ProfileDir: value["CUBEPOD_PROFILE_DIR"],
		Resolution: resolution,
		VNC:        value["CUBEPOD_VNC"],
		Chromium:   value["CUBEPOD_CHROMIUM"],
		WebDir:     value["CUBEPOD_WEB_DIR"],
		Log:        log,
	}
	if cfg.WebDir == "" {
		self, err := os.Executable()
		if err != nil {
			return Config{}, err
		}
		cfg.WebDir = filepath.Join(filepath.Dir(self), "web")
	}
	for _, name := range localeVariables {
		v := getenv(name)
		if v == "" && name == "LANG" {
			v = "C.UTF-8"
		}
		if v != "" {
			cfg.Locale = append(cfg.Locale, name+"="+v)
		}
	}
	return cfg, cfg.Validate()
}

// Validate reports what cannot work.
func (c Config) Validate() error {
	for name, dir := range map[string]string{"run": c.RunDir, "profile": c.ProfileDir, "web": c.WebDir} {
		if !filepath.IsAbs(dir) {
			return apierror.New(apierror.Invalid, "invalid_settings", "the %s directory %q must be an absolute path", name, dir)
		}
	}
	if _, ok := vncServers[c.VNC]; !ok {
		return apierror.New(apierror.Invalid, "invalid_settings", "there is no VNC server %q", c.VNC)
	}
	return nil
}

// Resolution is the size of the screen in pixels.
type Resolution struct{ Width, Height int }

// Bounds of a resolution.
var (
	minResolution = Resolution{320, 200}
	maxResolution = Resolution{3840, 2160}
)

// String gives the resolution with its depth, which is always 24.
func (r Resolution) String() string { return fmt.Sprintf("%dx%dx24", r.Width, r.Height) }

// ParseResolution reads "WxHx24".
func ParseResolution(s string) (Resolution, error) {
	bad := apierror.New(apierror.Invalid, "invalid_resolution", "resolution %q: want WxHx24, from %v to %v", s, minResolution, maxResolution)
	f := strings.Split(s, "x")
	if len(f) != 3 || f[2] != "24" {
		return Resolution{}, bad
	}
	w, err1 := strconv.ParseUint(f[0], 10, 16)
	h, err2 := strconv.ParseUint(f[1], 10, 16)
	r := Resolution{int(w), int(h)}
	if err1 != nil || err2 != nil ||
		r.Width < minResolution.Width || r.Height < minResolution.Height ||
		r.Width > maxResolution.Width || r.Height > maxResolution.Height {
		return Resolution{}, bad
	}
	return r, nil
}

// checkURL refuses what a browser must not be told to open by strangers, such
// as file: and javascript:, and what its command line would take for a flag.
func checkURL(s string) error {
	if s == "about:blank" {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return apierror.New(apierror.Invalid, "invalid_url", "url %q: want http, https or about:blank", s)
	}
	return nil
}
