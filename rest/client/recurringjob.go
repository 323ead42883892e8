package client

import (
	"context"
	"net/http"

	"ankole.storage/rest/resource"
)

// RecurringJobSpec is what is wanted of a recurring job; what is left out the server fills in.
type RecurringJobSpec struct {
	Name            string            `json:"name"`
	Task            string            `json:"task"`
	Cron            string            `json:"cron"`
	Groups          []string          `json:"groups"`
	Retain          int               `json:"retain"`
	Concurrency     int               `json:"concurrency"`
	Labels          map[string]string `json:"labels"`
	Parameters      map[string]string `json:"parameters"`
	RetainAge       string            `json:"retainAge,omitempty"`
	RetentionPolicy string            `json:"retentionPolicy,omitempty"`
}

// RecurringJobs lists all recurring jobs.
func (c *Client) RecurringJobs(ctx context.Context) ([]resource.RecurringJob, error) {
	return list[resource.RecurringJob](ctx, c, resource.TypeRecurringJob)
}

// RecurringJob reads one recurring job.
func (c *Client) RecurringJob(ctx context.Context, name string) (*resource.RecurringJob, error) {
	return one[resource.RecurringJob](ctx, c, http.MethodGet, resource.TypeRecurringJob, name, nil)
}

// CreateRecurringJob makes a recurring job.
func (c *Client) CreateRecurringJob(ctx context.Context, spec RecurringJobSpec) (*resource.RecurringJob, error) {
	var out resource.RecurringJob
	if err := c.call(ctx, http.MethodPost, c.url(resource.Path(resource.TypeRecurringJob)), spec, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// UpdateRecurringJob replaces everything of a recurring job but its name and task.
func (c *Client) UpdateRecurringJob(ctx context.Context, spec RecurringJobSpec) (*resource.RecurringJob, error) {
	return one[resource.RecurringJob](ctx, c, http.MethodPut, resource.TypeRecurringJob, spec.Name, spec)
}

// DeleteRecurringJob deletes a recurring job and takes its label off all volumes. What it made
// stays.
func (c *Client) DeleteRecurringJob(ctx context.Context, name string) error {
	return c.remove(ctx, resource.TypeRecurringJob, name)
}

// VolumeJobs lists the recurring jobs and groups that a volume follows.
func (c *Client) VolumeJobs(ctx context.Context, volume string) ([]resource.VolumeRecurringJob, error) {
	return c.volumeJobs(ctx, volume, resource.ActionRecurringJobList, nil)
}

// AddVolumeJob makes a volume follow a job or group; the answer is what it follows then.
func (c *Client) AddVolumeJob(ctx context.Context, volume string, in resource.VolumeRecurringJobInput) (
	[]resource.VolumeRecurringJob, error) {
	return c.volumeJobs(ctx, volume, resource.ActionRecurringJobAdd, in)
}

// RemoveVolumeJob ends that.
func (c *Client) RemoveVolumeJob(ctx context.Context, volume string, in resource.VolumeRecurringJobInput) (
	[]resource.VolumeRecurringJob, error) {
	return c.volumeJobs(ctx, volume, resource.ActionRecurringJobDelete, in)
}

func (c *Client) volumeJobs(ctx context.Context, volume, which string, in any) ([]resource.VolumeRecurringJob, error) {
	out, err := action[resource.Collection[resource.VolumeRecurringJob]](ctx, c, resource.TypeVolume, volume, which, in)
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}
