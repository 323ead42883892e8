package manager

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"ankole.storage/controlplane/allocator"
	"ankole.storage/controlplane/backingimage/image"
	bimanager "ankole.storage/controlplane/backingimage/manager"
	"ankole.storage/controlplane/backingimage/source"
	"ankole.storage/controlplane/backup/backup"
	"ankole.storage/controlplane/backup/backupimage"
	"ankole.storage/controlplane/backup/backuptarget"
	"ankole.storage/controlplane/backup/backupvolume"
	"ankole.storage/controlplane/backup/store"
	"ankole.storage/controlplane/backup/verification"
	"ankole.storage/controlplane/keys/peerkeys"
	"ankole.storage/controlplane/keys/volumekey"
	"ankole.storage/controlplane/node"
	"ankole.storage/controlplane/node/engineimage"
	"ankole.storage/controlplane/node/instancemanager"
	"ankole.storage/controlplane/node/orphan"
	"ankole.storage/controlplane/node/settingsync"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/process/engine"
	"ankole.storage/controlplane/process/engineclient"
	"ankole.storage/controlplane/process/heard"
	"ankole.storage/controlplane/process/replica"
	"ankole.storage/controlplane/recurringjob"
	"ankole.storage/controlplane/volume"
	"ankole.storage/controlplane/volume/attachment"
	"ankole.storage/controlplane/volume/claim"
	"ankole.storage/controlplane/volume/integrity"
	"ankole.storage/controlplane/volume/snapshot"
	"ankole.storage/controlplane/volume/workload"
)

// Reconciler looks after one kind. Every package of a kind has
//
//	func New(…) *Reconciler
//	func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error
//
// where SetupWithManager calls loop.Setup. The reconcilers run on the leader only; mgr's client
// reads a cache of all objects in the manager's namespace and writes to the API server, its
// GetAPIReader reads live.
type Reconciler interface {
	SetupWithManager(mgr ctrl.Manager) error
}

// reconcilers lists everybody's reconcilers, in the order they are set up. A new kind is added here
// and nowhere else.
func (p *control) reconcilers(mgr ctrl.Manager, keys *volumekey.Keys) ([]Reconciler, error) {
	cfg := p.cfg
	lists, streams, processes, err := p.follow(mgr)
	if err != nil {
		return nil, err
	}
	proxies := engineclient.NewProxies(p.dial)
	binary := engineclient.NewBinary(proxies, proxies, cfg.EngineImage)
	engines := engineclient.NewRouter(proxies, binary)
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		<-ctx.Done()
		proxies.Close()
		binary.Close()
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("register the clients of engines: %w", err)
	}
	certificates := &peerkeys.Keeper{Client: p.live, Namespace: cfg.Namespace, Make: cfg.MutualTLS,
		Wanted: p.certificateWanted}
	if err := mgr.Add(certificates); err != nil {
		return nil, fmt.Errorf("register who renews certificates: %w", err)
	}
	if err := mgr.Add(keys); err != nil {
		return nil, fmt.Errorf("register who keeps the master keys of volumes: %w", err)
	}
	//lint:ignore SA1019 clients of the reference read core/v1 events, which only the old recorder writes
	events := mgr.GetEventRecorderFor(naming.EventSource("engine"))
	p.who.calls.Store(&snapshot.Calls{Engines: engines, Events: events})
	limits := allocator.New(cfg.Namespace, nil)
	stores := &store.Access{Namespace: cfg.Namespace, Image: cfg.EngineImage, Cached: mgr.GetClient(), Live: p.live,
		Runner: proxies}
	parts := verification.NewParts()
	running := engine.New(engine.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Logs: processes,
		Heard: lists, Keys: keys, Purge: engines.SnapshotPurge, Credentials: stores.Credentials}, processes, engines)
	p.who.streams.Store(running.Monitor())
	return append(p.imageReconcilers(engines, stores, parts),
		limits,
		settingsync.New(settingsync.Config{
			Namespace: cfg.Namespace, ServiceAccount: cfg.ServiceAccount, Fixed: fixedSettings(cfg),
		}),
		node.New(cfg.Namespace),
		engineimage.New(engineimage.Config{
			Namespace: cfg.Namespace, NodeName: cfg.NodeName, ServiceAccount: cfg.ServiceAccount, Runner: proxies,
		}),
		instancemanager.New(instancemanager.Config{
			Namespace: cfg.Namespace, NodeName: cfg.NodeName, ServiceAccount: cfg.ServiceAccount, Follower: streams,
			Heard: lists, Close: processes.CloseIdle, Proxies: proxies,
			Certificates: p.certificates.Problem, CertificatesChanged: p.certificates.Changed(), Plaintext: p.plaintext,
			Budgets: allocator.NewBudgets(nil),
		}),
		volume.New(volume.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Allocator: limits, Keys: keys}),
		attachment.New(attachment.Config{Namespace: cfg.Namespace}),
		running,
		snapshot.New(snapshot.Config{Namespace: cfg.Namespace}, engines),
		backuptarget.New(backuptarget.Config{NodeName: cfg.NodeName, Access: stores}),
		backupvolume.New(backupvolume.Config{NodeName: cfg.NodeName, Access: stores, Parts: parts}),
		backup.New(backup.Config{NodeName: cfg.NodeName, Access: stores, Engines: engines}),
		integrity.New(cfg.Namespace, engines),
		orphan.New(orphan.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Heard: lists}, processes),
		replica.New(replica.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Logs: processes, Keys: keys,
			Heard: lists}, processes),
		recurringjob.New(recurringjob.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName, Image: cfg.ManagerImage,
			ServiceAccount: naming.ServiceAccountJobs}),
		workload.New(cfg.Namespace),
		claim.New(cfg.Namespace),
	), nil
}

// follow has instance managers followed, what they say is in the lists, and asked for processes.
func (p *control) follow(mgr ctrl.Manager) (lists *heard.Lists, streams *instancemanager.Streams,
	processes *instancemanager.Callers, err error) {
	lists = heard.New(p.cfg.Namespace)
	streams, processes = instancemanager.NewStreams(p.connect, lists), instancemanager.NewCallers(p.connect)
	for _, r := range []manager.Runnable{streams, processes} {
		if err := mgr.Add(r); err != nil {
			return nil, nil, nil, fmt.Errorf("register the connections to instance managers: %w", err)
		}
	}
	return lists, streams, processes, nil
}

// imageReconcilers are those of backing images and their backups; engines send the volumes that are
// exported, stores have the backups, parts verify them.
func (p *control) imageReconcilers(engines *engineclient.Router, stores *store.Access,
	parts *verification.Parts) []Reconciler {
	cfg := p.cfg
	return []Reconciler{
		image.New(image.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName}),
		source.New(source.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName, ServiceAccount: cfg.ServiceAccount,
			Dial: p.dialer.Dial, Plaintext: p.plaintext, Engines: engines, Access: stores, Connect: p.dial}),
		backupimage.New(backupimage.Config{NodeName: cfg.NodeName, Access: stores, Parts: parts, Connect: p.dial}),
		bimanager.New(bimanager.Config{Namespace: cfg.Namespace, NodeName: cfg.NodeName,
			ServiceAccount: cfg.ServiceAccount, Dial: p.dial, Plaintext: p.plaintext}),
	}
}
