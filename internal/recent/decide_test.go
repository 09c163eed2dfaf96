package recent

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

const ms = int64(1e6)

// answerOf is the answer of a host that has seen these changes.
func answerOf(seen ...Seen) *Answer {
	return &Answer{Version: Version, Received: 2100 * ms, Sent: 2100 * ms, Since: 100 * ms, Seen: seen}
}

func change(k Kind, from, to int64) Seen {
	return Seen{ID: uint64(from), Begin: from * ms, End: to * ms, Kind: k, Sure: true}
}

func maybe(k Kind, from, to int64) Seen {
	s := change(k, from, to)
	s.Sure = false
	return s
}

func openSince(k Kind, from int64) Seen {
	s := maybe(k, from, 2100)
	s.Open = true
	return s
}

// gain is a change that makes a name, and loss one that takes it away. Hosts look at the name
// at 1000 ms, and find what there is at 2000 ms.
func gain(before, there bool) Pending {
	return Pending{Kind: Gains, Before: before, LookedFrom: 1000 * ms, LookedTo: 1001 * ms, There: there, FoundFrom: 2000 * ms, FoundTo: 2001 * ms}
}

func other(p Pending) Pending {
	p.Other = true
	return p
}

func loss(there bool) Pending {
	p := gain(true, there)
	p.Kind = Loses
	return p
}

var decideCases = []struct {
	what string
	p    Pending
	a    *Answer
	want Verdict
}{
	{"nobody has done anything", gain(false, true), answerOf(), Done},
	{"it is not there", gain(false, false), answerOf(), NotDone},
	{"they did it", gain(false, true), answerOf(change(Gains, 1500, 1501)), NotDone},
	{"they may have done it", gain(false, true), answerOf(maybe(Gains, 1500, 1501)), Unsure},
	{"they are doing it", gain(false, true), answerOf(openSince(Gains, 1500)), Unsure},
	{"they are doing it, but too late", gain(false, true), answerOf(openSince(Gains, 2050)), Done},
	{"they did it, and undid it", gain(false, true), answerOf(change(Gains, 1500, 1501), change(Loses, 1600, 1601)), Done},
	{"they undid something", gain(false, false), answerOf(change(Loses, 1600, 1601)), NotDone},
	{"they have undone it, and done it anew", gain(false, true), answerOf(change(Loses, 1500, 1501), change(Gains, 1600, 1601)), NotDone},
	{"they did it again and again", gain(false, true),
		answerOf(change(Gains, 900, 901), change(Loses, 950, 951), change(Gains, 1500, 1501), change(Loses, 1600, 1601), change(Gains, 1700, 1701)), NotDone},
	{"before, and just undone", gain(false, true), answerOf(change(Gains, 990, 991), change(Loses, 999, 1000)), Done},
	{"just before", gain(false, true), answerOf(change(Gains, 998, 999), change(Loses, 1000, 1001)), Done},
	{"just before, perhaps", gain(false, true), answerOf(change(Gains, 998, 999), maybe(Loses, 1000, 1001)), Unsure},
	{"it was theirs, and they have removed it", gain(true, true), answerOf(change(Gains, 900, 901), change(Loses, 1001, 1002)), Done},
	{"it is theirs", gain(true, true), answerOf(change(Gains, 900, 901)), NotDone},
	{"they may have removed it", gain(true, true), answerOf(change(Gains, 900, 901), openSince(Loses, 1500)), Unsure},
	{"they have put another one there", gain(false, true), answerOf(change(Gets, 1500, 1501)), NotDone},
	{"they have exchanged it", gain(false, true), answerOf(change(Swaps, 1500, 1501)), NotDone},
	{"it cannot be", gain(false, true), answerOf(change(Loses, 1500, 1501), change(Loses, 1600, 1601), change(Loses, 1700, 1701)), Unsure},

	{"it is gone", loss(false), answerOf(), Done},
	{"it is there", loss(true), answerOf(), NotDone},
	{"they removed it", loss(false), answerOf(change(Loses, 1500, 1501)), NotDone},
	{"they may have removed it, too", loss(false), answerOf(maybe(Loses, 1500, 1501)), Unsure},
	{"they have another one since", loss(true), answerOf(change(Gains, 1010, 1011)), Done},
	{"they had waited for that", loss(true), answerOf(change(Gains, 990, 1003)), Unsure},
	{"they have had others since", loss(false), answerOf(change(Gains, 1010, 1012), change(Loses, 1013, 1014), change(Gains, 1020, 1021), change(Loses, 1022, 1023)), Done},
	{"they have removed it, and have another one", loss(true), answerOf(change(Loses, 1010, 1012), change(Gains, 1013, 1014)), NotDone},
	{"it is another one, which they may have made", other(loss(true)), answerOf(maybe(Gains, 1500, 1501)), Done},
	{"it is another one, which they may have made in its place", other(loss(true)), answerOf(maybe(Gets, 1500, 1501)), Unsure},
	{"it is another one, and they may have removed it", other(gain(true, true)), answerOf(maybe(Loses, 1500, 1501)), Done},
	{"they made it", loss(false), answerOf(change(Gains, 900, 901)), Done},
	{"they have replaced it", loss(true), answerOf(change(Gets, 1500, 1501)), Unsure},
}

