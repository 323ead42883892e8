package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/conflict"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/controlplane/volume/snapshot"
)

// releaseLimit bounds the removal of a ticket, which a run that is stopped does with its last
// breath: below the grace period of Pods.
const releaseLimit = 20 * time.Second

// hold has a volume attached until release is called. One that is attached already, for whomever,
// needs no ticket: if its users leave meanwhile, each order attaches it by itself.
func (r *run) hold(ctx context.Context, v *v1beta2.Volume) (release func(), err error) {
	if v.Spec.NodeID != "" {
		return func() {}, r.awaitAttached(ctx, v.Name)
	}
	node, err := r.place(ctx, v)
	if err != nil {
		return nil, err
	}
	id := naming.AttachmentTicketID(string(v1beta2.AttacherTypeSnapshot), r.Pod)
	release = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
		defer cancel()
		if err := r.tickets(ctx, v.Name, func(t map[string]v1beta2.AttachmentTicket) { delete(t, id) }); err != nil {
			slog.Warn("the attachment ticket is left to the manager", "job", r.Job, "volume", v.Name, "err", err)
		}
	}
	err = r.tickets(ctx, v.Name, func(t map[string]v1beta2.AttachmentTicket) {
		t[id] = v1beta2.AttachmentTicket{ID: id, NodeID: node, Type: v1beta2.AttacherTypeSnapshot,
			Parameters: map[string]string{
				v1beta2.AttachmentParameterDisableFrontend: v1beta2.AttachmentParameterAny,
				v1beta2.AttachmentParameterLastAttachedBy:  "recurring-job-" + r.Job,
				v1beta2.AttachmentParameterRecurringJob:    r.Job,
				v1beta2.AttachmentParameterPod:             r.Pod,
			}}
	})
	if err == nil {
		err = r.awaitAttached(ctx, v.Name)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// place is the node to which a volume is attached.
func (r *run) place(ctx context.Context, v *v1beta2.Volume) (string, error) {
	var nodes v1beta2.NodeList
	var replicas v1beta2.ReplicaList
	if err := errors.Join(r.Client.List(ctx, &nodes, client.InNamespace(r.Namespace)),
		r.Client.List(ctx, &replicas, client.InNamespace(r.Namespace), client.MatchingLabels(naming.VolumeLabels(v.Name))),
	); err != nil {
		return "", fmt.Errorf("list nodes and replicas: %w", err)
	}
	p := snapshot.PlaceOf(v, nodes.Items, replicas.Items)
	if p.Node == "" {
		return "", errors.New("no node is up that could attach it")
	}
	return p.Node, nil
}

// tickets changes the tickets of a volume.
func (r *run) tickets(ctx context.Context, volume string, edit func(map[string]v1beta2.AttachmentTicket)) error {
	err := conflict.Retry(func() error {
		var a v1beta2.VolumeAttachment
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: volume}, &a); err != nil {
			return err
		}
		before := maps.Clone(a.Spec.AttachmentTickets)
		if a.Spec.AttachmentTickets == nil {
			a.Spec.AttachmentTickets = map[string]v1beta2.AttachmentTicket{}
		}
		edit(a.Spec.AttachmentTickets)
		if len(before) == 0 && len(a.Spec.AttachmentTickets) == 0 {
			return nil
		}
		return r.Client.Update(ctx, &a)
	})
	if err != nil {
		return fmt.Errorf("change the attachment tickets of volume %s: %w", volume, err)
	}
	return nil
}

func (r *run) awaitAttached(ctx context.Context, volume string) error {
	return r.await(ctx, r.AttachLimit, "attach volume "+volume, func(ctx context.Context) (bool, string, error) {
		var v v1beta2.Volume
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: volume}, &v); err != nil {
			return false, "", fmt.Errorf("read volume %s: %w", volume, err)
		}
		why := unfit(&v, r.job.Spec.Task, true)
		if why != "" {
			return false, "", fmt.Errorf("volume %s cannot be attached: %s", volume, why)
		}
		return v.Status.State == v1beta2.VolumeStateAttached, "it is " + string(v.Status.State), nil
	})
}
