package member

// Plant takes a rule out of m, by the name of the field of variant.
func Plant(m *Machine, bug string) {
	b := &m.bug
	*map[string]*bool{
		"promiseWhileProposing": &b.promiseWhileProposing,
		"promiseOneWay":         &b.promiseOneWay,
		"tenureFromReceipt":     &b.tenureFromReceipt,
		"grantWithoutSync":      &b.grantWithoutSync,
		"answerOtherEpoch":      &b.answerOtherEpoch,
		"believeLink":           &b.believeLink,
		"dropUnproved":          &b.dropUnproved,
		"noLookTenure":          &b.noLookTenure,
		"lookAtReply":           &b.lookAtReply,
		"noDelta":               &b.noDelta,
		"sleepIsSilence":        &b.sleepIsSilence,
		"challengerAlone":       &b.challengerAlone,
		"sameIncarnation":       &b.sameIncarnation,
		"forgetUnknown":         &b.forgetUnknown,
		"leaveForgets":          &b.leaveForgets,
		"speakBeforeFreeze":     &b.speakBeforeFreeze,
		"keepTenure":            &b.keepTenure,
		"replaceAnybody":        &b.replaceAnybody,
		"syncOnce":              &b.syncOnce,
		"admitPartial":          &b.admitPartial,
		"noHolding":             &b.noHolding,
		"keepJoiners":           &b.keepJoiners,
		"cloneProof":            &b.cloneProof,
		"forgetEpoch":           &b.forgetEpoch,
		"anyFileID":             &b.anyFileID,
		"noTwins":               &b.noTwins,
		"succeedAnyway":         &b.succeedAnyway,
		"graceForLooks":         &b.graceForLooks,
	}[bug] = true
}

// FileID is what m tells files apart by now.
func FileID(m *Machine) string { return m.terms.fileID }

// NewUnchecked is New without the checks of the parameters.
func NewUnchecked(cfg Config) *Machine { return newMachine(cfg) }
