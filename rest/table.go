package rest

import (
	"time"
)

// New checks the configuration and returns the server of the API; Serve runs it.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	t := Table{Rights: rights, Later: later}
	volumes := &volumeAPI{EngineImage: cfg.EngineImage, Snapshots: cfg.Snapshots, Rates: cfg.Rates, Now: cfg.Now}
	t.Add(volumes.Routes(), volumes.Streams())
	nodes := &nodeAPI{EngineImage: cfg.EngineImage, Connect: cfg.Connect}
	t.Add(nodes.Routes(), nodes.Streams())
	images := &imageAPI{DialPod: cfg.DialPod}
	t.Add(images.Routes(), images.Streams())
	t.Add(backupRoutes(), backupStreams())
	t.Add(systemRoutes(), systemStreams())
	return newServer(cfg, t)
}
