package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
	"ankole.storage/dataplane/wire"
)

// grantTime is how long a grant holds unless told otherwise: the longest that clients wait for a
// clone, and sessions are begun all the while where replicas of the source come and go.
const grantTime = 24 * time.Hour

// CloneSource implements enginev1.EngineServer.
func (s *service) CloneSource(ctx context.Context, r *enginev1.CloneSourceRequest) (*enginev1.CloneGrant, error) {
	valid := grantTime
	if r.Seconds != 0 {
		valid = time.Duration(r.Seconds) * time.Second
	}
	if r.ForVolumeUuid == "" || valid <= 0 || valid > grantTime {
		return nil, status.Errorf(codes.InvalidArgument,
			"a grant for volume %q and %d seconds: name the volume, and at most %d seconds", r.ForVolumeUuid,
			r.Seconds, grantTime/time.Second)
	}
	// The grant may come after the caller has gone, so that it is passed on and not shared.
	grants := make(chan engine.CloneSource, 1)
	err := s.p.ask(ctx, func(reply func(error)) any {
		return engine.GrantClone{Snapshot: r.Snapshot, For: r.ForVolumeUuid, Expires: time.Now().Add(valid).Unix(),
			Reply: func(g engine.CloneSource, err error) {
				grants <- g
				reply(err)
			}}
	})
	if err != nil {
		return nil, statusOf(err)
	}
	g := <-grants
	m := &enginev1.CloneGrant{VolumeName: g.VolumeName, VolumeUuid: g.VolumeUUID, Snapshot: g.Grant.Snapshot,
		ForVolumeUuid: g.Grant.For,
		Expires:       g.Grant.Expires, Key: g.Key, Size: g.Size}
	for _, a := range g.Replicas {
		m.Replicas = append(m.Replicas, "tcp://"+a)
	}
	return m, nil
}

// SnapshotClone implements enginev1.EngineServer.
func (s *service) SnapshotClone(ctx context.Context, r *enginev1.SnapshotCloneRequest) (*enginev1.State, error) {
	g := r.GetFrom()
	from := engine.CloneSource{VolumeName: g.GetVolumeName(), VolumeUUID: g.GetVolumeUuid(), Key: g.GetKey(),
		Size:  g.GetSize(),
		Grant: wire.Grant{Snapshot: g.GetSnapshot(), For: g.GetForVolumeUuid(), Expires: g.GetExpires()}}
	for _, a := range g.GetReplicas() {
		addr, err := address(a)
		if err != nil {
			return nil, err
		}
		from.Replicas = append(from.Replicas, addr)
	}
	name := r.Name
	if name == "" {
		name = uuid.NewString()
	}
	return s.do(ctx, func(reply func(error)) any {
		return engine.Clone{From: from, Name: name, Created: now(), Reply: reply}
	})
}

// SnapshotCloneCancel implements enginev1.EngineServer.
func (s *service) SnapshotCloneCancel(ctx context.Context, _ *enginev1.SnapshotCloneCancelRequest) (*enginev1.State,
	error) {
	return s.do(ctx, func(reply func(error)) any { return engine.CancelClone{Reply: reply} })
}

// cloneMessage turns the progress of a clone into its wire form.
func cloneMessage(s *engine.Importing) *enginev1.Clone {
	if s == nil {
		return nil
	}
	m := &enginev1.Clone{Running: s.Running, State: s.State, Progress: int32(s.Progress), Error: s.Error,
		Volume: s.Volume, Snapshot: s.Snapshot,
		Name: s.Name, DoneBytes: s.Done, TotalBytes: s.Total, SentBytes: s.Sent, Incomplete: s.Incomplete,
		Interrupted: s.Interrupted}
	if s.From != "" {
		m.FromAddress = "tcp://" + s.From
	}
	return m
}

// mayOffer tells whether the volume may be offered to its user: not while it holds a part of a
// clone only.
func (p *engineProcess) mayOffer() error {
	v, _ := p.state.get()
	if i := v.engine.Import; i != nil && (i.Incomplete || i.Running) {
		what := map[bool]string{true: "backup", false: "snapshot"}[i.Kind == engine.KindRestore]
		return fmt.Errorf("%w: the volume holds a part of %s %s of volume %s only: let the %s end, or ask for it again",
			engine.ErrState, what, i.Snapshot, i.Volume, i.Kind)
	}
	return nil
}
