package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// rowOf selects the row of a sandbox.
func rowOf(id string) string { return fmt.Sprintf(".row:has([href$='%s'])", id) }

// act presses a button in the row of a sandbox.
func (p *page) act(id, label string) {
	p.t.Helper()
	p.until(fmt.Sprintf(`(() => {
		const hit = document.querySelector(%q)?.querySelector('[aria-label=%q]');
		if (!hit?.checkVisibility()) return false;
		hit.focus();
		hit.click();
		return true;
	})()`, rowOf(id), label))
}

func TestTheListSaysWhatComesNext(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	paused := f.add(desktopID, "desktop", "running")
	f.change(func() {
		paused.AutoPause, paused.EndAt = true, time.Now().Add(2*time.Hour+5*time.Minute+30*time.Second)
	})
	broken := f.add("fa11ed00000000000005", "base", "failed")
	f.change(func() { broken.Reason = "the image cannot be pulled" })
	ended := f.add(pausedID, "desktop", "paused")
	p.enter(f, "")
	p.sees(rowOf(desktopID), "pauses in 2 hours 5 minutes")
	p.sees(rowOf("fa11ed00000000000005"), "the image cannot be pulled")
	p.sees(rowOf(pausedID)+" .badge", "3 minutes ago")
	f.change(func() {
		paused.State, paused.Since = "paused", time.Now()
		ended.Reason = "it ended by itself"
	})
	p.sees(rowOf(desktopID)+" .badge", "just now")
	p.sees(rowOf(pausedID)+" .badge", "3 minutes ago: it ended by itself")
}

func TestTheListOffersWhatEachStateAllows(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	for id, state := range map[string]string{desktopID: "running", pausedID: "paused", "fa11ed00000000000005": "failed", "de1eting000000000006": "deleting"} {
		f.add(id, "desktop", state)
	}
	p.enter(f, "")
	for id, want := range map[string]string{
		desktopID: "Pause,Time left,Delete", pausedID: "Resume,Delete", "fa11ed00000000000005": "Resume,Delete", "de1eting000000000006": "",
	} {
		p.sees(".rows", id)
		got := p.eval(fmt.Sprintf("[...document.querySelector(%q).querySelectorAll('button')].filter((n) => n.checkVisibility()).map((n) => n.ariaLabel)", rowOf(id)))
		if got != want {
			t.Errorf("%s offers %q, want %q", id, got, want)
		}
	}
	p.act(pausedID, "Resume")
	p.sees(rowOf(pausedID), "Running")
	p.act(pausedID, "Pause")
	p.sees(rowOf(pausedID), "Paused")
	p.act("fa11ed00000000000005", "Delete")
	p.sees("dialog", "fa11ed00000000000005")
	p.click("Delete")
	p.until("!document.body.innerText.includes('fa11ed')")

	p.act(desktopID, "Time left")
	p.eval("document.querySelector('#extend').value = '14400'")
	p.click("Set")
	p.sees(rowOf(desktopID), "ends in 3 hours 59 minutes")
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.extended != 14400 {
		t.Errorf("the timeout is %d", f.extended)
	}
}

func TestASandboxOfAnotherTemplateIsCreated(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "research", "running")
	p.enter(f, "")
	p.sees(".row", "research")
	p.click("New sandbox")
	p.sees("dialog", "research") // it is in use, so it is offered
	p.eval("document.querySelector('[name=other]').focus()")
	p.press("gpu")
	p.write("#name", "for the demo")
	p.eval("document.querySelector('#end').value = 'pause'")
	p.eval("document.querySelector('#idle').value = '900'")
	p.click("Create")
	p.sees("dl.facts", "for the demo")
	f.mu.Lock()
	defer f.mu.Unlock()
	made := f.sandboxes[1]
	if made.Template != "gpu" || made.Metadata["name"] != "for the demo" || !made.AutoPause || f.idle != 900 {
		t.Errorf("made %+v, idle %d", made, f.idle)
	}
}

func TestACallIsTriedAgainQuietly(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.sees(".badge", "Running")
	call := "GET /sandboxes/" + baseID + "/files/list"
	f.failCall(call, apierror.New(apierror.Unavailable, "store_unavailable", "the store does not answer"))
	p.click("Files")
	p.sees(".line", "The store does not answer. Trying again.")
	if got := p.eval("document.querySelectorAll('dialog, .notice').length"); got != "0" {
		t.Error("it is not said quietly")
	}
	f.failCall(call, nil)
	p.sees(".stage", "This folder is empty")
	p.sees(".line", "Connected")
}

// A create that may have been carried out is not sent again by itself.
func TestACreateIsSentOnce(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	p.enter(f, "")
	p.eval(`(() => {
		const real = fetch;
		window.creates = 0;
		window.fetch = (path, options) => {
			if (options?.method !== 'POST') return real(path, options);
			creates++;
			return Promise.reject(new TypeError('network changed'));
		};
	})()`)
	p.click("New sandbox")
	p.until("document.querySelector('dialog[open]') !== null")
	p.click("Create")
	p.sees("dialog .problem", "The API cannot be reached.")
	if got := p.eval("creates"); got != "1" {
		t.Errorf("sent %s times", got)
	}
}

func TestOutputGoesOnAfterABrokenConnection(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.write("#command", "make"+kb.Enter)
	p.sees(".result .outcome", "Running")
	f.change(func() { f.cut = true })
	f.print("proc-1", "before\n")
	p.sees(".output", "before")
	f.print("proc-1", "after\n")
	f.end("proc-1", 0)
	p.sees(".result .outcome", "Succeeded")
	if got, want := p.eval("document.querySelector('.output pre').textContent"), "before\nafter\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}

	// What was typed is known after a reload, too.
	p.do(chromedp.Reload())
	p.sees(".badge", "Running")
	p.sees(".history", "make")
}

