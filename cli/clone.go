package cli

import (
	"context"
	"fmt"
	"strings"

	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

// cloneFrom makes a volume's spec one of a clone: from is VOLUME or VOLUME/SNAPSHOT, or a data
// source as the API has it. The size is the source's.
func cloneFrom(ctx context.Context, api *client.Client, spec *client.VolumeSpec, from string) error {
	source := sourceText(from)
	volume, _, hasSnapshot := strings.Cut(source, "/")
	spec.DataSource = "vol://" + source
	if hasSnapshot {
		spec.DataSource = "snap://" + source
	}
	v, err := api.Volume(ctx, volume)
	if err != nil {
		return named("volume", volume, err)
	}
	if spec.Size == "" {
		spec.Size = v.Size
	}
	return nil
}

// sourceText is a data source as a person writes it: VOLUME or VOLUME/SNAPSHOT.
func sourceText(source string) string {
	return strings.TrimPrefix(strings.TrimPrefix(source, "vol://"), "snap://")
}

// cloneText says how far the filling of a volume from another one is; ok is false if there is
// nothing to be said.
func cloneText(v *resource.Volume) (percent int, text string, ok bool) {
	s := v.CloneStatus
	if v.DataSource == "" || s.State == "completed" || s.State == "copy-completed-awaiting-healthy" {
		return 0, "", false
	}
	text = "being cloned from " + sourceText(v.DataSource)
	if s.State == "failed" {
		text += fmt.Sprintf(", attempt %d has failed", s.AttemptCount)
		if s.NextAllowedAttemptAt != "" {
			text += ", the next one begins at " + s.NextAllowedAttemptAt
		}
		return unknownPercent, text, true
	}
	return s.Progress, text, true
}

// cloned says whether a clone holds its content.
func cloned(v *resource.Volume) (bool, error) {
	if v.CloneStatus.State == "failed" && v.CloneStatus.NextAllowedAttemptAt == "" {
		return false, fmt.Errorf("volume %s could not be cloned from %s in %d attempts; look why with: ankole event list --for volume/%s, "+
			"and delete it with: ankole volume delete %s", v.Name, sourceText(v.DataSource), v.CloneStatus.AttemptCount,
			v.Name, v.Name)
	}
	_, _, copying := cloneText(v)
	return !copying, nil
}
