package console_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// portRow is an expression for the row of a port.
func portRow(port int) string {
	return fmt.Sprintf("[...document.querySelectorAll('.ports .row')].find((r) => r.querySelector('.number').innerText === '%d')", port)
}

// inPorts opens the ports of a running sandbox.
func inPorts(t *testing.T) (*fakeAPI, *page) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.sees(".badge", "Running")
	p.click("Ports")
	p.sees(".ports", "Nothing listens yet")
	return f, p
}

func TestPortsAreListedAsTheyComeAndGo(t *testing.T) {
	f, p := inPorts(t)
	f.change(func() {
		f.listening = map[int]bool{3000: true, 8080: true, 9223: true, 49983: true}
		f.ports = map[int]bool{8080: true, 5173: true}
	})
	p.sees(".ports", "3000")
	for port, want := range map[int]string{3000: "Listening", 5173: "Nobody listens, registered", 8080: "Listening, registered"} {
		p.until(fmt.Sprintf("%s.querySelector('.words').innerText === %q", portRow(port), want))
	}
	if got := p.eval("[...document.querySelectorAll('.ports .number')].map((n) => n.innerText)"); got != "3000,5173,8080" {
		t.Errorf("ports %s, want no port of CubePod's own", got)
	}
	f.change(func() { f.listening = map[int]bool{8080: true} })
	p.until(portRow(3000) + " === undefined")
}

func TestAPortIsRegisteredAndTakenBack(t *testing.T) {
	f, p := inPorts(t)
	f.change(func() { f.listening = map[int]bool{3000: true} })
	p.click("Register")
	p.sees(".ports .row", "Listening, registered")
	p.click("Unregister")
	p.until(portRow(3000) + ".querySelector('.words').innerText === 'Listening'")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ports) > 0 {
		t.Errorf("registered: %v", f.ports)
	}
}

func TestAPortIsOpenedBesideTheListAndInATab(t *testing.T) {
	f, p := inPorts(t)
	p.write("#port", "70000"+kb.Enter)
	p.sees(".ports .problem", "A port is a number from 1 to 65535.")
	p.press(kb.Backspace + kb.Backspace + kb.Backspace + kb.Backspace + kb.Backspace)
	p.write("#port", "4321"+kb.Enter)
	p.until(fmt.Sprintf("document.querySelector('.ports iframe')?.src === '%s/panel/token-p1/'", f.panels.URL))
	if diff := cmp.Diff(panelRequest{Port: 4321, Path: "/", ExpiresInSeconds: 12 * 3600}, f.lastPanel()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.wantSandboxed(".ports iframe")
	p.click("Close port 4321")
	p.until("!document.querySelector('.ports iframe')")
	p.until("document.activeElement.title === 'Open port 4321 here'")

	p.eval("window.open = (url, name) => (window.tab = {opener: window, location: {replace(to) { window.went = to; }}, close() { window.went = 'closed'; }})")
	p.click("Open port 4321 in a new tab")
	p.until(fmt.Sprintf("window.went === '%s/panel/token-p2/'", f.panels.URL))
	if got := p.eval("tab.opener"); got != "null" {
		t.Error("the panel's tab could reach this page")
	}
	f.failCall("POST /sandboxes/"+desktopID+"/panels", apierror.New(apierror.Invalid, "port_not_allowed", "port 4321 is never shown"))
	p.click("Open port 4321 in a new tab")
	p.sees(".ports .problem", "Port 4321 is never shown.")
	p.until("window.went === 'closed'")
}

// wantSandboxed checks that a frame of another origin can do no more than a panel needs.
func (p *page) wantSandboxed(sel string) {
	p.t.Helper()
	for attribute, want := range map[string]string{
		"sandbox":        "allow-scripts allow-forms allow-popups allow-modals allow-downloads allow-pointer-lock allow-same-origin",
		"allow":          "clipboard-read *; clipboard-write *; fullscreen *",
		"referrerpolicy": "no-referrer",
	} {
		if got := p.eval(fmt.Sprintf("document.querySelector(%q).getAttribute(%q)", sel, attribute)); got != want {
			p.t.Errorf("%s has %s=%q, want %q", sel, attribute, got, want)
		}
	}
}

func TestALinkIsSharedAndRevoked(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.click("Open desktop")
	p.until("document.querySelectorAll('iframe').length === 2")
	p.click("Share")
	p.click("Create link") // of the desktop, to view, for an hour
	p.sees(".links", "Desktop, view only")
	p.sees(".links", "(in 59 minutes)")
	want := panelRequest{Port: 8080, Path: "/vnc.html?autoconnect=true&resize=scale", Mode: "view", ExpiresInSeconds: 3600}
	if diff := cmp.Diff(want, f.lastPanel()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.until("document.activeElement.innerText.trim() === 'Copy'")
	p.press(kb.Enter)
	p.sees(".links", "Copied")

	p.eval("document.querySelector('#share-target').value = 'terminal'")
	p.eval("document.querySelector('#share-mode').value = 'control'")
	p.eval("document.querySelector('#share-expiry').value = '900'")
	p.click("Create link")
	p.sees(".links", "Terminal, control")
	if diff := cmp.Diff(panelRequest{Port: 7681, Path: "/", Mode: "control", ExpiresInSeconds: 900}, f.lastPanel()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, want := p.eval("document.querySelector('.links input').value"), f.panels.URL+"/panel/token-p2/"; got != want {
		t.Errorf("the link is %s, want %s", got, want)
	}
	p.wantNoSecretInAddress()

	// The links are still there after a look at something else.
	p.click("All sandboxes")
	p.eval(fmt.Sprintf("location.hash = '#/sandboxes/%s'", desktopID))
	p.click("Share")
	p.sees(".links", "Terminal, control")
	p.until("document.querySelectorAll('iframe').length === 2")
	p.click("Ports")
	p.write("#port", "3000"+kb.Enter)
	p.until("document.querySelector('.ports iframe')?.src.includes('token-p3')")
	p.click("Share")
	before := p.eval("document.querySelector('iframe').src")
	p.click("Revoke all links")
	p.sees("dialog", "stops working at once")
	p.click("Cancel")
	p.sees(".links", "Terminal, control")
	p.click("Revoke all links")
	p.click("Revoke")
	p.sees(".notice", "All links were revoked.")
	p.until("document.querySelector('.links').hidden")
	f.mu.Lock()
	revoked := f.revoked
	f.mu.Unlock()
	if revoked != 1 {
		t.Errorf("revoked %d times", revoked)
	}
	testutil.Eventually(t, "what is shown here has new addresses", func() bool { return p.eval("document.querySelector('iframe').src") != before })
	p.until("document.querySelector('.ports iframe').src.includes('token-p4')")
}

func TestALinkThatCannotBeMadeSaysWhy(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.click("Share")
	p.click("Create link")
	p.sees(".share .problem", "This sandbox's image has no desktop.")
}
