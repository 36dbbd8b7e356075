package console_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// choose gives files to the panel as its file dialog does.
func choose(p *page, files map[string]string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		for (const [name, text] of Object.entries(%s)) data.items.add(new File([text], name));
		const picker = document.querySelector('.files input[type=file]');
		picker.files = data.files;
		picker.dispatchEvent(new Event('change'));
	})()`, object(p, files)))
}

// drop drops files on the panel.
func drop(p *page, files map[string]string) {
	p.t.Helper()
	p.eval(fmt.Sprintf(`(() => {
		const data = new DataTransfer();
		for (const [name, text] of Object.entries(%s)) data.items.add(new File([text], name));
		const panel = document.querySelector('.files');
		for (const type of ['dragover', 'drop']) panel.dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: data}));
	})()`, object(p, files)))
}

// object is a JavaScript object of names and texts.
func object(p *page, files map[string]string) string {
	p.t.Helper()
	out, err := json.Marshal(files)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out)
}

// inFiles opens the files of a running sandbox.
func inFiles(t *testing.T) (*fakeAPI, *page) {
	f, p := newFakeAPI(t), newPage(t)
	f.add(baseID, "base", "running")
	p.enter(f, "#/sandboxes/"+baseID)
	p.sees(".badge", "Running")
	return f, p
}

func (p *page) openFiles(has string) {
	p.t.Helper()
	p.click("Files")
	p.sees(".files", has)
}

// nameless are names that HTML, addresses and shells take for something else.
var nameless = []string{
	`a b.txt`, `"quoted" 'twice'.txt`, `100%25.txt`, `#1?.txt`, `<img src=x onerror="pwned=1">`, "two\nlines.txt", "-rf", `..hidden`, `a\b:c*.txt`, "ü😀.txt", "\u202egpj.exe",
}

func TestFoldersAreWalkedThrough(t *testing.T) {
	f, p := inFiles(t)
	f.put("/workspace/notes.txt", "x")
	f.change(func() {
		for _, dir := range []string{"/workspace/src", "/workspace/src/deep er%", "/etc"} {
			f.files[dir] = &file{dir: true, at: time.Now().Add(-2 * time.Hour)}
		}
	})
	f.put("/workspace/src/deep er%/big", strings.Repeat("x", 4321))
	p.openFiles("notes.txt")
	p.sees(".listing .row", "1 byte")
	p.sees(".listing .row", "3 minutes ago")
	p.click("src")
	p.sees(".trail", "src")
	p.click("deep er%")
	p.sees(".listing", "big")
	p.sees(".listing .row", "4.3 KB")
	p.until("document.activeElement.innerText.trim() === 'big'") // the keyboard goes on where the person went
	p.click("Up to the parent folder")
	p.sees(".listing", "deep er%")
	p.click("/")
	p.sees(".listing", "etc")
	p.until("document.querySelector('[aria-label=\"Up to the parent folder\"]').disabled")

	// A folder that went away meanwhile leads to the one it was in.
	p.click("workspace")
	p.click("src")
	p.sees(".listing", "deep er%")
	f.change(func() { delete(f.files, "/workspace/src") })
	p.click("Read the folder again")
	p.sees(".listing", "notes.txt")
}

func TestChosenFilesAreUploaded(t *testing.T) {
	f, p := inFiles(t)
	p.openFiles("This folder is empty")
	files := map[string]string{}
	for n, name := range nameless {
		if !strings.ContainsAny(name, "\n\\") { // no file dialog gives these
			files[name] = fmt.Sprint("content ", n)
		}
	}
	choose(p, files)
	for name, want := range files {
		testutil.Eventually(t, name, func() bool { got, ok := f.content("/workspace/" + name); return ok && got == want })
	}
	p.until(fmt.Sprintf("document.querySelectorAll('.listing .rows .row').length === %d", len(files)))
	p.until("document.querySelector('.tray').hidden") // it says so and leaves
}

