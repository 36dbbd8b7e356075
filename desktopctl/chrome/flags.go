// Package chrome knows how a Chromium wants to be started, asked and stopped:
// where it is, its flags, its profile and its DevTools port.
package chrome

import (
	"fmt"
	"strings"
)

// Options are what differs between two starts of the browser.
type Options struct {
	Profile       string // user data directory
	Port          int    // DevTools, on 127.0.0.1
	Width, Height int    // of the screen
	URL           string // first page

	// NoSandbox gives up Chromium's own sandbox, where it cannot work.
	NoSandbox bool
	// NoSharedMemory keeps big buffers out of /dev/shm, where it is small.
	NoSharedMemory bool
}

// disabledFeatures go into the one --disable-features there may be: of several
// only the last counts.
var disabledFeatures = []string{
	"AutofillServerCommunication",
	"CertificateTransparencyComponentUpdater",
	"DialMediaRouteProvider",
	"GlobalMediaControls",
	"MediaRouter",
	"OptimizationHints",
	"Translate",
	// The browser's own interface drawn by pages: their renderers cost a
	// tenth of the start, and they turn up among the DevTools targets.
	"PreloadTopChromeWebUI",
	"WebUIOmniboxAimPopup",
	"WebUIOmniboxPopup",
}

// Flags is the command line, without the program.
func Flags(o Options) []string {
	flags := []string{
		"--user-data-dir=" + o.Profile,
		// No --remote-allow-origins: DevTools clients send no Origin, and
		// the front on 9222 drops its own.
		"--remote-debugging-address=127.0.0.1",
		fmt.Sprintf("--remote-debugging-port=%d", o.Port),

		// Nothing between the start and the page.
		"--no-first-run",
		"--no-default-browser-check",
		"--disable-search-engine-choice-screen",
		"--hide-crash-restore-bubble",
		"--noerrdialogs",

		// The key that encrypts cookies must be the same on the next node.
		// Never to be taken back: cookies written under one key are
		// unreadable under the other.
		"--password-store=basic",

		// The screen.
		"--ozone-platform=x11",
		"--window-position=0,0",
		fmt.Sprintf("--window-size=%d,%d", o.Width, o.Height),
		"--start-maximized",
		// No GPU. The browser then paints without OpenGL: its first window
		// is there two thirds of a second earlier than by SwiftShader, which
		// is left to do what only it can, WebGL.
		"--disable-gpu",
		"--enable-unsafe-swiftshader",

		// A tab that an agent drives works on while a person looks at another.
		"--disable-background-timer-throttling",
		"--disable-backgrounding-occluded-windows",
		"--disable-renderer-backgrounding",

		// No traffic and no files of the browser's own accord.
		"--disable-background-networking",
		"--disable-component-update",
		"--disable-sync",
		"--metrics-recording-only",
		"--no-pings",
		"--disable-breakpad",

		"--disable-features=" + strings.Join(disabledFeatures, ","),
	}
	if o.NoSandbox {
		flags = append(flags, "--no-sandbox")
	}
	if o.NoSharedMemory {
		flags = append(flags, "--disable-dev-shm-usage")
	}
	return append(flags, o.URL)
}
