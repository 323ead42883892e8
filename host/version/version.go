// Package version says what a binary was built from, and which interface versions it speaks. The
// variables are set by the linker (see the Makefile); a plain `go build` leaves the defaults.
package version

// Set by the linker.
var (
	// Version is the release, or "dev".
	Version = "dev"
	// GitCommit is the full commit hash.
	GitCommit = "unknown"
	// BuildDate is RFC 3339, UTC.
	BuildDate = "1970-01-01T00:00:00Z"
)

// Interface versions of the engine binary, numbered as clients of the reference know them: the
// command line, the engine's control interface, and the replica directory.
const (
	CLIAPI    = 12
	CLIAPIMin = 8
	// ControllerAPI also says how an engine leaves its volume to another one, which has changed
	// with 7.
	ControllerAPI    = 7
	ControllerAPIMin = 7
	DataFormat       = 1
	DataFormatMin    = 1
)
