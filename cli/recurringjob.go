package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/rest/client"
	"ankole.storage/rest/resource"
)

type recurringJobRow = resource.RecurringJob

// jobTasks are the tasks that a job may have.
var jobTasks = []string{"snapshot", "snapshot-force-create", "snapshot-cleanup", "snapshot-delete", "filesystem-trim",
	"backup", "backup-force-create", "system-backup"}

var recurringJobKind = output.Kind[recurringJobRow]{
	Name: "recurring-job", Id: func(j recurringJobRow) string { return j.Name },
	None: "no recurring jobs; create one with: ankole recurring-job create NAME --task snapshot --cron '@daily' --retain 7",
	Columns: []output.Column[recurringJobRow]{
		{Header: "NAME", Value: func(j recurringJobRow) string { return j.Name }},
		{Header: "TASK", Value: func(j recurringJobRow) string { return j.Task }},
		{Header: "CRON", Value: func(j recurringJobRow) string { return j.Cron }},
		{Header: "RETAIN", Right: true, Value: retained},
		{Header: "GROUPS", Value: func(j recurringJobRow) string { return strings.Join(j.Groups, ",") }},
		{Header: "RUNS", Right: true, Value: func(j recurringJobRow) string { return strconv.Itoa(j.ExecutionCount) }},
		{Header: "CONCURRENCY", Wide: true, Right: true,
			Value: func(j recurringJobRow) string { return strconv.Itoa(j.Concurrency) }},
		{Header: "LABELS", Wide: true, Value: func(j recurringJobRow) string { return pairs(j.Labels) }},
		{Header: "PARAMETERS", Wide: true, Value: func(j recurringJobRow) string { return pairs(j.Parameters) }},
	},
}

// jobApp has the commands about recurring jobs.
type jobApp struct{ *app }

// retained is how much a job keeps: a number of results, or those of a time.
func retained(j recurringJobRow) string {
	if j.RetentionPolicy == "age-based" {
		return j.RetainAge
	}
	return strconv.Itoa(j.Retain)
}

func pairs(m map[string]string) string {
	var out []string
	for _, k := range output.SortedKeys(m) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}

// parsePairs reads the values KEY=VALUE of a flag.
func parsePairs(flag string, texts []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range texts {
		k, v, ok := strings.Cut(text, "=")
		if !ok || k == "" {
			return nil, usage.Errorf("--%s %q: write KEY=VALUE", flag, text)
		}
		out[k] = v
	}
	return out, nil
}

// volumeJobKind is the table of what a volume follows.
func volumeJobKind(volume string) output.Kind[resource.VolumeRecurringJob] {
	return output.Kind[resource.VolumeRecurringJob]{
		Name: "recurring-job", Id: func(j resource.VolumeRecurringJob) string { return j.Name },
		None: "volume " + volume + " follows no recurring job; add one with: ankole recurring-job attach " + volume + " JOB",
		Columns: []output.Column[resource.VolumeRecurringJob]{
			{Header: "NAME", Value: func(j resource.VolumeRecurringJob) string { return j.Name }},
			{Header: "KIND", Value: func(j resource.VolumeRecurringJob) string { return jobOrGroup(j.IsGroup) }},
		},
	}
}

func jobOrGroup(isGroup bool) string {
	if isGroup {
		return "group"
	}
	return "job"
}

func recurringJobNames(ctx context.Context, c *client.Client) ([]string, error) {
	all, err := c.RecurringJobs(ctx)
	return namesOf(all, func(j recurringJobRow) string { return j.Name }), err
}

func (a jobApp) recurringJobCommands() *cobra.Command {
	c := &cobra.Command{Use: "recurring-job", Aliases: []string{"recurring-jobs", "job"},
		Short: "Snapshots, their removal and trims on a schedule"}
	c.AddCommand(a.recurringJobCreate(), a.recurringJobUpdate(), a.recurringJobList(), a.recurringJobShow(),
		a.recurringJobDelete(), a.volumeJobs(), a.volumeJobChange(true), a.volumeJobChange(false))
	return c
}

func (a jobApp) recurringJobList() *cobra.Command {
	return listing(a.app, recurringJobKind, "List recurring jobs",
		func(ctx context.Context, api *client.Client) ([]recurringJobRow, error) {
			return api.RecurringJobs(ctx)
		})
}

