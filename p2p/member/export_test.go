package member

// Plant takes a rule out of m. It is nil but in a build with planted bugs, see
// TestWithPlantedBugs.
var Plant func(m *Machine, bug string)

// FileID is what m tells files apart by now.
func FileID(m *Machine) string { return m.terms.fileID }

// NewUnchecked is New without the checks of the parameters.
func NewUnchecked(cfg Config) *Machine { return newMachine(cfg) }
