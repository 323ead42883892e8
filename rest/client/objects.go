package client

import (
	"context"
	"net/http"
	"net/url"

	"ankole.storage/rest/resource"
)

// VolumeSpec is what is wanted of a new volume: its name, its size, and what else is not left to
// the server.
type VolumeSpec = resource.VolumeSpec

// RecurringJobName names a recurring job, or a group of them, that a volume is to follow.
type RecurringJobName = resource.VolumeRecurringJob

// Volumes lists all volumes.
func (c *Client) Volumes(ctx context.Context) ([]resource.Volume, error) {
	return list[resource.Volume](ctx, c, resource.TypeVolume)
}

// Volume reads one volume.
func (c *Client) Volume(ctx context.Context, name string) (*resource.Volume, error) {
	return one[resource.Volume](ctx, c, http.MethodGet, resource.TypeVolume, name, nil)
}

// CreateVolume orders a volume; it returns at once, before the volume can be used.
func (c *Client) CreateVolume(ctx context.Context, spec VolumeSpec) (*resource.Volume, error) {
	var out resource.Volume
	if err := c.call(ctx, http.MethodPost, c.url(resource.Path(resource.TypeVolume)), spec, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteVolume orders the deletion of a volume and all its data; it returns at once.
func (c *Client) DeleteVolume(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeVolume, name)
}

// DeleteVolumeAt is DeleteVolume for the volume as it was read, with its ResourceVersion. An error
// for which IsConflict holds says that it has changed since, and is there still.
func (c *Client) DeleteVolumeAt(ctx context.Context, name, version string) error {
	u, err := c.object(resource.TypeVolume, name)
	if err != nil {
		return err
	}
	u.RawQuery = url.Values{"resourceVersion": {version}}.Encode()
	return c.call(ctx, http.MethodDelete, u, nil, nil)
}

// AttachVolume files an attachment ticket; it returns before the volume is attached.
func (c *Client) AttachVolume(ctx context.Context, name string, in resource.AttachInput) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionAttach, in)
}

// DetachVolume withdraws an attachment ticket; it returns before the volume is detached.
func (c *Client) DetachVolume(ctx context.Context, name string, in resource.DetachInput) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionDetach, in)
}

// UpdateVolume changes one field of what is wanted of a volume, by the action of that name with its
// input; it returns before the change has any effect on replicas.
func (c *Client) UpdateVolume(ctx context.Context, name, which string, in any) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, which, in)
}

// UpdateReplicaCount changes the number of replicas of an attached volume; it returns before they
// are built or removed.
func (c *Client) UpdateReplicaCount(ctx context.Context, name string, count int) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionUpdateReplicaCount,
		resource.UpdateReplicaCountInput{ReplicaCount: count})
}

// UpdateDataLocality changes the data locality of a volume: disabled, best-effort or strict-local,
// the latter while it is detached. It returns before a replica is built or removed.
func (c *Client) UpdateDataLocality(ctx context.Context, name, locality string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionUpdateDataLocality,
		resource.UpdateDataLocalityInput{DataLocality: locality})
}

// ExpandVolume asks for a larger size, a quantity such as "20Gi"; it returns before the volume has
// it. CancelExpansion takes that back unless the engine has begun.
func (c *Client) ExpandVolume(ctx context.Context, name, size string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionExpand,
		resource.ExpandInput{Size: size})
}

// CancelExpansion gives a volume that was to be expanded the size back that it has.
func (c *Client) CancelExpansion(ctx context.Context, name string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionCancelExpansion, nil)
}

// TrimFilesystem has the file system that is mounted from a volume discard what it does not use. It
// returns when that is done, which may take hours.
func (c *Client) TrimFilesystem(ctx context.Context, name string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c.patient(), resource.TypeVolume, name, resource.ActionTrimFilesystem, nil)
}

// UpgradeEngine asks for another engine image; it returns before the volume has it. Going back to
// the present one takes that back.
func (c *Client) UpgradeEngine(ctx context.Context, name, image string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionEngineUpgrade,
		resource.EngineUpgradeInput{Image: image})
}

// RemoveReplica deletes a replica of a volume, if it is not the last good one; another is built in
// its place.
func (c *Client) RemoveReplica(ctx context.Context, volume, replica string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, volume, resource.ActionReplicaRemove,
		resource.ReplicaRemoveInput{Name: replica})
}

// ActivateVolume has a standby volume become an ordinary one with a frontend.
func (c *Client) ActivateVolume(ctx context.Context, name, frontend string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionActivate,
		resource.ActivateInput{Frontend: frontend})
}

// SalvageVolume lifts the failure marks of replicas of a faulted, detached volume.
func (c *Client) SalvageVolume(ctx context.Context, name string, replicas []string) (*resource.Volume, error) {
	return action[resource.Volume](ctx, c, resource.TypeVolume, name, resource.ActionSalvage,
		resource.SalvageInput{Names: replicas})
}

// Nodes lists all nodes.
func (c *Client) Nodes(ctx context.Context) ([]resource.Node, error) {
	return list[resource.Node](ctx, c, resource.TypeNode)
}