func TestEachOfThePanesIsClosedAndOpened(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.click("Open desktop")
	p.until("document.querySelectorAll('iframe').length === 2")
	p.wantSandboxed("iframe")
	width := "Math.round(document.querySelector('.pane').getBoundingClientRect().width)"
	shared := p.eval(width)
	p.click("Close terminal")
	p.until(width + " > " + shared)
	p.until("document.querySelectorAll('iframe')[1].src === ''") // nothing goes on behind it
	p.until("[...document.querySelectorAll('[aria-label=\"Close browser\"]')].every((n) => n.hidden)")
	p.click("Show terminal")
	p.until("document.querySelectorAll('iframe')[1].src.includes('/panel/token-t1/')")
	p.until(width + " === " + shared)
	p.click("Close browser")
	p.click("Show browser")
	p.until("document.querySelectorAll('iframe')[0].src.includes('/panel/token-d1/')")
}

// TestNothingMovesByItself adds up how far content was pushed around while
// nobody did anything, as the browser measures it.
func TestNothingMovesByItself(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.change(func() { f.streams = true })
	b := f.add(desktopID, "desktop", "running")
	f.add(baseID, "base", "running")
	p.enter(f, "")
	p.sees(".row", "Running")
	p.eval(`(() => {
		window.shift = 0;
		new PerformanceObserver((list) => {
			for (const e of list.getEntries()) if (!e.hadRecentInput) shift += e.value;
		}).observe({type: 'layout-shift', buffered: false});
	})()`)
	for _, state := range []string{"pausing", "paused", "resuming", "running"} {
		f.change(func() { b.State = state })
		p.until(fmt.Sprintf("document.querySelector(%q).dataset.state === %q", rowOf(desktopID)+" .badge",
			map[string]string{"pausing": "moving", "paused": "paused", "resuming": "moving", "running": "running"}[state]))
	}
	f.failCall("GET /v2/sandboxes", apierror.New(apierror.Unavailable, "store_unavailable", "the store does not answer"))
	p.eval("requestAnimationFrame(() => requestAnimationFrame(() => { window.painted = true; }))")
	p.until("window.painted")
	if got := p.eval("shift < 0.02"); got != "true" {
		t.Errorf("the layout shifted by %s", p.eval("shift"))
	}
}

// TestEverythingIsReachedByKeyboard walks over each tab's controls, each of
// which has a name.
func TestEverythingIsReachedByKeyboard(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	f.put("/workspace/a.txt", "x")
	f.change(func() { f.listening = map[int]bool{3000: true} })
	p.enter(f, "#/sandboxes/"+desktopID)
	p.sees(".badge", "Running")
	p.eval("document.querySelector('#tab-desktop').focus()")
	for _, tab := range []string{"Commands", "Files", "Ports", "Share"} {
		p.press(kb.ArrowRight)
		p.until(fmt.Sprintf("document.activeElement.innerText === %q && document.activeElement.ariaSelected === 'true'", tab))
		switch tab {
		case "Files":
			p.sees(".listing", "a.txt")
		case "Ports":
			p.sees(".ports", "3000")
		}
		controls := "[...document.querySelectorAll('button, a, input, select, textarea, [tabindex=\"0\"]')].filter((n) => n.checkVisibility() && !n.disabled && n.tabIndex >= 0)"
		nameless := p.eval(controls + `.filter((n) => !(n.innerText?.trim() || n.ariaLabel || n.labels?.length || n.title)).map((n) => n.outerHTML)`)
		if nameless != "" {
			t.Errorf("%s: these have no name: %s", tab, nameless)
		}
		// As many steps as there are controls from the tab on lead through all of them, in their order.
		p.eval("window.walked = []")
		p.eval("window.expected = " + controls + ".filter((n) => document.activeElement.compareDocumentPosition(n) & Node.DOCUMENT_POSITION_FOLLOWING)")
		p.eval("document.addEventListener('focusin', window.walk = (e) => walked.push(e.target))")
		n := 0
		if _, err := fmt.Sscan(p.eval("expected.length"), &n); err != nil || n == 0 {
			t.Fatalf("%s: no controls: %v", tab, err)
		}
		for range n {
			p.press(kb.Tab)
		}
		testutil.Eventually(t, tab+": the last control has the focus", func() bool { return p.eval("walked.length >= expected.length") == "true" })
		if p.eval("expected.every((n, i) => walked[i] === n)") != "true" {
			t.Errorf("%s: walked %s, want %s", tab, p.eval("walked.map((n) => n.innerText || n.ariaLabel || n.id)"), p.eval("expected.map((n) => n.innerText || n.ariaLabel || n.id)"))
		}
		p.eval("document.removeEventListener('focusin', walk)")
		p.eval(fmt.Sprintf("[...document.querySelectorAll('[role=tab]')].find((n) => n.innerText === %q).focus()", tab))
	}
}

// The first answer was lost, so the call was repeated and found its work done.
func TestAPauseThatHadSucceededIsNoFailure(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	b := f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.sees(".badge", "Running")
	f.failCall("POST /sandboxes/"+desktopID+"/pause", apierror.New(apierror.Conflict, "sandbox_state", "the sandbox is paused already"))
	release := f.holdCall("POST /sandboxes/" + desktopID + "/pause")
	p.click("Pause")
	p.sees(".badge", "Pausing")
	f.change(func() { b.State = "paused" })
	release()
	p.sees(".badge", "Paused")
	p.until("document.activeElement.innerText.trim() === 'Resume'") // it is all over
	if got := p.eval("document.querySelectorAll('.notice').length"); got != "0" {
		t.Error("it complains")
	}
}
