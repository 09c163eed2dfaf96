package exclusive

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/wire"
)

// A message is what a core says, and the clock of its node.
type message struct {
	clock locks.Token
	body  locks.Message
}

func (m *message) Append(b []byte) []byte { return m.body.Append(wire.Uint(b, m.clock)) }

func (m *message) String() string { return fmt.Sprintf("%v clock=%v", m.body, m.clock) }

// Decoder makes the Decode of an algorithm from what reads the message of a
// core. That one reports what is wrong by the reader.
func Decoder(name string, read func(*wire.Reader) locks.Message) func([]byte) (locks.Message, error) {
	return func(b []byte) (locks.Message, error) {
		r := wire.NewReader(b)
		m := &message{clock: locks.Token(r.Uint())}
		m.body = read(r)
		if err := r.End(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return m, nil
	}
}
