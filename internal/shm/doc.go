// Package shm keeps tables in memory that outlives the process which writes them. A
// process that is killed, at whatever instruction, leaves each record as it was before
// a write or as it is after it, and another process that has the descriptor of the
// memory (memfd_create(2)) reads them, and may go on with them as their only writer. A
// reboot loses them, and nobody finds them later.
//
// # Form
//
// A page of head, then the tables, then the texts. The size is fixed for good when the
// memory is made, and sealed, so that no access can fail; pages are taken from the
// kernel as tables grow, before they are used, so that none of these can fail either.
//
//   - A table has slots of one size, each for a record of so many words. A slot has a
//     word of state and two copies of the record. A write fills the copy that does not
//     count, and then stores the state: one atomic store, which says which copy counts
//     and has the checksum of it. What was never in use lies behind the top of the
//     table; what is free says so by a state with a checksum of its own.
//   - Texts, which have any length, lie in slots of several sizes, and records refer to
//     them, by place and serial number. A text does not change, and is there as long as
//     a record refers to it. Nothing in the memory says so: who opens it counts the
//     references. So a text that is on its way to a record, or out of it, when the
//     process dies is free.
//   - All records bear the era in which they were written. A new one makes all of them
//     void by one store.
//
// # Which count
//
// Each process makes tables of its own, of a higher generation. [OpenNewest] finds those
// that count, whenever the process was killed, and [Tables.Supersede] ends the others.
//
// # What is refused
//
// All is checked when the memory is opened, and sizes and places before they are used:
// memory of another version, or another generation, or that is damaged, or in which
// there was no room for something ([Tables.SetFull]), is an error. Nothing is guessed,
// and nothing is left out. What a checksum of 32 bits does not find is not found: it is
// for pages that somebody else has written to, not for somebody who means harm.
//
// # What it does not do
//
// It does not know what the records mean. It has no lock: one goroutine at a time.
package shm
