package recurringjob

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// record is what a backup keeps of a job that its volume follows.
type record struct {
	JobSpec v1beta2.RecurringJobSpec `json:"jobSpec"`
	// FromGroup are the groups of the job that the volume was in; FromJob: it has the job's own
	// label.
	FromGroup []string `json:"fromGroup,omitempty"`
	FromJob   bool     `json:"fromJob"`
}

// Record is what a backup of a volume keeps of the jobs that the volume follows, the value of label
// VolumeRecurringJobInfo; empty where there are none.
func Record(v *v1beta2.Volume, jobs []v1beta2.RecurringJob) string {
	all := map[string]record{}
	for i := range jobs {
		j := &jobs[i]
		if j.DeletionTimestamp != nil || !Follows(v, j) {
			continue
		}
		r := record{JobSpec: j.Spec, FromJob: v.Labels[naming.LabelRecurringJobPrefix+j.Name] == naming.Enabled}
		for _, group := range j.Spec.Groups {
			implied := group == v1beta2.RecurringJobGroupDefault && !naming.ChoosesJobs(v.Labels)
			if implied || v.Labels[naming.LabelRecurringJobGroupPrefix+group] == naming.Enabled {
				r.FromGroup = append(r.FromGroup, group)
			}
		}
		all[j.Name] = r
	}
	if len(all) == 0 {
		return ""
	}
	return text(all)
}

func text(o any) string {
	out, err := json.Marshal(o)
	if err != nil {
		panic(err) // structs of the API always marshal
	}
	return string(out)
}

// Restored is what follows from such a record for a volume that is made of the backup: the jobs to
// be made, of those in have that are not there, and the labels that the volume is to have. A job
// that is there with another specification stays as it is, and the one of the record is made beside
// it under a name of its own. A job that is made is in no group, and is followed by its own label:
// whoever can write to a store cannot give jobs to other volumes. most is the largest retention
// that is allowed.
func Restored(recorded string, have []v1beta2.RecurringJob, most int) (missing []*v1beta2.RecurringJob,
	labels map[string]string, err error) {
	var all map[string]record
	if err := json.Unmarshal([]byte(recorded), &all); err != nil {
		return nil, nil, fmt.Errorf("label %s of the backup: %w", naming.LabelVolumeRecurringJobInfo, err)
	}
	labels = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		j := made(name, r, most)
		if there := find(have, name); there != nil && !sameWork(&there.Spec, &j.Spec) &&
			!sameWork(&there.Spec, &r.JobSpec) {
			sum := sha256.Sum256([]byte(text(work(&j.Spec))))
			name = fmt.Sprintf("%s%x", naming.RestoredRecurringJobPrefix, sum[:4])
			j.Name, j.Spec.Name, r.FromJob = name, name, true
		}
		there := find(have, name)
		if there == nil {
			missing = append(missing, j)
			there = j
		}
		follows := r.FromJob
		for _, group := range r.FromGroup {
			if slices.Contains(there.Spec.Groups, group) {
				labels[naming.LabelRecurringJobGroupPrefix+group] = naming.Enabled
			} else {
				follows = true
			}
		}
		if follows {
			labels[naming.LabelRecurringJobPrefix+name] = naming.Enabled
		}
	}
	return missing, labels, nil
}

// made is the job of a record, in no group.
func made(name string, r record, most int) *v1beta2.RecurringJob {
	j := &v1beta2.RecurringJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: r.JobSpec}
	j.Spec.Name, j.Spec.Groups = name, []string{}
	if most > 0 {
		j.Spec.Retain = min(j.Spec.Retain, most)
	}
	return j
}

func find(jobs []v1beta2.RecurringJob, name string) *v1beta2.RecurringJob {
	for i := range jobs {
		if jobs[i].Name == name && jobs[i].DeletionTimestamp == nil {
			return &jobs[i]
		}
	}
	return nil
}

// sameWork says whether two jobs do the same at the same times, whatever their names and groups.
func sameWork(a, b *v1beta2.RecurringJobSpec) bool {
	return text(work(a)) == text(work(b))
}

func work(s *v1beta2.RecurringJobSpec) v1beta2.RecurringJobSpec {
	c := *s
	c.Name, c.Groups = "", nil
	return c
}
