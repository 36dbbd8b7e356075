package sessionapi

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/jsonbody"
	"github.com/cubeplexai/cubepod/internal/session"
)

// Limits of what the API takes.
const (
	maxBody        = 1 << 20
	bodyTimeout    = 30 * time.Second
	defaultTimeout = 300
	maxTimeout     = 86400
	defaultExpiry  = 3600
	maxMetadata    = 16 << 10
	maxEnvs        = 256 << 10
	defaultLimit   = 100
)

// decode reads the JSON object in r's body into v. An empty body leaves v as it
// is.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	// A client that dribbles must not hold the request open. Not every writer
	// has deadlines, and then there is none.
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = rc.SetReadDeadline(time.Time{})
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return apierror.New(apierror.TooLarge, "", "a body has at most %d bytes", tooLarge.Limit)
	}
	if err != nil {
		return apierror.Wrap(err, apierror.Invalid, "invalid_body", "the body did not arrive")
	}
	if len(body) == 0 {
		return nil
	}
	if err := jsonbody.Decode(body, v); err != nil {
		return apierror.New(apierror.Invalid, "invalid_body", "%v", err)
	}
	return nil
}

// query reads the URL's parameters. A malformed one must not be taken for one
// that is not there: a filter would let everything through.
func query(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, apierror.Wrap(err, apierror.Invalid, "invalid_query", "the URL's parameters are malformed")
	}
	return q, nil
}

// pathID gives the sandbox's id in r's path. What has not its form is not there.
func pathID(r *http.Request) (session.ID, error) {
	id, ok := session.ParseID(r.PathValue("sandboxID"))
	if !ok {
		return "", apierror.New(apierror.NotFound, "sandbox_not_found", "there is no such sandbox")
	}
	return id, nil
}

func pathPort(r *http.Request) (int, error) {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil {
		return 0, apierror.New(apierror.Invalid, "invalid_port", "a port is a number from 1 to 65535")
	}
	return int(port), nil
}

// timeoutOf checks a timeout in seconds; nil gives def.
func timeoutOf(secs *int64, def int64) (time.Duration, error) {
	if secs == nil {
		return seconds(def), nil
	}
	if *secs < 1 || *secs > maxTimeout {
		return 0, apierror.New(apierror.Invalid, "invalid_timeout", "a timeout has 1 to %d seconds", maxTimeout)
	}
	return seconds(*secs), nil
}

func expiryOf(secs *int64) (time.Duration, error) {
	if secs == nil {
		return seconds(defaultExpiry), nil
	}
	if *secs < 1 || *secs > maxTimeout {
		return 0, apierror.New(apierror.Invalid, "invalid_expiry", "expiresInSeconds is 1 to %d", maxTimeout)
	}
	return seconds(*secs), nil
}

func checkMetadata(m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if k == "" || !utf8.ValidString(k) || !utf8.ValidString(v) {
			return apierror.New(apierror.Invalid, "invalid_metadata", "metadata has named values in UTF-8")
		}
	}
	if size > maxMetadata {
		return apierror.New(apierror.Invalid, "invalid_metadata", "metadata has at most %d bytes", maxMetadata)
	}
	return nil
}

var envPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkEnvs(m map[string]string) error {
	size := 0
	for k, v := range m {
		size += len(k) + len(v)
		if !envPattern.MatchString(k) || strings.ContainsRune(v, 0) {
			return apierror.New(apierror.Invalid, "invalid_env_vars", "envVars has names of A-Z a-z 0-9 _ and values without NUL")
		}
	}
	if size > maxEnvs {
		return apierror.New(apierror.Invalid, "invalid_env_vars", "envVars has at most %d bytes", maxEnvs)
	}
	return nil
}

// metadataSets gives pairs as they are, and as E2B's clients mean them, which
// escape names and values once more.
func metadataSets(pairs url.Values) []map[string]string {
	plain, escaped := map[string]string{}, map[string]string{}
	for k := range pairs {
		v := pairs.Get(k)
		plain[k] = v
		uk, kerr := url.PathUnescape(k)
		uv, verr := url.PathUnescape(v)
		if kerr != nil || verr != nil {
			return []map[string]string{plain}
		}
		escaped[uk] = uv
	}
	return []map[string]string{plain, escaped}
}

// listQuery reads the filters and the page of a list call. As in E2B's, states
// are separated by commas and metadata is a query string of its own.
func listQuery(q url.Values) (f Filter, token string, limit int, err error) {
	for _, list := range q["state"] {
		for name := range strings.SplitSeq(list, ",") {
			st := session.State(name)
			if !st.Transient() && st != session.Running && st != session.Paused && st != session.Failed {
				return f, "", 0, apierror.New(apierror.Invalid, "invalid_state", "there is no state %q", name)
			}
			f.States = append(f.States, st)
		}
	}
	if raw := q.Get("metadata"); raw != "" {
		pairs, err := url.ParseQuery(raw)
		if err != nil {
			return f, "", 0, apierror.New(apierror.Invalid, "invalid_metadata", "the metadata filter is written like a query string")
		}
		f.Metadata = metadataSets(pairs)
	}
	f.Template = q.Get("template")
	if raw := q.Get("startedAfter"); raw != "" {
		if f.StartedAfter, err = time.Parse(time.RFC3339, raw); err != nil {
			return f, "", 0, apierror.New(apierror.Invalid, "invalid_time", "startedAfter is a time such as 2026-11-13T16:30:00Z")
		}
	}
	if order := q.Get("order"); order != "" && order != "desc" {
		return f, "", 0, apierror.New(apierror.Invalid, "invalid_order", "lists have the youngest sandbox first")
	}
	limit = defaultLimit
	if raw := q.Get("limit"); raw != "" {
		if limit, err = strconv.Atoi(raw); err != nil || limit < 1 || limit > 1000 {
			return f, "", 0, apierror.New(apierror.Invalid, "invalid_limit", "limit is 1 to 1000")
		}
	}
	return f, q.Get("nextToken"), limit, nil
}
