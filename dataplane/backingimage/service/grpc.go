package service

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"ankole.storage/api/rpc/bimrpc"
	"ankole.storage/dataplane/backingimage"
	"ankole.storage/dataplane/backingimage/files"
	"ankole.storage/dataplane/backingimage/store"
	"ankole.storage/dataplane/disk"
	"ankole.storage/host/listener"
	"ankole.storage/host/mtls"
	"ankole.storage/host/version"
)

// Register adds the service to a server.
func (m *Manager) Register(r grpc.ServiceRegistrar) {
	bimrpc.RegisterBackingImageManagerServiceServer(r, m)
}

// named is a message that names an image.
type named interface {
	GetName() string
	GetUuid() string
}

func idOf(q named) backingimage.ID { return backingimage.ID{Name: q.GetName(), UUID: q.GetUuid()} }

// coded gives an error its code.
func coded(err error) error {
	if err == nil {
		return nil
	}
	code := codes.Internal
	switch {
	case errors.Is(err, backingimage.ErrUnknown), errors.Is(err, disk.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, backingimage.ErrRemoving), errors.Is(err, backingimage.ErrNotReady), errors.Is(err,
		files.ErrConflict),
		errors.Is(err, store.ErrDamaged):
		code = codes.FailedPrecondition
	case errors.Is(err, files.ErrBusy):
		code = codes.ResourceExhausted
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(code, err.Error())
}

func answer(i files.Image) *bimrpc.BackingImageResponse {
	r := i.Record
	return &bimrpc.BackingImageResponse{
		Spec: &bimrpc.BackingImageSpec{Name: i.ID.Name, Uuid: i.ID.UUID, Size: r.Size, Checksum: i.Expected,
			VirtualSize: r.VirtualSize, RealSize: r.RealSize},
		Status: &bimrpc.BackingImageStatus{State: string(i.File.State), ErrorMsg: i.File.Message,
			SendingReference: int32(i.File.Sending), SenderManagerAddress: i.Sender, Progress: int32(i.File.Progress()),
			Checksum: i.File.Checksum},
	}
}

// Delete implements the service.
func (m *Manager) Delete(ctx context.Context, q *bimrpc.DeleteRequest) (*emptypb.Empty, error) {
	id := idOf(q)
	if err := id.Check(); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	err := m.files.Remove(ctx, id, false)
	if errors.Is(err, backingimage.ErrUnknown) {
		// A data source may have left something that no manager has taken over.
		err = errors.Join(m.disk.Check(), m.disk.Erase(backingimage.InManager(m.disk.Root(), id)),
			m.disk.Erase(backingimage.InSource(m.disk.Root(), id)))
	}
	return &emptypb.Empty{}, coded(err)
}

// Get implements the service.
func (m *Manager) Get(_ context.Context, q *bimrpc.GetRequest) (*bimrpc.BackingImageResponse, error) {
	i, err := m.files.Get(idOf(q))
	if err != nil {
		return nil, coded(err)
	}
	return answer(i), nil
}

// List implements the service.
func (m *Manager) List(context.Context, *emptypb.Empty) (*bimrpc.ListResponse, error) {
	all := map[string]*bimrpc.BackingImageResponse{}
	for _, i := range m.files.List() {
		all[i.ID.Name] = answer(i)
	}
	return &bimrpc.ListResponse{BackingImages: all}, nil
}

// VersionGet implements the service.
func (m *Manager) VersionGet(context.Context, *emptypb.Empty) (*bimrpc.VersionResponse, error) {
	return &bimrpc.VersionResponse{Version: version.Version, GitCommit: version.GitCommit, BuildDate: version.BuildDate,
		BackingImageManagerApiVersion: APIVersion, BackingImageManagerApiMinVersion: APIMinVersion}, nil
}

// checked says what is wrong with the spec of an order.
func checked(spec *bimrpc.BackingImageSpec) error {
	err := errors.Join(idOf(spec).Check(), backingimage.CheckChecksum(spec.GetChecksum()))
	if err == nil && spec.GetSize() < 0 {
		err = errors.New("the size is negative")
	}
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return nil
}

// Sync implements the service.
func (m *Manager) Sync(_ context.Context, q *bimrpc.SyncRequest) (*bimrpc.BackingImageResponse, error) {
	if err := checked(q.GetSpec()); err != nil {
		return nil, err
	}
	if listener.Host(q.GetFromAddress()) == q.GetFromAddress() {
		return nil, status.Errorf(codes.InvalidArgument, "from_address %.80q is not HOST:PORT of another manager",
			q.GetFromAddress())
	}
	id, sum := idOf(q.GetSpec()), q.GetSpec().GetChecksum()
	i, _, err := m.files.Order(id, sum, q.GetFromAddress(), m.copyFrom(id, q.GetFromAddress(), sum, q.GetSpec().GetSize()))
	if err != nil {
		return nil, coded(err)
	}
	return answer(i), nil
}

// Fetch implements the service.
func (m *Manager) Fetch(_ context.Context, q *bimrpc.FetchRequest) (*bimrpc.BackingImageResponse, error) {
	if err := checked(q.GetSpec()); err != nil {
		return nil, err
	}
	id, sum := idOf(q.GetSpec()), q.GetSpec().GetChecksum()
	i, _, err := m.files.Order(id, sum, "", m.takeOver(id, sum, q.GetDataSourceAddress()))
	if err != nil {
		return nil, coded(err)
	}
	return answer(i), nil
}

// Send implements the service.
func (m *Manager) Send(_ context.Context, q *bimrpc.SendRequest) (*emptypb.Empty, error) {
	if listener.Host(q.GetToAddress()) == q.GetToAddress() {
		return nil, status.Errorf(codes.InvalidArgument, "to_address %.80q is not HOST:PORT of a receiver", q.GetToAddress())
	}
	if err := m.files.Send(idOf(q), send(q.GetToAddress(), q.GetToken())); err != nil {
		return nil, coded(err)
	}
	return &emptypb.Empty{}, nil
}

// PrepareDownload implements the service.
func (m *Manager) PrepareDownload(_ context.Context,
	q *bimrpc.PrepareDownloadRequest) (*bimrpc.PrepareDownloadResponse, error) {
	i, err := m.files.Get(idOf(q))
	if err != nil {
		return nil, coded(err)
	}
	if !i.File.Complete() {
		return nil, status.Errorf(codes.FailedPrecondition, "backing image %s is %s: it can be downloaded when it is ready",
			i.ID, i.File.State)
	}
	return &bimrpc.PrepareDownloadResponse{SrcFilePath: i.Path, Address: m.cfg.FileAddress}, nil
}

// Watch implements the service.
func (m *Manager) Watch(_ *emptypb.Empty, stream grpc.ServerStreamingServer[emptypb.Empty]) error {
	for {
		changed := m.files.Changed()
		if err := stream.Send(&emptypb.Empty{}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// open are the methods that managers on other nodes call; the others are for controllers.
var open = []string{bimrpc.BackingImageManagerService_Send_FullMethodName,
	bimrpc.BackingImageManagerService_VersionGet_FullMethodName, "/grpc.health.v1.Health/Check"}

// OrdersOfControllers refuses the orders of other nodes where certificates tell nodes from
// controllers: a node may have an image sent, and nothing else.
func OrdersOfControllers(own *mtls.Source) []grpc.ServerOption {
	permit := func(ctx context.Context, method string) error {
		if slices.Contains(open, method) {
			return own.Permit(ctx)
		}
		return own.PermitOrder(ctx)
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			if err := permit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return handle(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
			handle grpc.StreamHandler) error {
			if err := permit(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return handle(srv, stream)
		}),
	}
}
