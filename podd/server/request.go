package server

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/jsonbody"
	"github.com/cubeplexai/cubepod/internal/poddapi"
)

// body decodes a JSON body into v. An absent one leaves v as it is.
func (s *Server) body(w http.ResponseWriter, r *http.Request, v any) error {
	if r.ContentLength == 0 {
		return nil
	}
	if ct := r.Header.Get("Content-Type"); ct != "application/json" {
		if mt, _, err := mime.ParseMediaType(ct); err != nil || mt != "application/json" {
			return apierror.New(apierror.UnsupportedMedia, "", "the body must be application/json")
		}
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, s.patientBody(w, r), poddapi.MaxJSON))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return apierror.New(apierror.TooLarge, "too_large", "a JSON body has at most %d bytes", poddapi.MaxJSON)
		}
		return brokenOff(err)
	}
	if err := jsonbody.Decode(data, v); err != nil {
		return apierror.New(apierror.Invalid, "invalid_json", "%v", err)
	}
	return nil
}

// brokenOff is the error of a body that did not come to its end.
func brokenOff(err error) error {
	return apierror.Wrap(err, apierror.Invalid, "body_incomplete", "the body broke off")
}

// query reads the URL's parameters, all of which must be well-formed.
func query(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apierror.Wrap(err, apierror.Invalid, "invalid_query", "the URL's parameters are malformed")
	}
	for name, values := range q {
		if len(values) > 1 {
			return nil, apierror.New(apierror.Invalid, "invalid_query", "%q is there more than once", name)
		}
	}
	return q, nil
}

// flag reads a parameter that is 1 or 0; absent is 0.
func flag(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "", "0":
		return false, nil
	case "1":
		return true, nil
	}
	return false, apierror.New(apierror.Invalid, "invalid_query", "%s is 0 or 1", name)
}

// number reads a query parameter that is no negative number; absent is 0.
func number(s, code, name string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, apierror.New(apierror.Invalid, code, "%s must be a number and not negative", name)
	}
	return n, nil
}
