package session_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/session"
)

func TestNewID(t *testing.T) {
	seen := map[session.ID]bool{}
	for range 1000 {
		id := session.NewID()
		if _, ok := session.ParseID(string(id)); !ok || seen[id] {
			t.Fatalf("got %q", id)
		}
		seen[id] = true
	}
}

func TestParseID(t *testing.T) {
	for _, s := range []string{"", "short", "UPPERCASEUPPERCASE12", "aaaaaaaaaaaaaaaaaaaa\n", "aaaaaaaaaaaaaaaaaaaaa", "../../../../etc/pass"} {
		if _, ok := session.ParseID(s); ok {
			t.Errorf("%q passes", s)
		}
	}
}

func TestEndpoint(t *testing.T) {
	id := session.ID("abcdefghij0123456789")
	if rel, ok := session.LocalEndpoint(id, 3).Socket(); !ok || rel != "abcdefghij0123456789-3/podd.sock" {
		t.Errorf("got %q, %v", rel, ok)
	}
	tests := []struct {
		in           session.Endpoint
		socket, addr bool
	}{
		{"unix:abcdefghij0123456789-1/podd.sock", true, false},
		{"unix:../../run/docker.sock", false, false},
		{"unix:abcdefghij0123456789-1/../x/podd.sock", false, false},
		{"unix:/var/run/docker.sock", false, false},
		{"10.1.2.3:49983", false, true},
		{"[fd00::7]:49983", false, true},
		{"10.1.2.3:0", false, false},
		{"localhost:49983", false, false},
		{"unix//var/run/docker.sock", false, false},
		{"{env.SECRET}:1", false, false},
		{"", false, false},
	}
	for _, tt := range tests {
		_, s := tt.in.Socket()
		_, a := tt.in.AddrPort()
		if s != tt.socket || a != tt.addr {
			t.Errorf("%q: got socket %v, address %v", tt.in, s, a)
		}
	}
	if ap, _ := session.Endpoint("[::ffff:10.0.0.1]:80").AddrPort(); ap != netip.MustParseAddrPort("10.0.0.1:80") {
		t.Errorf("a mapped address stays mapped: %v", ap)
	}
}

func TestRecordSurvivesStorage(t *testing.T) {
	in := &session.Record{
		ID: session.NewID(), State: session.Running, Gen: 2, Incarnation: 3,
		Endpoint: "10.0.0.2:49983", CreatedAt: time.Unix(1, 0).UTC(), EndAt: time.Unix(99, 0).UTC(),
		Ports: map[int]session.Port{8080: {}, 3000: {Address: netip.MustParseAddrPort("10.0.0.2:3000")}},
	}
	doc, err := in.Encode()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.Decode(doc)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Errorf("got %+v, want %+v", out, in)
	}
}

func TestDecodeRefusesWhatIsNoRecord(t *testing.T) {
	for _, doc := range []string{"", "{}", `{"id":"x"}`, `[]`} {
		if _, err := session.Decode(json.RawMessage(doc)); err == nil {
			t.Errorf("%q passes", doc)
		}
	}
}