func (a jobApp) recurringJobShow() *cobra.Command {
	c := getting(a.app, recurringJobKind, "Show recurring jobs", "the job's name", recurringJobNames, recurringJobByName)
	c.Use, c.Aliases = "show NAME…", []string{"get"}
	return c
}

func recurringJobByName(ctx context.Context, api *client.Client, name string) (*recurringJobRow, error) {
	j, err := api.RecurringJob(ctx, name)
	return j, named("recurring-job", name, err)
}

// jobFlagNames are the flags by which a job can be changed.
var jobFlagNames = []string{"cron", "group", "retain", "retain-age", "concurrency", "label", "parameter"}

// jobFlags are those of create and update.
type jobFlags struct {
	client.RecurringJobSpec
	labels, parameters []string
}

func (f *jobFlags) addTo(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.Cron, "cron", "", "when it runs: minute, hour, day of month, month, day of week; or @daily and the like")
	fs.StringSliceVar(&f.Groups, "group", nil, "group the job belongs to; default is that of volumes without a job; may be "+
		"repeated")
	fs.IntVar(&f.Retain, "retain", 0, "number of snapshots of the job that are kept of each volume")
	fs.StringVar(&f.RetainAge, "retain-age", "", "keep snapshots for a time instead, for instance 72h")
	fs.IntVar(&f.Concurrency, "concurrency", 0, "number of volumes that are worked on at the same time (default 10)")
	fs.StringSliceVar(&f.labels, "label", nil, "label KEY=VALUE of the snapshots; may be repeated")
	fs.StringSliceVar(&f.parameters, "parameter", nil, "parameter KEY=VALUE of the task; may be repeated")
	for flag, fixed := range map[string][]string{
		"cron": {"@hourly", "@daily", "@weekly", "@monthly"}, "group": {"default"},
	} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(fixed, cobra.ShellCompDirectiveNoFileComp))
	}
}

// over puts the flags that were given over what a job is.
func (f *jobFlags) over(c *cobra.Command, spec *client.RecurringJobSpec) error {
	given := c.Flags().Changed
	for flag, take := range map[string]func(){
		"cron": func() { spec.Cron = f.Cron }, "group": func() { spec.Groups = f.Groups },
		"retain":      func() { spec.Retain, spec.RetentionPolicy, spec.RetainAge = f.Retain, "count-based", "" },
		"retain-age":  func() { spec.RetentionPolicy, spec.RetainAge = "age-based", f.RetainAge },
		"concurrency": func() { spec.Concurrency = f.Concurrency },
	} {
		if given(flag) {
			take()
		}
	}
	if given("retain") && given("retain-age") {
		return usage.Errorf("--retain and --retain-age exclude each other")
	}
	for _, m := range []struct {
		flag  string
		texts []string
		into  *map[string]string
	}{{"label", f.labels, &spec.Labels}, {"parameter", f.parameters, &spec.Parameters}} {
		if !given(m.flag) {
			continue
		}
		var err error
		if *m.into, err = parsePairs(m.flag, m.texts); err != nil {
			return err
		}
	}
	return nil
}

