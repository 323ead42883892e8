package nbd

import "ankole.storage/dataplane/block"

// Numbers of the protocol (the NBD project's proto.md). All integers are big endian.
const (
	magicGreeting = 0x4e42444d41474943 // "NBDMAGIC"
	magicOption   = 0x49484156454f5054 // "IHAVEOPT"
	magicOptReply = 0x0003e889045565a9
	magicRequest  = 0x25609513
	magicReply    = 0x67446698

	flagFixedNewstyle = 1 << 0 // both directions
	flagNoZeroes      = 1 << 1

	optExportName = 1
	optAbort      = 2
	optList       = 3
	optInfo       = 6
	optGo         = 7

	repAck        = 1
	repServer     = 2
	repInfo       = 3
	repErrUnsup   = 1<<31 + 1
	repErrInvalid = 1<<31 + 3
	repErrUnknown = 1<<31 + 6

	infoExport    = 0
	infoBlockSize = 3

	transHasFlags    = 1 << 0
	transFlush       = 1 << 2
	transFUA         = 1 << 3
	transTrim        = 1 << 5
	transWriteZeroes = 1 << 6
	transMultiConn   = 1 << 8

	cmdRead        = 0
	cmdWrite       = 1
	cmdDisc        = 2
	cmdFlush       = 3
	cmdTrim        = 4
	cmdWriteZeroes = 6

	cmdFlagFUA    = 1 << 0
	cmdFlagNoHole = 1 << 1

	errnoIO      = 5
	errnoInvalid = 22
	errnoNoSpace = 28

	requestHeader = 28
	replyHeader   = 16
	optionHeader  = 16
)

// transFlags is what an export offers. Several connections are safe: a flush on one covers writes
// completed on all.
const transFlags = transHasFlags | transFlush | transFUA | transTrim | transWriteZeroes | transMultiConn

// Block sizes announced to clients.
const (
	minBlock       = block.SectorSize
	preferredBlock = block.Size
	// MaxRequest is the largest payload of one NBD request: the value clients assume when they do
	// not ask.
	MaxRequest = 32 << 20
)

const (
	// maxOptionData bounds an option's payload: an export name of 4096 bytes and a list of requests
	// around it.
	maxOptionData = 8 << 10
	// maxOptions bounds the options of one connection's negotiation; real clients send fewer than
	// ten options.
	maxOptions = 128
)

// errno is the error value of a reply. NBD knows few; what has no value of its own is an I/O error.
func errno(c block.Code) uint32 {
	switch c {
	case block.OK:
		return 0
	case block.Invalid:
		return errnoInvalid
	case block.NoSpace:
		return errnoNoSpace
	}
	return errnoIO
}
