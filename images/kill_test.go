package images_test

import (
	"encoding/json"
	"fmt"
	"image/png"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/internal/testutil"
)

const siteAddr = "127.0.0.1:3000"

// serveSite serves, in the guest, a page whose title is its path and the cookies
// it was asked with. /login sets one. Some seconds later the title says so: a
// browser's bubbles and bars are there by then.
func serveSite([]string) error {
	return http.ListenAndServe(siteAddr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			w.Header().Set("Set-Cookie", "login=kept; Max-Age=9999; Path=/")
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<title>%s %s</title><body style='background:#00f'><script>setTimeout(() => document.title += ' later', 3000)</script>", r.URL.Path, r.Header.Get("Cookie"))
	}))
}

// show starts the desktop with a page of the site and waits until it is there
// for a while, alone.
func (g *guest) show(path, title string) {
	g.t.Helper()
	docker(g.t, "exec", "--detach", g.id, programsDir+"/inside", "site")
	g.run("1000:1000", "curl", "-fsS", "--retry", "50", "--retry-connrefused", "--retry-delay", "1", "-o", "/dev/null", "http://"+siteAddr)
	g.run("1000:1000", ctl, "start", "--url", "http://"+siteAddr+path)
	var titles []string
	defer func() {
		if g.t.Failed() {
			g.t.Logf("pages: %q", titles)
		}
	}()
	testutil.Eventually(g.t, "the page "+title, func() bool {
		var targets []struct{ Type, Title string }
		if err := json.Unmarshal([]byte(g.run("1000:1000", "curl", "-fsS", "http://127.0.0.1:9222/json/list")), &targets); err != nil {
			g.t.Fatal(err)
		}
		titles = nil
		for _, target := range targets {
			if target.Type == "page" {
				titles = append(titles, target.Title)
			}
		}
		return slices.Equal(titles, []string{title + " later"})
	})
}

// pageArea is how many pixels of the display have the page's colour: fewer when
// a bubble or a bar is over it.
func (g *guest) pageArea() int {
	g.t.Helper()
	img, err := png.Decode(strings.NewReader(g.run("1000:1000", ctl, "screenshot", "-")))
	if err != nil {
		g.t.Fatal(err)
	}
	n := 0
	for y := range img.Bounds().Dy() {
		for x := range img.Bounds().Dx() {
			if r, g, b, _ := img.At(x, y).RGBA(); r == 0 && g == 0 && b == 0xffff {
				n++
			}
		}
	}
	return n
}

// A guest that is killed as a whole loses at most what Chromium had not yet
// written. The next one, on whichever host, starts with the profile as if it
// had been closed: nothing asks to restore pages.
func TestKilledGuest(t *testing.T) {
	t.Parallel()
	needImage(t)
	home := strings.TrimSpace(docker(t, "volume", "create"))
	t.Cleanup(func() { docker(t, "volume", "rm", home) })
	onHome := []string{"--volume", home + ":/home/cubeplex", "--hostname"}

	first := newGuest(t, append(onHome, "first")...)
	first.show("/login", "/login")
	area := first.pageArea()
	if area == 0 {
		t.Fatal("the page is not on the display")
	}
	written := func(what, file string) func() bool {
		return func() bool {
			_, err := first.try("1000:1000", "grep", "-aq", what, profile+"/Default/"+file)
			return err == nil
		}
	}
	testutil.Eventually(t, "the cookie is written", written("login", "Cookies"))
	testutil.Eventually(t, "the browser notes that it has not ended", written(`"exit_type":"Crashed"`, "Preferences"))
	docker(t, "kill", first.id)

	second := newGuest(t, append(onHome, "second")...)
	if lock := second.run("1000:1000", "readlink", profile+"/SingletonLock"); !strings.HasPrefix(lock, "first-") {
		t.Errorf("the lock that is left is %q", lock)
	}
	second.show("/home", "/home login=kept")
	if got := second.pageArea(); got != area {
		t.Errorf("the page has %d pixels, and %d before the guest was killed: something is over it", got, area)
	}
}
