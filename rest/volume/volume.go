package volume

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/index"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/node"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

const (
	// maxVolumeSize keeps the rounding, and twice the size, within 64 bits.
	maxVolumeSize = math.MaxInt64 / 4
)

func getVolume(q *serve.Request) (any, error) { return show(q, q.Params["name"]) }

// show reads one volume, live, with its parts. A missing one is 404 without a body.
func show(q *serve.Request, name string) (*resource.Volume, error) {
	p, err := readVolume(q.Context(), q.Objects, name)
	if apierrors.IsNotFound(err) {
		return nil, serve.NotFoundEmpty(err)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to get volume %s: %w", name, err)
	}
	view := volumeView(q, p)
	// Not in lists and streams, which say nothing of changes that show nowhere else.
	view.ResourceVersion = p.volume.ResourceVersion
	// By the sizes, since the Volume's status follows a wish some time later, and an engine may still
	// do what it was asked for when a wish is taken back.
	for i := range p.engines {
		e := &p.engines[i]
		has := e.SizeBytes() // 0 of an object that says nothing
		view.ExpansionRequired = view.ExpansionRequired ||
			0 < has && has < max(p.volume.DeviceBytes(), e.Spec.VolumeSize)
	}
	return view, nil
}

// readVolume reads a volume and its attachment live, and its engines and replicas from the reader.
func readVolume(ctx context.Context, o *serve.Objects, name string) (volumeParts, error) {
	var v lh.Volume
	if err := o.Get(ctx, name, &v); err != nil {
		return volumeParts{}, err
	}
	p, err := partsOf(ctx, o, &v)
	if err != nil {
		return volumeParts{}, err
	}
	var a lh.VolumeAttachment
	switch err := o.Get(ctx, name, &a); {
	case err == nil:
		p.attachment = &a
	case !apierrors.IsNotFound(err):
		return volumeParts{}, err
	}
	return p, nil
}

// partsOf reads the engines and replicas of one volume by index. A reader without indexes, as while
// nobody leads, gives those of all volumes.
func partsOf(ctx context.Context, o *serve.Objects, v *lh.Volume) (volumeParts, error) {
	var engines lh.EngineList
	var replicas lh.ReplicaList
	if o.List(ctx, &engines, index.OfVolume(v.Name)) != nil || o.List(ctx, &replicas, index.OfVolume(v.Name)) != nil {
		x, err := readParts(ctx, o)
		if err != nil {
			return volumeParts{}, err
		}
		return x.of(v), nil
	}
	serve.SortByName(engines.Items)
	serve.SortByName(replicas.Items)
	return volumeParts{volume: v, engines: engines.Items, replicas: replicas.Items}, nil
}

func (a *API) createVolume(q *serve.Request) (any, error) {
	var in resource.Volume
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	if err := checkStandby(in); err != nil {
		return nil, err
	}
	v, err := newVolume(q.Objects.Namespace, in)
	if err != nil {
		return nil, fmt.Errorf("failed to create volume: unable to create volume %s: %w", in.Name, err)
	}
	if err := checkTags(q, in); err != nil {
		return nil, err
	}
	err = checkWords(&in.VolumeSpec)
	if err == nil && v.Spec.NumberOfReplicas != 0 { // 0 is the setting's
		err = admission.CheckReplicaCount(v)
	}
	if err == nil {
		err = checkRoom(q.Context(), q.Objects, v.Spec.Size)
	}
	if err == nil {
		err = a.checkSnapshot(q, v)
	}
	if err == nil {
		err = q.Objects.Create(q.Context(), v)
	}
	if err != nil {
		return nil, fmt.Errorf("failed to create volume: unable to create volume %s: %w", in.Name, err)
	}
	return show(q, v.Name)
}

// checkStandby refuses what a standby volume cannot be.
func checkStandby(in resource.Volume) error {
	switch {
	case !in.Standby:
		return nil
	case in.Frontend != "":
		return fmt.Errorf(
			"failed to set frontend for standby volume %s: a standby volume has none until it is activated", in.Name)
	case in.FromBackup == "":
		return fmt.Errorf("failed to create standby volume %s without field FromBackup", in.Name)
	}
	return nil
}

