package recurringjob

import (
	"slices"

	"ankole.storage/api/longhorn/v1beta2"
	"ankole.storage/controlplane/object/naming"
)

// Follows says whether a volume follows a job: by the job's own label, by that of one of its
// groups, or, without any such label, as a member of group default.
func Follows(v *v1beta2.Volume, j *v1beta2.RecurringJob) bool {
	if v.Labels[naming.LabelRecurringJobPrefix+j.Name] == naming.Enabled {
		return true
	}
	for _, group := range j.Spec.Groups {
		if v.Labels[naming.LabelRecurringJobGroupPrefix+group] == naming.Enabled {
			return true
		}
	}
	return !naming.ChoosesJobs(v.Labels) && slices.Contains(j.Spec.Groups, v1beta2.RecurringJobGroupDefault)
}
