package proxy

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	enginev1 "ankole.storage/api/rpc/engine/v1"
	"ankole.storage/api/rpc/imrpc"
	"ankole.storage/api/rpc/ptypes"
)

const (
	// mega is the unit of bandwidths: the reference's field says Mbps and means MiB per second, as
	// its storage backend does.
	mega = 1 << 20
	// maxMega bounds them, so that bytes fit: 1 TiB per second is more than a machine can do.
	maxMega = 1 << 20
)

// ReplicaRebuildingQosSet bounds what rebuilds of the engine send from now on; 0 takes the bound
// away.
func (s *service) ReplicaRebuildingQosSet(ctx context.Context,
	r *imrpc.EngineReplicaRebuildingQosSetRequest) (*emptypb.Empty, error) {
	limit := r.GetQosLimitMbps()
	if limit < 0 || limit > maxMega {
		return nil, status.Errorf(codes.InvalidArgument, "qos_limit_mbps %d: want 0 (no limit) to %d MiB per second",
			limit, maxMega)
	}
	limit *= mega
	return s.set(ctx, r.GetProxyEngineRequest(), &enginev1.OptionsSetRequest{RebuildBandwidth: &limit})
}

func (s *service) ReplicaRebuildConcurrentSyncLimitSet(ctx context.Context,
	r *imrpc.EngineReplicaRebuildConcurrentSyncLimitSetRequest) (*emptypb.Empty, error) {
	limit := r.GetLimit()
	return s.set(ctx, r.GetProxyEngineRequest(), &enginev1.OptionsSetRequest{RebuildConcurrency: &limit})
}

func (s *service) ReplicaRebuildConcurrentSyncLimitGet(ctx context.Context,
	r *imrpc.ProxyEngineRequest) (*imrpc.EngineReplicaRebuildConcurrentSyncLimitGetResponse, error) {
	state, err := s.state(ctx, r)
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineReplicaRebuildConcurrentSyncLimitGetResponse{Limit: state.GetOptions().GetRebuildConcurrency()},
		nil
}

// MetricsGet tells the last whole second.
func (s *service) MetricsGet(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineMetricsGetProxyResponse,
	error) {
	m, err := call(ctx, s, r, func(ctx context.Context, c enginev1.EngineClient) (*enginev1.MetricsResponse, error) {
		return c.Metrics(ctx, &enginev1.MetricsRequest{})
	})
	if err != nil {
		return nil, err
	}
	return &imrpc.EngineMetricsGetProxyResponse{Metrics: &ptypes.Metrics{ReadThroughput: m.GetReadBytes(),
		WriteThroughput: m.GetWriteBytes(),
		ReadLatency:     m.GetReadLatencyNanos(), WriteLatency: m.GetWriteLatencyNanos(), ReadIOPS: m.GetReads(),
		WriteIOPS: m.GetWrites()}}, nil
}