func (a jobApp) recurringJobCreate() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{Use: "create NAME --task TASK --cron WHEN", Short: "Create a recurring job",
		Example: "  ankole recurring-job create nightly --task snapshot --cron '0 3 * * *' --retain 7 --group default\n" +
			"  ankole recurring-job create trim --task filesystem-trim --cron @weekly\n" +
			"  ankole recurring-job attach demo trim",
		Args: usage.Exactly("the job's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case f.Task == "":
				return usage.Errorf("the task is missing; add for instance --task snapshot")
			case strings.TrimSpace(f.Cron) == "":
				return usage.Errorf("the schedule is missing; add for instance --cron @daily")
			}
			spec := client.RecurringJobSpec{Name: args[0], Task: f.Task}
			if err := f.over(cmd, &spec); err != nil {
				return err
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			j, err := api.CreateRecurringJob(cmd.Context(), spec)
			if err != nil {
				return err
			}
			if len(j.Groups) == 0 {
				fmt.Fprintf(a.out, "recurring job %s created; have a volume follow it with: ankole recurring-job attach VOLUME %s\n",
					j.Name, j.Name)
				return nil
			}
			fmt.Fprintf(a.out, "recurring job %s created for volumes of group %s\n", j.Name, strings.Join(j.Groups, ", "))
			return nil
		}}
	f.addTo(c)
	c.Flags().StringVar(&f.Task, "task", "", "what is done: "+strings.Join(jobTasks, ", "))
	_ = c.RegisterFlagCompletionFunc("task", cobra.FixedCompletions(jobTasks, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a jobApp) recurringJobUpdate() *cobra.Command {
	var f jobFlags
	c := &cobra.Command{Use: "update NAME…", Short: "Change recurring jobs; what no flag names stays as it is",
		Args: usage.AtLeast(1, "the job's name"), ValidArgsFunction: a.completeNames(0, recurringJobNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.ContainsFunc(jobFlagNames, cmd.Flags().Changed) {
				return usage.Errorf("nothing to change; add for instance --retain 7")
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			return a.each(args, func(name string) error { return a.updateJob(cmd, api, name, &f) })
		}}
	f.addTo(c)
	return c
}

// updateJob changes what flags name of a job.
func (a jobApp) updateJob(cmd *cobra.Command, api *client.Client, name string, f *jobFlags) error {
	j, err := api.RecurringJob(cmd.Context(), name)
	if err != nil {
		return named("recurring-job", name, err)
	}
	spec := client.RecurringJobSpec{Name: j.Name, Task: j.Task, Cron: j.Cron, Groups: j.Groups, Retain: j.Retain,
		Concurrency: j.Concurrency, Labels: maps.Clone(j.Labels), Parameters: maps.Clone(j.Parameters),
		RetainAge: j.RetainAge, RetentionPolicy: j.RetentionPolicy}
	if err := f.over(cmd, &spec); err != nil {
		return err
	}
	if _, err := api.UpdateRecurringJob(cmd.Context(), spec); err != nil {
		return named("recurring-job", name, err)
	}
	fmt.Fprintf(a.out, "recurring job %s changed\n", j.Name)
	return nil
}

func (a jobApp) recurringJobDelete() *cobra.Command {
	c := &cobra.Command{Use: "delete NAME…", Short: "Delete recurring jobs; the snapshots that they made stay",
		Args: usage.AtLeast(1, "the job's name"), ValidArgsFunction: a.completeNames(0, recurringJobNames)}
	return a.deleting(c, 0, func(ctx context.Context, api *client.Client, t target) (string, error) {
		j, err := recurringJobByName(ctx, api, t.name)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("recurring job %s: %s at %s", t.name, j.Task, j.Cron), nil
	}, func(ctx context.Context, api *client.Client, t target) (string, error) {
		return "recurring job " + t.name + " deleted", named("recurring-job", t.name, api.DeleteRecurringJob(ctx, t.name))
	})
}

func (a jobApp) volumeJobs() *cobra.Command {
	c := &cobra.Command{Use: "of VOLUME", Short: "List the jobs and groups that a volume follows",
		Args: usage.Exactly("the volume's name"), ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			all, err := api.VolumeJobs(cmd.Context(), args[0])
			if err != nil {
				return named("volume", args[0], err)
			}
			return show(a.app, volumeJobKind(args[0]), all, false)
		}}
	a.addOutput(c)
	return c
}

// volumeJobChange makes a volume follow a job or group, or ends that.
func (a jobApp) volumeJobChange(attach bool) *cobra.Command {
	var isGroup bool
	c := &cobra.Command{Use: "attach VOLUME JOB", Short: "Have a volume follow a job, or a group of jobs",
		Args: usage.Exactly("the volume's name", "the job's name"), ValidArgsFunction: a.completeNames(1, volumeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			in := resource.VolumeRecurringJobInput{Name: args[1], IsGroup: isGroup}
			change, verb := api.AddVolumeJob, "follows"
			if !attach {
				change, verb = api.RemoveVolumeJob, "does not follow"
			} else if !isGroup {
				if _, err := api.RecurringJob(cmd.Context(), in.Name); err != nil {
					return named("recurring-job", in.Name, err)
				}
			}
			if _, err := change(cmd.Context(), args[0], in); err != nil {
				return named("volume", args[0], err)
			}
			fmt.Fprintf(a.out, "volume %s %s %s %s\n", args[0], verb, jobOrGroup(isGroup), in.Name)
			return nil
		}}
	if !attach {
		c.Use, c.Short = "detach VOLUME JOB", "Have a volume not follow a job any more, or a group of jobs"
	}
	c.Flags().BoolVar(&isGroup, "group", false, "the name is that of a group")
	return c
}