// One other host, whose clock may be 5 ms off.
func TestDecide(t *testing.T) {
	t.Parallel()
	for _, c := range decideCases {
		h, err := Of(c.a, 2095*ms, 2105*ms, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := Decide(&c.p, []Host{Own(answerOf()), h}); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
	// What is known here of the name before helps.
	p := loss(true)
	own := Own(answerOf(change(Gains, 900, 901)))
	if h, _ := Of(answerOf(change(Gains, 990, 1003)), 2095*ms, 2105*ms, 1); Decide(&p, []Host{own, h}) != Done {
		t.Error("another host cannot have made what this one had made before")
	}
	p = gain(false, true)
	p.Made = true
	if h, _ := Of(answerOf(maybe(Gains, 1500, 1501)), 2095*ms, 2105*ms, 1); Decide(&p, []Host{h}) != Done {
		t.Error("it is known that it was made")
	}
	for what, edit := range map[string]func(*Answer){
		"not complete":        func(a *Answer) { a.Since = 996 * ms },
		"perhaps another one": func(a *Answer) { a.Alias = 1500 * ms },
	} {
		a := answerOf()
		edit(a)
		h, _ := Of(a, 2095*ms, 2105*ms, 1)
		if Decide(&p, []Host{h}) != Unsure || Untouched([]Host{h}, 1000*ms) {
			t.Errorf("%s: it is sure", what)
		}
	}
	for want, a := range map[bool]*Answer{true: answerOf(change(Gains, 900, 994)), false: answerOf(change(Gains, 900, 996))} {
		if h, _ := Of(a, 2095*ms, 2105*ms, 1); Untouched([]Host{h}, 1000*ms) != want {
			t.Errorf("untouched: %v", !want)
		}
	}
	if h, _ := Of(answerOf(maybe(Gains, 900, 996)), 2095*ms, 2105*ms, 1); Untouched([]Host{h}, 1000*ms) {
		t.Error("who knows")
	}
}

// A name that hosts make, remove, replace and exchange, while one of them is killed in such a
// call. Whatever was, and however their clocks are, what is decided is true.
func TestDecideIsRight(t *testing.T) {
	t.Parallel()
	count := map[Verdict]int{}
	for seed := range uint64(long.Pure(20_000, long.Or(20_000, 500_000))) {
		w := newWorld(seed)
		p, hosts, done, mine := w.run()
		got := Decide(&p, hosts)
		count[got]++
		truth := done
		if p.Kind == Gains {
			truth = mine
		}
		if got == Done && !truth || got == NotDone && truth {
			t.Fatalf("seed %d: %d, but done %v, mine %v: %+v", seed, got, done, mine, p)
		}
	}
	t.Logf("%d done, %d not done, %d unsure", count[Done], count[NotDone], count[Unsure])
	if count[Done] < 1500 || count[NotDone] < 3000 || count[Unsure] < 1000 {
		t.Errorf("the cases are not what they should be: %v", count)
	}
}

type world struct {
	*rand.Rand
	now     int64
	offsets []int64
	seen    [][]Seen
	present bool
	by      int // who has made it
	made    int // what was made last
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 1)), now: 10_000 * ms, by: -1}
	for range 1 + w.IntN(3) {
		w.offsets = append(w.offsets, w.Int64N(4000*ms)-2000*ms)
		w.seen = append(w.seen, nil)
	}
	w.offsets[0] = 0
	return w
}

