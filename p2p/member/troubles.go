package member

import (
	"slices"
	"strings"
)

// troubles are what is wrong with the storage.
type troubles struct {
	*position
	scans *scans
	errs  [3]string // of each kind; empty if nothing
}

// The kinds of trouble with the storage. One can last while others work.
const (
	reading = iota
	linking
	writing
)

// tell tells the log when trouble of a kind begins, and when it is over.
func (t *troubles) tell(kind int, what string, err error) {
	last := &t.errs[kind]
	switch {
	case err == nil && *last != "":
		t.note(Storage, Node{}, "", "the storage works again, after: %s", *last)
		*last = ""
	case err != nil && *last == "":
		t.note(Storage, Node{}, "", "%s: %v", what, err)
		*last = what + ": " + err.Error()
	case err != nil:
		*last = what + ": " + err.Error()
	}
}

// String is all that is wrong with the storage; empty if nothing is.
func (t *troubles) String() string {
	list := slices.DeleteFunc(slices.Clone(t.errs[:]), func(s string) bool { return s == "" })
	if t.scans.bad != nil {
		list = append(list, t.scans.bad.Error())
	}
	return strings.Join(list, "; ")
}
