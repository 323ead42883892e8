// Package handover is how one engine process gives its volume to another one on the same node
// without its user noticing more than a pause: a live upgrade.
//
// The engine that runs listens on a unix socket. The engine that was started to replace it
// connects, and they exchange these messages:
//
//	new ── Ask ──> old        here I am, these members I have reached
//	old ── Refused ──> new    not now, and why; nothing has changed
//	old ── Draining ──> new   the pause begins
//	old ── Offer ──> new      everything is released; the descriptors of the frontend come with it
//	new ── Failed ──> old     I cannot; take it back
//	new ── Taken ──> old      the volume is mine; end
//
// Taken is the step that decides. Until it is in the old one's socket the old one may take the
// volume back, and does when its time is up, when it reads Failed, or when the connection ends. It
// asks the kernel then to accept nothing more on the socket (Conn.CloseRead), and looks once more
// at what is there already: so either the new one's Taken was accepted and the old one sees it, or
// the new one is told that it was not. There is no moment at which both, or neither, own the
// volume.
//
// Beside that the replicas fence: whoever takes the volume does so with a higher epoch.
// docs/design/upgrade.md has the sequence and what happens when either side dies at any step.
package handover

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"time"

	"ankole.storage/dataplane/frontend"
	"ankole.storage/host/patience"
)

// Version is the newest version of the messages this code speaks, MinVersion the oldest.
const (
	Version    = 1
	MinVersion = 1
)

// Bounds in time. All of them together are less than ReplaceTime, by the time that processes need
// to start and to say that they are running: an engine that has taken the volume must not be killed
// then. The pause that a user may notice is bounded by DrainTime and TakeTime.
var (
	// ReplaceTime is how long an instance manager waits for a replacement to be running.
	ReplaceTime = patience.Of(30 * time.Second)
	// PrepareTime bounds what the new engine does before it asks: replicas build their maps meanwhile.
	PrepareTime = patience.Of(10 * time.Second)
	// PassingTime is how long a hand-over waits, beside the user's requests, for something that is
	// over soon: a snapshot, an expansion, the piece of a purge. What takes longer is for whoever
	// wants the upgrade to wait for.
	PassingTime = patience.Of(3 * time.Second)
	// DrainTime bounds the end of the requests that the old engine has taken in. A disk that is
	// slower than that is no reason to make its user wait longer: the upgrade is refused and can be
	// tried again.
	DrainTime = patience.Of(2 * time.Second)
	// ReleaseTime bounds flushing and giving up the directories.
	ReleaseTime = patience.Of(5 * time.Second)
	// TakeTime is how long the old engine waits for Taken before it takes the volume back.
	TakeTime = patience.Of(5 * time.Second)
)

// Message is what is sent: exactly one field is set.
type Message struct {
	Ask      *Ask      `json:"ask,omitempty"`
	Refused  *Refused  `json:"refused,omitempty"`
	Draining *Draining `json:"draining,omitempty"`
	Offer    *Offer    `json:"offer,omitempty"`
	Failed   *Failed   `json:"failed,omitempty"`
	Taken    *Taken    `json:"taken,omitempty"`
}

// Ask introduces the new engine.
type Ask struct {
	MinVersion int    `json:"minVersion"`
	Version    int    `json:"version"`
	VolumeName string `json:"volumeName"`
	VolumeUUID string `json:"volumeUUID"`
	// Engine is the instance's name, InstanceManager where it runs: both are the old one's too.
	Engine          string `json:"engine"`
	InstanceManager string `json:"instanceManager"`
	// Members are the data directories of the replicas that the new engine has reached and that are
	// ready, sorted.
	Members []string `json:"members"`
	// Build says which program it is, for the log.
	Build string `json:"build,omitempty"`
}

// Refused: nothing has changed.
type Refused struct {
	Reason string `json:"reason"`
}

// Draining: requests are answered to the end and no more are taken in.
type Draining struct{}

// Offer is the volume: the old engine has released every replica.
type Offer struct {
	// Epoch is the old engine's: every member has promised it. Its lease is void.
	Epoch uint64 `json:"epoch"`
	// Generation and Members are the agreed record.
	Generation uint64   `json:"generation"`
	Members    []string `json:"members"`
	// Size in bytes, as users know it.
	Size     int64    `json:"size"`
	Options  Options  `json:"options"`
	Counters Counters `json:"counters"`
	// Purge: a purge of snapshots was under way. An engine that does not know this leaves the rest
	// to the next purge.
	Purge bool `json:"purge,omitempty"`
	// Frontend is the name the control plane knows; empty: none is up.
	Frontend string `json:"frontend,omitempty"`
	// Export is what the frontend gives away; nil without one. Its descriptors travel with the
	// message.
	Export *frontend.Export `json:"export,omitempty"`
}

// Options of the volume that may have been changed since the old engine's start.
type Options struct {
	SnapshotMaxCount          int   `json:"snapshotMaxCount"`
	SnapshotMaxSize           int64 `json:"snapshotMaxSize"`
	UnmapMarkSnapChainRemoved bool  `json:"unmapMarkSnapChainRemoved,omitempty"`
	// RebuildBudget in bytes per second; 0 means no bound.
	RebuildBudget int64 `json:"rebuildBudget,omitempty"`
	// RebuildConcurrency is 1 to 5; 0, from older engines, means 1.
	RebuildConcurrency int `json:"rebuildConcurrency,omitempty"`
}

// Counters go on counting.
type Counters struct {
	Reads      uint64 `json:"reads"`
	Writes     uint64 `json:"writes"`
	ReadBytes  uint64 `json:"readBytes"`
	WriteBytes uint64 `json:"writeBytes"`
	Flushes    uint64 `json:"flushes"`
	Discards   uint64 `json:"discards"`
	// ReadNanos and WriteNanos are missing in what older engines offer.
	ReadNanos  uint64 `json:"readNanos,omitempty"`
	WriteNanos uint64 `json:"writeNanos,omitempty"`
}

// Failed: the new engine will not take the volume.
type Failed struct {
	Reason string `json:"reason"`
}

// Taken: the new engine has the volume.
type Taken struct {
	Epoch uint64 `json:"epoch"`
}

// kind names the field that is set, "" if there is none or more than one.
func (m *Message) kind() string {
	name, n := "", 0
	for k, set := range map[string]bool{"ask": m.Ask != nil, "refused": m.Refused != nil, "draining": m.Draining != nil,
		"offer": m.Offer != nil, "failed": m.Failed != nil, "taken": m.Taken != nil} {
		if set {
			name = k
			n++
		}
	}
	if n != 1 {
		return ""
	}
	return name
}

// Socket returns where the engine of an instance name listens, in the directory that the instance
// manager gives to its engines. The name is short, since the kernel allows 107 bytes for the whole.
func Socket(dir, instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".sock")
}

// Speaks reports whether two peers have a version in common, or says what is missing.
func (a *Ask) Speaks() error {
	if a.Version < MinVersion || a.MinVersion > Version {
		return fmt.Errorf("the new engine speaks versions %d to %d of the hand-over, this one %d to %d: detach the "+
			"volume to upgrade it",
			a.MinVersion, a.Version, MinVersion, Version)
	}
	return nil
}