// does has a host do something, and see it. It reports whether it was made.
func (w *world) does(host int, k Kind) bool {
	from := w.now - w.Int64N(3*ms)
	if l := len(w.seen[host]); l > 0 { // one after the other
		from = max(from, w.seen[host][l-1].End-w.offsets[host]+1)
	}
	w.now = max(w.now, from)
	noop := k == Loses && w.IntN(10) == 0 // a rename that does nothing
	made := noop || k == Gains && !w.present || k == Gets || (k == Loses || k == Swaps) && w.present
	if !made {
		w.now += w.Int64N(ms)
		return false
	}
	if !noop {
		w.present, w.by = k != Loses, host
		w.made++
	}
	w.now += w.Int64N(ms)
	s := Seen{Begin: from + w.offsets[host], End: w.now + w.offsets[host], Kind: k, Sure: !noop && w.IntN(20) > 0}
	w.now += w.Int64N(ms)
	w.seen[host] = append(w.seen[host], s)
	return true
}

func (w *world) steps(n int) {
	for range n {
		w.now += w.Int64N(4 * ms)
		k := Kind(1 + w.IntN(2))
		if w.IntN(8) == 0 {
			k = Kind(3 + w.IntN(2))
		}
		w.does(w.IntN(len(w.seen)), k)
	}
}

func (w *world) run() (p Pending, hosts []Host, done, mine bool) {
	w.steps(w.IntN(8))
	p.Kind = Kind(1 + w.IntN(2))
	p.LookedFrom = w.now
	if w.IntN(3) == 0 {
		w.steps(w.IntN(2))
	}
	p.Before = w.present
	number := w.made
	w.now += w.Int64N(ms)
	p.LookedTo = w.now
	w.steps(w.IntN(3))
	w.now++
	if w.IntN(2) == 0 {
		done = w.makes(p.Kind)
	}
	w.now++
	w.steps(w.IntN(6))
	w.now++
	p.FoundFrom, p.There, mine = w.now, w.present, w.present && w.by == -2
	p.Other = p.Before && p.There && number != w.made && w.IntN(2) == 0
	w.now += w.Int64N(ms)
	p.FoundTo = w.now
	w.steps(w.IntN(3))
	return p, w.answers(), done, mine
}

// makes has the host that is killed make the change, which nobody notes. It reports whether it was
// made.
func (w *world) makes(k Kind) bool {
	if (k == Gains) == w.present {
		return false
	}
	w.present, w.by = k == Gains, -2
	w.made++
	return true
}