func TestDroppedFilesGoIntoTheShownFolder(t *testing.T) {
	f, p := inFiles(t)
	f.change(func() { f.files["/workspace/in here"] = &file{dir: true} })
	p.openFiles("in here")
	p.click("in here")
	p.sees(".stage", "This folder is empty")
	big := strings.Repeat("0123456789", 300_000)
	drop(p, map[string]string{"a.txt": "a", "big.bin": big})
	testutil.Eventually(t, "both arrived", func() bool {
		a, _ := f.content("/workspace/in here/a.txt")
		b, _ := f.content("/workspace/in here/big.bin")
		return a == "a" && b == big
	})
	p.sees(".listing", "3.0 MB")
}

func TestAnUploadReplacesNothingUnasked(t *testing.T) {
	f, p := inFiles(t)
	f.put("/workspace/kept", "old")
	p.openFiles("kept")
	drop(p, map[string]string{"kept": "new", "other": "new"})
	p.sees("dialog", "Replace it?")
	p.click("Leave it out")
	p.sees(".listing", "other")
	if got, _ := f.content("/workspace/kept"); got != "old" {
		t.Errorf("the file has %q", got)
	}
	drop(p, map[string]string{"kept": "new"})
	p.sees("dialog", "Replace it?")
	p.click("Replace")
	testutil.Eventually(t, "it is replaced", func() bool { got, _ := f.content("/workspace/kept"); return got == "new" })
}

func TestAnUploadThatFailsIsKeptUntilItSucceeds(t *testing.T) {
	f, p := inFiles(t)
	p.openFiles("This folder is empty")
	call := "PUT /sandboxes/" + baseID + "/files"
	f.failCall(call, apierror.New(apierror.Invalid, "no_space", "the disk of the sandbox is full"))
	drop(p, map[string]string{"a.txt": "a"})
	p.sees(".tray", "1 failed")
	p.sees(".transfer", "The disk of the sandbox is full.")
	p.click("All sandboxes") // it is still there elsewhere
	p.sees(".transfer", "The disk of the sandbox is full.")
	f.failCall(call, nil)
	p.click("Try a.txt again")
	testutil.Eventually(t, "it arrived", func() bool { got, _ := f.content("/workspace/a.txt"); return got == "a" })
}

func TestATransferOutlivesABrokenConnection(t *testing.T) {
	f, p := inFiles(t)
	p.openFiles("This folder is empty")
	f.change(func() { f.cut = true })
	drop(p, map[string]string{"up.txt": "sent twice"})
	testutil.Eventually(t, "it arrived", func() bool { got, _ := f.content("/workspace/up.txt"); return got == "sent twice" })

	text := strings.Repeat("0123456789abcdef", 4096)
	f.put("/workspace/down.txt", text)
	p.click("Read the folder again")
	p.sees(".listing", "down.txt")
	f.change(func() { f.cut = true })
	p.catchDownloads()
	p.click("Download down.txt")
	p.until("window.saved?.length === 1")
	if got := p.eval("saved[0].text"); got != text {
		t.Errorf("got %d bytes, want %d", len(got), len(text))
	}
}

// catchDownloads keeps what the page saves by way of a blob in `saved`.
func (p *page) catchDownloads() {
	p.t.Helper()
	p.eval(`(() => {
		window.saved = [];
		delete Window.prototype.showSaveFilePicker;
		delete window.showSaveFilePicker;
		const blobs = window.blobs = new Map();
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => { const url = make.call(URL, blob); blobs.set(url, blob); return url; };
		HTMLAnchorElement.prototype.click = async function () {
			const blob = blobs.get(this.href), name = this.download;
			saved.push({name, text: await blob.text()});
		};
	})()`)
}

