package member

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Protocol is the generation of what members say to each other. Nodes of two
// generations do not understand each other, and each would find that the other
// does not answer. So it is in the view, and a node of another one ends when it
// reads that, before it speaks to anybody. It changes with the encoding of a message, or
// with what one means. (A view with something that a version does not know is
// ErrNewer for it.)
//
// 1 had no Hello.FileID, and no generation in its views.
const Protocol = 2

// versionText says what makes two generations meet: that of v, and this one.
func versionText(v *View, version string) string {
	theirs := "one before 2"
	if v.Protocol != 0 {
		theirs = fmt.Sprint(v.Protocol)
	}
	return fmt.Sprintf("the members run another version of dmxfs, which speaks another membership protocol (%s; %s here speaks %d): %s. "+
		"All hosts of a cluster run the same version: unmount on those with the older one, update it, and mount again",
		theirs, ownVersion(version), Protocol, versionsOf(v.Members))
}

func ownVersion(s string) string { return strings.TrimSpace("dmxfs " + s) }

// versionsOf says who runs what; of many only the first.
func versionsOf(members []Member) string {
	const most = 5
	var parts []string
	for i := range members {
		if i == most {
			parts = append(parts, fmt.Sprintf("and %d more", len(members)-most))
			break
		}
		parts = append(parts, fmt.Sprintf("%s runs %s", members[i].Name(), ownVersion(members[i].Version)))
	}
	return strings.Join(parts, ", ")
}

// writers says who is in a view that this version does not understand, as far
// as it does; empty if it does not at all.
func writers(body []byte) string {
	var v struct {
		Members []Member `json:"members"`
	}
	if json.Unmarshal(body, &v) != nil || len(v.Members) == 0 || len(v.Members) > MaxMembers {
		return ""
	}
	for i := range v.Members {
		if v.Members[i].validate() != nil {
			return ""
		}
	}
	return " (" + versionsOf(v.Members) + ")"
}
