package volume

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	lh "ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/admission"
	"ankole.storage/controlplane/object/naming"
	"ankole.storage/rest/resource"
	"ankole.storage/rest/serve"
)

// jobLabels are the prefixes of the labels by which a volume follows recurring jobs: of jobs, and
// of groups of jobs. The value of such a label is naming.Enabled.
var jobLabels = map[bool]string{false: naming.LabelRecurringJobPrefix, true: naming.LabelRecurringJobGroupPrefix}

// addVolumeJob makes a volume follow a job or a group, which need not exist yet.
func addVolumeJob(q *serve.Request) (any, error) {
	return editVolumeJobs(q, func(labels map[string]string, label string) { labels[label] = naming.Enabled })
}

// removeVolumeJob ends that. The volume need not have followed it.
func removeVolumeJob(q *serve.Request) (any, error) {
	return editVolumeJobs(q, func(labels map[string]string, label string) { delete(labels, label) })
}

func editVolumeJobs(q *serve.Request, edit func(labels map[string]string, label string)) (any, error) {
	var in resource.VolumeRecurringJobInput
	if err := q.Decode(&in); err != nil {
		return nil, err
	}
	name := q.Params["name"]
	label := jobLabels[in.IsGroup] + in.Name
	err := checkJobName(in.Name)
	if err == nil {
		err = checkJobSource(q, name, label)
	}
	if err == nil {
		err = editVolume(q, name, func(v *lh.Volume) error {
			if v.Labels == nil {
				v.Labels = map[string]string{}
			}
			edit(v.Labels, label)
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("unable to update the recurring jobs of volume %s: %w", name, err)
	}
	return listVolumeJobs(q)
}

// checkJobSource refuses a change of what the labels of the volume's claim say.
func checkJobSource(q *serve.Request, name, label string) error {
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), name, &v); err != nil {
		return err
	}
	c, _, err := admission.BoundClaim(q.Context(), q.Objects.Live, &v)
	if err != nil || c == nil || !naming.IsJobSource(c.Labels) {
		return err
	}
	return fmt.Errorf("they are the labels of its claim %s/%s, which has %s=%s; change them there, for example with: "+
		"kubectl -n %[1]s label pvc %[2]s %[5]s=%[4]s", c.Namespace, c.Name, naming.LabelRecurringJobSource,
		naming.Enabled, label)
}

// checkJobName refuses what cannot be the end of a label's key.
func checkJobName(name string) error {
	if name == "" {
		return errors.New("no recurring job named: give name, and isGroup for a group")
	}
	if problems := naming.TagProblems(naming.LabelRecurringJobPrefix + name); len(problems) > 0 {
		return fmt.Errorf("invalid name %q of a recurring job or group: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

// listVolumeJobs lists the jobs that a volume follows, then the groups.
func listVolumeJobs(q *serve.Request) (any, error) {
	name := q.Params["name"]
	var v lh.Volume
	if err := q.Objects.Get(q.Context(), name, &v); err != nil {
		return nil, fmt.Errorf("unable to list the recurring jobs of volume %s: %w", name, err)
	}
	var views []resource.VolumeRecurringJob
	for _, group := range []bool{false, true} {
		for _, label := range slices.Sorted(maps.Keys(v.Labels)) {
			job, found := strings.CutPrefix(label, jobLabels[group])
			if found && v.Labels[label] == naming.Enabled {
				views = append(views, resource.VolumeRecurringJob{Name: job, IsGroup: group,
					Resource: q.Envelope(resource.TypeVolumeJob, job, resource.WhenAlways)})
			}
		}
	}
	return serve.Collection(q, resource.TypeVolumeJob, views), nil
}
