package viewer_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cubeplexai/cubepod/desktopctl/viewer"
)

func TestKeys(t *testing.T) {
	var asked []uint32
	var refusal error
	srv, _ := serve(t, viewer.Options{Keys: func(_ context.Context, symbols []uint32) error {
		asked = symbols
		return refusal
	}})
	many := "[" + strings.Repeat("233,", 64) + "233]"
	for _, tt := range []struct {
		name, body string
		refusal    error
		status     int
		want       []uint32
	}{
		{"characters", "[32,233,1776,16797202]", nil, 204, []uint32{32, 233, 1776, 16797202}},
		{"none", "[]", nil, 204, []uint32{}},
		{"the display is gone", "[233]", errors.New("gone"), 503, []uint32{233}},
		{"Return", "[65293]", nil, 400, nil},
		{"a control character", "[9]", nil, 400, nil},
		{"past the last character", "[17891328]", nil, 400, nil},
		{"negative", "[-1]", nil, 400, nil},
		{"no list", `{"a":1}`, nil, 400, nil},
		{"empty", "", nil, 400, nil},
		{"too many", many, nil, 400, nil},
		{"too long", "[" + strings.Repeat(" ", 5000) + "]", nil, 400, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked, refusal = nil, tt.refusal
			resp, err := srv.Client().Post(srv.URL+"/keys", "text/plain", strings.NewReader(tt.body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !slices.Equal(asked, tt.want) {
				t.Errorf("got %d, asked for %v: %s", resp.StatusCode, asked, body)
			}
		})
	}
	plain, _ := serve(t, viewer.Options{})
	resp, err := plain.Client().Post(plain.URL+"/keys", "text/plain", strings.NewReader("[233]"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		t.Errorf("got %s where nobody gives keys", http.StatusText(resp.StatusCode))
	}
}
