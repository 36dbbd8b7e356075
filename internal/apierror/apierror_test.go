package apierror_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

func TestWriteRead(t *testing.T) {
	tests := []struct {
		name       string
		err        error
		status     int
		code       string
		message    string
		retryAfter time.Duration
	}{
		{"typed", apierror.New(apierror.NotFound, "sandbox_not_found", "no sandbox %q", "x"), 404, "sandbox_not_found", `no sandbox "x"`, 0},
		{"wrapped deeper", fmt.Errorf("start: %w", apierror.New(apierror.Conflict, "", "busy")), 409, "conflict", "busy", 0},
		{"retry", &apierror.Error{Kind: apierror.Unavailable, Code: "store_unavailable", Detail: "Redis is down", RetryAfter: 1500 * time.Millisecond}, 503, "store_unavailable", "Redis is down", 2 * time.Second},
		{"plain", errors.New("secret path /x"), 500, "internal", "an internal error; the log has its cause", 0},
		{"deadline", fmt.Errorf("dial: %w", context.DeadlineExceeded), 504, "timeout", "the work did not finish in time", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			apierror.Write(rec, tt.err)
			resp := rec.Result()
			if resp.StatusCode != tt.status {
				t.Errorf("got status %d, want %d", resp.StatusCode, tt.status)
			}
			got := apierror.Read(resp)
			if got.WireCode() != tt.code || got.Detail != tt.message || got.Status() != tt.status || got.RetryAfter != tt.retryAfter {
				t.Errorf("got %+v, want %d %s %q %v", got, tt.status, tt.code, tt.message, tt.retryAfter)
			}
		})
	}
}

func TestReadForeignBody(t *testing.T) {
	rec := httptest.NewRecorder()
	rec.WriteHeader(502)
	rec.WriteString("<html>")
	got := apierror.Read(rec.Result())
	if got.Kind != apierror.BadGateway || got.WireCode() != "unexpected_response" {
		t.Errorf("got %+v", got)
	}
}

func TestCauseStaysOutOfTheWire(t *testing.T) {
	rec := httptest.NewRecorder()
	sent := apierror.Write(rec, apierror.Wrap(errors.New("10.0.0.7 refused"), apierror.BadGateway, "podd_unreachable", "the sandbox does not answer"))
	if body := rec.Body.String(); body != `{"code":502,"error":"podd_unreachable","message":"the sandbox does not answer"}`+"\n" {
		t.Errorf("got %s", body)
	}
	if sent.Error() != "the sandbox does not answer: 10.0.0.7 refused" {
		t.Errorf("got %q for the log", sent.Error())
	}
}
