package sessionapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cubeplexai/cubepod/internal/apierror"
)

// Metrics are the API's collectors. A nil *Metrics counts nothing.
type Metrics struct {
	activations *prometheus.CounterVec
	starts      *prometheus.HistogramVec
	requests    *prometheus.HistogramVec
}

// NewMetrics registers the API's collectors on reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		activations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cubepod_desktop_activations_total",
			Help: "Calls of desktop/start by result: ok, unsupported (no desktop in the image, or switched off) or error.",
		}, []string{"result"}),
		starts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cubepod_sandbox_start_duration_seconds",
			Help:    "How long a runtime took to start a sandbox, by result.",
			Buckets: []float64{.05, .1, .2, .4, .8, 1.5, 3, 6, 12, 30, 60},
		}, []string{"runtime", "result"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "cubepod_api_request_duration_seconds",
			Help:    "API requests by route and status.",
			Buckets: []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60},
		}, []string{"route", "code"}),
	}
	reg.MustRegister(m.activations, m.starts, m.requests)
	for _, r := range []string{"ok", "unsupported", "error"} {
		m.activations.WithLabelValues(r) // a rate needs the zero
	}
	return m
}

func (m *Metrics) activated(err error) {
	if m == nil {
		return
	}
	result := "ok"
	switch {
	case apierror.KindOf(err) == apierror.Unsupported:
		result = "unsupported"
	case err != nil:
		result = "error"
	}
	m.activations.WithLabelValues(result).Inc()
}

func (m *Metrics) started(runtime string, err error, took time.Duration) {
	if m == nil {
		return
	}
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.starts.WithLabelValues(runtime, result).Observe(took.Seconds())
}

func (m *Metrics) answered(route string, status int, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Observe(took.Seconds())
}
