// Package mountinfo reads /proc/self/mountinfo: what is mounted where in the
// mount namespace of this process; see proc_pid_mountinfo(5).
package mountinfo
