package fusefs

// What the words of the records of a ledger mean. Texts come first. A descriptor is its
// number plus one; a process is told by its owner.

// LedgerVersion is that of what the records mean, and of the form of [Requests]. It
// grows with every change.
const LedgerVersion = 7

// LedgerWhose is the table with the record that says which mount it is. It is written last,
// by [New] and [ResumeKilled]: the ledger counts from then on, and what it was made from does
// not.
const LedgerWhose = tableMount

// LedgerTable is the form of a table: how many words a record has, how many of these,
// the first ones, are texts, and how many records there may be.
type LedgerTable struct{ Words, Texts, Max int }

// LedgerForm are the tables of a ledger.
var LedgerForm = []LedgerTable{
	tableMount:     {mountWords, 4, 1},
	tableNodes:     {nodeWords, 2, 1 << 24},
	tableNames:     {nameWords, 1, 1 << 24},
	tableHandles:   {handleWords, 3, 1 << 22},
	tableDirs:      {dirWords, 0, 1 << 20},
	tableLocks:     {lockWords, 1, 1 << 22},
	tableProcesses: {processWords, 1, 1 << 20},
	tableThreads:   {threadWords, 0, 1 << 20},
	tableDevices:   {deviceWords, 1, 1 << 12},
}

const (
	tableMount = iota // without it there is nothing
	tableNodes
	tableNames
	tableHandles
	tableDirs
	tableLocks
	tableProcesses
	tableThreads
	tableDevices
)

// The mount.
const (
	mountPath = iota
	mountNumber
	mountAsked
	mountAnswered
	mountOwnID
	mountBits // made by the helper; locks go by path
	mountDev
	mountStart
	mountLease
	mountIDs   // up to which numbers may have been given
	mountWords = mountIDs + ids
)

// A node.
const (
	nodeFile = iota
	nodePath // of one without a name
	nodeID
	nodeDev
	nodeIno
	nodeFlags // see below; and the kind
	nodeFD
	nodeLookups
	nodeFailures
	nodePageFailures
	nodeError
	nodeMost // how long the kernel may believe it to be
	nodeWords
)

const (
	nodePrimary  = 1 << 32
	nodeSpare    = 1 << 33
	nodeReplaced = 1 << 34
	nodeTold     = 1 << 35 // of the error
	nodeOwed     = 1 << 36
	nodePages    = 1 << 37 // the kernel may have some
)

// A name.
const (
	nameText = iota
	nameNode
	nameDir
	nameWords
)

// An open file, with its open lock.
const (
	handleFile = iota
	handlePath
	handleCommand
	handleID
	handleNode
	handleFD
	handleOpenFlags
	handleProcess
	handleFlags // see below; and the state
	handleOwner
	handleMode
	handleBorn
	handlePatience
	handlePID // and the thread
	handleProgram
	handleTask
	handleUser
	handleYields
	handleYieldsShared
	handleYieldsStream
	handleTenure
	handleToken
	handleAlone
	handleKnows
	handleWords
)

const (
	handleWrites = 1 << (8 + iota)
	handleAppends
	handleMixed
	handleUntilClose
	handleIsAlone
	handleStream
	handleShared
	handleLost
	handleFresh
	handleFlocked
	handlePosixed
	handleAgain
)

// An open directory.
const (
	dirID = iota
	dirNode
	dirFD
	dirFlags // it may be listed from pages
	dirUser  // and the group
	dirPID
	dirWords
)

// An explicit lock.
const (
	lockRanges = iota // a text of pairs of 8 bytes
	lockNode
	lockClass
	lockOwner
	lockHandle
	lockProcess
	lockTenure
	lockToken
	lockTurn
	lockFirst
	lockWords
)

// A process.
const (
	processName = iota
	processPID
	processOwner
	processFlags // it locks for itself; who made it is known
	processUp
	processDepth
	processWords
)

// A thread.
const (
	threadTID = iota
	threadComm
	threadProcess
	threadFlags // it is the leader
	threadTask
	threadWords
)

// A file system below the root.
const (
	devicePath = iota
	deviceDev
	deviceIndex
	deviceFlags // a warning was given
	deviceWords
)
