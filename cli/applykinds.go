package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// appliers are the kinds that apply takes.
var appliers = map[string]applier{
	"Volume": {volumeFieldNames(), planVolume},
	"Node": {[]string{"name", "allowScheduling", "evictionRequested", "tags", "instanceManagerCPURequest",
		"disks"}, planNode},
	"Setting":      {nil, planSetting},
	"RecurringJob": {recurringJobFields, planRecurringJob},
	"Snapshot":     {[]string{"volume", "labels", "createSnapshot"}, planSnapshot},
	"EngineImage":  {[]string{"image"}, planEngineImage},
}

// volumeField is a field of a Volume's spec that can be changed, with the action that does it.
type volumeField struct {
	name, action string
	// input is the field of the action's input; empty: the same name.
	input string
	// text: the action takes the number as text.
	text bool
}

// wanted is the value as the action takes it.
func (f volumeField) wanted(value any) any {
	if f.text {
		return canonical(value)
	}
	return value
}

// volumeFields are the fields that can be changed later, beside the size.
var volumeFields = []volumeField{
	{"numberOfReplicas", resource.ActionUpdateReplicaCount, "replicaCount", false},
	{"dataLocality", resource.ActionUpdateDataLocality, "", false},
	{"accessMode", "updateAccessMode", "", false},
	{"image", resource.ActionEngineUpgrade, "", false},
	{"replicaAutoBalance", "updateReplicaAutoBalance", "", false},
	{"snapshotDataIntegrity", "updateSnapshotDataIntegrity", "", false},
	{"snapshotMaxCount", "updateSnapshotMaxCount", "", false},
	{"snapshotMaxSize", "updateSnapshotMaxSize", "", false},
	{"rebuildConcurrentSyncLimit", "updateRebuildConcurrentSyncLimit", "", false},
	{"replicaRebuildingBandwidthLimit", "updateReplicaRebuildingBandwidthLimit", "", true},
	{"backupTargetName", "updateBackupTargetName", "", false},
	{"backupCompressionMethod", "updateBackupCompressionMethod", "", false},
	{"unmapMarkSnapChainRemoved", "updateUnmapMarkSnapChainRemoved", "", false},
	{"replicaSoftAntiAffinity", "updateReplicaSoftAntiAffinity", "", false},
	{"replicaZoneSoftAntiAffinity", "updateReplicaZoneSoftAntiAffinity", "", false},
	{"replicaDiskSoftAntiAffinity", "updateReplicaDiskSoftAntiAffinity", "", false},
	{"freezeFilesystemForSnapshot", "updateFreezeFilesystemForSnapshot", "", false},
	{"offlineRebuilding", "offlineReplicaRebuilding", "", false},
}

// fixedVolumeFields are chosen when a volume is made.
var fixedVolumeFields = []string{"frontend", "staleReplicaTimeout", "diskSelector", "nodeSelector", "dataSource",
	"cloneMode",
	"migratable", "revisionCounterDisabled", "dataEngine", "backupBlockSize", "deleteSnapshotsWithVolume"}

// ignoredVolumeFields are kept by the system: a file that was read from the cluster has them.
var ignoredVolumeFields = []string{"lastAttachedBy", "restoreVolumeRecurringJob", "engineImage",
	"snapshotHashingRequestedAt"}

func volumeFieldNames() []string {
	names := []string{"size"}
	for _, f := range volumeFields {
		names = append(names, f.name)
	}
	return slices.Concat(names, fixedVolumeFields, ignoredVolumeFields)
}

