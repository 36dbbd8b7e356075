package sessionapi_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// openAPIRouter finds calls in the document that the API serves.
var openAPIRouter = sync.OnceValues(func() (routers.Router, error) {
	data, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	return gorillamux.NewRouter(doc)
})

// validate holds a call against the OpenAPI document: the answer always, and
// the request when the API took it. All calls of this package's tests come by.
func validate(req *http.Request, body string, a answer) error {
	if strings.HasPrefix(req.URL.Path, "/console/") { // what the page loads
		return nil
	}
	router, err := openAPIRouter()
	if err != nil {
		return err
	}
	req = req.Clone(context.Background())
	req.URL.Scheme, req.URL.Host = "", ""
	route, params, err := router.FindRoute(req)
	if err != nil {
		if a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed {
			return nil
		}
		return err
	}
	isJSON := func(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/json") }
	in := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route, Options: &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, ExcludeRequestBody: !isJSON(req.Header),
	}}
	// What goes on to podd is for podd to judge.
	_, call, _ := strings.Cut(route.Path, "}/")
	toPodd := slices.ContainsFunc([]string{"commands", "files", "archive", "env"}, func(p string) bool { return strings.HasPrefix(call, p) })
	if a.status < 400 && !toPodd {
		req.Body = http.NoBody
		if body != "" {
			req.Body = io.NopCloser(strings.NewReader(body))
		}
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			return err
		}
	}
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: !isJSON(a.header)},
	})
}
