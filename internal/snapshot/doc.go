// Package snapshot is what the daemon of a mount tells of its cluster at one
// moment, and what follows from it for people: which locks match a search,
// which files are waited for most, who waits for whom and where that goes in a
// cycle. The page and the terminal view are made of it.
//
// The types have the JSON keys that the control socket speaks, which are a
// contract. Everything but [Take] is a function of its arguments.
package snapshot
