// Package firsthour has tests of what somebody new does in his first hour with
// the program: all that docs/tutorial.md says, and the mistakes that are made
// most. It has no code. The tests build the program once.
package firsthour
