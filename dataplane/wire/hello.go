package wire

import (
	"encoding/json"
	"fmt"
)

// SecretSize is the size of a volume's secret in bytes.
const SecretSize = 32

// NonceSize is the size of each side's nonce.
const NonceSize = 16

// InitiationMessage is the engine's first word, with its proof (Handshake.Initiate). Who cannot
// prove it hears nothing, so replicas of all later versions have to read it: its layout is fixed.
type InitiationMessage struct {
	// MinVersion and Version are the oldest and the newest protocol version that the engine speaks.
	MinVersion int    `json:"minVersion"`
	Version    int    `json:"version"`
	Nonce      []byte `json:"nonce"`
	// Address is what the engine has connected to, host and port.
	Address string `json:"address"`
	// Reader asks for a read-only session on one snapshot; without it the session is an engine's.
	Reader *Grant `json:"reader,omitempty"`
}

// GreetingMessage is the replica's answer to who has proved an initiation.
type GreetingMessage struct {
	// Version is the one that the session speaks.
	Version int    `json:"version,omitempty"`
	Nonce   []byte `json:"nonce,omitempty"`
	// Member is the data directory name the replica serves.
	Member string `json:"member,omitempty"`
	// Error says why there is no session; nothing else is set then.
	Error string `json:"error,omitempty"`
}

// HelloMessage is the engine's answer to the greeting: which volume, which epoch, to whom.
type HelloMessage struct {
	VolumeName string `json:"volumeName"`
	VolumeUUID string `json:"volumeUUID"`
	// Engine names the engine's process: its instance name and something random. InstanceManager is
	// where it runs.
	Engine          string `json:"engine"`
	InstanceManager string `json:"instanceManager,omitempty"`
	// Epoch is made durable by the replica before it answers, unless Prepared; 0 of a reader.
	Epoch uint64 `json:"epoch"`
	// Prepared asks what the replica has promised and recorded, and promises nothing. A second
	// hello on the same connection, with an epoch and without it, activates the session.
	Prepared bool `json:"prepared,omitempty"`
	// Build says which program the engine is; for the log.
	Build string `json:"build,omitempty"`
	// Notices: the engine takes Notice frames.
	Notices bool `json:"notices,omitempty"`
	// Member is who the engine has been greeted by.
	Member string `json:"member"`
}

// NoticeMessage is what a replica tells by itself.
type NoticeMessage struct {
	// Lost says which files it has in use have lost their names; empty: none any more.
	Lost string `json:"lost,omitempty"`
}

// HelloReply is the replica's answer. On Fenced the record tells the newer epoch.
type HelloReply struct {
	// Promised is the newest epoch the replica has made durable.
	Promised uint64 `json:"promised"`
	// PromisedTo is the engine process it was promised to, as HelloMessage.Engine; only in the
	// answer to a prepared hello.
	PromisedTo string `json:"promisedTo,omitempty"`
	// Record is the membership record on disk; nil when the directory has none or it is void.
	Record *RecordMessage `json:"record,omitempty"`
	// Blank: the directory holds no data yet, so it may found a volume.
	Blank bool `json:"blank,omitempty"`
	// Empty: no data was ever written to the directory, whatever record it has.
	Empty bool `json:"empty,omitempty"`
	// OnImage: what was never written reads as an image, and not as zeroes.
	OnImage bool `json:"onImage,omitempty"`
	// Closed: whoever had the directory before this process closed it.
	Closed bool `json:"closed,omitempty"`
	// Counter is the revision counter of an engine that has kept one in the directory, 0 for none.
	Counter int64 `json:"counter,omitempty"`
	// Standby: another process may have the directory, and what is told is what it says now.
	Standby bool `json:"standby,omitempty"`
	// Rebuilding: the directory is an incomplete copy.
	Rebuilding bool `json:"rebuilding,omitempty"`
	// Size of the volume in bytes, or of the snapshot, where a reader asks.
	Size int64 `json:"size"`
	// Dirty lists regions whose replicas may differ, as numbers of DirtyRegion-sized pieces.
	Dirty []uint32 `json:"dirty,omitempty"`
	// DirtyAll: nothing is known, every region must be compared.
	DirtyAll bool `json:"dirtyAll,omitempty"`
	// PowerLost: its machine has lost power since Dirty was marked, so that unflushed writes there
	// may be gone.
	PowerLost bool   `json:"powerLost,omitempty"`
	Error     string `json:"error,omitempty"`
}

// RecordMessage is a membership record on the wire and in control messages: the set Members of
// generation Generation as proposed in epoch Epoch.
type RecordMessage struct {
	VolumeUUID string   `json:"volumeUUID"`
	Epoch      uint64   `json:"epoch"`
	Generation uint64   `json:"generation"`
	Members    []string `json:"members"`
	// Replaces names those whom a competing record names and this one does not; empty once the
	// record is agreed.
	Replaces []string `json:"replaces,omitempty"`
	// Agreed: known to be committed.
	Agreed bool `json:"agreed,omitempty"`
	// Accepted: what is known about absent members is to be forgotten, since a person has accepted
	// the loss of what they have. Kept until the record is agreed.
	Accepted bool `json:"accepted,omitempty"`
}

// Pick returns the protocol version for a peer speaking [peerMin, peerMax], or an error that names
// both sides' ranges.
func Pick(peerMin, peerMax int) (int, error) {
	v := min(peerMax, Version)
	if v < peerMin || v < MinVersion {
		return 0, fmt.Errorf("wire: peer speaks versions %d to %d, this binary %d to %d: upgrade the older one",
			peerMin, peerMax, MinVersion, Version)
	}
	return v, nil
}

// Marshal encodes a handshake or control message.
func Marshal(v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic("wire: message cannot be encoded: " + err.Error())
	}
	return p
}

// Unmarshal decodes a handshake or control message.
func Unmarshal(p []byte, v any) error {
	if err := json.Unmarshal(p, v); err != nil {
		return fmt.Errorf("%w: message: %w", ErrFrame, err)
	}
	return nil
}
