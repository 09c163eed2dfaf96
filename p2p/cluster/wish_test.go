package cluster_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/p2p/cluster"
	"github.com/dmxfs/dmxfs/p2p/member"
)

func TestRemove(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		victim := n[2].Status().Self
		from := time.Now()
		if err := n[0].Remove(w.t.Context(), 10*time.Second, victim, "it is broken"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(from); d < 4*time.Second {
			t.Errorf("removed after %v: faster than is safe", d)
		}
		w.await("it joins anew", 5*time.Second, func() bool { return w.together(n...) })
		if len(n[2].lost()) != 1 || n[2].Status().Self == victim {
			t.Errorf("it lost %v and is %v", n[2].lost(), n[2].Status().Self)
		}
		if err := n[0].Remove(w.t.Context(), time.Second, victim, ""); err == nil || !strings.Contains(err.Error(), "not a member") {
			t.Errorf("removing it again: %v", err)
		}
		if err := n[0].Remove(w.t.Context(), time.Second, n[0].Status().Self, ""); err == nil {
			t.Error("a node removes itself")
		}
	})
}

func TestRevoke(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(3)
		peer := n[2].id.String()
		if err := n[0].Revoke(w.t.Context(), 10*time.Second, peer, false); err != nil {
			t.Fatal(err)
		}
		ended, ok := errors.AsType[*cluster.Ended](<-n[2].ended)
		if !ok || ended.Code != member.EndRevoked {
			t.Errorf("the revoked one ended with %v", ended)
		}
		w.await("the others go on", 7*time.Second, func() bool { return w.together(n[:2]...) })
		w.await("the transport is told", time.Second, func() bool {
			n[1].mu.Lock()
			defer n[1].mu.Unlock()
			return slices.Contains(n[1].revoked, peer) &&
				!slices.ContainsFunc(n[1].wanted, func(c member.Contact) bool { return c.Peer == peer })
		})
		if err := n[1].Revoke(w.t.Context(), 10*time.Second, peer, true); err != nil {
			t.Fatal(err)
		}
		w.await("it may come again", time.Second, func() bool { return !n[0].Status().View.IsRevoked(peer) })
		if err := n[1].Revoke(w.t.Context(), 10*time.Second, "no peer!", false); err == nil {
			t.Error("what is no peer is revoked")
		}
	})
}

func TestSetPolicy(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		e := n[0].epoch()
		if err := n[1].SetPolicy(w.t.Context(), 5*time.Second, member.Policy{Hash: "h", TOML: "x = 1"}); err != nil {
			t.Fatal(err)
		}
		w.await("all have it", time.Second, func() bool {
			return w.together(n...) && n[0].Status().View.Policy.Hash == "h" && n[0].epoch() == e+1
		})
	})
}

// Every wish has an end: its view, its deadline, the caller's patience, or the
// end of the node.
func TestWishesEnd(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.start(2)
		w.cut(n[:1], n[1:])
		w.await("no tenure", 6*time.Second, func() bool { return !n[0].Live(0) || len(n[0].Status().View.Members) == 1 })
		hang := make(gate)
		n[0].storage.set(hang)
		err := n[0].SetPolicy(w.t.Context(), 500*time.Millisecond, member.Policy{Hash: "h"})
		if err == nil || !strings.Contains(err.Error(), "in time") {
			t.Errorf("after its deadline: %v", err)
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if err := n[0].SetPolicy(ctx, time.Hour, member.Policy{Hash: "i"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after the caller's patience: %v", err)
		}
		result := make(chan error)
		go func() { result <- n[0].SetPolicy(w.t.Context(), time.Hour, member.Policy{Hash: "j"}) }()
		time.Sleep(time.Second)
		n[0].kill()
		if err := <-result; err == nil {
			t.Error("fulfilled at the end")
		}
		if err := n[0].SetPolicy(w.t.Context(), time.Hour, member.Policy{Hash: "k"}); err == nil {
			t.Error("fulfilled after the end")
		}
		close(hang)
	})
}
