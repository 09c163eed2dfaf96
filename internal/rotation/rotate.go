package rotation

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

const (
	// prepareTime is how long a member has to keep a secret.
	prepareTime = 10 * time.Second
	// lookTime is how long a member has to say what it has of changes before.
	lookTime = 2 * time.Second
	// SettleTime is how long all have to see that the new one counts, and after
	// which a member that heard nothing of an end takes the old one no more.
	SettleTime = 10 * time.Second
	// finishTime is how long members have to say that they took the old one no
	// more; they close connections with that.
	finishTime = 2 * time.Second
)

// rotation is a change of the secret by this node.
type rotation struct {
	*Rotator
	generation  uint64
	fresh       string // the secret
	fingerprint string
	has         map[string]string // members that have it: peer ID, name
}

// awaitGranting waits until a node grants locks, for as long as limit: after a peer
// was revoked, say, the epoch of the next view has to begin.
func awaitGranting(ctx context.Context, limit time.Duration, status func() member.Status) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		s := status()
		if s.Granting {
			return nil
		}
		select {
		case <-tick.C:
		case <-end.C:
			return fmt.Errorf("this node is %s, for %v: only a member that grants locks can change the secret", chronicle.StateName(s), limit)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Rotate gives the cluster a new secret, if it can be begun within limit.
func (t *Rotator) Rotate(ctx context.Context, limit time.Duration, why string) (admin.Rotated, error) {
	if !t.rotating.TryLock() {
		return admin.Rotated{}, exitcode.With(exitcode.Busy, errors.New("the secret is being changed already"))
	}
	defer t.rotating.Unlock()
	if err := awaitGranting(ctx, limit, t.Node.Load().Status); err != nil {
		return admin.Rotated{}, err
	}
	if err := t.look(); err != nil {
		return admin.Rotated{}, err
	}
	b := make([]byte, 32)
	rand.Read(b)
	r := &rotation{Rotator: t, fresh: hex.EncodeToString(b), has: map[string]string{}}
	if err := r.void(ctx); err != nil {
		return admin.Rotated{}, fmt.Errorf("nothing was changed: %w", err)
	}
	number, _, _ := t.Secret.state()
	r.generation = number + 1
	r.fingerprint = register.Fingerprint([]byte(r.fresh))
	t.Note(journal.Note, "", "an admin changes the secret of the cluster, to the one with fingerprint %s: %s", r.fingerprint, why)
	if err := r.prepareAll(ctx); err != nil {
		r.abort()
		return admin.Rotated{}, fmt.Errorf("nothing was changed: %w", err)
	}
	if err := t.Register.SetGeneration(register.Generation{Number: r.generation, Fingerprint: r.fingerprint}); err != nil {
		if errors.Is(err, register.ErrNotNext) {
			r.abort()
			return admin.Rotated{}, fmt.Errorf("nothing was changed by this: %w", err)
		}
		return admin.Rotated{}, fmt.Errorf("it is not known whether the secret was changed; all members have both, so all goes on; give the order again: %w", err)
	}
	// It counts. What is left to do does not depend on who asked for it.
	if err := t.Register.RemoveSecret(); err != nil {
		t.Log.Warn("the former secret is on the storage still", "err", err)
	}
	return r.settle(), nil
}

// members are those of the view but for this node.
func (r *rotation) members() (ids map[string]string, revoked []string) {
	ids = map[string]string{}
	if v := r.Node.Load().Status().View; v != nil {
		for _, m := range v.Members {
			if m.Peer != r.Self {
				ids[m.Peer] = m.Name()
			}
		}
		revoked = v.Revoked
	}
	return ids, revoked
}

// void makes changes that were begun and not ended void, where a member has many of
// them: whoever began them is gone, or has lost its connections, and each member can
// keep some only. They may not just be forgotten, since the one who began a change
// may still have it count, with a member that has forgotten it out for good. So the
// present secret is made to count in the generation that they are all for: none of
// them can get its name then.
func (r *rotation) void(ctx context.Context) error {
	number, fingerprint, pending := r.Secret.state()
	var mu sync.Mutex
	ids, _ := r.members()
	look, stop := context.WithTimeout(ctx, lookTime)
	defer stop()
	r.each(look, ids, Order{Step: "look"}, func(_ string, s State, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			pending = max(pending, s.Pending)
		}
	})
	if pending < manyNext {
		return context.Cause(ctx)
	}
	r.Note(journal.Note, "", "changes of the secret of the cluster that were begun and not ended (up to %d on a member) are made void", pending)
	if err := r.Register.SetGeneration(register.Generation{Number: number + 1, Fingerprint: fingerprint}); err != nil {
		return err
	}
	if err := r.look(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, SettleTime)
	defer cancel()
	ids, see := r.await(wait, number+1, nil)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if !see[id] {
			return fmt.Errorf("%s (%s) does not see that changes before are void, or does not answer; mend that, or drop the member (dmxfs peers remove)", ids[id], id)
		}
	}
	return context.Cause(ctx)
}