func TestFilesOfAnyNameAreDownloadedAndDeleted(t *testing.T) {
	f, p := inFiles(t)
	for n, name := range nameless {
		f.put("/workspace/"+name, fmt.Sprint("content ", n))
	}
	p.openFiles("a b.txt")
	p.catchDownloads()
	rows := "[...document.querySelectorAll('.listing .rows .row')]"
	for n, name := range nameless {
		p.eval(fmt.Sprintf("%s.find((r) => r.dataset.name === %s).querySelector('[aria-label^=Download]').click()", rows, quote(t, name)))
		p.until(fmt.Sprintf("saved.length === %d", n+1))
		if got, want := p.eval(fmt.Sprintf("saved[%d].text", n)), fmt.Sprint("content ", n); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
	for _, name := range nameless {
		p.eval(fmt.Sprintf("%s.find((r) => r.dataset.name === %s).querySelector('[aria-label^=Delete]').click()", rows, quote(t, name)))
		p.sees("dialog", "Delete this file?")
		if _, ok := f.content("/workspace/" + name); !ok {
			t.Fatalf("%q was deleted unasked", name)
		}
		p.click("Delete")
		testutil.Eventually(t, name+" is gone", func() bool { _, ok := f.content("/workspace/" + name); return !ok })
		p.until("!document.querySelector('dialog')")
	}
	p.sees(".stage", "This folder is empty")
}

func quote(t *testing.T, s string) string {
	t.Helper()
	out, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestADownloadGoesStraightToTheDisk has the browser's own file system behind
// the dialog that nobody is there to answer.
func TestADownloadGoesStraightToTheDisk(t *testing.T) {
	f, p := inFiles(t)
	text := strings.Repeat("0123456789abcdef", 1<<16)
	f.put("/workspace/big: one.bin", text)
	p.openFiles("big: one.bin")
	p.eval(`(() => {
		window.showSaveFilePicker = async ({suggestedName}) => {
			window.suggested = suggestedName;
			return (await navigator.storage.getDirectory()).getFileHandle('out', {create: true});
		};
	})()`)
	p.click("Download big: one.bin")
	p.sees(".transfer", "1.0 MB, done")
	p.eval("navigator.storage.getDirectory().then((d) => d.getFileHandle('out')).then((h) => h.getFile()).then((f) => f.text()).then((t) => { window.got = t; })")
	p.until(fmt.Sprintf("window.got?.length === %d", len(text)))
	if got := p.eval("suggested"); got != "big_ one.bin" {
		t.Errorf("suggested %q", got)
	}
	// One that is called off leaves no trace and no complaint.
	p.eval("window.showSaveFilePicker = () => Promise.reject(new DOMException('', 'AbortError'))")
	p.until("document.querySelector('.tray').hidden")
	p.click("Download big: one.bin")
	p.until("document.querySelector('.tray').hidden")
}

func TestAFolderIsDownloadedAsAnArchive(t *testing.T) {
	f, p := inFiles(t)
	f.put("/workspace/a.txt", "the text")
	p.openFiles("a.txt")
	p.catchDownloads()
	p.click("Download this folder as a tar archive")
	p.until("window.saved?.length === 1")
	if got := p.eval("saved[0].name + ' ' + saved[0].text.includes('the text')"); got != "workspace.tar true" {
		t.Errorf("saved %q", got)
	}
}

func TestAFolderIsMade(t *testing.T) {
	f, p := inFiles(t)
	f.change(func() { f.files["/workspace/there"] = &file{dir: true} })
	p.openFiles("there")
	p.click("New folder")
	p.write("#folder", "there"+kb.Enter)
	p.sees("dialog .problem", "There is something of this name already.")
	p.write("#folder", " and% #more"+kb.Enter)
	p.sees(".listing", "there and% #more")
	p.click("Delete there and% #more")
	p.sees("dialog", "with everything in it")
	p.click("Delete")
	p.until("![...document.querySelectorAll('.listing .open')].some((n) => n.innerText.includes('more'))")
}

func TestAFileWhoseNameIsNoTextIsShownAndLeftAlone(t *testing.T) {
	f, p := inFiles(t)
	f.put("/workspace/bad\xff", "x")
	p.openFiles("Its name is not UTF-8")
	if got := p.eval("document.querySelectorAll('.listing .rows button:enabled').length"); got != "0" {
		t.Errorf("%s buttons would act on another name", got)
	}
}
