package console_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

const markup = `"'><img src=x onerror="pwned=1"><script>pwned=1</script><b>`

// TestNothingASandboxSaysBecomesMarkup fills every place that shows what comes
// from a sandbox, or from who made it, with markup.
func TestNothingASandboxSaysBecomesMarkup(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	b := f.add(desktopID, markup, "running")
	f.change(func() {
		b.Metadata = map[string]string{"name": markup, markup: "javascript:pwned=1", "turned": "\u202etxt.exe"}
		f.files["/workspace/"+markup] = &file{dir: true}
		f.files["/workspace/link"] = &file{link: markup}
		f.newCommand(markup)
	})
	broken := f.add("fa11ed00000000000005", "base", "failed")
	f.change(func() { broken.Reason = markup })
	odd := f.add(`x"><img src=x onerror=pwned=1>`, "base", markup)
	f.change(func() { odd.Metadata = nil })
	f.put("/workspace/"+markup+".txt", "x")
	f.print("proc-1", markup+"\x1b]8;;javascript:pwned=1\x07link\x1b]8;;\x07 \x1b[31mred\x1b[0m \x9b31m\n")

	p.enter(f, "")
	p.sees(".row", "<img src=x")
	p.wantNoMarkup("the list")
	if got := p.eval("document.body.innerText.includes('\\u202e')"); got == "true" {
		t.Error("a name turns the direction of the text around it")
	}

	p.eval("location.hash = '#/sandboxes/" + desktopID + "'")
	p.sees("dl.facts", "<img src=x")
	p.click("Commands")
	p.sees(".output", "<img src=x")
	p.wantNoMarkup("a command's output")
	if got := p.eval("document.querySelector('.output pre').textContent.includes('javascript:')"); got == "true" {
		t.Error("an escape sequence is shown as text")
	}

	p.click("Files")
	p.sees(".listing", "<img src=x")
	p.wantNoMarkup("the files")
	f.failCall("PUT /sandboxes/"+desktopID+"/files", apierror.New(apierror.Invalid, "invalid_path", "%s", markup))
	drop(p, map[string]string{markup + "2": "x"})
	p.sees(".transfer", "<img src=x")
	p.wantNoMarkup("a transfer that failed")
	f.failCall("POST /sandboxes/"+desktopID+"/panels", apierror.New(apierror.Invalid, "invalid_path", "%s", markup))
	p.click("Ports")
	p.write("#port", "3000"+kb.Enter)
	p.sees(".ports .problem", "<img src=x")
	p.wantNoMarkup("the ports")

	p.eval("location.hash = '#/sandboxes/fa11ed00000000000005'")
	p.sees(".badge", "<img src=x")
	p.wantNoMarkup("the reason of a failure")
	p.eval("location.hash = '#/sandboxes/' + encodeURIComponent('" + `x"><img src=x onerror=pwned=1>` + "')")
	p.sees("h1", "<img src=x")
	p.wantNoMarkup("an id")
}

func (p *page) wantNoMarkup(where string) {
	p.t.Helper()
	if got := p.eval("document.querySelectorAll('body img, body b, body script, [onerror]').length"); got != "0" {
		p.t.Errorf("%s became markup: %s elements", where, got)
	}
	if got := p.eval("typeof pwned"); got != "undefined" {
		p.t.Errorf("%s ran as script", where)
	}
}

// A panel's address is not the API's word alone: one with a script in it must
// not run here.
func TestAPanelAddressRunsNothing(t *testing.T) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(desktopID, "desktop", "running")
	f.change(func() { f.panelAddress = "javascript:parent.pwned=1//" })
	p.enter(f, "#/sandboxes/"+desktopID)
	p.click("Ports")
	p.write("#port", "3000"+kb.Enter)
	p.sees(".ports .problem", "no address of a panel")
	if got := p.eval("typeof pwned"); got != "undefined" {
		t.Error("it ran")
	}
	if got := p.eval("document.querySelectorAll('iframe').length"); got != "0" {
		t.Error(fmt.Sprint(got, " frames"))
	}
}
