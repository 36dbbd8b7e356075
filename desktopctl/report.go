package main

import "time"

// The states of a stack.
const (
	stateRunning  = "running"
	stateDegraded = "degraded" // something is dead
	stateStopped  = "stopped"
)

// Report is what start, status and stop print.
type Report struct {
	Status     string   `json:"status"`
	Display    string   `json:"display"`
	Resolution string   `json:"resolution"`
	Ports      ports    `json:"ports"`
	Pids       pids     `json:"pids"`
	Timings    *timings `json:"timings_ms,omitempty"` // of start
}

type ports struct {
	Desktop  int `json:"desktop"`
	Terminal int `json:"terminal"`
	CDP      int `json:"cdp"`
}

// pids are those of the living components; a dead one's is left out.
type pids struct {
	Xvfb       int `json:"xvfb,omitempty"`
	WM         int `json:"wm,omitempty"`
	Chromium   int `json:"chromium,omitempty"`
	VNC        int `json:"vnc,omitempty"`
	Websockify int `json:"websockify,omitempty"`
	Ttyd       int `json:"ttyd,omitempty"`
}

// timings are the milliseconds from the start of a component to its answer,
// for those that were started, and of the whole call without its wait for the
// lock.
type timings struct {
	Xvfb       int64 `json:"xvfb,omitempty"`
	WM         int64 `json:"wm,omitempty"`
	Chromium   int64 `json:"chromium,omitempty"`
	VNC        int64 `json:"vnc,omitempty"`
	Websockify int64 `json:"websockify,omitempty"`
	Ttyd       int64 `json:"ttyd,omitempty"`
	Total      int64 `json:"total"`
}

// newReport reports the components whose pids are given, by name.
func newReport(r Resolution, alive map[string]int) *Report {
	status := stateDegraded
	switch len(alive) {
	case 0:
		status = stateStopped
	case len(components):
		status = stateRunning
	}
	return &Report{
		Status:     status,
		Display:    display,
		Resolution: r.String(),
		Ports:      ports{Desktop: viewerPort, Terminal: terminalPort, CDP: frontPort},
		Pids: pids{
			Xvfb: alive[xvfb], WM: alive[wm], Chromium: alive[chromium],
			VNC: alive[vnc], Websockify: alive[websockify], Ttyd: alive[ttyd],
		},
	}
}

func newTimings(took map[string]time.Duration, total time.Duration) *timings {
	ms := func(d time.Duration) int64 {
		if d == 0 {
			return 0
		}
		return max(1, d.Round(time.Millisecond).Milliseconds())
	}
	return &timings{
		Xvfb: ms(took[xvfb]), WM: ms(took[wm]), Chromium: ms(took[chromium]),
		VNC: ms(took[vnc]), Websockify: ms(took[websockify]), Ttyd: ms(took[ttyd]),
		Total: ms(total),
	}
}
