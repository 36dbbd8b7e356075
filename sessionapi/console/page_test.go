package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

const (
	desktopID = "d3sk7op0000000000001"
	baseID    = "ba5e0000000000000002"
	pausedID  = "pau5ed00000000000003"
)

func TestTheKeyIsTakenFromTheAddressAndRemoved(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.open(f.URL + "/#key=" + key)
	p.sees(".row", desktopID)
	p.wantNoSecretInAddress()
	if got := p.eval("sessionStorage.getItem('cubepod.key')"); got != key {
		t.Errorf("session storage has %q", got)
	}
	if got := p.eval("localStorage.length"); got != "0" {
		t.Errorf("local storage has %s entries, want none unasked", got)
	}
	p.do(chromedp.Reload())
	p.sees(".row", desktopID)

	// A link pasted into the same tab changes the fragment only.
	p.eval("location.hash = '#key=another'")
	p.sees(".problem", "did not accept this key")
	p.wantNoSecretInAddress()
}

func TestTheKeyIsAskedFor(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.open(f.URL + "/")
	p.until("document.activeElement.id === 'key'")
	p.write("#key", "wrong"+kb.Enter)
	p.sees(".problem", "This key was not accepted.")
	p.eval("document.querySelector('[name=remember]').click()")
	p.write("#key", key+kb.Enter) // the wrong key is selected
	p.sees(".row", desktopID)
	if got := p.eval("localStorage.getItem('cubepod.key')"); got != key {
		t.Errorf("local storage has %q, want the key that was to be remembered", got)
	}
	p.click("Forget key")
	p.until("document.activeElement.id === 'key'")
	if got := p.eval("localStorage.length + sessionStorage.length"); got != "0" {
		t.Errorf("%s entries left in storage", got)
	}
}

func TestAKeyThatStopsWorkingIsAskedForAgain(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	p.enter(f, "")
	f.change(func() { f.key = "rotated" })
	p.sees(".problem", "did not accept this key")
	p.write("#key", "rotated"+kb.Enter)
	p.sees("h1", "Sandboxes")
}

func TestTheListShowsStatesInWordsAndFollows(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	p.enter(f, "")
	p.sees(".empty", "No sandboxes")
	f.add(desktopID, "desktop", "running")
	b := f.add(baseID, "base", "creating")
	p.sees(".row", desktopID)
	for _, want := range []string{"Running", "desktop", "12 minutes ago", "ends in 48 minutes"} {
		p.sees(fmt.Sprintf(".row:has([href$='%s'])", desktopID), want)
	}
	p.sees(fmt.Sprintf(".row:has([href$='%s'])", baseID), "Starting")
	f.change(func() { b.State = "paused" })
	p.sees(fmt.Sprintf(".row:has([href$='%s'])", baseID), "Paused")
	f.drop(baseID)
	p.until(fmt.Sprintf("!document.querySelector(\"[href$='%s']\")", baseID))
}

// TestTheListFollowsTheStream has a list call that only works once, so that
// what is shown later came by the stream.
func TestTheListFollowsTheStream(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.change(func() { f.streams = true })
	b := f.add(desktopID, "desktop", "running")
	p.enter(f, "")
	p.sees(".row", "Running")
	f.failCall("GET /v2/sandboxes", apierror.New(apierror.Unavailable, "store_unavailable", "the store does not answer"))
	f.change(func() { b.State = "paused" })
	p.sees(".row", "Paused")
	f.add(baseID, "base", "running")
	p.sees(fmt.Sprintf(".row:has([href$='%s'])", baseID), "Running")
	f.drop(baseID)
	p.until(fmt.Sprintf("!document.querySelector(\"[href$='%s']\")", baseID))
}

func TestTheListSaysWhenTheAPIIsAway(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "")
	f.failCall("GET /v2/sandboxes", apierror.New(apierror.Unavailable, "store_unavailable", "the store does not answer"))
	p.sees(".line", "The store does not answer. Trying again.")
	p.sees(".row", desktopID)
	f.failCall("GET /v2/sandboxes", nil)
	p.sees(".line", "Connected")
}

func TestASandboxIsCreated(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	p.enter(f, "")
	f.failCall("POST /sandboxes", apierror.New(apierror.Unavailable, "runtime_unavailable", "the host has no room"))
	p.click("New sandbox")
	p.until("document.querySelector('dialog[open]') !== null")
	p.eval("document.querySelector('[value=base]').click()")
	p.click("Create")
	p.sees("dialog .problem", "The host has no room.")

	f.failCall("POST /sandboxes", nil)
	release := f.holdCall("POST /sandboxes")
	p.click("Create")
	p.sees("dialog", "Starting the sandbox")
	release()
	p.until("location.hash.startsWith('#/sandboxes/new')")
	p.sees(".badge", "Running")
	p.sees("[aria-selected=true]", "Commands")
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := f.sandboxes[0].Template; got != "base" {
		t.Errorf("template %q", got)
	}
}