// planVolume compares a volume with what is wanted of it.
func planVolume(ctx context.Context, api *client.Client, m *manifest) (*plan, error) {
	for _, f := range []string{"size", "snapshotMaxSize", "backupBlockSize"} {
		if m.given(f) {
			m.Spec[f] = canonical(m.Spec[f]) // text in the API, a number in many a file
		}
	}
	v, err := api.Volume(ctx, m.Metadata.Name)
	if client.IsNotFound(err) {
		spec := client.VolumeSpec{}
		if err := recode(m.Spec, &spec); err != nil {
			return nil, err
		}
		spec.Name = m.Metadata.Name
		if spec.Size == "" && spec.DataSource == "" {
			return nil, errors.New("there is no such volume, and without spec.size none can be made")
		}
		return &plan{creates: true, changes: []change{{"", func(ctx context.Context) error {
			_, err := api.CreateVolume(ctx, spec)
			return err
		}}}, again: func(ctx context.Context) (*plan, error) { return planVolume(ctx, api, m) }}, nil
	}
	if err != nil {
		return nil, err
	}
	view := map[string]any{}
	if err := recode(v, &view); err != nil {
		return nil, err
	}
	p := &plan{}
	for _, f := range fixedVolumeFields {
		if m.given(f) && !same(view[f], m.Spec[f]) {
			return nil, fmt.Errorf("spec.%s is %s and cannot be changed to %s: it is chosen when a volume is made", f,
				orDash(canonical(view[f])), canonical(m.Spec[f]))
		}
	}
	if m.given("size") {
		if err := planSize(api, m, v, p); err != nil {
			return nil, err
		}
	}
	for _, f := range volumeFields {
		if m.given(f.name) && !same(view[f.name], m.Spec[f.name]) {
			p.changes = append(p.changes, change{fromToText(f.name, view[f.name], m.Spec[f.name]),
				func(ctx context.Context) error {
					_, err := api.UpdateVolume(ctx, v.Name, f.action,
						map[string]any{firstText(f.input, f.name): f.wanted(m.Spec[f.name])})
					return err
				}})
		}
	}
	return p, planVolumeJobs(ctx, api, m, p)
}

// sizeGrain is what sizes of volumes are rounded up to.
const sizeGrain = 2 << 20

// planSize makes a volume larger; smaller it cannot become.
func planSize(api *client.Client, m *manifest, v *resource.Volume, p *plan) error {
	text := canonical(m.Spec["size"])
	wanted, err := parseBytes(text)
	if err != nil {
		return fmt.Errorf("spec.size: %w", err)
	}
	wanted = (wanted + sizeGrain - 1) / sizeGrain * sizeGrain
	switch has := int64(bytesIn(v.Size)); {
	case wanted < has:
		return fmt.Errorf("spec.size is %s and cannot become smaller: %s is wanted", size(has), size(wanted))
	case wanted > has:
		p.changes = append(p.changes, change{fmt.Sprintf("size %s -> %s", size(has), size(wanted)),
			func(ctx context.Context) error {
				_, err := api.ExpandVolume(ctx, v.Name, text)
				return err
			}})
	}
	return nil
}

// Labels by which a volume follows a recurring job, or a group of them.
const (
	labelJob   = "recurring-job.longhorn.io/"
	labelGroup = "recurring-job-group.longhorn.io/"
)

// planVolumeJobs has a volume follow the recurring jobs that its labels name. Other labels are not
// for apply: the API has no place for them.
func planVolumeJobs(ctx context.Context, api *client.Client, m *manifest, p *plan) error {
	var has []resource.VolumeRecurringJob
	for _, label := range sortedKeys(m.Metadata.Labels) {
		name, isJob := strings.CutPrefix(label, labelJob)
		if !isJob {
			var isGroup bool
			if name, isGroup = strings.CutPrefix(label, labelGroup); !isGroup {
				continue
			}
		}
		if has == nil {
			var err error
			if has, err = api.VolumeJobs(ctx, m.Metadata.Name); err != nil {
				return err
			}
		}
		in := resource.VolumeRecurringJobInput{Name: name, IsGroup: !isJob}
		if slices.ContainsFunc(has, func(j resource.VolumeRecurringJob) bool {
			return j.Name == name &&
				j.IsGroup == in.IsGroup
		}) {
			continue
		}
		p.changes = append(p.changes, change{"follows " + jobOrGroup(in.IsGroup) + " " + name,
			func(ctx context.Context) error {
				_, err := api.AddVolumeJob(ctx, m.Metadata.Name, in)
				return err
			}})
	}
	return nil
}

