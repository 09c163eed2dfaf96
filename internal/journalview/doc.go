// Package journalview shows journals to people and programs: that of this node, by its
// daemon or without one, and those of all members; as tables, JSON lines or CSV.
//
// The commands journal and support use it. It knows records, and how they are asked for
// (package journalquery), and nothing of how they come about.
package journalview
