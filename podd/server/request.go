package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cubeplexai/cubepod/internal/apierror"
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
	// What is no Unicode would become U+FFFD: another command than was sent.
	if !utf8.Valid(data) || loneSurrogate(data) {
		return apierror.New(apierror.Invalid, "invalid_json", "the body is no UTF-8, or has half a surrogate pair in it")
	}
	if err := json.Unmarshal(data, v); err != nil {
		return apierror.Wrap(err, apierror.Invalid, "invalid_json", "the body is no such JSON object: %v", err)
	}
	return nil
}

// brokenOff is the error of a body that did not come to its end.
func brokenOff(err error) error {
	return apierror.Wrap(err, apierror.Invalid, "body_incomplete", "the body broke off")
}

// loneSurrogate reports whether a JSON text escapes half of a surrogate pair.
func loneSurrogate(data []byte) bool {
	for {
		i := bytes.IndexByte(data, '\\')
		if i < 0 || i+1 >= len(data) {
			return false
		}
		data = data[i:]
		r, ok := escapedUnit(data)
		switch {
		case !ok:
			data = data[2:] // another escape, such as \\ or \n
			continue
		case utf16.IsSurrogate(r):
			next, ok := escapedUnit(data[6:])
			if !ok || utf16.DecodeRune(r, next) == utf8.RuneError {
				return true
			}
			data = data[12:]
		default:
			data = data[6:]
		}
	}
}

// escapedUnit reads \uXXXX at the beginning of data.
func escapedUnit(data []byte) (rune, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return rune(n), err == nil
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
