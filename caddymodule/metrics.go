package caddymodule

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the edge's own; label values come from small fixed sets. They
// live as long as the shared state, so a reload loses no count.
type metrics struct {
	active   prometheus.Gauge
	requests *prometheus.CounterVec
	lookups  *prometheus.CounterVec
	closes   *prometheus.CounterVec
	dials    *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "cubepod", Subsystem: "panel", Name: name, Help: help}, []string{label})
	}
	return &metrics{
		active: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "cubepod", Subsystem: "panel", Name: "active_sessions",
			Help: "Upgraded and event-stream panel connections that are open."}),
		requests: counter("requests_total", "Panel requests by how they ended.", "result"),
		lookups:  counter("lookups_total", "Sandbox records asked for, by where the answer came from.", "source"),
		closes:   counter("closes_total", "Panel requests and streams the edge ended, by reason.", "reason"),
		dials:    counter("dials_total", "Connections opened to sandbox ports, by result.", "result"),
	}
}

// register adds the collectors to the registry of a configuration. Every load
// makes a new registry; two sites in one share it.
func (m *metrics) register(reg prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.active, m.requests, m.lookups, m.closes, m.dials} {
		err := reg.Register(c)
		if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !ok {
			return err
		}
	}
	return nil
}

func (m *metrics) lookup(source string)  { m.lookups.WithLabelValues(source).Inc() }
func (m *metrics) request(result string) { m.requests.WithLabelValues(result).Inc() }
func (m *metrics) closed(reason string)  { m.closes.WithLabelValues(reason).Inc() }
func (m *metrics) dialled(result string) { m.dials.WithLabelValues(result).Inc() }