// Node reads one node.
func (c *Client) Node(ctx context.Context, name string) (*resource.Node, error) {
	return one[resource.Node](ctx, c, http.MethodGet, resource.TypeNode, name, nil)
}

// UpdateNode changes a node; keys that are left out count as NodeInput says.
func (c *Client) UpdateNode(ctx context.Context, name string, in resource.NodeInput) (*resource.Node, error) {
	return one[resource.Node](ctx, c, http.MethodPut, resource.TypeNode, name, in)
}

// DeleteNode removes a node that is gone from Kubernetes, takes no replicas and has none.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeNode, name)
}

// UpdateDisks replaces the full set of a node's disks.
func (c *Client) UpdateDisks(ctx context.Context, name string, in resource.DiskUpdateInput) (*resource.Node, error) {
	return action[resource.Node](ctx, c, resource.TypeNode, name, resource.ActionDiskUpdate, in)
}

// Settings lists all settings.
func (c *Client) Settings(ctx context.Context) ([]resource.Setting, error) {
	return list[resource.Setting](ctx, c, resource.TypeSetting)
}

// Setting reads one setting. A name that does not exist is an error other than not found; see the
// server's message.
func (c *Client) Setting(ctx context.Context, name string) (*resource.Setting, error) {
	return one[resource.Setting](ctx, c, http.MethodGet, resource.TypeSetting, name, nil)
}

// SetSetting changes the value of a setting.
func (c *Client) SetSetting(ctx context.Context, name, value string) (*resource.Setting, error) {
	return one[resource.Setting](ctx, c, http.MethodPut, resource.TypeSetting, name, resource.SettingInput{Value: &value})
}

// EngineImages lists the engine images.
func (c *Client) EngineImages(ctx context.Context) ([]resource.EngineImage, error) {
	return list[resource.EngineImage](ctx, c, resource.TypeEngineImage)
}

// CreateEngineImage makes an engine image known; it returns before the image is on the nodes.
func (c *Client) CreateEngineImage(ctx context.Context, image string) (*resource.EngineImage, error) {
	var out resource.EngineImage
	in := map[string]string{"image": image}
	if err := c.call(ctx, http.MethodPost, c.url(resource.Path(resource.TypeEngineImage)), in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteEngineImage removes an engine image by the name of its object. One that is in use is
// refused.
func (c *Client) DeleteEngineImage(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeEngineImage, name)
}

// Orphans lists what is on the nodes and belongs to no object, in no order.
func (c *Client) Orphans(ctx context.Context) ([]resource.Orphan, error) {
	return list[resource.Orphan](ctx, c, resource.TypeOrphan)
}

// DeleteOrphan has what an orphan stands for removed; it returns before that is done.
func (c *Client) DeleteOrphan(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeOrphan, name)
}

// InstanceManagers lists the instance managers.
func (c *Client) InstanceManagers(ctx context.Context) ([]resource.InstanceManager, error) {
	return list[resource.InstanceManager](ctx, c, resource.TypeInstanceManager)
}

// Events lists the events about objects of the system, in no order. The API server forgets them
// after an hour.
func (c *Client) Events(ctx context.Context) ([]resource.Event, error) {
	return list[resource.Event](ctx, c, resource.TypeEvent)
}

// TellDeviceKeepers notes who keeps a volume on a node.
func (c *Client) TellDeviceKeepers(ctx context.Context, volume string, in resource.DeviceKeepersInput) error {
	return c.call(ctx, http.MethodPost, c.url("devicekeepers", volume), in, nil)
}

// DataLoss tells what copies there are of a volume that may not be able to start. AcceptDataLoss
// has the next engine go on with some of them if it cannot start otherwise; what only others have
// is lost.
func (c *Client) DataLoss(ctx context.Context, volume string) (*resource.DataLoss, error) {
	var out resource.DataLoss
	if err := c.call(ctx, http.MethodGet, c.url("dataloss", volume), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// AcceptDataLoss is described at DataLoss.
func (c *Client) AcceptDataLoss(ctx context.Context, volume string, in resource.AcceptDataLossInput) (
	*resource.DataLoss, error) {
	var out resource.DataLoss
	if err := c.call(ctx, http.MethodPost, c.url("dataloss", volume), in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// BackupDamage tells what there is to decide about the backup that a volume is restored from.
// DecideBackupDamage accepts that what the store does not have becomes zero, or acknowledges it.
func (c *Client) BackupDamage(ctx context.Context, volume string) (*resource.BackupDamage, error) {
	var out resource.BackupDamage
	if err := c.call(ctx, http.MethodGet, c.url("backupdamage", volume), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// DecideBackupDamage is described at BackupDamage.
func (c *Client) DecideBackupDamage(ctx context.Context, volume string, in resource.BackupDamageInput) (
	*resource.BackupDamage, error) {
	var out resource.BackupDamage
	if err := c.call(ctx, http.MethodPost, c.url("backupdamage", volume), in, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