// planNode compares a node with what is wanted of it. Disks that are not named stay as they are.
func planNode(ctx context.Context, api *client.Client, m *manifest) (*plan, error) {
	name := m.Metadata.Name
	n, err := api.Node(ctx, name)
	if client.IsNotFound(err) {
		return nil, errors.New("there is no such node: nodes appear when the managers run on them")
	}
	if err != nil {
		return nil, err
	}
	p := &plan{}
	in := nodeInput(n)
	has := map[string]any{}
	if err := recode(in, &has); err != nil {
		return nil, err
	}
	wanted := maps.Clone(has)
	var texts []string
	for _, f := range []string{"allowScheduling", "evictionRequested", "tags", "instanceManagerCPURequest"} {
		if m.given(f) && !same(has[f], m.Spec[f]) {
			wanted[f] = m.Spec[f]
			texts = append(texts, fromToText(f, has[f], m.Spec[f]))
		}
	}
	if len(texts) > 0 {
		if err := recode(wanted, &in); err != nil {
			return nil, err
		}
		p.changes = append(p.changes, change{strings.Join(texts, ", "), func(ctx context.Context) error {
			_, err := api.UpdateNode(ctx, name, in)
			return err
		}})
	}
	if m.given("disks") {
		return p, planDisks(api, m, n, p)
	}
	return p, nil
}

func planDisks(api *client.Client, m *manifest, n *resource.Node, p *plan) error {
	var disks map[string]map[string]any
	if err := recode(m.Spec["disks"], &disks); err != nil {
		return fmt.Errorf("spec.disks: %w", err)
	}
	all := diskUpdates(n)
	var texts []string
	for _, name := range sortedKeys(disks) {
		old, there := all[name]
		has := map[string]any{}
		if err := recode(old, &has); err != nil {
			return err
		}
		wanted := maps.Clone(has)
		for _, f := range sortedKeys(disks[name]) {
			if _, ok := has[f]; !ok {
				return fmt.Errorf("spec.disks.%s: apply does not know %s; it knows %s", name, f, strings.Join(sortedKeys(has),
					", "))
			}
			if to := disks[name][f]; !same(has[f], to) && (there || !isEmpty(to)) {
				wanted[f] = to
				if there {
					texts = append(texts, fromToText("disk "+name+" "+f, has[f], to))
				}
			}
		}
		if !there {
			texts = append(texts, fmt.Sprintf("disk %s at %v added", name, wanted["path"]))
		}
		var d resource.DiskUpdate
		if err := recode(wanted, &d); err != nil {
			return fmt.Errorf("spec.disks.%s: %w", name, err)
		}
		all[name] = d
	}
	if len(texts) > 0 {
		p.changes = append(p.changes, change{strings.Join(texts, ", "), func(ctx context.Context) error {
			_, err := api.UpdateDisks(ctx, n.Name, resource.DiskUpdateInput{Disks: all})
			return err
		}})
	}
	return nil
}

func planSetting(ctx context.Context, api *client.Client, m *manifest) (*plan, error) {
	s, err := api.Setting(ctx, m.Metadata.Name)
	if err != nil {
		return nil, settingError(err)
	}
	if m.Value == nil {
		return nil, errors.New("it has no value")
	}
	value := canonical(m.Value)
	// A setting per data engine is kept as {"v1":"2"}; the bare value means the same.
	has := s.Value
	var perEngine map[string]string
	if s.Definition.DataEngineSpecific && json.Unmarshal([]byte(s.Value), &perEngine) == nil && perEngine["v1"] == value {
		has = value
	}
	if has == value {
		return &plan{}, nil
	}
	return &plan{changes: []change{{fromToText("value", s.Value, value), func(ctx context.Context) error {
		_, err := api.SetSetting(ctx, m.Metadata.Name, value)
		return settingError(err)
	}}}}, nil
}

