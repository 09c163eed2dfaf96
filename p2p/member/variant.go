package member

// variant takes rules out again. Only tests set it: they show that the
// simulator finds a schedule that breaks what each rule is for. The zero value
// is the protocol.
type variant struct {
	promiseWhileProposing bool // promise also to those that the proposal drops
	promiseOneWay         bool // promise to peers that do not hear this node
	tenureFromReceipt     bool // count tenure from the arrival of the promise
	grantWithoutSync      bool
	answerOtherEpoch      bool // take promises of any epoch
	believeLink           bool // install an own link without a look
	dropUnproved          bool // drop without "heard, or known for long"
	noLookTenure          bool // live without looks
	lookAtReply           bool // stamp a look when it ends
	noDelta               bool // drop after L
	sleepIsSilence        bool // count time asleep as silence of the others
	challengerAlone       bool // a challenge without an answer: a view of its own
	sameIncarnation       bool // one incarnation for life
	forgetUnknown         bool // a link that failed is forgotten
	leaveForgets          bool // leaving forgets the proposal
	speakBeforeFreeze     bool // heartbeats of e+1 before the freeze of e
	keepTenure            bool // promises of e count at e+1
	replaceAnybody        bool // replace without a proof of death
	syncOnce              bool // SYNC is not repeated
	admitPartial          bool // one welcome is enough
	noHolding             bool // grant at once above a view that nobody could read
	keepJoiners           bool // newcomers of e count at e+1
	forgetEpoch           bool // the newest epoch is not kept
	cloneProof            bool // a boot ID and an inode are proof enough of death
	anyFileID             bool // members may tell files apart by different things
	graceForLooks         bool // looks of a new view count that do not show it
	succeedAnyway         bool // a successor's claims count whoever dropped its former self
	noTwins               bool // a node with the identity of a live one takes its connections
}