// answers has all hosts be asked.
func (w *world) answers() (hosts []Host) {
	for i := range w.seen {
		sent := w.now
		w.now += w.Int64N(3 * ms)
		a := &Answer{Version: Version, Received: w.now + w.offsets[i], Seen: w.seen[i]}
		w.now += w.Int64N(2 * ms)
		a.Sent = w.now + w.offsets[i]
		w.now += w.Int64N(3 * ms)
		h := Own(a)
		if i > 0 {
			h, _ = Of(a, sent, w.now, 100)
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// Hosts that make and remove a name as fast as they can.
func TestDecideMany(t *testing.T) {
	t.Parallel()
	var seen []Seen
	for at := 500 * ms; at < 1990*ms; at += ms / 2 {
		seen = append(seen, Seen{Begin: at, End: at + ms/8, Kind: Gains, Sure: true}, Seen{Begin: at + ms/4, End: at + 3*ms/8, Kind: Loses, Sure: true})
	}
	p := Pending{Kind: Gains, LookedFrom: 1000 * ms, LookedTo: 1001 * ms, There: true, FoundFrom: 2000 * ms, FoundTo: 2001 * ms}
	h, _ := Of(answerOf(append(seen, change(Gains, 1990, 1991))...), 2099*ms, 2101*ms, 100)
	if got := Decide(&p, []Host{h}); got != NotDone {
		t.Errorf("the last one of %d is theirs: %d", len(seen), got)
	}
	p.Kind, p.Before = Loses, true
	h, _ = Of(answerOf(append(seen, openSince(Loses, 800), change(Gains, 1990, 1991))...), 2099*ms, 2101*ms, 100)
	if got := Decide(&p, []Host{h}); got != NotDone {
		t.Errorf("nobody else can have taken it away: %d", got)
	}
	// It is the order on each host that tells, however little is known of its clock.
	p = loss(false)
	h, _ = Of(answerOf(append(seen, change(Gains, 1990, 1991), openSince(Loses, 1992))...), 1900*ms, 2300*ms, 100)
	own := Own(answerOf(change(Gains, 998, 999)))
	own.Since = 100 * ms
	if got := Decide(&p, []Host{own, h}); got != Done {
		t.Errorf("it was made here, and had to go before others could make it: %d", got)
	}
	// All at any time: it takes too long to find out, and nobody waits for that.
	var open []Seen
	for range 200 {
		open = append(open, maybe(Gains, 1100, 1900), maybe(Loses, 1100, 1900))
	}
	h, _ = Of(answerOf(open...), 2099*ms, 2101*ms, 100)
	if got := Decide(&p, []Host{h}); got != Unsure {
		t.Errorf("nobody knows: %d", got)
	}
}

// An answer of whatever bytes is an error, or is decided by, in little time.
func FuzzAnswer(f *testing.F) {
	b, _ := json.Marshal(answerOf(change(Gains, 1500, 1501), openSince(Loses, 1600)))
	f.Add(b)
	f.Add([]byte(`{"version":1,"received":1,"sent":9223372036854775807}`))
	m, err := New()
	if err != nil {
		f.Fatal(err)
	}
	n := NameOf(1, "name")
	f.Fuzz(func(t *testing.T, b []byte) {
		var q Question
		if json.Unmarshal(b, &q) == nil {
			done, cancel := context.WithCancel(t.Context())
			cancel()
			if a, err := m.Answer(done, &q); err == nil && a.Check() != nil {
				t.Error(a.Check())
			}
		}
		a, err := ParseAnswer(b)
		if err != nil {
			return
		}
		h, err := Of(a, 2095*ms, 2105*ms, 100)
		if err != nil {
			return
		}
		p := Pending{Kind: Gains, LookedFrom: 1000 * ms, LookedTo: 1001 * ms, There: true, FoundFrom: 2000 * ms, FoundTo: 2001 * ms}
		Decide(&p, []Host{h})
		Untouched([]Host{h}, 1000*ms)
	})
	_ = n
}

func TestAnswersThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, edit := range []func(*Answer){
		func(a *Answer) { a.Version++ },
		func(a *Answer) { a.Sent = a.Received - 1 },
		func(a *Answer) { a.Sent = latest + 1 },
		func(a *Answer) { a.Received, a.Sent = 0, 0 },
		func(a *Answer) { a.Since = a.Sent + 1 },
		func(a *Answer) { a.Alias = -1 },
		func(a *Answer) { a.Altered = a.Sent + 1 },
		func(a *Answer) { a.Seen[0].End = a.Seen[0].Begin - 1 },
		func(a *Answer) { a.Seen[0].End = a.Sent + 1 },
		func(a *Answer) { a.Seen[0].Kind = Alters },
		func(a *Answer) { a.Seen[0].Kind = 0 },
		func(a *Answer) { a.Seen[0].Open = true },
		func(a *Answer) { a.Seen = slices.Repeat(a.Seen, MaxSeen+1) },
	} {
		a := answerOf(change(Gains, 1500, 1501))
		edit(a)
		b, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseAnswer(b); err == nil {
			t.Errorf("%s was believed", b[:min(len(b), 200)])
		}
	}
	a := answerOf()
	a.Sent += 100 * ms
	if _, err := Of(a, 2095*ms, 2105*ms, 100); err == nil {
		t.Error("an answer that took longer than the question was under way")
	}
}
