package server

import (
	"bytes"
	"fmt"
	"net/http"
	"runtime/metrics"
	"time"
)

// metrics answers in Prometheus' text format. The few values podd has do not
// justify a library in every sandbox.
func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) error {
	open, ever := s.tunnels.Count()
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	metrics.Read(sample)
	var b bytes.Buffer
	for _, m := range []struct {
		name, kind, help string
		value            float64
	}{
		{"cubepod_podd_active_processes", "gauge", "Commands that run.", float64(s.commands.Active())},
		{"cubepod_podd_commands_total", "counter", "Commands started.", float64(s.commands.Started())},
		{"cubepod_podd_active_tunnels", "gauge", "Tunnels that are open.", float64(open)},
		{"cubepod_podd_tunnels_total", "counter", "Tunnels opened.", float64(ever)},
		{"cubepod_podd_refused_total", "counter", "Calls refused for their token or origin.", float64(s.refused.Load())},
		{"cubepod_podd_uptime_seconds", "gauge", "Time since podd started.", time.Since(s.started).Seconds()},
		{"cubepod_podd_memory_bytes", "gauge", "Memory the Go runtime has mapped.", float64(sample[0].Value.Uint64())},
		{"cubepod_podd_goroutines", "gauge", "Goroutines.", float64(sample[1].Value.Uint64())},
	} {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n%s %v\n", m.name, m.help, m.name, m.kind, m.name, m.value)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(b.Bytes())
	return nil
}