// recurringJobFields are those of a RecurringJob's spec.
var recurringJobFields = []string{"name", "task", "cron", "groups", "retain", "retainAge", "retentionPolicy",
	"concurrency",
	"labels", "parameters"}

func planRecurringJob(ctx context.Context, api *client.Client, m *manifest) (*plan, error) {
	name := m.Metadata.Name
	j, err := api.RecurringJob(ctx, name)
	spec := client.RecurringJobSpec{}
	if client.IsNotFound(err) {
		if err := recode(m.Spec, &spec); err != nil {
			return nil, err
		}
		spec.Name = name
		return &plan{creates: true, changes: []change{{"", func(ctx context.Context) error {
			_, err := api.CreateRecurringJob(ctx, spec)
			return err
		}}}}, nil
	}
	if err != nil {
		return nil, err
	}
	has := map[string]any{}
	if err := recode(j, &has); err != nil {
		return nil, err
	}
	wanted := maps.Clone(has)
	var texts []string
	for _, f := range recurringJobFields {
		if f == "name" || !m.given(f) || same(has[f], m.Spec[f]) {
			continue
		}
		if f == "task" {
			return nil, fmt.Errorf("spec.task is %v and cannot be changed to %v: make another job", has[f], m.Spec[f])
		}
		wanted[f] = m.Spec[f]
		texts = append(texts, fromToText(f, has[f], m.Spec[f]))
	}
	if len(texts) == 0 {
		return &plan{}, nil
	}
	if err := recode(wanted, &spec); err != nil {
		return nil, err
	}
	return &plan{changes: []change{{strings.Join(texts, ", "), func(ctx context.Context) error {
		_, err := api.UpdateRecurringJob(ctx, spec)
		return err
	}}}}, nil
}

func planSnapshot(ctx context.Context, api *client.Client, m *manifest) (*plan, error) {
	volume := canonical(m.Spec["volume"])
	if volume == "" {
		return nil, errors.New("it has no spec.volume")
	}
	_, err := api.Volume(ctx, volume)
	if err != nil {
		return nil, named("volume", volume, err)
	}
	s, err := api.SnapshotObject(ctx, volume, m.Metadata.Name)
	switch {
	case err == nil && s.Volume != volume:
		return nil, fmt.Errorf("there is a snapshot of this name of volume %s", s.Volume)
	case err == nil:
		return &plan{}, nil
	case !client.IsNotFound(err):
		return nil, err
	case m.Spec["createSnapshot"] == false:
		return nil, errors.New("there is no such snapshot, and spec.createSnapshot is false: it describes one that is there")
	}
	in := resource.SnapshotCRInput{Name: m.Metadata.Name}
	if err := recode(m.Spec["labels"], &in.Labels); err != nil {
		return nil, fmt.Errorf("spec.labels: %w", err)
	}
	return &plan{creates: true, changes: []change{{"", func(ctx context.Context) error {
		_, err := api.OrderSnapshot(ctx, volume, in)
		return err
	}}}}, nil
}

// planEngineImage goes by the image: the server gives the object its name.
func planEngineImage(ctx context.Context, api *client.Client, m *manifest) (*plan, error) {
	image := canonical(m.Spec["image"])
	if image == "" {
		return nil, errors.New("it has no spec.image")
	}
	images, err := api.EngineImages(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(images, func(i resource.EngineImage) bool { return i.Image == image }) {
		return &plan{}, nil
	}
	return &plan{creates: true, changes: []change{{"", func(ctx context.Context) error {
		_, err := api.CreateEngineImage(ctx, image)
		return err
	}}}}, nil
}
