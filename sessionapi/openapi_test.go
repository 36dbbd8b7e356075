package sessionapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cubeplexai/cubepod/sessionapi"
)

func TestOpenAPI(t *testing.T) {
	r := newWorld(t).replica(sessionapi.Options{}).as("")
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]any
		Components map[string]map[string]any
	}
	raw := r.want(200, "GET", "/openapi.yaml", "").body
	if err := yaml.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") {
		t.Errorf("openapi: %q", doc.OpenAPI)
	}
	var documented []string
	ids := map[string]bool{}
	for path, item := range doc.Paths {
		for method, op := range item {
			if method == "parameters" {
				continue
			}
			documented = append(documented, strings.ToUpper(method)+" "+path)
			id := fmt.Sprint(op.(map[string]any)["operationId"])
			if ids[id] {
				t.Errorf("operationId %s is there twice", id)
			}
			ids[id] = true
		}
	}
	var mounted []string
	for _, p := range sessionapi.Patterns() {
		if p == "GET /console/" { // what the page loads
			continue
		}
		mounted = append(mounted, strings.Replace(p, "{$}", "", 1))
	}
	slices.Sort(documented)
	slices.Sort(mounted)
	for _, p := range mounted {
		if !slices.Contains(documented, p) {
			t.Errorf("not documented: %s", p)
		}
	}
	for _, p := range documented {
		if !slices.Contains(mounted, p) {
			t.Errorf("not mounted: %s", p)
		}
	}
	// Every reference leads somewhere.
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				parts := strings.Split(ref, "/")
				if len(parts) != 4 || doc.Components[parts[2]][parts[3]] == nil {
					t.Errorf("%s leads nowhere", ref)
				}
			}
			for _, x := range v {
				walk(x)
			}
		case []any:
			for _, x := range v {
				walk(x)
			}
		}
	}
	var all any
	if err := yaml.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	walk(all)
}
