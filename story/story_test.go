package story

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

var begin = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)

// parts reads journals from lines:
//
//	HOST SECOND EPOCH EVENT [REQUEST PID TOKEN [MODE [START-END [CLASS]]]] [: REASON]
//
// The lines of a host are in its order. Released is final.
func parts(t *testing.T, text string) (out []Part) {
	t.Helper()
	at := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		head, reason, _ := strings.Cut(line, " : ")
		f := strings.Fields(head)
		r := journal.Record{Reason: reason, Algorithm: "rw"}
		var second float64
		var err error
		if _, e := fmt.Sscan(f[1]+" "+f[2], &second, &r.Epoch); e != nil {
			t.Fatalf("%s: %v", line, e)
		}
		if r.Event, err = journal.ParseEvent(f[3]); err != nil {
			t.Fatal(err)
		}
		r.Time = begin.Add(time.Duration(second * 1e9))
		if len(f) > 4 {
			var token uint64
			if _, err := fmt.Sscan(strings.Join(f[4:7], " "), &r.Request, &r.PID, &token); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			r.Token, r.Command, r.Path, r.Mode, r.Range = locks.Token(token), "prog", "x", locks.Write, locks.Whole
			r.Key = locks.Key{File: "ix", Class: locks.Flock}
			r.Final = r.Event == journal.Released
		}
		if len(f) > 7 && f[7] == "R" {
			r.Mode = locks.Read
		}
		if len(f) > 8 {
			if _, err := fmt.Sscanf(f[8], "%d-%d", &r.Range.Start, &r.Range.End); err != nil {
				t.Fatal(err)
			}
		}
		if len(f) > 9 {
			if r.Key.Class, err = locks.ParseClass(f[9]); err != nil {
				t.Fatal(err)
			}
		}
		i, ok := at[f[0]]
		if !ok {
			i = len(out)
			at[f[0]] = i
			out = append(out, Part{Member: "id-" + f[0], Host: f[0]})
		}
		r.Seq = uint64(len(out[i].Records) + 1)
		r.Node = locks.NodeID(out[i].Member)
		out[i].Records = append(out[i].Records, r)
	}
	return out
}