func TestADialogClosesOnEscape(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	p.enter(f, "")
	p.click("New sandbox")
	p.until("document.querySelector('dialog[open]') !== null")
	p.press(kb.Escape)
	p.until("!document.querySelector('dialog')")
	p.until("document.activeElement.innerText.trim() === 'New sandbox'")
}

func TestACommandsOutputGrowsWhileItRuns(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.write("#command", "make"+kb.Enter)
	p.sees(".result .outcome", "Running")
	f.print("proc-1", "first\n")
	p.sees(".output", "first")
	p.sees(".result .outcome", "Running")
	f.print("proc-1", "\x1b[31mred\x1b[0m 10%\r\x1b[31mred\x1b[0m 99%\r\n<b>no markup</b>\n")
	p.sees(".output", "<b>no markup</b>")
	f.end("proc-1", 3)
	p.sees(".result .outcome", "Failed with exit code 3")
	if got, want := p.eval("document.querySelector('.output pre').textContent"), "first\nred 99%\n<b>no markup</b>\n"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	p.write("#command", kb.ArrowUp)
	p.until("document.querySelector('#command').value === 'make'")
}

func TestLongOutputIsReadToItsEnd(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.write("#command", "seq"+kb.Enter)
	p.sees(".result .outcome", "Running")
	f.print("proc-1", strings.Repeat("0123456789abcdef\n", 20000)+"the end\n")
	f.end("proc-1", 0)
	p.until("document.querySelector('.output pre').textContent.endsWith('the end\\n')")
	p.sees(".output .cut", "Earlier output is not shown.")
}

func TestACommandIsStopped(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.write("#command", "sleep 9999"+kb.Enter)
	p.click("Kill")
	p.sees(".result .outcome", "Killed")
}

func TestCommandsOfOtherClientsAreListed(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	f.change(func() { f.newCommand("by an agent") })
	f.print("proc-1", "seen\n")
	p.enter(f, "#/sandboxes/"+baseID)
	p.sees(".history", "proc-1")
	p.sees(".output", "seen")
}

func TestACommandThatCannotRunSaysWhy(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	f.failCall("POST /sandboxes/"+baseID+"/commands/run", apierror.New(apierror.BadGateway, "podd_unreachable", "the sandbox does not answer"))
	p.enter(f, "#/sandboxes/"+baseID)
	p.write("#command", "ls"+kb.Enter)
	p.sees(".commands > .problem", "The sandbox does not answer.")
	p.until("document.querySelector('#command').value.trim() === 'ls'")
}

func TestTheDesktopOpensInFramesOfAnotherOrigin(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	release := f.holdCall("POST /sandboxes/" + desktopID + "/desktop/start")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.click("Open desktop")
	p.sees(".stage", "Starting the desktop")
	release()
	p.until("document.querySelectorAll('iframe').length === 2")
	for n, want := range []string{"/panel/token-d1/vnc.html?autoconnect=true&resize=scale", "/panel/token-t1/"} {
		if got := p.eval(fmt.Sprintf("document.querySelectorAll('iframe')[%d].src", n)); got != f.panels.URL+want {
			t.Errorf("frame %d shows %s, want %s", n, got, f.panels.URL+want)
		}
		if got, want := p.eval(fmt.Sprintf("document.querySelectorAll('iframe')[%d].allow", n)), "clipboard-read *; clipboard-write *; fullscreen *"; got != want {
			t.Errorf("frame %d allows %q, want %q", n, got, want)
		}
	}
	p.until("[...document.querySelectorAll('.pane header > .dim')].every((n) => n.textContent === '')") // loaded
	p.wantNoSecretInAddress()

	p.click("Reload browser")
	p.until("document.querySelector('iframe').src.includes('token-d2')")

	width := "Math.round(document.querySelector('.pane').getBoundingClientRect().width)"
	before := p.eval(width)
	p.eval("document.querySelector('.divider').focus()")
	p.press(kb.ArrowLeft)
	p.until(width + " < " + before)

	// The frames outlive a look at the commands.
	p.eval("document.querySelector('iframe').seen = true")
	p.click("Commands")
	p.sees("[aria-selected=true]", "Commands")
	p.click("Desktop")
	p.until("document.querySelector('iframe').seen")

	// Coming back from the list, the desktop is there again.
	p.click("All sandboxes")
	p.sees("h1", "Sandboxes")
	p.eval(fmt.Sprintf("location.hash = '#/sandboxes/%s'", desktopID))
	p.until("document.querySelectorAll('iframe').length === 2")
}

