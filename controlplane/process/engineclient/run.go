package engineclient

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	enginebinaryv1 "ankole.storage/api/rpc/enginebinary/v1"
)

// Runner has an engine binary run on a node; Proxies.
type Runner interface {
	// Run returns how the binary ended. The codes of errors are those of the service; UNAVAILABLE
	// where nothing of the node runs binaries.
	Run(ctx context.Context, node string, r *enginebinaryv1.RunRequest) (*enginebinaryv1.RunResponse, error)
}

// maxBinaryAnswer bounds an answer in bytes: more than a binary may print
// (instancemanager/enginebinary).
const maxBinaryAnswer = 8 << 20

// Run implements Runner by the instance managers of the node: one of this release is among them
// once it runs, whichever the engine is in.
func (p *Proxies) Run(ctx context.Context, node string, r *enginebinaryv1.RunRequest) (*enginebinaryv1.RunResponse,
	error) {
	var err error
	for _, conn := range p.on(node) {
		var out *enginebinaryv1.RunResponse
		out, err = enginebinaryv1.NewEngineBinaryClient(conn).Run(ctx, r, grpc.MaxCallRecvMsgSize(maxBinaryAnswer))
		if status.Code(err) != codes.Unimplemented {
			return out, err
		}
	}
	return nil, status.Errorf(codes.Unavailable, "no instance manager on node %s runs engine binaries yet", node)
}

// on returns the connections to the instance managers of a node.
func (p *Proxies) on(node string) []*grpc.ClientConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []*grpc.ClientConn
	for _, held := range p.managers {
		if held.Node == node && held.conn != nil {
			out = append(out, held.conn)
		}
	}
	return out
}
