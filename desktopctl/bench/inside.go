package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/desktopctl/chrome"
)

const (
	ctl    = "/opt/cubepod/desktop/cubepod-desktop-ctl"
	socket = "/run/cubepod/desktop/vnc.sock"
)

// inside is the part that runs in the container.
func inside(ctx context.Context, kind string) error {
	kinds := map[string]func(context.Context) (sample, error){
		"bare": bare, "stack": stack, "frame": frame, "rest": rest, "lazy": lazy,
	}
	if kind == "compare" {
		if err := run(ctx, "start"); err != nil {
			return err
		}
		os.Setenv("DISPLAY", ":99")
		return compare(ctx, socket)
	}
	f, ok := kinds[kind]
	if !ok {
		return fmt.Errorf("there is no measurement %q", kind)
	}
	s, err := f(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// run runs the supervisor.
func run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, ctl, args...)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("ctl %v: %w: %s", args, err, out)
	}
	return nil
}

// timed gives how long f takes, in milliseconds.
func timed(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return float64(time.Since(began).Microseconds()) / 1000, err
}

// bare is the same Chromium with the same flags, and the X server it needs,
// until DevTools answers.
func bare(ctx context.Context) (sample, error) {
	program, err := chrome.Find("")
	if err != nil {
		return nil, err
	}
	flags := chrome.Flags(chrome.Options{
		Profile: "/tmp/profile", Port: 9223, URL: "about:blank", Width: 1280, Height: 800,
		NoSandbox: !chrome.SandboxWorks(), NoSharedMemory: !chrome.SharedMemoryWorks(),
	})
	took, err := timed(func() error {
		x := exec.CommandContext(ctx, "Xvfb", ":99", "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-extension", "GLX")
		if err := x.Start(); err != nil {
			return err
		}
		if err := until(ctx, func() bool { _, err := os.Stat("/tmp/.X11-unix/X99"); return err == nil }); err != nil {
			return err
		}
		browser := exec.CommandContext(ctx, program, flags...)
		browser.Env = append(os.Environ(), "DISPLAY=:99")
		if err := browser.Start(); err != nil {
			return err
		}
		return until(ctx, answers("http://127.0.0.1:9223/json/version"))
	})
	return sample{"Chromium alone": took}, err
}

// answers says whether a GET of url is answered 200.
func answers(url string) func() bool {
	return func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return err == nil && resp.StatusCode == http.StatusOK
	}
}

// until looks every 5 ms.
func until(ctx context.Context, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// stack is the whole desktop from nothing, and what it answers then.
func stack(ctx context.Context) (sample, error) {
	s := sample{}
	var err error
	if s["whole stack ready"], err = timed(func() error { return run(ctx, "start") }); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	for name, verb := range map[string]string{"second start": "start", "status": "status"} {
		var took []float64
		for range 7 {
			t, err := timed(func() error { return run(ctx, verb) })
			if err != nil {
				return nil, err
			}
			took = append(took, t)
			pause(ctx, 200*time.Millisecond)
		}
		slices.Sort(took)
		s[name] = took[len(took)/2]
	}
	s["stop"], err = timed(func() error { return run(ctx, "stop") })
	return s, err
}

// frame is what a person waits for: from the start to a picture that is not
// blank, in noVNC in a browser of its own, on this machine and running already.
// It opens the viewer as soon as that is there, as a panel does that is opened
// while its sandbox wakes.
func frame(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	program, err := chrome.Find("")
	if err != nil {
		return nil, err
	}
	alloc, cancelAlloc := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true))...)
	defer cancelAlloc()
	tab, cancelTab := chromedp.NewContext(alloc)
	defer cancelTab()
	if err := chromedp.Do(tab, chromedp.Navigate("about:blank")); err != nil {
		return nil, err
	}
	pause(ctx, time.Second)
	// A line through the toolbar, once a frame: more than one colour is no
	// blank. To look at more, or more often, would slow down what is looked at.
	const painted = `new Promise((done) => (function look() {
		const c = document.querySelector('canvas');
		if (c?.width) {
			const line = new Uint32Array(c.getContext('2d').getImageData(0, 60, c.width, 1).data.buffer);
			if (line.some((v) => v !== line[0])) return done(true);
		}
		requestAnimationFrame(look);
	})())`
	started := make(chan error, 1)
	took, err := timed(func() error {
		go func() { started <- run(ctx, "start") }()
		if err := until(ctx, answers("http://127.0.0.1:8080/")); err != nil {
			return err
		}
		if err := chromedp.Do(tab, chromedp.Navigate("http://127.0.0.1:8080/")); err != nil {
			return err
		}
		_, err := chromedp.Run(tab, chromedp.Evaluate[bool](painted, chromedp.EvalAwaitPromise))
		return err
	})
	return sample{"first picture in noVNC": took}, errors.Join(err, <-started)
}

// rest is what a desktop with a static page takes while nobody does anything.
func rest(ctx context.Context) (sample, error) {
	if err := run(ctx, "start", "--url", "about:blank"); err != nil {
		return nil, err
	}
	if err := show(ctx, stillPage); err != nil {
		return nil, err
	}
	const settle, span = 10 * time.Second, 20 * time.Second
	pause(ctx, settle)
	s := sample{}
	s["CPU at rest"] = measureCPU(func() { pause(ctx, span) }).total()
	var all memory
	for name, m := range memories() {
		s[name+", PSS"], s[name+", RSS"] = mib(m.pss), mib(m.rss)
		all.pss, all.rss = all.pss+m.pss, all.rss+m.rss
	}
	s["all, PSS"], s["all, RSS"] = mib(all.pss), mib(all.rss)
	viewer, err := dialRFB(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer viewer.Close()
	viewer.request(true)
	pause(ctx, 2*time.Second)
	s["CPU at rest, one watches"] = measureCPU(func() { pause(ctx, span) }).total()
	return s, nil
}

func mib(kib int) float64 { return float64(kib) / 1024 }

// lazy is a guest whose desktop nobody has asked for: podd, freshly started.
func lazy(ctx context.Context) (sample, error) {
	cmd := exec.CommandContext(ctx, "/opt/cubepod/bin/podd", "--addr", "127.0.0.1:49983")
	cmd.Stderr = io.Discard
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if err := until(ctx, answers("http://127.0.0.1:49983/health")); err != nil {
		return nil, err
	}
	pause(ctx, 2*time.Second)
	var all memory
	for _, m := range memories() {
		all.pss, all.rss = all.pss+m.pss, all.rss+m.rss
	}
	return sample{"idle guest, PSS": mib(all.pss), "idle guest, RSS": mib(all.rss)}, nil
}