// checkTags refuses selectors that no disk or node can ever match.
func checkTags(q *serve.Request, in resource.Volume) error {
	if len(in.DiskSelector) == 0 && len(in.NodeSelector) == 0 {
		return nil
	}
	diskTags, nodeTags, err := node.Tags(q.Context(), q.Objects)
	if err != nil {
		return err
	}
	for _, tag := range in.DiskSelector {
		if !slices.Contains(diskTags, tag) {
			return fmt.Errorf("specified disk tag %s does not exist", tag)
		}
	}
	for _, tag := range in.NodeSelector {
		if !slices.Contains(nodeTags, tag) {
			return fmt.Errorf("specified node tag %s does not exist", tag)
		}
	}
	return nil
}

// smallestVolume is the size in bytes of a volume that is asked for without one: the alignment of
// sizes, as clients of the API expect.
const smallestVolume = 2 << 20

// newVolume converts a client's wish to an object. What is left empty is filled in at admission.
func newVolume(namespace string, in resource.Volume) (*lh.Volume, error) {
	name := naming.CorrectName(in.Name)
	if err := naming.CheckVolumeName(name); err != nil {
		return nil, err
	}
	v := &lh.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{}}}
	if err := askedFields(&v.Spec, &in.VolumeSpec); err != nil {
		return nil, err
	}
	if v.Spec.Size == 0 && in.FromBackup == "" {
		v.Spec.Size = smallestVolume
	}
	if v.Spec.Frontend == lh.VolumeFrontendNone && !in.Standby {
		v.Spec.Frontend = lh.VolumeFrontendBlockDev
	}
	for _, t := range in.TopologyRequirement {
		v.Spec.TopologyRequirement = append(v.Spec.TopologyRequirement, lh.TopologyTerm{Region: t.Region, Zone: t.Zone})
	}
	for _, job := range in.RecurringJobSelector {
		v.Labels[jobLabels[job.IsGroup]+job.Name] = naming.Enabled
	}
	return v, nil
}

// parseSize reads a quantity of bytes ("20Gi", "21474836480"); empty is 0.
func parseSize(field, text string) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	n, err := apiresource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf(
			"failed to parse size %q of field %s: write a number of bytes or a quantity such as 20Gi: %w", text, field, err)
	}
	bytes, exact := n.AsInt64()
	switch {
	case n.Sign() < 0:
		return 0, fmt.Errorf("failed to parse size %q of field %s: it must not be negative", text, field)
	case !exact && n.Cmp(*apiresource.NewQuantity(maxVolumeSize, apiresource.BinarySI)) < 0:
		bytes = n.Value()
	case !exact || bytes > maxVolumeSize:
		return 0, fmt.Errorf("failed to parse size %q of field %s: it is larger than a volume can be (%d bytes)", text,
			field, int64(maxVolumeSize))
	}
	return bytes, nil
}

// versionParameter names the version of an object that a deletion is meant for: one that has
// changed since stays. It is our addition.
const versionParameter = "resourceVersion"

func deleteVolume(q *serve.Request) (any, error) {
	name := q.Params["name"]
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), name, &v); err != nil {
		return nil, fmt.Errorf("failed to delete volume %s: %w", name, err)
	}
	var options []client.DeleteOption
	version := q.URL.Query().Get(versionParameter)
	if version != "" {
		options = append(options, client.Preconditions{ResourceVersion: &version})
	}
	var snapshots lh.SnapshotList
	if err := listSnapshotsOf(q.Context(), q.Objects, name, &snapshots); err != nil {
		return nil, fmt.Errorf("failed to delete volume %s: %w", name, err)
	}
	err := q.Objects.Client.Delete(q.Context(), &v, options...)
	if lost := admission.LostWithVolume(name, snapshots.Items); lost != "" && err == nil {
		q.Warn(lost)
	}
	if version != "" && apierrors.IsConflict(err) {
		return nil, serve.Refuse(http.StatusConflict, fmt.Errorf("failed to delete volume %s: it has changed since version %s, read it again: %w",
			name, version, err))
	}
	if err != nil {
		return nil, fmt.Errorf("failed to delete volume %s: %w", name, err)
	}
	return nil, nil
}
