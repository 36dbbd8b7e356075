package local_test

import (
	"testing"

	"github.com/cubeplexai/cubepod/sessionapi/local"
)

func TestResolvConf(t *testing.T) {
	tests := []struct {
		name, host string
		offline    bool
		want       string
	}{
		{"plain", "# by hand\nnameserver 10.0.0.53\nnameserver fd00::53\nsearch a.example b.example\noptions  ndots:2\n", false,
			"nameserver 10.0.0.53\nnameserver fd00::53\nsearch a.example b.example\noptions ndots:2\n"},
		{"systemd-resolved", "nameserver 127.0.0.53\noptions edns0\nsearch lan\n", false,
			"nameserver 169.254.1.1\noptions edns0\nsearch lan\n"},
		{"loopback of both families", "nameserver ::1\nnameserver 127.0.0.1\n", false, "nameserver 169.254.1.1\n"},
		{"one of two on loopback", "nameserver 127.0.0.1\nnameserver 9.9.9.9\n", false, "nameserver 9.9.9.9\n"},
		{"none means loopback", "", false, "nameserver 169.254.1.1\n"},
		{"offline", "nameserver 10.0.0.53\n", true, "# this sandbox is offline\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := local.ResolvConf(tt.host, tt.offline); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
