package estate

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/keeper"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// lifeline is a pipe whose other end this process does not have.
func lifeline(t *testing.T) int {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
		r.Close()
	})
	return int(r.Fd()) // which makes it block
}

func begin(t *testing.T, generation uint64, life int) *Own {
	t.Helper()
	o, err := Begin(generation, "test", life, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// The last will that is in force counts, and those after it, each once.
func TestWills(t *testing.T) {
	var e Estate
	if e.Complete() || e.Newest().Generation != 0 {
		t.Errorf("of nobody: %+v", e)
	}
	generations := func(ws []Will) (list []uint64) {
		for _, w := range ws {
			list = append(list, w.Generation)
		}
		return list
	}
	for i, c := range []struct {
		w           Will
		over, count []uint64
	}{
		{Will{Generation: 1, InForce: true}, nil, []uint64{1}},
		{Will{Generation: 2}, nil, []uint64{1, 2}},
		{Will{Generation: 3}, nil, []uint64{1, 2, 3}},
		{Will{Generation: 3, InForce: true}, []uint64{1, 2}, []uint64{3}},
		{Will{Generation: 3, InForce: true}, nil, []uint64{3}},
	} {
		if over := e.Add(c.w); !slices.Equal(generations(over), c.over) || !slices.Equal(generations(e.Wills), c.count) || !e.Complete() {
			t.Errorf("%d: over are %v, and %+v count", i, over, e)
		}
	}
	e = Estate{}
	if e.Add(Will{Generation: 7}); e.Complete() {
		t.Error("a will that was never in force is enough")
	}
}

// Of what was claimed the last counts, whole.
func TestClaims(t *testing.T) {
	c, err := newClaims(3)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read := func() claimed {
		t.Helper()
		fd, err := unix.FcntlInt(uintptr(c.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		tables, err := shm.Open(fd, 3, claimsForm())
		if err != nil {
			t.Fatal(err)
		}
		defer tables.Close()
		x, err := readClaims(tables)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	if x := read(); !x.Of.IsZero() || len(x.By) > 0 {
		t.Errorf("nothing was claimed: %+v", x)
	}
	of := member.Node{Peer: "12D3KooWNode", Inc: 1}
	var by []member.Node
	for i := range byte(200) {
		by = append(by, member.Node{Peer: "12D3KooWNode", Inc: 2 + member.Inc(i)})
		if err := c.keep(of, by); err != nil {
			t.Fatal(err)
		}
	}
	if x := read(); x.Of != of || !slices.Equal(x.By, by) {
		t.Errorf("%d claims of %v", len(x.By), x.Of)
	}
}

// A daemon that was killed before it had begun has left nothing, and one whose keeper has
// ended neither. Nothing is taken then.
func TestNothingIsLeft(t *testing.T) {
	life := lifeline(t)
	a, b := begin(t, 1, life), begin(t, 2, life)
	first, second := a.Will(), b.Will()
	first.InForce = true
	e := Estate{Wills: []Will{first, second}}
	if _, err := e.Open(); !errors.Is(err, shm.ErrNotBegun) {
		t.Errorf("nothing was begun: %v", err)
	}
	if ended, err := first.Ended(); ended || err != nil {
		t.Errorf("this process has ended: %v, %v", ended, err)
	}
	if err := a.Problem(); err != nil {
		t.Error(err)
	}
	if (&Estate{Wills: []Will{second}}).Complete() {
		t.Error("it was never in force")
	}
	if err := End([]Will{first}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(); !errors.Is(err, keeper.ErrGone) {
		t.Errorf("without a keeper: %v", err)
	}
	if err := a.Problem(); !errors.Is(err, keeper.ErrGone) {
		t.Errorf("without a keeper: %v", err)
	}
	if err := End([]Will{first}); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// That a keeper is killed alone is noticed, and it does not stay in the list of processes.
// Its end by End is no loss, and who waits for one does not wait for ever.
func TestTheLossOfAKeeperIsNoticed(t *testing.T) {
	life := lifeline(t)
	await := func(ctx context.Context, o *Own) <-chan error {
		c := make(chan error, 1)
		go func() { c <- o.AwaitLoss(ctx) }()
		return c
	}
	o := begin(t, 1, life)
	k := o.Will().Keeper
	found := await(t.Context(), o)
	if err := unix.Kill(k.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-found; !errors.Is(err, keeper.ErrGone) {
		t.Errorf("it was killed: %v", err)
	}
	if err := unix.Kill(k.PID, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("what was killed is still there: %v", err)
	}
	for what, err := range map[string]error{"loss": o.Lost(), "problem": o.Problem()} {
		if !errors.Is(err, keeper.ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := errors.Join(o.End(), <-await(t.Context(), o)); err != nil {
		t.Errorf("after that: %v", err)
	}

	o = begin(t, 2, life)
	found = await(t.Context(), o)
	if err := errors.Join(o.End(), <-found, o.Lost()); err != nil {
		t.Errorf("by End: %v", err)
	}
	o = begin(t, 3, life)
	ctx, cancel := context.WithCancel(t.Context())
	found = await(ctx, o)
	cancel()
	if err := errors.Join(<-found, o.Lost(), o.Problem()); err != nil {
		t.Errorf("it lives, and who waited does not any more: %v", err)
	}
	if (*Own)(nil).Lost() != nil {
		t.Error("where there is none nothing is lost")
	}
}

// A process goes on, is in force, and is killed before it has claimed anything: the next one
// knows who had claimed the place before.
func TestClaimsOutliveWhoMakesNone(t *testing.T) {
	life := lifeline(t)
	of := member.Node{Peer: "12D3KooWNode", Inc: 1}
	by := []member.Node{{Peer: "12D3KooWNode", Inc: 2}, {Peer: "12D3KooWNode", Inc: 3}}
	first := begin(t, 1, life)
	if err := first.Claim(of, by); err != nil {
		t.Fatal(err)
	}
	left := func(o *Own) *Left {
		t.Helper()
		w := o.Will()
		w.InForce = true
		l := &Left{keepers: map[uint64]*keeper.Found{}, Heir: member.Heir{Of: of}}
		l.Add(w)
		var err error
		if l.keepers[w.Generation], err = keeper.Find(w.Keeper); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Close)
		if err := l.readClaims(); err != nil {
			t.Fatal(err)
		}
		return l
	}
	second := begin(t, 2, life)
	if err := second.GoesOn(left(first)); err != nil {
		t.Fatal(err)
	}
	if got := left(second).Heir.Claimed; !slices.Equal(got, by) {
		t.Errorf("%v, want %v", got, by)
	}
	third := begin(t, 3, life)
	if err := third.GoesOn(&Left{Heir: member.Heir{Of: of}}); err != nil {
		t.Fatal(err)
	}
	if got := left(third).Heir.Claimed; len(got) > 0 {
		t.Errorf("nobody has claimed anything: %v", got)
	}
}