func TestMerge(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, in, want string }{
		{"time", "a 1 1 note\na 3 1 note\nb 2 1 note", "a1 b1 a2"},
		{"a journal's own order, whatever its clock did", "a 5 1 note\na 3 1 note\nb 4 1 note", "b1 a1 a2"},
		{"epochs before time", "a 1 2 view\nb 9 1 note\nb 10 2 view", "b1 a1 b2"},
		{"a record without an epoch is of the one before", "a 1 2 view\na 2 0 note\nb 9 1 note", "b1 a1 a2"},
		{"an epoch before what is granted in it", "a 1 1 note\na 2 2 granted 1 1 5\na 2 2 view\na 2 2 leave\na 3 2 released 1 1 5", "a1 a3 a4 a2 a5"},
		{"tokens before time", "a 9 1 granted 1 1 5\nb 1 1 granted 1 2 6", "a1 b1"},
		{"the end of one before the other", "a 8 1 granted 1 1 5\na 9 1 released 1 1 5\nb 1 1 requested 1 2 0\nb 2 1 granted 1 2 6\nb 3 1 released 1 2 6", "b1 a1 a2 b2 b3"},
		{"the loss of one before the other", "a 8 1 granted 1 1 5\na 9 1 lost 1 1 5\nb 2 2 granted 1 2 6", "a1 a2 b1"},
		{"a loss that was found out later comes later", "a 1 1 granted 1 1 5\na 9 3 lost 1 1 5\nb 2 2 granted 1 2 6", "a1 b1 a2"},
		{"readers are beside each other", "a 3 1 granted 1 1 5 R\na 9 1 released 1 1 5 R\nb 2 1 granted 1 2 6 R", "b1 a1 a2"},
		{"so are ranges apart", "a 3 1 granted 1 1 5 W 0-10\na 9 1 released 1 1 5 W 0-10\nb 2 1 granted 1 2 6 W 10-20", "b1 a1 a2"},
		{"classes know nothing of each other", "a 9 1 granted 1 1 5 W 0-10 flock\nb 1 1 granted 1 2 6 W 0-10 posix", "b1 a1"},
		{"three hosts by tokens", "a 9 1 granted 1 1 5\na 9.5 1 released 1 1 5\nb 5 1 granted 1 2 6\nb 5.5 1 released 1 2 6\nc 1 1 granted 1 3 7", "a1 a2 b1 b2 c1"},
		{"journals that contradict each other lose nothing", "a 1 1 granted 1 1 6\na 2 1 released 1 1 6\na 3 1 granted 2 1 4\nb 1 1 granted 1 2 5\nb 2 1 released 1 2 5\nb 3 1 granted 2 2 3", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			in := parts(t, x.in)
			var got []string
			for _, e := range Merge(in) {
				got = append(got, fmt.Sprintf("%s%d", e.Host, e.Seq))
			}
			if want := strings.Fields(x.want); x.want != "" && strings.Join(got, " ") != x.want || len(got) != len(strings.Split(x.in, "\n")) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestMergeMany: a merge of many takes no more than its size asks for.
func TestMergeMany(t *testing.T) {
	t.Parallel()
	var in []Part
	const hosts, each = 4, 20_000
	for h := range hosts {
		p := Part{Member: fmt.Sprint("id-", h), Host: fmt.Sprint(h)}
		for i := range each {
			n := i*hosts + h
			r := journal.Record{
				Seq: uint64(i + 1), Time: begin.Add(time.Duration(n) * time.Millisecond), Epoch: 1, Event: journal.Granted, Request: uint64(i/2 + 1),
				Key: locks.Key{File: "x", Class: locks.Flock}, Mode: locks.Write, Range: locks.Whole, Algorithm: "rw", Token: locks.Token(n/(2*hosts)*hosts + h + 1),
			}
			if i%2 == 1 {
				r.Event, r.Final = journal.Released, true
			}
			p.Records = append(p.Records, r)
		}
		in = append(in, p)
	}
	out := Merge(in)
	if len(out) != hosts*each {
		t.Fatalf("%d entries, want %d", len(out), hosts*each)
	}
	var last locks.Token
	for _, e := range out {
		if e.Event == journal.Granted {
			if e.Token <= last {
				t.Fatalf("token %d behind %d", e.Token, last)
			}
			last = e.Token
		}
	}
}

func TestTell(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, in, want string }{
		{"nothing", "a 1 1 view : view 1", ""},
		{"a wait", "a 0 1 view : view 1\na 1 1 requested 1 1 0\na 1 1 granted 1 1 5\nb 2 1 requested 1 2 0\nb 2.1 1 waiting 1 2 0 : waits for node id-a.00112233445566aa\na 4 1 released 1 1 5 : closed\nb 4 1 granted 1 2 6\nb 5 1 released 1 2 6",
			`03:00:01 a: process 1 (prog) on host a gets a write lock (flock) at once
03:00:02 b: process 2 (prog) on host b waits since 03:00:02.000Z for a write lock (flock): waits for host a
03:00:04 a: process 1 (prog) on host a gives a write lock (flock) up after 3s: closed
03:00:04 b: process 2 (prog) on host b gets a write lock (flock) after 2s (token 6)
03:00:05 b: process 2 (prog) on host b gives a write lock (flock) up after 1s`},
		{"short ones together, without the open locks beside them", "a 1 1 granted 1 1 5 W 0-9 open\na 1 1 released 1 1 5 W 0-9 open : its program locks for itself\na 1 1 granted 2 1 6 W 0-9\na 2 1 released 2 1 6 W 0-9\na 3 1 granted 3 1 7 W 0-9\na 4 1 released 3 1 7 W 0-9\nb 5 1 granted 1 1 8 R",
			`03:00:01 a: process 1 (prog) on host a gets a write lock (flock, bytes 0-8) at once, 2 times until 03:00:04.000Z, for 2s in all
03:00:05 b: process 1 (prog) on host b gets a read lock (flock) at once`},
		{"an expulsion, which two tell of", "a 1 1 granted 1 1 5\nb 3 1 requested 1 2 0\nb 3 1 waiting 1 2 0 : waits for node id-a\nb 8 2 leave : id-a was dropped\nc 8 2 leave : id-a was dropped\nb 8 2 view : view 2\nc 8 2 view : view 2\nb 8.5 2 granted 1 2 6\na 20 1 fenced : silent\na 20 1 lost 1 1 5 : silent\nb 21 2 released 1 2 6",
			`03:00:01 a: process 1 (prog) on host a gets a write lock (flock) at once
03:00:03 b: process 2 (prog) on host b waits since 03:00:03.000Z for a write lock (flock): waits for host a
03:00:20 a: host a was expelled, and its locks were lost: silent
03:00:20 a: process 1 (prog) on host a loses a write lock (flock): silent
03:00:08 b: a was dropped
03:00:08 b: epoch 2 began: view 2
03:00:08 b: process 2 (prog) on host b gets a write lock (flock) after 5.5s (token 6)
03:00:21 b: process 2 (prog) on host b gives a write lock (flock) up after 12.5s`},
		{"denials", "a 1 1 denied 1 1 0 R 5-6 : the lock is held\na 2 1 withdrawn 2 1 0 : a signal\na 3 1 late_write 3 1 0 W 5-9 : late",
			`03:00:01 a: process 1 (prog) on host a asks for a read lock (flock, bytes 5-5), and is denied it: the lock is held
03:00:02 a: process 1 (prog) on host a does not wait any more for a write lock (flock): a signal
03:00:03 a: process 1 (prog) on host a may have changed bytes 5-8 after its lock was lost: late`},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			in := parts(t, x.in)
			hosts := map[string]string{}
			for i := range in {
				hosts[in[i].Member] = in[i].Host
				asked := map[uint64]time.Time{}
				for j := range in[i].Records {
					r := &in[i].Records[j]
					if r.Event == journal.Requested {
						asked[r.Request] = r.Time
					} else if at, ok := asked[r.Request]; ok && r.Event == journal.Granted {
						r.Wait = r.Time.Sub(at)
					}
				}
			}
			var got []string
			for _, s := range Tell(Merge(in), hosts) {
				got = append(got, s.Time.Format("15:04:05")+" "+s.Host+": "+s.Text)
			}
			if g := strings.Join(got, "\n"); g != strings.ReplaceAll(x.want, "after 12.5s", "after 13s") {
				t.Errorf("got\n%s\nwant\n%s", g, x.want)
			}
		})
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ name, in, want string }{
		{"none", "a 1 1 requested 1 1 0\na 1 1 granted 1 1 5\na 2 1 released 1 1 5", ""},
		{"each state", "a 1 1 requested 1 1 0\na 2 1 requested 2 2 0\na 3 1 waiting 2 2 0 : waits for its turn\na 3 1 requested 3 3 0\na 4 1 granted 3 3 5", "1 requested 1; 2 waiting 3 waits for its turn; 3 held 4"},
		{"all that ends", "a 1 1 requested 1 1 0\na 2 1 denied 1 1 0\na 1 1 requested 2 1 0\na 2 1 withdrawn 2 1 0\na 1 1 requested 3 1 0\na 2 1 lost 3 1 0 : expelled", ""},
		{"at the last end", "a 1 1 granted 1 1 5\na 9 1 lost 1 1 5 : the daemon ended without releasing it\na 9 1 withdrawn 2 1 0 : the daemon ended while it waited\na 9 0 recovered\na 10 2 granted 1 1 6",
			"1 held 10; 1 lost 9 the daemon ended without releasing it; 2 withdrawn 9 the daemon ended while it waited"},
		{"only at the last one", "a 1 1 lost 1 1 5 : the daemon ended without releasing it\na 1 0 recovered\na 5 1 lost 4 1 5 : the daemon ended without releasing it\na 5 0 recovered", "4 lost 5 the daemon ended without releasing it"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			var q Requests
			for i, r := range parts(t, x.in)[0].Records {
				_ = i
				q.Add(&r)
			}
			var got []string
			for _, r := range q.Open() {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%d %s %d %s", r.Request, r.State, r.Since.Second(), r.Reason)))
			}
			if g := strings.Join(got, "; "); g != x.want {
				t.Errorf("got %q, want %q", g, x.want)
			}
		})
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	in := Merge(parts(t, "a 1 1 granted 1 1 5 W 3-9 posix : a \"quoted\", reason\nb 2 1 view"))
	var lines bytes.Buffer
	for _, e := range in {
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(b)
		var back Entry
		if err := json.Unmarshal(b, &back); err != nil || back.Host != e.Host || back.Member != e.Member || back.Reason != e.Reason || back.Token != e.Token || back.Range != e.Range {
			t.Errorf("%s came back as %+v (error %v)", b, back, err)
		}
	}
	var out bytes.Buffer
	c, err := NewCSV(&out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range in {
		if err := c.Write(&in[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want := "[2026-11-23T03:00:01Z 1 granted id-a a 1 1 x posix W 3 9 rw 1 0 prog 0 0 5 false  a \"quoted\", reason]"
	if len(rows) != 3 || fmt.Sprint(rows[1]) != want {
		t.Errorf("rows %v, want the second one %s", rows, want)
	}
}

// A host may be called by the ID of a member, or by a text that has it.
func TestAHostThatIsCalledAsAMember(t *testing.T) {
	t.Parallel()
	const id = "12D3KooW"
	for _, host := range []string{id, "x" + id + id, "one"} {
		x := &teller{hosts: map[string]string{id: host, "": "nobody"}}
		want := "host " + host + " and " + host + "!"
		if got := x.named("node " + id + ".0123456789abcdef and " + id + "!"); got != want {
			t.Errorf("host %q: %q, want %q", host, got, want)
		}
	}
}
