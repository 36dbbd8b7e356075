package sessionapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cubeplexai/cubepod/internal/apierror"
	"github.com/cubeplexai/cubepod/internal/session"
)

// A template can have standbys: sandboxes that run and are nobody's yet. A
// create that finds one makes it the caller's by one compare-and-set of its
// record and need not start anything. A standby's record says which version of
// the template it is of; the store's set of each template's standbys is a hint
// as the other lists are. The replica that sweeps keeps their number right.
const (
	// standbyLife is after how long an unused standby is replaced.
	standbyLife = 12 * time.Hour
	// claimTries is how many standbys a create tries before it starts a sandbox
	// of its own.
	claimTries = 3
	// healthTimeout bounds the question whether a standby is well.
	healthTimeout = time.Second
	// fillWorkers is how many standbys are started at once: creates that
	// somebody waits for come first.
	fillWorkers = 2
)

// version tells sandboxes of a template from those of an earlier one of the same
// name.
func (t Template) version() string {
	t.Warm = 0
	doc, _ := json.Marshal(t) // plain values
	return fmt.Sprintf("%x", sha256.Sum256(doc))[:16]
}

// claim makes a standby the caller's. It gives nil when there is none.
func (s *Service) claim(ctx context.Context, caller Caller, tmpl Template, req CreateRequest) (*session.Record, error) {
	for range claimTries {
		id, err := s.store.Claim(ctx, tmpl.Name)
		if err != nil || id == "" {
			return nil, err
		}
		rec, err := s.claimOne(ctx, caller, tmpl, req, id)
		if err == nil {
			s.log.Info("sandbox taken from the pool", zap.String("sandbox", string(id)), zap.String("template", tmpl.Name))
			return rec, nil
		}
		// What is offered can be somebody's already: see auditStandby.
		s.discard(id, func(r *session.Record) bool { return isStandby(r) || rec != nil })
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.log.Warn("standby cannot be used", zap.String("sandbox", string(id)), zap.Error(err))
	}
	return nil, nil
}

// claimOne gives the record also when it is the caller's and yet cannot be used.
func (s *Service) claimOne(ctx context.Context, caller Caller, tmpl Template, req CreateRequest, id session.ID) (*session.Record, error) {
	now := s.clock.now()
	rec, err := s.edit(ctx, id, func(r *session.Record) error {
		if r.Standby != tmpl.version() || r.State != session.Running {
			return apierror.New(apierror.Conflict, "", "it is no standby of the template as it is")
		}
		r.Standby, r.Owner = "", caller.Name
		r.Metadata, r.Envs = req.Metadata, withDefaults(tmpl.Env, req.Envs)
		r.AutoPause, r.TimeoutSeconds, r.IdleSeconds = req.AutoPause, int64(req.Timeout/time.Second), int64(req.Idle/time.Second)
		r.CreatedAt, r.StartedAt, r.EndAt = now, now, now.Add(req.Timeout)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.store.Place(ctx, rec); err != nil { // among the youngest
		return rec, err
	}
	podd, err := s.podd(rec)
	if err != nil {
		return rec, err
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if len(rec.Envs) > 0 {
		return rec, podd.PutEnv(ctx, rec.Envs)
	}
	_, err = podd.Health(ctx)
	return rec, err
}

// discard deletes a sandbox of the pool, without anybody waiting, if cond says
// under the lease that it is one.
func (s *Service) discard(id session.ID, cond func(*session.Record) bool) {
	s.spawn(func() {
		_, err := s.deleteIf(s.ctx, id, cond)
		if err != nil && apierror.KindOf(err) != apierror.NotFound && s.ctx.Err() == nil {
			s.log.Warn("standby not deleted, it ends by itself", zap.String("sandbox", string(id)), zap.Error(err))
		}
	})
}

// pool counts the standbys that this replica is starting.
type pool struct {
	mu       sync.Mutex // guards the fields below
	starting map[string]int
	total    int
}

// fill starts and deletes standbys, so that each template has as many as it
// should have.
func (s *Service) fill(ctx context.Context) error {
	for name, tmpl := range *s.templates.Load() {
		ids, err := s.store.Standbys(ctx, name)
		if err != nil {
			return err
		}
		if len(ids) == 0 && tmpl.Warm == 0 {
			continue
		}
		recs, err := s.store.GetMany(ctx, ids)
		if err != nil {
			return err
		}
		good := map[session.ID]bool{}
		for _, rec := range recs {
			if len(good) < tmpl.Warm && rec.Standby == tmpl.version() && rec.State == session.Running {
				good[rec.ID] = true
			}
		}
		for _, id := range ids {
			if good[id] {
				continue
			}
			// Whoever takes it off the set may delete it: no create gets it then.
			mine, err := s.store.Withdraw(ctx, name, id)
			if err != nil {
				return err
			}
			if mine {
				s.discard(id, isStandby)
			}
		}
		for range tmpl.Warm - len(good) {
			s.startStandby(tmpl, tmpl.Warm-len(good))
		}
	}
	return nil
}

func isStandby(r *session.Record) bool { return r.Standby != "" }

// startStandby starts one more standby, unless this replica is starting all
// that are missing, or as many as it may at once.
func (s *Service) startStandby(tmpl Template, missing int) {
	p := &s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.starting == nil {
		p.starting = map[string]int{}
	}
	if p.total >= fillWorkers || p.starting[tmpl.Name] >= missing {
		return
	}
	p.total++
	p.starting[tmpl.Name]++
	started := s.spawn(func() {
		err := s.standby(s.ctx, tmpl)
		if err != nil && s.ctx.Err() == nil {
			s.log.Warn("standby not started", zap.String("template", tmpl.Name), zap.Error(err))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.total--
		p.starting[tmpl.Name]--
	})
	if !started {
		p.total--
		p.starting[tmpl.Name]--
	}
}

func (s *Service) standby(ctx context.Context, tmpl Template) error {
	rec := s.newRecord(tmpl, CreateRequest{Template: tmpl.Name, Timeout: standbyLife, Envs: tmpl.Env})
	rec.Standby = tmpl.version()
	rec, err := s.createAs(ctx, rec)
	if err != nil {
		return err
	}
	return s.store.Offer(ctx, tmpl.Name, rec.ID)
}

// auditStandby offers a standby again that is on no list, or deletes one that is
// of no use.
func (s *Service) auditStandby(ctx context.Context, rec *session.Record) error {
	tmpl, ok := s.template(rec.Template)
	if ok && tmpl.Warm > 0 && rec.State == session.Running && rec.Standby == tmpl.version() {
		return s.store.Offer(ctx, tmpl.Name, rec.ID)
	}
	if !rec.State.Transient() {
		s.discard(rec.ID, isStandby)
	}
	return nil
}
