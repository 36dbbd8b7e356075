package tunnel_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/poddapi"
	"github.com/cubeplexai/cubepod/podd/tunnel"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCloseEndsTunnels(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g := tunnel.NewRegistry()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.Serve(w, r, l.Addr().(*net.TCPAddr).Port); err != nil {
			apierror.Write(w, err)
		}
	}))
	defer srv.Close()
	open := func() (net.Conn, error) {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return poddapi.OpenTunnel(t.Context(), c, "", 1)
	}
	// Neither side says anything.
	caller, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	guest, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if n, ever := g.Count(); n != 1 || ever != 1 {
		t.Errorf("got %d of %d", n, ever)
	}
	g.Close()
	if n, _ := g.Count(); n != 0 {
		t.Errorf("%d are open", n)
	}
	for name, c := range map[string]net.Conn{"caller": caller, "guest": guest} {
		if data, err := io.ReadAll(c); len(data) > 0 {
			t.Errorf("%s: got %q, %v", name, data, err)
		}
	}
	if _, err := open(); apierror.KindOf(err) != apierror.Unavailable {
		t.Errorf("after Close: got %v", err)
	}
}
