package paneltoken

import (
	"encoding/json"
	"testing"
)

// FuzzMembers compares with encoding/json.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "a" : "x\"}," , "b":[1,{"c":"]"}],"d":null } `, `{"a":{"b":[]},"c":1e5}`, `[]`, `{"a"`, ``, `7`, `{"a":tru}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		var want map[string]json.RawMessage
		bad := json.Unmarshal([]byte(doc), &want) != nil || want == nil
		got := map[string]string{}
		err := members([]byte(doc), func(key, value []byte) error {
			var k string
			if err := json.Unmarshal([]byte(`"`+string(key)+`"`), &k); err != nil {
				t.Fatalf("key %q: %v", key, err)
			}
			got[k] = string(value)
			return nil
		})
		if bad != (err != nil) {
			t.Fatalf("got %v", err)
		}
		if bad {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("got %q, want %q", got, want)
		}
		for k, v := range want {
			if got[k] != string(v) {
				t.Errorf("%q: got %q, want %q", k, got[k], v)
			}
		}
	})
}
