// Package top is the terminal view of `dmxfs top`: rates, hosts, and who holds
// and waits for which locks, live.
//
// [Model] is a machine in the way of the library bubbletea: messages go in (a
// key, a snapshot, what came of an order), and a new state and what is to be done
// come out. It has no clock and asks nobody, so that tests drive it without a
// terminal. [Run] gives it one, and [WriteTable] is for when there is none.
package top
