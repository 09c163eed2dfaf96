package fusefs

import (
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
)

// How the types of saved.go are coded: all of their fields, in order.

func (s *saved) code(c *codec) {
	c.flag(&s.Paths)
	number(c, &s.Start)
	c.bytes(&s.Asked)
	c.bytes(&s.Answered)
	c.text(&s.Mount.Path)
	number(c, &s.Mount.ID)
	c.text(&s.Mount.Number)
	c.flag(&s.Mount.Helper)
	c.fd(&s.Dev)
	for _, p := range [...]*uint64{&s.LastHandle, &s.LastNode, &s.LastOwner, &s.LastTask, &s.Turns, &s.Arrivals, &s.ExplicitArrivals} {
		c.u64(p)
	}
	c.flag(&s.Arrived)
	list(c, &s.Devices, func(c *codec, x *savedDevice) {
		c.u64(&x.Dev)
		c.u64(&x.Index)
		c.text(&x.Path)
		c.flag(&x.Warned)
	})
	list(c, &s.Nodes, func(c *codec, x *savedNode) { x.code(c) })
	list(c, &s.Processes, func(c *codec, x *savedProcess) {
		number(c, &x.PID)
		number(c, &x.Owner)
		c.text(&x.Name)
		c.flag(&x.Self)
		c.flag(&x.UpKnown)
		number(c, &x.Up)
		number(c, &x.Depth)
	})
	list(c, &s.Threads, func(c *codec, x *savedThread) {
		number(c, &x.TID)
		c.fd(&x.Comm)
		number(c, &x.Process)
		c.flag(&x.Leader)
		c.u64(&x.Task)
	})
	list(c, &s.Handles, func(c *codec, x *savedHandle) { x.code(c) })
	list(c, &s.Dirs, func(c *codec, x *savedDir) { x.code(c) })
	list(c, &s.Records, func(c *codec, x *savedRecord) { x.code(c) })
	list(c, &s.Retries, func(c *codec, x *savedRetry) {
		number(c, &x.TID)
		number(c, &x.Flags)
		number(c, &x.At)
		c.flag(&x.Truncate)
	})
	list(c, &s.Nested, (*codec).text)
	number(c, &s.LeaseHandle)
	list(c, &s.CachedNames, func(c *codec, x *savedLongCached) { x.code(c) })
	list(c, &s.CachedNodes, func(c *codec, x *savedLongCached) { x.code(c) })
	list(c, &s.CachedBy, func(c *codec, x *savedCachedBy) {
		number(c, &x.TID)
		number(c, &x.At)
	})
	list(c, &s.Requests, func(c *codec, x *leftRequest) {
		c.bytes(&x.Bytes)
		c.flag(&x.Interrupted)
		codeKey(c, &x.Key)
		number(c, &x.Handle)
	})
	list(c, &s.Owed, func(c *codec, x *owedUnlock) {
		codeKey(c, &x.key)
		number(c, &x.handle)
		number(c, &x.owner)
		codeRange(c, &x.rg)
		c.text(&x.why)
	})
}

func (x *savedNode) code(c *codec) {
	c.u64(&x.ID)
	c.u64(&x.Key.dev)
	c.u64(&x.Key.ino)
	c.flag(&x.Primary)
	number(c, &x.Kind)
	c.fd(&x.FD)
	number(c, &x.Cluster)
	c.flag(&x.Spare)
	c.u64(&x.Lookups)
	list(c, &x.Names, func(c *codec, l *savedName) {
		c.u64(&l.Dir)
		c.text(&l.Name)
	})
	c.text(&x.Path)
	c.text(&x.File)
	c.flag(&x.Replaced)
	x.Sole.code(c)
	c.u64(&x.Failures)
	c.u64(&x.PageFailures)
	number(c, &x.Error)
	c.flag(&x.Told)
	c.flag(&x.Owed)
	number(c, &x.AppendEnd)
	list(c, &x.Appended, func(c *codec, p *savedPiece) {
		number(c, &p.Off)
		number(c, &p.Size)
	})
	c.flag(&x.Cached)
	c.flag(&x.AttrTold)
	c.flag(&x.LongCached)
	number(c, &x.ToldAt)
	c.u64(&x.Filled)
	c.u64(&x.Empty)
	x.Version.code(c)
	x.TheyKnow.code(c)
	c.flag(&x.Sizes.any)
	c.flag(&x.Sizes.mixed)
	number(c, &x.Sizes.size)
	number(c, &x.Sizes.last)
	number(c, &x.Bounds.Least)
	number(c, &x.Bounds.Most)
	number(c, &x.Bounds.Late)
	number(c, &x.Made)
	c.flag(&x.Rereads)
	number(c, &x.Rereading.TID)
	number(c, &x.Rereading.At)
	c.u64(&x.Rereading.Request)
	list(c, &x.Answers, func(c *codec, a *savedAnswer) {
		c.u64(&a.Request)
		number(c, &a.TID)
		number(c, &a.Size)
		number(c, &a.At)
	})
}

