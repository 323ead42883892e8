package rest

import (
	"context"
	"net"
	"time"

	"ankole.storage/api/rpc/ptypes"
	imclient "ankole.storage/instancemanager/client"
	"ankole.storage/rest/backingimage"
	"ankole.storage/rest/backup"
	"ankole.storage/rest/node"
	"ankole.storage/rest/serve"
	"ankole.storage/rest/system"
	"ankole.storage/rest/volume"
)

// Config is what the API needs.
type Config struct {
	serve.Config
	// EngineImage is the default engine image, used until setting default-engine-image is filled.
	EngineImage string
	// Rates asks the engine of a volume what its users do; nil if it does not answer. Nil: nobody is
	// asked.
	Rates func(ctx context.Context, volume string) *ptypes.Metrics
	// Connect opens a client to the instance manager at an address, for the logs of instances. Nil:
	// those are refused.
	Connect func(address string) (*imclient.Client, error)
	// DialPod connects to the processes of backing images, for uploads and downloads. Nil: those are
	// refused.
	DialPod func(ctx context.Context, address string) (net.Conn, error)
	// Snapshots returns what has engines work on snapshots, nil while this process cannot reach them.
	// Nil: such actions are refused.
	Snapshots func() volume.Snapshots
	// Now gives the time. Default: time.Now.
	Now func() time.Time
}

// New checks the configuration and returns the server of the API; its Serve runs it.
func New(cfg Config) (*serve.Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	t := serve.Table{Rights: rights, Later: later}
	volumes := &volume.API{EngineImage: cfg.EngineImage, Snapshots: cfg.Snapshots, Rates: cfg.Rates, Now: cfg.Now}
	t.Add(volumes.Routes(), volumes.Streams())
	nodes := &node.API{EngineImage: cfg.EngineImage, Connect: cfg.Connect}
	t.Add(nodes.Routes(), nodes.Streams())
	images := &backingimage.API{DialPod: cfg.DialPod}
	t.Add(images.Routes(), images.Streams())
	t.Add(backup.Routes(), backup.Streams())
	t.Add(system.Routes(), system.Streams())
	return serve.New(cfg.Config, t)
}