// prepareAll has all members keep the secret: also those that join meanwhile.
func (r *rotation) prepareAll(ctx context.Context) error {
	if err := r.Secret.prepare(r.generation, r.fresh); err != nil {
		return err
	}
	for {
		now, revoked := r.members()
		for id, name := range r.has {
			if slices.Contains(revoked, id) {
				return fmt.Errorf("%s was revoked while it got the new secret", name)
			}
			delete(now, id)
		}
		if len(now) == 0 {
			return context.Cause(ctx)
		}
		if err := r.prepare(ctx, now); err != nil {
			return err
		}
	}
}

// prepare has some members keep the secret.
func (r *rotation) prepare(ctx context.Context, ids map[string]string) error {
	var mu sync.Mutex
	var failed []string
	r.each(ctx, ids, Order{Step: "prepare", Generation: r.generation, Secret: r.fresh}, func(id string, _ State, err error) {
		mu.Lock()
		defer mu.Unlock()
		r.has[id] = ids[id] // even if it failed: the answer may have got lost
		if err != nil {
			failed = append(failed, fmt.Sprintf("%s (%s) cannot take the new secret: %v", ids[id], id, err))
		}
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(failed) > 0 {
		slices.Sort(failed)
		return fmt.Errorf("%s; mend that, or drop the member (dmxfs peers remove)", strings.Join(failed, "; "))
	}
	return nil
}

// each gives an order to members, at the same time.
func (r *rotation) each(ctx context.Context, ids map[string]string, o Order, then func(id string, s State, err error)) {
	var wg sync.WaitGroup
	for id := range ids {
		wg.Go(func() {
			var s State
			err := r.Ask(ctx, id, prepareTime, o, &s)
			then(id, s, err)
		})
	}
	wg.Wait()
}

func (r *rotation) abort() {
	ctx, cancel := context.WithTimeout(context.Background(), prepareTime)
	defer cancel()
	if err := r.Secret.abort(r.fingerprint); err != nil {
		r.Log.Warn("a secret that does not count is kept in the state directory", "err", err)
	}
	r.each(ctx, r.has, Order{Step: "abort", Fingerprint: r.fingerprint}, func(string, State, error) {})
}

// settle waits until all members use the new secret, and ends the old one.
func (r *rotation) settle() admin.Rotated {
	if err := r.look(); err != nil {
		r.Log.Warn("which secret counts cannot be seen", "err", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), SettleTime)
	defer cancel()
	now, use := r.await(ctx, r.generation, func(late map[string]string) {
		// They have joined in the last moment.
		r.each(ctx, late, Order{Step: "prepare", Generation: r.generation, Secret: r.fresh}, func(string, State, error) {})
	})
	end, stop := context.WithTimeout(context.Background(), finishTime)
	defer stop()
	r.each(end, now, Order{Step: "finish", Generation: r.generation}, func(string, State, error) {})
	r.Secret.finish(r.generation)
	v := admin.Rotated{Generation: r.generation, Fingerprint: r.fingerprint, Members: []admin.RotatedMember{}}
	self, view := r.Self, r.Node.Load().Status().View
	v.Members = append(v.Members, admin.RotatedMember{ID: self, Host: chronicle.HostName(view, self), State: "changed"})
	for _, id := range slices.Sorted(maps.Keys(now)) {
		state := "changed"
		if !use[id] {
			state = "not yet" // it has it, and sees to it itself
		}
		v.Members = append(v.Members, admin.RotatedMember{ID: id, Host: chronicle.HostName(view, id), State: state})
	}
	return v
}

// await has all members look at the storage until they see a generation, or ctx
// ends. behind, if it is not nil, is called with those that look and do not.
func (r *rotation) await(ctx context.Context, generation uint64, behind func(ids map[string]string)) (members map[string]string, see map[string]bool) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var mu sync.Mutex
	see = map[string]bool{}
	for ctx.Err() == nil {
		members, _ = r.members()
		late, lost := map[string]string{}, map[string]string{}
		for id, name := range members {
			if !see[id] {
				late[id] = name
			}
		}
		if len(late) == 0 {
			break
		}
		r.each(ctx, late, Order{Step: "look"}, func(id string, s State, err error) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && s.Generation >= generation:
				see[id] = true
			case err == nil:
				lost[id] = late[id]
			}
		})
		if behind != nil {
			behind(lost)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return members, see
}