func (x *savedSole) code(c *codec) {
	c.flag(&x.Known)
	c.flag(&x.Spoiled)
	c.u64(&x.Reopened)
	if !x.Known {
		return
	}
	s := &x.St
	number(c, &s.Dev)
	number(c, &s.Ino)
	number(c, &s.Nlink)
	number(c, &s.Mode)
	number(c, &s.Uid)
	number(c, &s.Gid)
	number(c, &s.Rdev)
	number(c, &s.Size)
	number(c, &s.Blksize)
	number(c, &s.Blocks)
	codeTime(c, &s.Atim)
	codeTime(c, &s.Mtim)
	codeTime(c, &s.Ctim)
}

func codeTime(c *codec, t *unix.Timespec) {
	number(c, &t.Sec)
	number(c, &t.Nsec)
}

func (v *version) code(c *codec) {
	if c.flag(&v.known); !v.known {
		return
	}
	c.flag(&v.young)
	c.u64(&v.gen)
	number(c, &v.size)
	codeTime(c, &v.mtime)
	codeTime(c, &v.ctime)
}

func (x *savedHandle) code(c *codec) {
	c.u64(&x.ID)
	c.u64(&x.Node)
	c.fd(&x.FD)
	number(c, &x.Flags)
	number(c, &x.Process)
	number(c, &x.State)
	for _, p := range [...]*bool{
		&x.Write, &x.Appends, &x.Mixed, &x.Asks, &x.Again, &x.UntilClose, &x.Alone, &x.Stream, &x.Shared,
		&x.Lost, &x.Wrote, &x.Touched, &x.Fresh, &x.SoleFile, &x.FlockedBefore, &x.PosixUsed,
	} {
		c.flag(p)
	}
	c.u64(&x.Knows)
	c.u64(&x.Filled)
	number(c, &x.Used)
	number(c, &x.Dropped)
	c.u64(&x.AloneSince)
	if x.State == openNone {
		return
	}
	number(c, &x.Yields.after)
	number(c, &x.Yields.shared)
	number(c, &x.Yields.stream)
	number(c, &x.Tenure)
	number(c, &x.Token)
	r := &x.Request
	codeKey(c, &r.Key)
	c.text(&r.Path)
	number(c, &r.Owner)
	number(c, &r.Handle)
	number(c, &r.Mode)
	codeRange(c, &r.Range)
	number(c, &r.Born)
	number(c, &r.Patience)
	number(c, &r.Program.PID)
	number(c, &r.Program.TID)
	c.u64(&r.Program.Process)
	c.u64(&r.Program.Task)
	number(c, &r.Program.UID)
	c.text(&r.Program.Command)
}

func codeKey(c *codec, k *locks.Key) {
	c.text(&k.File)
	number(c, &k.Class)
}

func codeRange(c *codec, r *locks.Range) {
	c.u64(&r.Start)
	c.u64(&r.End)
}

func (x *savedDir) code(c *codec) {
	c.u64(&x.ID)
	c.u64(&x.Node)
	c.fd(&x.FD)
	c.bytes(&x.Rest)
	c.u64(&x.Next)
	c.flag(&x.Read)
	c.flag(&x.Lists)
	number(c, &x.UID)
	number(c, &x.GID)
	number(c, &x.PID)
}

func (x *savedRecord) code(c *codec) {
	c.u64(&x.Node)
	number(c, &x.Class)
	number(c, &x.Owner)
	c.u64(&x.Handle)
	number(c, &x.Process)
	list(c, &x.Ranges, codeRange)
	number(c, &x.Tenure)
	number(c, &x.Token)
	c.u64(&x.Turn)
}

func (x *savedLongCached) code(c *codec) {
	c.u64(&x.Dir)
	c.text(&x.Name)
	c.u64(&x.Node)
	c.flag(&x.Listing)
	number(c, &x.At)
}
