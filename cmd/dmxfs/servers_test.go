package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Servers of real storage, each in a network of its own with one address, so
// that their ports are free and nobody else can reach them. They end with the
// test, and with the process of the test if that is killed.

const serverAddr = "10.78.0.1"

// server is a process that serves storage. The clients of its storage run in
// its network: see enter.
type server struct {
	t   testing.TB
	pid int
	log string
}

// startServer starts a program in a network of its own.
func startServer(t testing.TB, log string, args ...string) *server {
	t.Helper()
	needMounts(t)
	needTool(t, "ip", "unshare", "nsenter", args[0])
	setup := "ip link set lo up && ip addr add " + serverAddr + `/32 dev lo && exec "$@"`
	return runServer(t, log, append([]string{"unshare", "--net", "sh", "-c", setup, "sh"}, args...)...)
}

// also starts another program in the network of s.
func (s *server) also(log string, args ...string) *server {
	s.t.Helper()
	needTool(s.t, args[0])
	return runServer(s.t, log, s.enter(args...)...)
}

// enter is a command line that runs args in the network of s.
func (s *server) enter(args ...string) []string {
	return append([]string{"nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", s.pid)}, args...)
}

// awaitPort waits until something listens on a port of s.
func (s *server) awaitPort(port int) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("port %d is open", port), func() bool {
		if !alive(s.pid) {
			b, _ := os.ReadFile(s.log)
			s.t.Fatalf("the server has ended: %s", b)
		}
		table, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", s.pid))
		const listens = "0A"
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == listens {
				return true
			}
		}
		return false
	})
}

// runServer runs a program until the end of the test. It must not make itself a
// daemon.
func runServer(t testing.TB, log string, args ...string) *server {
	t.Helper()
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The signal comes at the end of the thread that starts it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		for range 500 {
			select {
			case <-ended:
				return
			default:
				waitALittle()
			}
		}
		_ = cmd.Process.Kill()
		<-ended
	})
	return &server{t, cmd.Process.Pid, log}
}

