package wire

// ReleaseRequest asks a replica to end the session, close the directory cleanly and give its lock
// up, so that another process can take it. It has no parameters. Whoever asks has flushed; the
// connection takes nothing but a hello afterwards.
type ReleaseRequest struct{}
