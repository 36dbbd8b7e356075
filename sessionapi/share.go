package sessionapi

import "context"

// shared is work that several calls wait for.
type shared struct {
	done chan struct{} // closed after err is set
	err  error
}

// share does f once for all calls with the same key that come while it runs,
// and gives its result. f belongs to the Service and goes on when a caller, or
// every caller, leaves.
func (s *Service) share(ctx context.Context, key string, f func(context.Context) error) error {
	s.mu.Lock()
	w, ok := s.shares[key]
	if !ok {
		if s.closed {
			s.mu.Unlock()
			return errClosed
		}
		w = &shared{done: make(chan struct{})}
		s.shares[key] = w
		s.tasks.Go(func() {
			if w.err = f(s.ctx); w.err != nil && s.ctx.Err() != nil {
				w.err = errClosed
			}
			s.mu.Lock()
			delete(s.shares, key)
			s.mu.Unlock()
			close(w.done)
		})
	}
	s.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
