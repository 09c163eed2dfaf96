package member_test

import (
	"testing"
)

func TestBugsProbe(t *testing.T) {
	for _, bug := range []string{"promiseWhileProposing", "promiseOneWay", "tenureFromReceipt", "grantWithoutSync", "answerOtherEpoch", "believeLink", "dropUnproved", "noLookTenure", "lookAtReply", "noDelta", "sleepIsSilence", "challengerAlone", "sameIncarnation", "forgetUnknown", "leaveForgets", "speakBeforeFreeze", "keepTenure", "replaceAnybody", "syncOnce", "admitPartial", "keepJoiners"} {
		found := false
		for seed := int64(0); seed < 3000; seed++ {
			o := randomOptions(seed)
			o.bug = bug
			r := schedule(o, false)
			if r.w.check.err != nil {
				t.Logf("%-22s #%d: %.110v", bug, seed, r.w.check.err)
				found = true
				break
			}
		}
		if !found {
			t.Logf("%-22s not found", bug)
		}
	}
}
