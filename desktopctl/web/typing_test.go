package web_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// insert inserts text as an emoji picker or dictation does, or commits what is
// being composed.
func (b *tab) insert(text string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		b.t.Fatal(err)
	}
}

// compose shows what an input method has so far; nothing ends it.
func (b *tab) compose(text string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, input.ImeSetComposition, input.ImeSetCompositionParams{
		Text: text, SelectionStart: int64(len(text)), SelectionEnd: int64(len(text)),
	}); err != nil {
		b.t.Fatal(err)
	}
}

// key sends one event of a key to the page.
func (b *tab) key(params input.DispatchKeyEventParams) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, params); err != nil {
		b.t.Fatal(err)
	}
}

// taken is a key that an input method takes before the page hears of it.
func (b *tab) taken(code string) {
	b.t.Helper()
	b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Process", Code: code, WindowsVirtualKeyCode: 229})
}

func (b *tab) released(key, code string) {
	b.t.Helper()
	b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: key, Code: code, WindowsVirtualKeyCode: int64(key[0] &^ 0x20)})
}

// enter presses Return, and sends no character beside it as chromedp does.
func (b *tab) enter() {
	b.t.Helper()
	b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13})
	b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "Enter", Code: "Enter", WindowsVirtualKeyCode: 13})
}

// ways are those in which text comes to a page, and the text that has to arrive.
var ways = []struct {
	name string
	do   func(*tab)
	want string
}{
	{"keys", func(b *tab) { b.do(chromedp.KeyEvent("Hi @")) }, "Hi @"},
	{"an emoji picker", func(b *tab) { b.insert("😀👍🏽") }, "😀👍🏽"},
	{"one after the other", func(b *tab) { b.insert("汉"); b.insert("汉"); b.do(chromedp.KeyEvent("a")); b.insert("字") }, "汉汉a字"},
	{"an input method", func(b *tab) {
		b.taken("KeyN")
		b.compose("n")
		b.released("n", "KeyN")
		b.taken("KeyI")
		b.compose("ni")
		b.released("i", "KeyI")
		b.taken("Space")
		b.insert("你")
		b.do(chromedp.KeyEvent("!"))
	}, "你!"},
	{"two words at once", func(b *tab) { b.compose("ni"); b.insert("你"); b.compose("hao"); b.insert("好") }, "你好"},
	{"a word given up", func(b *tab) { b.compose("ni"); b.compose(""); b.do(chromedp.KeyEvent("x")) }, "x"},
	{"a word that ends with the focus", func(b *tab) { b.compose("xie"); b.text("document.activeElement.blur()") }, "xie"},
	{"a keyboard on glass", func(b *tab) {
		for _, c := range []string{"h", "he", "hey"} {
			b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Unidentified", WindowsVirtualKeyCode: 229})
			b.compose(c)
			b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyUp, Key: "Unidentified", WindowsVirtualKeyCode: 229})
		}
		b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Unidentified", WindowsVirtualKeyCode: 229})
		b.insert("hey ")
	}, "hey "},
	{"a dead key", func(b *tab) {
		b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: "Dead", Code: "Quote", WindowsVirtualKeyCode: 222})
		b.released("Dead", "Quote")
		b.key(input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "e", Code: "KeyE", WindowsVirtualKeyCode: 69, Text: "é", UnmodifiedText: "e"})
		b.released("e", "KeyE")
		b.do(chromedp.KeyEvent("e"))
	}, "ée"},
}

func TestViewerPageTyping(t *testing.T) {
	server := newVNCServer(t)
	v := viewer.New(viewer.Options{WebDir: filepath.Join(pages(t), "viewer"), RFB: server.dial})
	t.Cleanup(func() { v.Close() })
	tb := newEdge(t, 8080, v).browse(t, "")
	tb.until(`document.querySelector("canvas")?.width`, "640")
	for _, tt := range ways {
		t.Run(tt.name, func(t *testing.T) {
			tb := &tab{t: t, ctx: tb.ctx}
			tb.do(chromedp.MouseClickXY(480, 300))
			tt.do(tb)
			tb.text(`document.activeElement.blur()`)
			tb.do(chromedp.MouseClickXY(480, 300), chromedp.KeyEvent("."))
			expectTyped(t, server, tt.want+".")
		})
	}

	t.Run("a deletion", func(t *testing.T) {
		tb := &tab{t: t, ctx: tb.ctx}
		tb.text(`(document.execCommand("delete"), document.execCommand("delete"))`)
		expectTyped(t, server, "<ff08><ff08>")
	})
	t.Run("a line", func(t *testing.T) {
		tb := &tab{t: t, ctx: tb.ctx}
		tb.insert("a\tb\nc")
		expectTyped(t, server, "a<ff09>b<ff0d>c")
	})
	t.Run("a shortcut", func(t *testing.T) {
		tb := &tab{t: t, ctx: tb.ctx}
		tb.do(chromedp.KeyEvent("a", chromedp.KeyModifiers(chromedp.ModifierCtrl)))
		expectTyped(t, server, "a")
	})
}

func expectTyped(t *testing.T, server *vncServer, want string) {
	t.Helper()
	got, held := "", 0
	defer func() {
		if t.Failed() {
			t.Logf("got %q with %d keys down, want %q", got, held, want)
		}
	}()
	testutil.Eventually(t, "all is typed", func() bool {
		var more string
		more, held = server.taken()
		got += more
		return got == want && held == 0
	})
}

func TestTerminalPageTyping(t *testing.T) {
	tb := newEdge(t, 7681, newTerminal(t)).browse(t, "")
	out := filepath.Join(t.TempDir(), "out")
	tb.do(chromedp.MouseClickXY(300, 300), chromedp.KeyEvent("cat >"+out))
	tb.enter()
	exists := func() bool { _, err := os.Stat(out); return err == nil }
	testutil.Eventually(t, "the shell runs cat", exists)
	said := 0
	expectLine := func(t *testing.T, want string) {
		t.Helper()
		var got string
		defer func() {
			said += len(got)
			if t.Failed() {
				t.Logf("got %q, want %q", got, want)
			}
		}()
		testutil.Eventually(t, "the line arrives", func() bool {
			b, err := os.ReadFile(out)
			got = string(b[said:])
			return err == nil && strings.HasSuffix(got, "\n")
		})
		if got != want+"\n" {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, tt := range ways {
		t.Run(tt.name, func(t *testing.T) {
			tb := &tab{t: t, ctx: tb.ctx}
			tt.do(tb)
			tb.do(chromedp.MouseClickXY(300, 300))
			tb.enter()
			expectLine(t, tt.want)
		})
	}
}