func TestASandboxWithoutADesktopSaysSo(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.click("Desktop")
	p.click("Open desktop")
	p.sees(".stage", "This sandbox's image has no desktop.")
}

func TestASandboxIsPausedAndResumed(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	release := f.holdCall("POST /sandboxes/" + desktopID + "/pause")
	p.click("Pause")
	p.sees(".badge", "Pausing")
	release()
	p.sees(".badge", "Paused")
	p.sees(".stage", "The sandbox is paused")
	p.click("Resume")
	p.sees(".badge", "Running")
	p.sees(".stage", "The desktop is not open")

	f.failCall("POST /sandboxes/"+desktopID+"/pause", apierror.New(apierror.Conflict, "sandbox_state", "the sandbox is being resumed"))
	p.click("Pause")
	p.sees(".notice", "The sandbox is being resumed.")
	p.sees(".badge", "Running")
}

func TestAnOpenDesktopComesBackAfterAResume(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(pausedID, "desktop", "paused")
	p.enter(f, "#/sandboxes/"+pausedID)
	p.click("Resume and open desktop")
	p.until("document.querySelectorAll('iframe').length === 2")
	p.sees(".badge", "Running")
	p.click("Pause")
	p.sees(".badge", "Paused")
	p.until("document.querySelectorAll('iframe').length === 2") // the panels say what they say
	p.click("Resume")
	p.until("document.querySelector('iframe').src.includes('token-d2')")
}

func TestASandboxIsDeletedOnceConfirmed(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.click("Delete")
	p.sees("dialog", "This cannot be undone.")
	p.until("document.activeElement.innerText.trim() !== 'Delete'") // a stray Enter deletes nothing
	p.click("Cancel")
	p.sees(".badge", "Running")
	p.click("Delete")
	p.sees("dialog", "This cannot be undone.")
	p.click("Delete")
	p.sees(".notice", "The sandbox was deleted.")
	p.sees(".empty", "No sandboxes")
}

func TestASandboxThatIsGoneLeadsBackToTheList(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	p.enter(f, "#/sandboxes/"+desktopID)
	p.sees(".badge", "Running")
	f.drop(desktopID)
	p.sees(".notice", "is gone")
	p.sees("h1", "Sandboxes")
}

// TestLongNamesTakeOneLine has labels and a template of thousands of
// characters: they end in an ellipsis, and pointing at them tells the whole.
func TestLongNamesTakeOneLine(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	words, word := strings.Repeat("many words ", 300), strings.Repeat("x", 3000)
	b := f.add(desktopID, word, "running")
	f.change(func() { b.Metadata = map[string]string{"words": words, "word": word} })
	p.enter(f, "")
	p.sees(rowOf(desktopID), "words=many")
	p.wantOneLine(rowOf(desktopID) + " .note")
	if got := p.eval("document.elementFromPoint(...(({left, top}) => [left + 5, top + 5])(document.querySelector('.row .note').getBoundingClientRect())).title.includes('many words')"); got != "true" {
		t.Error("pointing at the labels of a row does not tell them")
	}
	p.eval("location.hash = '#/sandboxes/" + desktopID + "'")
	p.sees("dl.facts", "words=many")
	p.wantOneLine("dl.facts div:first-child dd")
	p.wantOneLine("dl.facts div:last-child dd")
	if got := p.eval("document.querySelector('.top').getBoundingClientRect().height < 100"); got != "true" {
		t.Error("the labels bury the page")
	}
	if got := p.eval("document.documentElement.scrollWidth <= innerWidth"); got != "true" {
		t.Error("the page scrolls sideways")
	}
	if got := p.eval("[...document.querySelectorAll('.top .tools button')].every((n) => n.hidden || n.getBoundingClientRect().right <= innerWidth)"); got != "true" {
		t.Error("the labels push the buttons out")
	}
}

// wantOneLine wants a text that is too long for its place cut to one line, with
// the whole in a title.
func (p *page) wantOneLine(selector string) {
	p.t.Helper()
	got := p.eval(fmt.Sprintf(`(() => {
		const n = document.querySelector(%q), style = getComputedStyle(n), line = 2 * parseFloat(style.fontSize);
		const titled = n.title || n.parentNode.querySelector('[title]')?.title;
		if (titled !== n.textContent) return 'no title';
		if (n.scrollWidth <= n.clientWidth) return 'not cut';
		if (n.clientHeight > line) return n.clientHeight + ' pixels high';
		return style.textOverflow;
	})()`, selector))
	if got != "ellipsis" && got != `"ellipsis"` {
		p.t.Errorf("%s: %s", selector, got)
	}
}
