package wire

// ReleaseRequest asks a replica to end the session, close the directory cleanly and give its lock
// up, so that another process can take it. It has no parameters. Whoever asks has flushed; the
// connection takes nothing but a hello afterwards.
type ReleaseRequest struct{}

// KeepRequest ends the trial that a standby replica has its directory on. It has no parameters.
type KeepRequest struct{}