// writeFile writes a file of a server's directory.
func writeFile(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func makeDirs(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, n := range names {
		if err := os.MkdirAll(filepath.Join(dir, n), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// glusterPort is that of the one brick.
const glusterPort = 24100

// glusterBrick and glusterClient are what glusterd makes of a volume of one
// brick, less what is switched off by default. Without glusterd nothing is
// shared with other Gluster servers of this machine.
const glusterBrick = `
volume v-posix
    type storage/posix
    option shared-brick-count 1
    option fips-mode-rchecksum on
    option directory BRICK
end-volume
volume v-access-control
    type features/access-control
    subvolumes v-posix
end-volume
volume v-locks
    type features/locks
    option enforce-mandatory-lock off
    subvolumes v-access-control
end-volume
volume v-upcall
    type features/upcall
    option cache-invalidation off
    subvolumes v-locks
end-volume
volume v-io-threads
    type performance/io-threads
    subvolumes v-upcall
end-volume
volume v-index
    type features/index
    option index-base BRICK/.glusterfs/indices
    option xattrop-dirty-watchlist trusted.afr.dirty
    option xattrop-pending-watchlist trusted.afr.v-
    subvolumes v-io-threads
end-volume
volume brick
    type debug/io-stats
    subvolumes v-index
end-volume
volume v-server
    type protocol/server
    option transport-type tcp
    option transport.address-family inet
    option transport.socket.listen-port PORT
    option auth.addr.brick.allow *
    option auth-path brick
    subvolumes brick
end-volume
`

const glusterClient = `
volume v-client-0
    type protocol/client
    option send-gids true
    option strict-locks off
    option transport-type tcp
    option transport.address-family inet
    option remote-host ADDR
    option remote-port PORT
    option remote-subvolume brick
    option ping-timeout 42
end-volume
volume v-dht
    type cluster/distribute
    subvolumes v-client-0
end-volume
volume v-utime
    type features/utime
    option noatime on
    subvolumes v-dht
end-volume
volume v-write-behind
    type performance/write-behind
    subvolumes v-utime
end-volume
volume v-open-behind
    type performance/open-behind
    subvolumes v-write-behind
end-volume
volume v-quick-read
    type performance/quick-read
    subvolumes v-open-behind
end-volume
volume v-md-cache
    type performance/md-cache
    subvolumes v-quick-read
end-volume
volume v-io-threads
    type performance/io-threads
    subvolumes v-md-cache
end-volume
volume v
    type debug/io-stats
    subvolumes v-io-threads
end-volume
`

// serveGluster serves a GlusterFS volume of one brick below dir, with these
// translators of the client off; the result mounts it.
func serveGluster(t testing.TB, dir string, translators ...string) (client func(mountpoint string)) {
	t.Helper()
	needTool(t, "glusterfs", "glusterfsd")
	makeDirs(t, dir, "brick/.glusterfs/indices")
	words := strings.NewReplacer("BRICK", filepath.Join(dir, "brick"), "ADDR", serverAddr, "PORT", strconv.Itoa(glusterPort))
	graph := glusterClient
	for _, name := range translators {
		graph = without(t, graph, "v-"+name)
	}
	brick := writeFile(t, dir, "brick.vol", words.Replace(glusterBrick))
	volume := writeFile(t, dir, "client.vol", words.Replace(graph))
	log := filepath.Join(dir, "brick.log")
	s := startServer(t, filepath.Join(dir, "brick.out"), "glusterfsd", "-N", "-f", brick, "--volfile-id", "v", "-l", log)
	s.log = log
	s.awaitPort(glusterPort)
	return func(mountpoint string) {
		t.Helper()
		args := s.enter("glusterfs", "-N", "--process-name", "fuse", "-f", volume, "-l", mountpoint+".log", mountpoint)
		startClient(t, exec.Command(args[0], args[1:]...), mountpoint)
		await(t, "the brick answers", func() bool { _, err := os.ReadDir(mountpoint); return err == nil })
	}
}

// without takes a translator out of a graph.
func without(t testing.TB, graph, name string) string {
	t.Helper()
	head, rest, ok := strings.Cut(graph, "volume "+name+"\n")
	block, tail, ok2 := strings.Cut(rest, "end-volume\n")
	_, below, ok3 := strings.Cut(block, "subvolumes ")
	if !ok || !ok2 || !ok3 {
		t.Fatalf("no translator %s", name)
	}
	return head + strings.Replace(tail, "subvolumes "+name+"\n", "subvolumes "+strings.TrimSpace(below)+"\n", 1)
}

// serveMoose serves MooseFS, with one chunk server; the result mounts it.
func serveMoose(t testing.TB, dir string) (client func(mountpoint string)) {
	t.Helper()
	needTool(t, "mfsmaster", "mfschunkserver", "mfsmount")
	makeDirs(t, dir, "master", "chunks", "disk")
	empty, err := os.ReadFile("/var/lib/mfs/metadata.mfs.empty")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, "master/metadata.mfs", string(empty))
	const common = "WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\n"
	master := writeFile(t, dir, "master.cfg", common+"DATA_PATH = "+dir+"/master\nEXPORTS_FILENAME = "+
		writeFile(t, dir, "exports", "* / rw,alldirs,admin,maproot=0:0\n")+"\n")
	chunks := writeFile(t, dir, "chunks.cfg", common+"DATA_PATH = "+dir+"/chunks\nMASTER_RECONNECTION_DELAY = 1\nMASTER_HOST = "+
		serverAddr+"\nHDD_CONF_FILENAME = "+writeFile(t, dir, "disks", dir+"/disk\n")+"\n")
	s := startServer(t, filepath.Join(dir, "master.log"), "mfsmaster", "-f", "-c", master, "start")
	s.awaitPort(9420)
	s.awaitPort(9421)
	s.also(filepath.Join(dir, "chunks.log"), "mfschunkserver", "-f", "-c", chunks, "start")
	return func(mountpoint string) {
		t.Helper()
		args := s.enter("mfsmount", "-f", "-H", serverAddr, "-o", "mfsnice=0", mountpoint)
		cmd := exec.Command(args[0], args[1:]...)
		out, err := os.Create(mountpoint + ".log")
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
		startClient(t, cmd, mountpoint)
		probe := filepath.Join(mountpoint, "probe")
		await(t, "the chunk server answers", func() bool {
			return os.WriteFile(probe, []byte("x"), 0o600) == nil && os.Remove(probe) == nil
		})
	}
}
