package framecodec

// Protocol versions of the Edge–Node wire. An Edge accepts its own version and
// the one before it; a node accepts the same of its Edge.
const (
	// ProtocolVersion is the version this build speaks.
	ProtocolVersion = 1
	// OldestProtocolVersion is the oldest version this build interoperates with.
	OldestProtocolVersion = 1
)

// Headers that open a work stream.
const (
	// HeaderGenerationToken carries Accepted.generation_token. Never log it.
	HeaderGenerationToken = "Iop-Generation-Token"
	// HeaderStreamID carries the stream's id, decimal, 1 or more.
	HeaderStreamID = "Iop-Stream-Id"
)

// Sizes, in bytes.
const (
	// MaxRequestBody is the most body bytes of one frame from Edge to node.
	MaxRequestBody = 256 << 10
	// MaxAnswerBody is the most body bytes of one frame from node to Edge: an
	// answer up to here may travel as one frame.
	MaxAnswerBody = 1 << 20
	// MaxOverhead is the most that the rest of a frame (headers, mostly) may take.
	MaxOverhead = 256 << 10
)

// InitialStreams is how many work streams a node keeps open until the Edge says
// otherwise (WorkStreams).
const InitialStreams = 4

// Version picks the version two peers use: the lower of both, if this build
// still speaks it.
func Version(peer uint32) (version uint32, ok bool) {
	version = min(peer, ProtocolVersion)
	return version, version >= OldestProtocolVersion
}
