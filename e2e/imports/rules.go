package imports

// ownFolders is every folder of this module that holds Go packages: banning it
// with exceptions says "of ours, only these".
var ownFolders = []string{
	"cmd/...", "configs/...", "e2e/...", "edge/...", "fleet/...", "gen/...", "node/...", "proto/...", "services/...",
}

// pureStd is what the pure core may take from the standard library: nothing that
// reads a clock, blocks, does I/O, logs, or differs from run to run.
var pureStd = []string{
	"cmp", "container/heap", "errors", "fmt", "iter", "maps", "math", "math/bits", "slices", "sort", "strconv", "strings",
	"time", // Duration and Time as values; forbidigo bans time.Now and its kin.
}

// Rules is every import direction of docs/architecture.md. A wide pattern
// ("edge/...") binds the tests below that folder as well ("edge/broker_test"
// stands for the tests of edge/broker); a single package binds its non-test files.
var Rules = []Rule{
	{
		From:      []string{"edge/admission"},
		Ban:       []string{"..."},
		BanExcept: pureStd,
		Direct:    true,
		Reason: "the core is pure, so that the same commands give the same effects, byte for byte: time is an argument, " +
			"effects are return values, and whoever needs a lock, a clock or a log is the broker",
	},
	{
		From:      []string{"edge/broker"},
		Ban:       ownFolders,
		BanExcept: []string{"edge/admission"},
		Reason:    "the broker is a thin shell around the core; what a request is and how it travels is not its business",
	},
	{
		From:   []string{"edge/auth", "edge/events", "edge/openai/bodyscan", "edge/openai/splice"},
		Ban:    ownFolders,
		Reason: "leaves that everybody may use stay leaves",
	},
	{
		From:      []string{"edge/estimate"},
		Ban:       ownFolders,
		BanExcept: []string{"edge/admission"},
		Reason:    "an estimate ends in a context class, and needs nothing else of ours",
	},
	{
		From:      []string{"edge/state"},
		Ban:       ownFolders,
		BanExcept: []string{"edge/admission", "configs/durable"},
		Reason:    "what an operator has said is kept as the core's own terms have it; who may say it, and over which wire, is no part of it",
	},
	{
		From:      []string{"edge/credentials"},
		Ban:       ownFolders,
		BanExcept: []string{"edge/auth", "edge/state"},
		Through:   []string{"edge/state"},
		Reason:    "which secrets there are is decided from what is kept and told to auth; who asks, and over which wire, is no part of it",
	},
	{
		From:   []string{"configs/durable"},
		Ban:    ownFolders,
		Reason: "leaves that everybody may use stay leaves",
	},
	{
		From:      []string{"services/join/..."},
		Ban:       []string{"services/..."},
		BanExcept: []string{"services/join/...", "services/rpcerr"},
		Reason:    handlersStandAlone,
	},
	{
		From:      []string{"edge/config"},
		Ban:       ownFolders,
		BanExcept: []string{"edge/admission", "edge/auth", "gen/go/iop/config/v1", "configs"},
		Reason:    "configuration is read and checked before anything runs; it may know limits, not machinery",
	},
	{
		From:      []string{"edge/dispatch"},
		Ban:       ownFolders,
		BanExcept: []string{"edge/admission", "edge/broker", "edge/estimate"},
		Reason:    "one request from start to end needs its input's class, admission and a Link, and knows neither HTTP surface nor wire",
	},
	{
		From:   []string{"edge/..."},
		Ban:    []string{"services/...", "node/...", "fleet/..."},
		Reason: "the Edge's domain declares the seams (dispatch.Link) which services implement; a domain that knows its wire cannot be tested without it",
	},
	{
		From:       []string{"edge/..."},
		FromExcept: []string{"edge/config", "edge/config_test"},
		Ban:        []string{"gen/..."},
		Through:    []string{"edge/config"},
		Reason:     "messages are for the wire and for configuration; inside, plain types, so that a change of the wire stays in services",
	},
	{
		From:   []string{"edge/..."},
		Ban:    []string{"connectrpc.com/connect", "connectrpc.com/validate"},
		Reason: "RPC belongs to services; error codes of it to services/rpcerr alone",
	},
	{
		From:   []string{"node/..."},
		Ban:    []string{"edge/...", "services/...", "fleet/..."},
		Reason: "a node knows its Edge by the wire only; its gate must not share state or types with the Edge's admission",
	},
	{
		From:       []string{"services/..."},
		FromExcept: []string{"services/nodelink_test"}, // meets the real other end
		Ban:        []string{"node/..."},
		Reason:     "the two ends of the wire share its contract, not code",
	},
	{
		From:      []string{"services/nodelink/..."},
		Ban:       []string{"services/..."},
		BanExcept: []string{"services/nodelink/...", "services/rpcerr"},
		Reason:    handlersStandAlone,
	},
	{
		From:      []string{"services/inference/..."},
		Ban:       []string{"services/..."},
		BanExcept: []string{"services/inference/...", "services/rpcerr"},
		Reason:    handlersStandAlone,
	},
	{
		From:      []string{"services/control/..."},
		Ban:       []string{"services/..."},
		BanExcept: []string{"services/control/...", "services/rpcerr"},
		Reason:    handlersStandAlone,
	},
	{
		From:      []string{"services/admin/..."},
		Ban:       []string{"services/..."},
		BanExcept: []string{"services/admin/...", "services/rpcerr"},
		Reason:    handlersStandAlone,
	},
	{
		From:      []string{"services/fleet/..."},
		Ban:       []string{"services/..."},
		BanExcept: []string{"services/fleet/...", "services/rpcerr"},
		Reason:    handlersStandAlone,
	},
	{
		From:      []string{"services/webui/..."},
		Ban:       ownFolders,
		BanExcept: []string{"services/webui/...", "gen"},
		Reason:    "the page's files and the rules for browsers are the same whoever serves them",
	},
	{
		From:      []string{"services/introspect/..."},
		Ban:       ownFolders,
		BanExcept: []string{"services/introspect/..."},
		Reason:    "health and reflection are the same whatever is served beside them",
	},
	{
		From:      []string{"services/client/..."},
		Ban:       ownFolders,
		BanExcept: []string{"services/client/...", "gen/..."},
		Reason:    "programs of others are built from it: it brings the messages along and nothing of an Edge",
	},
	{
		From:       []string{"fleet/..."},
		FromExcept: []string{"fleet/config", "fleet/config_test"},
		Ban:        ownFolders,
		BanExcept:  []string{"fleet/...", "gen/..."},
		Reason:     "the Control Plane sees Edges by their snapshots only",
	},
	{
		From:      []string{"fleet/config"},
		Ban:       ownFolders,
		BanExcept: []string{"gen/go/iop/config/v1", "configs"},
		Reason:    "configuration is read and checked before anything runs; it may know limits, not machinery",
	},
	{
		From:   []string{"fleet"},
		Ban:    []string{"connectrpc.com/connect", "connectrpc.com/validate", "modernc.org/sqlite", "database/sql"},
		Reason: "how an Edge is reached is edgewire's business, where points are kept history's: the fleet decides when and what",
	},
	{
		From:      []string{"cmd/controlplaned"},
		Ban:       []string{"node/...", "edge/...", "cmd/edged/...", "cmd/noded/..."},
		BanExcept: []string{"edge/auth"},
		Through:   []string{"services/rpcerr"},
		Reason:    "a Control Plane runs without an Edge or a Node in its process, and decides nothing about requests",
	},
	{
		From:       []string{"..."},
		FromExcept: []string{"cmd/...", "e2e/...", "e2e_test"},
		Ban:        []string{"cmd/..."},
		Reason:     "cmd assembles; what is assembled must not know how",
	},
	{
		From:   []string{"cmd/edged/..."},
		Ban:    []string{"node/...", "cmd/noded/..."},
		Reason: "an Edge runs without a Node; cmd/iop puts the two together for `iop up`",
	},
	{
		From:   []string{"cmd/noded/..."},
		Ban:    []string{"edge/...", "services/...", "cmd/edged/..."},
		Reason: "a Node runs without an Edge in its process; cmd/iop puts the two together for `iop up`",
	},
	{
		From:       []string{"..."},
		FromExcept: []string{"e2e/...", "e2e_test"},
		Ban:        []string{"e2e/..."},
		Reason:     "e2e is at the end of every chain",
	},
	{
		From: []string{"..."},
		FromExcept: []string{
			"services/nodelink/...", "services/nodelink_test", "node/session/...", "node/session_test",
			"proto/...", "cmd/...", "e2e/...", "e2e_test",
		},
		Ban:     []string{"proto/framecodec"},
		Through: []string{"services/nodelink", "node/session"},
		Reason:  "the hand-written codec is a detail of the two ends of the work streams",
	},
	{
		From:      []string{"proto/..."},
		Ban:       ownFolders,
		BanExcept: []string{"proto/...", "gen/..."},
		Reason:    "the codec is about messages and nothing else",
	},
	{
		From: []string{"..."},
		FromExcept: []string{
			"edge/config", "edge/config_test", "fleet/config", "fleet/config_test", "node/...", "cmd/...", "configs/...", "configs_test",
			"e2e/...", "e2e_test",
			"services/rpcerr", "services/rpcerr_test", // gives the loader's findings a code
		},
		Ban:     []string{"configs"},
		Through: []string{"edge/config", "fleet/config", "services/rpcerr"},
		Reason:  "files are read at the rim: by edge/config, fleet/config, the node and the commands",
	},
	{
		From:      []string{"configs"},
		Ban:       ownFolders,
		BanExcept: []string{"gen/..."},
		Reason:    "Edge and Node share the loader, so it may know neither",
	},
	{
		From:      []string{"gen/..."},
		Ban:       ownFolders,
		BanExcept: []string{"gen/..."},
		Reason:    "generated from proto alone",
	},
}

const handlersStandAlone = "handlers never import handlers: what two of them share is domain, or services/rpcerr"

// VagueNames are package names that say nothing of what a package owns, and so
// collect whatever has no home.
var VagueNames = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base"}
