package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cubeplexai/cubepod/desktopctl/chrome"
	"github.com/cubeplexai/cubepod/desktopctl/daemon"
	"github.com/cubeplexai/cubepod/internal/apierror"
)

// blank is the page of a browser that was not told another.
const blank = "about:blank"

// browser is Chromium for one start.
type browser struct {
	stack   *Stack
	url     string // asked for, may be empty
	prepare func() (chrome.Options, error)
	program string // set by prepare
}

func (s *Stack) newBrowser(size Resolution, url string) *browser {
	b := &browser{stack: s, url: url}
	b.prepare = sync.OnceValues(func() (chrome.Options, error) { return b.options(size) })
	return b
}

// options makes the profile ready and looks at what this guest allows.
func (b *browser) options(size Resolution) (chrome.Options, error) {
	cfg := b.stack.cfg
	program, err := chrome.Find(cfg.Chromium)
	if err != nil {
		return chrome.Options{}, apierror.New(apierror.Unsupported, "browser_missing", "%v", err)
	}
	b.program = program
	if err := chrome.PrepareProfile(cfg.ProfileDir); err != nil {
		if e, ok := errors.AsType[*chrome.InUseError](err); ok {
			return chrome.Options{}, apierror.New(apierror.Conflict, "profile_in_use", "%v", e)
		}
		if e, ok := errors.AsType[*chrome.NotWritableError](err); ok {
			return chrome.Options{}, apierror.New(apierror.Conflict, "profile_not_writable", "%v", e)
		}
		return chrome.Options{}, err
	}
	url := b.url
	if url == "" {
		url = blank
	}
	return chrome.Options{
		Profile: cfg.ProfileDir, Port: cdpPort, URL: url,
		Width: size.Width, Height: size.Height,
		NoSandbox:      !chrome.SandboxWorks(),
		NoSharedMemory: !chrome.SharedMemoryWorks(),
	}, nil
}

// ensure makes the browser run, answer and show what was asked for.
func (b *browser) ensure(ctx context.Context) error {
	s := b.stack
	p, err := s.keep(ctx, component{name: chromium, ready: b.answers})
	if err != nil {
		return err
	}
	if p != nil {
		if err := b.showPage(ctx, p); err != nil {
			// One whose last window was closed answers until it is gone.
			s.logf("chromium (pid %d) opens no tab, replacing it: %v", p.Pid, err)
			if err := s.closeBrowser(ctx, p); err != nil {
				return err
			}
			p = nil
		}
	}
	if p == nil {
		if p, err = b.launch(ctx); err != nil {
			return err
		}
	}
	s.setAlive(chromium, p)
	return nil
}

// launch starts the browser. One whose sandbox fails after all, although the
// guest seemed to allow it, is started once more without.
func (b *browser) launch(ctx context.Context) (*daemon.Process, error) {
	options, err := b.prepare()
	if err != nil {
		return nil, err
	}
	c := component{name: chromium, log: "chromium", port: cdpPort, ready: b.shows}
	c.prepare = func() (daemon.Spec, error) {
		return daemon.Spec{Args: append([]string{b.program}, chrome.Flags(options)...)}, nil
	}
	p, err := b.stack.launch(ctx, c)
	if errors.Is(err, daemon.ErrExited) && !options.NoSandbox {
		b.stack.logf("chromium: ended at once, trying without its sandbox: %v", err)
		options.NoSandbox = true
		p, err = b.stack.launch(ctx, c)
	}
	return p, err
}

// answers is ready when the browser itself answers on its DevTools port.
func (b *browser) answers(ctx context.Context, p *daemon.Process) error {
	_, err := b.pages(ctx, p)
	return err
}

// shows is ready when the browser answers and has a tab.
func (b *browser) shows(ctx context.Context, p *daemon.Process) error {
	pages, err := b.pages(ctx, p)
	if err == nil && len(pages) == 0 {
		err = errors.New("no tab yet")
	}
	return err
}

func (b *browser) pages(ctx context.Context, p *daemon.Process) ([]chrome.Target, error) {
	pages, err := b.stack.devtools.Pages(ctx)
	if err != nil {
		return nil, err
	}
	return pages, listens(p, cdpPort)
}

// showPage opens the tab that was asked for in the running browser p, unless
// one shows it, and some tab when there is none.
func (b *browser) showPage(ctx context.Context, p *daemon.Process) error {
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pages, err := b.stack.devtools.Pages(ask)
	if err != nil {
		return err
	}
	url := b.url
	if url == "" {
		if len(pages) > 0 {
			return nil
		}
		url = blank
	}
	for _, page := range pages {
		if chrome.SamePage(page.URL, url) {
			return nil
		}
	}
	if err := b.stack.devtools.Open(ask, url); err != nil {
		return err
	}
	return await(ctx, p, patience, b.shows)
}

// closeLimit is how long a browser may take to write everything to disk.
const closeLimit = 10 * time.Second

// closeBrowser ends the browser p so that nothing is lost: cookies are written when
// it is closed as a person would, and not always when it is told by a signal.
func (s *Stack) closeBrowser(ctx context.Context, p *daemon.Process) error {
	soft, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	ask, done := context.WithTimeout(soft, patience)
	err := s.devtools.Close(ask)
	done()
	if err == nil {
		err = p.AwaitEnd(soft)
	}
	if err != nil {
		s.logf("chromium: does not close, ending it: %v", err)
	}
	return p.End(ctx, endGrace)
}
