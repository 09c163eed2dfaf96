package fusefs

import (
	"reflect"
	"strings"
	"testing"
)

// Every part has all the parts that it asks, and every request is served by one
// of them, and not by what says ENOSYS.
func TestPartsAreWhole(t *testing.T) {
	f := reflect.ValueOf(handlersOnly(t)).Elem()
	served := map[string]bool{"Access": true} // which the kernel does not send
	for i := range f.NumField() {
		name, part := f.Type().Field(i).Name, f.Field(i)
		if part.Kind() != reflect.Pointer {
			continue
		}
		if part.IsNil() {
			t.Fatalf("there is no %s", name)
		}
		for j := range part.Elem().NumField() {
			x := part.Elem().Field(j)
			if x.Kind() == reflect.Pointer && x.IsNil() && x.Type() != reflect.TypeFor[*ledger]() { // which need not be
				t.Errorf("%s has no %s", name, part.Elem().Type().Field(j).Name)
			}
		}
		if strings.HasSuffix(name, "Calls") {
			for m := range part.Type().Methods() {
				served[m.Name] = true
			}
		}
	}
	for _, o := range operations {
		if o.method != "" && !served[o.method] {
			t.Errorf("no part serves %s", o.name)
		}
	}
}
