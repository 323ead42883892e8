package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/dataplane/engine"
)

// ErrNotLeft: the engine that runs has not left the volume to this one.
var ErrNotLeft = errors.New("engine: live upgrade")

// answerTime is what the engine before may take for its answer beside what it waits for.
const answerTime = 2 * time.Second

// succeed prepares this process, has the engine that runs leave, and begins in its place, as if
// that one had been killed. After an error it has touched nothing, and ends.
func (p *engineProcess) succeed(ctx context.Context) error {
	if p.cfg.Predecessor == "" {
		return fmt.Errorf("%w: ANKOLE_PREDECESSOR is not set: this instance manager is of a version that knows another kind of "+
			"live upgrade; detach the volume to upgrade it", ErrNotLeft)
	}
	if err := p.begin(); err != nil {
		return err
	}
	members, err := p.prepare(ctx)
	if err != nil {
		return err
	}
	a, err := p.haveLeave(ctx, members)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeft, err)
	}
	p.usersWait = time.Now().Add(-time.Duration(a.PauseNanos))
	p.cfg.Log.Info("the engine before has left", "users have waited for", time.Duration(a.PauseNanos).String())
	if err := at("told"); err != nil {
		return err
	}
	p.current().loop.Post(engine.Succeed{Left: engine.Left{Purge: a.Purge}})
	return nil
}

// prepare waits until the replicas have been asked what they hold.
func (p *engineProcess) prepare(ctx context.Context) ([]string, error) {
	l := p.current()
	heard := make(chan []string, 1)
	l.loop.Post(engine.Prepare{Reply: func(members, missing []string) {
		for _, m := range missing {
			p.cfg.Log.Warn("replica is not ready for a successor", "replica", m)
		}
		heard <- members
	}})
	select {
	case members := <-heard:
		return members, at("prepared")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// haveLeave tells the engine that runs that this one is prepared, and returns when it has left.
func (p *engineProcess) haveLeave(ctx context.Context, members []string) (*enginev1.LeaveResponse, error) {
	cfg := &p.cfg
	conn, err := grpc.NewClient("passthrough:///"+cfg.Predecessor,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(cfg.Certificates.DialInstance))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, passingTime+drainTime+releaseTime+answerTime)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "volume-name", cfg.VolumeName, "instance-name", cfg.Instance)
	a, err := enginev1.NewEngineClient(conn).Leave(ctx, &enginev1.LeaveRequest{VolumeUuid: cfg.VolumeUUID,
		InstanceManager: cfg.InstanceManager, Members: members, Build: build()})
	switch s := status.Convert(err); s.Code() {
	case codes.OK:
		return a, nil
	case codes.Unimplemented:
		return nil, errors.New("the engine that runs is of a build that knows another kind of live upgrade; detach the volume " +
			"to upgrade it")
	case codes.DeadlineExceeded, codes.Canceled:
		return nil, fmt.Errorf("the engine that runs does not answer: %s", s.Message())
	default:
		return nil, fmt.Errorf("the engine that runs refuses, or has ended: %s", s.Message())
	}
}
