package doctor

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// Doctors on two hosts speak by TLS over a connection of their own, never
// through the storage that they examine: whoever can write there could give
// orders to both. A code that the first one prints, and that an admin gives to
// the second, is what they know each other by: the keys of both are derived
// from it, so each knows the other's, and nobody else has them.

// sideKey derives the key of a side from the code.
func sideKey(code, side string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, []byte(code), nil, "dmxfs doctor, "+side, ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

const (
	firstSide  = "the first side"
	secondSide = "the second side"
)

// tlsConfig is how side speaks with other; both know code.
func tlsConfig(code, side, other string) (*tls.Config, error) {
	own, err := sideKey(code, side)
	if err != nil {
		return nil, err
	}
	theirs, err := sideKey(code, other)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(100, 0, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, own.Public(), own)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: own}},
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		// No authority vouches for the other side, but its key.
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) error {
			if len(c.PeerCertificates) == 1 && theirs.Public().(ed25519.PublicKey).Equal(c.PeerCertificates[0].PublicKey) {
				return nil
			}
			return errWrongCode
		},
	}, nil
}

var errWrongCode = errors.New("the other side does not have this code: it is for one examination; give the one that the doctor on the other host prints now")

const (
	// Strangers have so long for a handshake, and so many may be in one.
	strangerTime  = 10 * time.Second
	mostStrangers = 16
)

// awaitPartner listens, tells where, and returns the first connection of
// somebody who has the code.
func awaitPartner(ctx context.Context, listen, source string, log io.Writer) (net.Conn, error) {
	code := rand.Text()
	conf, err := tlsConfig(code, firstSide, secondSide)
	if err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, fmt.Errorf("listen for the other host: %w (see --listen)", err))
	}
	defer l.Close()
	addrs := reachableAt(l.Addr())
	fmt.Fprintf(log, "dmxfs: waiting for the other host: run there\n\n  dmxfs doctor --join %s/%s %s\n\nwith the directory as it is called there.", addrs[0], code, source)
	if len(addrs) > 1 {
		fmt.Fprintf(log, " This host is also %s.", strings.Join(addrs[1:], ", "))
	}
	fmt.Fprintln(log)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	known := make(chan net.Conn)
	slots := make(chan struct{}, mostStrangers)
	go func() {
		for {
			slots <- struct{}{}
			c, err := l.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer func() { <-slots }()
				t := tls.Server(c, conf)
				within, done := context.WithTimeout(ctx, strangerTime)
				defer done()
				if err := t.HandshakeContext(within); err != nil {
					c.Close()
					return
				}
				select {
				case known <- t:
				case <-ctx.Done():
					t.Close()
				}
			}()
		}
	}()
	select {
	case c := <-known:
		return c, nil
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, errTooLong) {
			return nil, err
		}
		return nil, errors.New("the other side has not come: run the command above on the other host, and see that it can reach this one (--listen chooses address and port)")
	}
}

// reachableAt is where others reach a listener, the likeliest first.
func reachableAt(a net.Addr) []string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil || !at.Addr().IsUnspecified() {
		return []string{a.String()}
	}
	var out, last []string
	all, _ := net.InterfaceAddrs()
	for _, x := range all {
		p, err := netip.ParsePrefix(x.String())
		if err != nil {
			continue
		}
		s := netip.AddrPortFrom(p.Addr().Unmap(), at.Port()).String()
		switch {
		case p.Addr().IsGlobalUnicast():
			out = append(out, s)
		case p.Addr().IsLoopback():
			last = append(last, s)
		}
	}
	if len(out) == 0 {
		out = append(last, net.JoinHostPort("localhost", strconv.Itoa(int(at.Port()))))
	}
	return out
}

// dial connects to a doctor: where is what it printed, ADDRESS/CODE.
func dial(ctx context.Context, where string) (net.Conn, error) {
	addr, code, ok := strings.Cut(where, "/")
	if !ok || len(code) < 16 {
		return nil, exitcode.With(exitcode.Usage, errors.New("--join wants ADDRESS/CODE, as the doctor on the other host prints it"))
	}
	conf, err := tlsConfig(strings.ToUpper(code), secondSide, firstSide)
	if err != nil {
		return nil, err
	}
	within, cancel := context.WithTimeoutCause(ctx, strangerTime, errors.New("no answer"))
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(within, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("no doctor is at %s: %w", addr, err)
	}
	t := tls.Client(c, conf)
	if err := t.HandshakeContext(within); err != nil {
		c.Close()
		return nil, fmt.Errorf("speak with the doctor at %s: %w", addr, err)
	}
	return t, nil
}

// Join is the second side: it hands the orders of the doctor to hands of
// its own, and their reports back.
func Join(ctx context.Context, where, source string, patience time.Duration, log io.Writer) error {
	conn, err := dial(ctx, where)
	if err != nil {
		return err
	}
	defer conn.Close()
	side, err := startHands("here", source)
	if err != nil {
		return err
	}
	defer side.end()
	fmt.Fprintln(log, "dmxfs: found the doctor; it tells what it finds")
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(side.out, &patientReader{conn, patience})
		ended <- err
	}()
	go func() {
		for line := range side.lines {
			if _, err := conn.Write(line); err != nil {
				ended <- err
				return
			}
		}
		ended <- errors.New("the process that looks at the storage has ended")
	}()
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("the connection to the doctor: %w", err)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// patientReader reads from a connection on which something comes every so often.
type patientReader struct {
	conn     net.Conn
	patience time.Duration
}

func (r *patientReader) Read(b []byte) (int, error) {
	if err := r.conn.SetReadDeadline(time.Now().Add(r.patience)); err != nil {
		return 0, err
	}
	return r.conn.Read(b)
}
