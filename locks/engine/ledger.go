package engine

import (
	"fmt"
	"iter"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// A process that is killed leaves no Bequeath. If it keeps a ledger another process
// goes on with what is in that, by the same Inherit (ledgerread.go). A ledger is tables
// in memory that outlives the process, in which a record is written or not, at
// whatever instruction the process dies.
//
// All is written under mu, in this order:
//
//   - What is granted, before its program is told. Between the grant of the machine
//     and that the ledger has it as waiting, or not at all: nobody was told, and as
//     long as this node is a member nobody else has it either.
//   - What is given up, before its machine is told, and so before any message: what
//     another node has seen to be free is not in the ledger. Whoever gave it up may
//     not have been answered; then it is done again, and finds nothing.
//   - That a file is to be written out, before its program may write; that it need not
//     be, after it was.
//   - That a new view has begun, before anything is granted in it; that a tenure is
//     over, before another one can begin, by one store that makes all records void.
//
// What takes several records, as when an unlock leaves two pieces of one, is written
// such that of those that overlap the younger one counts: first what is new or grows,
// then what shrinks, then what goes. So at each moment the owner has every byte that it
// had before or has after it, or both: who died in between had answered nobody, and the
// request is made again.
//
// Not written is what only makes a difference to who goes first: how many have joined
// at a gate, and of rw the clock as long as nobody waits.

// Ledger is memory for tables that outlives the process. It has the tables of
// LedgerTables. Only this engine changes it. The methods return at once and are called
// under the engine's mutex.
type Ledger interface {
	// Text is what a record refers to s by, as long as there is such a record; 0 for
	// an empty one.
	Text(s string) (ref uint64, err error)
	// Put adds a record, and gives it a number that is not 0.
	Put(table int, words []uint64) (number uint32, err error)
	Set(table int, number uint32, words []uint64) error
	Delete(table int, number uint32)
	// Clear makes all records void at one moment.
	Clear()
	// Renew makes all records void, and then undoes SetFull.
	Renew()
	// SetFull tells whoever reads it that something is missing. After an error it has
	// done so by itself.
	SetFull(why string)
	// Full is an error after SetFull.
	Full() error
	// Clock is a clock that goes on in the next process.
	Clock() time.Duration
}

// LedgerReader is a ledger of a process that is dead, as it was found.
type LedgerReader interface {
	String(ref uint64) string
	All(table int) iter.Seq2[uint32, []uint64]
	Clock() time.Duration
}

// LedgerVersion is that of what the records mean. It grows with every change, also of
// what machines leave.
const LedgerVersion = 1

// LedgerTable is the form of a table: how many words a record has, how many of these,
// the first ones, are texts, and how many records there may be.
type LedgerTable struct{ Words, Texts, Max int }

// LedgerTables are the tables of a ledger.
var LedgerTables = []LedgerTable{
	tableNode:    {nodeWords, 1, 1},
	tableKeys:    {keyWords, 3, 1 << 20},
	tableTickets: {ticketWords, 3, 1 << 21},
	tableWords:   {wordWords, 1, 2 * maxDamaged},
	tableTold:    {toldWords, 1, 2*maxDamaged + 2},
	tablePlaces:  {placeWords, 2, maxPlaces},
}

// LedgerWhose is the table with the record that says whose the ledger is. It is written
// last: a ledger counts from then on, and the one that it was made from does not.
const LedgerWhose = tableNode

const (
	tableNode    = iota // who this is; without it there is nothing
	tableKeys           // legacyKey
	tableTickets        // legacyTicket with its request
	tableWords          // legacyWord
	tableTold           // keys that are damaged
	tablePlaces         // legacyPlace
)

// idsAtOnce is how many numbers of tickets and requests are reserved at a time.
const idsAtOnce = 1 << 16

// ledger writes down what the next process has to know if this one is killed.
type ledger struct {
	*base
	alarm   *alarm
	l       Ledger // nil: there is none, or no more
	failure ledgerFailure
	entries *entries
	damages *damages
	tickets *tickets

	anchor time.Time     // a moment
	clock  time.Duration // and what the ledger's clock said then
	serial uint64        // of writes
	era    uint32        // records of the present one are not void
	node   uint32        // number of the record; 0: nothing is written yet; or unwritten
	told   map[locks.Key]toldLine
	places int        // records
	gone   []toldLine // keys of which a program was told, if it was
	// leaving are entries that were forgotten while their files are written out.
	leaving map[*entry]bool
	// Memory of records that are being written.
	w  [ticketWords]uint64
	kw [keyWords]uint64
	b  [maxLegacy + 1]byte
}

// line is where the ledger has an entry.
type line struct {
	number  uint32 // 0: it does not
	tickets int    // so many lines refer to it
	era     uint32
	serial  uint64 // tickets know it by that
	words   [keyWords]uint64
	path    string
	alg     *locks.Algorithm
	machine locks.Machine
	heir    locks.Heir // machine
}

type toldLine struct {
	number uint32
	at     time.Time
	key    locks.Key
}

func newLedger(b *base) *ledger {
	lg := &ledger{base: b, l: b.o.Ledger, era: 1, anchor: b.start, told: map[locks.Key]toldLine{}, leaving: map[*entry]bool{}}
	b.reserved = ^uint64(0)
	if lg.l != nil {
		lg.clock = lg.l.Clock() - time.Since(b.start)
		b.reserved, b.reserve = 0, lg.reserve
	}
	return lg
}

// on reports whether there is a ledger, and anything to be written into it.
func (lg *ledger) on() bool { return lg.l != nil && lg.node != 0 }

// fails ends the ledger, which could not take something, until it is renewed.
func (lg *ledger) fails(err error) {
	if lg.l == nil {
		return
	}
	lg.l.SetFull(err.Error())
	x := &lg.failure
	if x.err == nil { // else it was not complete
		x.count++
		lg.o.Log.Error("the locks of this node cannot be written down any more: if the daemon is killed they are lost", "err", err)
	}
	x.l, x.at, x.err = lg.l, time.Now(), err
	lg.l, lg.reserved = nil, ^uint64(0)
	lg.alarm.wakeFor(x.at.Add(renewAfter))
}

// text is the reference of s; 0 if there is no ledger any more.
func (lg *ledger) text(s string) uint64 {
	if s == "" || lg.l == nil {
		return 0
	}
	ref, err := lg.l.Text(s)
	if err != nil {
		lg.fails(err)
	}
	return ref
}

func (lg *ledger) put(table int, words []uint64) uint32 {
	if lg.l == nil {
		return 0
	}
	n, err := lg.l.Put(table, words)
	if err != nil {
		lg.fails(err)
	}
	return n
}

func (lg *ledger) set(table int, number uint32, words []uint64) {
	if lg.l == nil {
		return
	}
	if err := lg.l.Set(table, number, words); err != nil {
		lg.fails(err)
	}
}

func (lg *ledger) remove(table int, number uint32) {
	if lg.l == nil {
		return
	}
	if lg.l.Delete(table, number); lg.l.Full() != nil {
		lg.fails(lg.l.Full())
	}
}

// time is t by the ledger's clock.
func (lg *ledger) time(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(max(lg.clock+t.Sub(lg.anchor), 1))
}

// clear makes all void: a tenure is over, or the node leaves.
func (lg *ledger) clear() {
	if lg.l == nil {
		return
	}
	lg.l.Clear()
	lg.forgetLines()
	lg.failure.err = nil // it is complete: there is nothing
	lg.gone = nil
	clear(lg.leaving)
}

// forgetLines: nothing of what was written counts any more.
func (lg *ledger) forgetLines() {
	lg.era++
	lg.node, lg.reserved, lg.places = 0, 0, 0
	clear(lg.told)
	for i := range lg.gone {
		lg.gone[i].number = 0
	}
	for i := range lg.damages.own {
		lg.damages.own[i].line = 0
	}
}

// end is clear, for good.
func (lg *ledger) end() {
	lg.clear()
	lg.l, lg.failure.l, lg.reserved = nil, nil, ^uint64(0)
}

// reserve sees to it that no number is given twice, in whatever process.
func (lg *ledger) reserve() {
	if lg.on() {
		lg.writeNode()
	}
}

// line is the line of en, if it has one that counts.
func (lg *ledger) line(en *entry) *line {
	if k := en.line; k != nil && k.number != 0 && k.era == lg.era {
		return k
	}
	return nil
}

// sync brings the line of en up to date, if there has to be one.
func (lg *ledger) sync(en *entry) {
	if lg.on() && (lg.owes(en) || lg.line(en) != nil) {
		lg.write(en)
	}
}

// turn is called after each turn of en's machine, and before anybody hears of it. By an
// exclusive algorithm a node has a lock by the stamp of a request, which may be another
// one now. (A process that dies after the end of a lock was written down, and before
// this, leaves the stamp of what is over to those that wait. That stands for one request
// of the next epoch, as any other would.)
func (lg *ledger) turn(en *entry) {
	if k := en.line; k != nil && k.tickets > 0 && !en.alg.Shared {
		lg.sync(en)
	}
}

// owes reports whether the file of en has to be written out, as far as is known.
func (lg *ledger) owes(en *entry) bool {
	if en.dirty || en.writing > 0 {
		return true
	}
	for _, p := range en.outbox {
		if p.flush {
			return true
		}
	}
	return false
}

// idle takes the line of en away, if nothing is to be said of it.
func (lg *ledger) idle(en *entry) {
	if k := lg.line(en); k != nil && k.tickets == 0 && lg.on() && !lg.owes(en) {
		lg.remove(tableKeys, k.number)
		k.number = 0
	}
}

// written notes that a file was written out.
func (lg *ledger) written(en *entry) {
	if en.writing == 0 {
		delete(lg.leaving, en)
	}
	if k := lg.line(en); k != nil && lg.on() && k.words[keyFlags]&keyDirty != 0 && !lg.owes(en) {
		if k.tickets > 0 {
			lg.write(en)
		} else {
			lg.idle(en)
		}
	}
}

// forget takes the line of en away, which is dropped; but not before its file is
// written out, if that is under way: then there may be another line of its key.
func (lg *ledger) forget(en *entry) {
	if en.writing > 0 {
		lg.leaving[en] = true
	}
	if k := lg.line(en); k != nil && lg.on() && en.writing == 0 {
		if k.tickets > 0 {
			lg.fails(fmt.Errorf("%v is forgotten, and has %d tickets", en.key, k.tickets))
			return
		}
		lg.remove(tableKeys, k.number)
		k.number = 0
	}
}

// holds writes down that the owner of t has it.
func (lg *ledger) holds(t *ticket) {
	if lg.on() {
		lg.ticketAs(t, legacyHeld)
	}
}

// parks writes down that t waits.
func (lg *ledger) parks(t *ticket) {
	if lg.on() && !t.req.Try {
		lg.ticket(t)
	}
}

// has reports whether t has a line that counts.
func (lg *ledger) has(t *ticket) bool { return t.line != 0 && t.era == lg.era }

// changes writes down t as it is now, if it was before.
func (lg *ledger) changes(t *ticket) {
	if lg.has(t) && lg.on() {
		lg.ticket(t)
	}
}

func (lg *ledger) ticket(t *ticket) { lg.ticketAs(t, stateOf(t)) }

func (lg *ledger) ticketAs(t *ticket, state byte) {
	if lg.line(t.entry) == nil || state != legacyHeld || !t.entry.alg.Shared || !lg.knows(t.entry) {
		lg.write(t.entry)
	}
	lg.serial++
	w := lg.w[:]
	lg.encodeTicket(w, t, state)
	if lg.has(t) {
		lg.set(tableTickets, t.line, w)
	} else if t.line, t.era = lg.put(tableTickets, w), lg.era; t.line != 0 {
		t.entry.line.tickets++
	}
}

// knows reports whether the line of en says what those that are held need it to say.
func (lg *ledger) knows(en *entry) bool {
	return en.path == en.line.path && lg.owes(en) == (en.line.words[keyFlags]&keyDirty != 0)
}

// loses takes t away, which its owner does not have any more, or does not wait for.
func (lg *ledger) loses(t *ticket) {
	if k := lg.line(t.entry); k != nil && lg.has(t) && lg.on() {
		lg.remove(tableTickets, t.line)
		k.tickets--
	}
	t.line = 0
}

// write is sync for an entry that has to have a line.
func (lg *ledger) write(en *entry) {
	k := en.line
	if k == nil {
		k = &line{}
		en.line = k
	}
	fresh := k.number == 0 || k.era != lg.era
	if fresh {
		lg.serial++
		*k = line{serial: lg.serial, era: lg.era, machine: k.machine, heir: k.heir}
	}
	lg.kw = k.words
	lg.encodeKey(&lg.kw, en)
	switch {
	case fresh:
		k.number = lg.put(tableKeys, lg.kw[:])
	case lg.kw != k.words:
		lg.set(tableKeys, k.number, lg.kw[:])
	}
	k.words = lg.kw
}

// word writes down a word of damage.
func (lg *ledger) word(w *ownWord) {
	if lg.on() && w.line == 0 {
		w.line = lg.put(tableWords, []uint64{lg.text(w.key.File), uint64(w.key.Class), w.serial, lg.moment(w.at)})
	}
}

func (lg *ledger) moment(m locks.Moment) uint64 { return lg.time(lg.start.Add(time.Duration(m))) }

// unsaid takes a word of damage away.
func (lg *ledger) unsaid(w *ownWord) {
	if lg.on() && w.line != 0 {
		lg.remove(tableWords, w.line)
	}
	w.line = 0
}

// damaged writes down that k is damaged and no program was told.
func (lg *ledger) damaged(k locks.Key) {
	if !lg.on() {
		return
	}
	if _, ok := lg.told[k]; ok {
		return
	}
	lg.told[k] = toldLine{number: lg.putTold(k)}
	if len(lg.told) > maxDamaged {
		for old, x := range lg.told {
			if !lg.damages.told.has(old) {
				lg.remove(tableTold, x.number)
				delete(lg.told, old)
			}
		}
	}
}

func (lg *ledger) putTold(k locks.Key) uint32 {
	return lg.put(tableTold, []uint64{lg.text(k.File), uint64(k.Class)})
}

// tells notes that a program is being told that k is damaged. Whether it hears it before
// this process dies nobody knows: for a while a next one would tell it again.
func (lg *ledger) tells(k locks.Key) {
	x, ok := lg.told[k]
	if !ok && lg.failure.err == nil {
		return
	}
	delete(lg.told, k)
	lg.gone = append(lg.gone, toldLine{x.number, time.Now(), k})
	lg.expire(time.Now()) // or a storm of it would fill the table
}

// tellTime is how long a program takes at most to be told.
const tellTime = 10 * time.Second

// expire forgets of what programs must have been told by now, and what is too much, and
// returns when to look again; 0 if there is nothing.
func (lg *ledger) expire(now time.Time) time.Duration {
	for len(lg.gone) > 0 {
		if left := lg.gone[0].at.Add(tellTime).Sub(now); left > 0 && len(lg.gone) < maxDamaged {
			return left
		}
		if x := lg.gone[0].number; x != 0 && lg.on() {
			lg.remove(tableTold, x)
		}
		lg.gone = lg.gone[1:]
	}
	return 0
}
