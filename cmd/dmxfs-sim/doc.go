// Command dmxfs-sim simulates the algorithms of dmxfs beside those that the
// papers compare with, and draws the papers' figures. It is a program of its
// own so that no plotting is linked into what runs on every host.
//
// See docs/simulation.md.
package main
