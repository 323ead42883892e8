package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
	"ankole.storage/host/version"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// Words for the health of a cluster.
const (
	healthGood     = "healthy"
	healthDegraded = "degraded"
	healthFaulted  = "faulted"
)

const (
	// recentWarnings is how many warnings the screen has room for.
	recentWarnings = 5
	// warningAge is how old a warning may be to be shown.
	warningAge = time.Hour
)

// errUnhealthy is the answer of --check.
var errUnhealthy = errors.New("the cluster is not healthy")

// clusterState is everything that the status is made of.
type clusterState struct {
	nodes    []resource.Node
	volumes  []resource.Volume
	images   []resource.EngineImage
	managers []resource.InstanceManager
	settings []resource.Setting
	// orphans and events may be missing when the caller lacks the right; unseen names them.
	orphans []resource.Orphan
	events  []eventRow
	unseen  []string
}

// statusReport is the cluster on one screen.
type statusReport struct {
	Server string `json:"server"`
	Health string `json:"health"`
	// Nodes and Volumes are counts by state, "all" among them.
	Nodes    map[string]int     `json:"nodes"`
	Volumes  map[string]int     `json:"volumes"`
	Capacity capacity           `json:"capacity"`
	Versions versions           `json:"versions"`
	Orphans  int                `json:"orphans"`
	Problems []findings.Finding `json:"problems"`
	GoingOn  []findings.Finding `json:"goingOn"`
	// Limits are what hosts lack for what nobody uses yet.
	Limits   []findings.Finding `json:"limits"`
	Unseen   []string           `json:"unseen,omitempty"`
	warnings []eventRow
}

// capacity is in bytes, over the disks of nodes that are ready.
type capacity struct {
	Disks     int   `json:"disks"`
	Size      int64 `json:"size"`
	Available int64 `json:"available"`
	// Scheduled is what the replicas would take if they were full, of at most Schedulable; that is
	// 0 if the setting that makes it is not known.
	Scheduled   int64 `json:"scheduled"`
	Schedulable int64 `json:"schedulable"`
}

type versions struct {
	Client string `json:"client"`
	// Cluster is what setting current-longhorn-version says.
	Cluster string `json:"cluster"`
	// EngineImage is the default one, which Current of Volumes volumes have.
	EngineImage string `json:"engineImage"`
	Current     int    `json:"volumesWithIt"`
	// InstanceManagers are their images.
	InstanceManagers []string `json:"instanceManagerImages"`
}

// lookApp has the commands that show how things are, and why.
type lookApp struct{ *app }

func (a lookApp) statusCommand() *cobra.Command {
	var check bool
	c := &cobra.Command{Use: "status", Short: "Show the cluster on one screen: health, what is wrong and why, capacity, versions",
		Long: "Show the cluster on one screen: its health, what is wrong and what to do about it, capacity, versions, what is\n" +
			"going on, and recent warnings.",
		Args: usage.Exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := a.client()
			if err != nil {
				return err
			}
			state, err := readCluster(cmd.Context(), api)
			if err != nil {
				return err
			}
			r := report(state, api.Server(), a.now())
			if err := a.showStatus(r); err != nil {
				return err
			}
			if check && r.Health != healthGood {
				return errUnhealthy
			}
			return nil
		}}
	c.Flags().BoolVar(&check, "check", false, "exit with 1 unless the cluster is healthy")
	a.addOutput(c)
	return c
}

// readCluster reads what there is. Lists that are no part of the health may be forbidden.
func readCluster(ctx context.Context, api *client.Client) (*clusterState, error) {
	var s clusterState
	var err error
	optional := func(what string, err error) error {
		if client.IsForbidden(err) {
			s.unseen = append(s.unseen, what)
			return nil
		}
		return err
	}
	for _, read := range []func() error{
		func() error { s.nodes, err = api.Nodes(ctx); return err },
		func() error { s.volumes, err = api.Volumes(ctx); return err },
		func() error { s.images, err = api.EngineImages(ctx); return err },
		func() error { s.managers, err = api.InstanceManagers(ctx); return optional("instance managers", err) },
		func() error { s.settings, err = api.Settings(ctx); return optional("settings", err) },
		func() error { s.orphans, err = api.Orphans(ctx); return optional("orphans", err) },
		func() error { s.events, err = events(ctx, api); return optional("events", err) },
	} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	return &s, nil
}

// report judges a cluster.
func report(s *clusterState, server string, now time.Time) *statusReport {
	r := &statusReport{Server: server, Nodes: map[string]int{"all": len(s.nodes), "ready": 0},
		Volumes: map[string]int{"all": len(s.volumes)}, Capacity: capacityOf(s), Versions: versionsOf(s),
		Orphans: len(s.orphans), Problems: []findings.Finding{}, GoingOn: []findings.Finding{}, Limits: []findings.Finding{},
		Unseen: s.unseen}
	for i := range s.volumes {
		v := &s.volumes[i]
		r.Volumes[v.State]++
		if v.Robustness != "unknown" {
			r.Volumes[v.Robustness]++
		}
		r.Problems = append(r.Problems, findings.VolumeProblems(v)...)
		r.GoingOn = append(r.GoingOn, findings.VolumeActivity(v)...)
	}
	encrypted := slices.ContainsFunc(s.volumes, func(v resource.Volume) bool { return v.Encrypted })
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.Conditions["Ready"].Status == "True" {
			r.Nodes["ready"]++
		}
		r.Problems = append(r.Problems, findings.NodeProblems(n, encrypted)...)
		r.GoingOn = append(r.GoingOn, findings.NodeActivity(n)...)
		r.Limits = append(r.Limits, findings.NodeLimits(n, encrypted)...)
	}
	for i := range s.managers {
		if !ofLostNode(s.nodes, s.managers[i].NodeID) {
			r.Problems = append(r.Problems, findings.ManagerProblems(&s.managers[i])...)
		}
	}
	for i := range s.images {
		r.Problems = append(r.Problems, findings.ImageProblems(&s.images[i])...)
	}
	r.Problems = append(r.Problems, findings.SettingProblems(s.settings)...)
	for _, e := range newerThan(s.events, warningAge, now) {
		if e.e.Type == "Warning" {
			r.warnings = append(r.warnings, e)
		}
	}
	r.warnings = r.warnings[max(0, len(r.warnings)-recentWarnings):]
	r.Health = health(r)
	return r
}

// ofLostNode reports whether a node is known not to be ready: what is on it needs no line of its
// own.
func ofLostNode(nodes []resource.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n resource.Node) bool {
		return n.Name == name && n.Conditions["Ready"].Status != "True"
	})
}

func health(r *statusReport) string {
	switch {
	case r.Volumes[healthFaulted] > 0, r.Nodes["ready"] == 0:
		return healthFaulted
	case len(r.Problems) > 0:
		return healthDegraded
	}
	return healthGood
}

// capacityOf adds up the disks of nodes that are ready.
func capacityOf(s *clusterState) capacity {
	var c capacity
	percent := int64(0)
	for _, set := range s.settings {
		if set.Name == "storage-over-provisioning-percentage" {
			percent, _ = strconv.ParseInt(set.Value, 10, 64) // another form leaves it unknown
		}
	}
	for _, n := range s.nodes {
		if n.Conditions["Ready"].Status != "True" {
			continue
		}
		for _, d := range n.Disks {
			c.Disks++
			c.Size += d.StorageMaximum
			c.Available += d.StorageAvailable
			c.Scheduled += d.StorageScheduled
			c.Schedulable += max(d.StorageMaximum-d.StorageReserved, 0) * percent / 100
		}
	}
	return c
}

func versionsOf(s *clusterState) versions {
	v := versions{Client: version.Version, InstanceManagers: []string{}}
	for _, set := range s.settings {
		if set.Name == "current-longhorn-version" {
			v.Cluster = set.Value
		}
	}
	for _, i := range engineImageRows(s.images, s.volumes) {
		if i.Default {
			v.EngineImage, v.Current = i.Image, i.Volumes
		}
	}
	for _, m := range s.managers {
		if !slices.Contains(v.InstanceManagers, m.Image) {
			v.InstanceManagers = append(v.InstanceManagers, m.Image)
		}
	}
	slices.Sort(v.InstanceManagers)
	return v
}

func (a lookApp) showStatus(r *statusReport) error {
	switch a.output {
	case output.JSON, output.YAML:
		return a.encode(r)
	case output.Name:
		fmt.Fprintln(a.out, r.Health)
		return nil
	}
	s := a.sheet(nil)
	text := r.Health
	if len(r.Problems) > 0 {
		text += ", " + output.Count(len(r.Problems), "problem")
	}
	s.Pair("Health", "%s", text)
	s.Pair("Server", "%s", r.Server)
	s.Pair("Nodes", "%d of %d ready", r.Nodes["ready"], r.Nodes["all"])
	s.Pair("Volumes", "%s", volumeCounts(r.Volumes))
	s.Pair("Capacity", "%s", r.Capacity)
	s.Pair("Versions", "%s", r.Versions.text(r.Volumes["all"]))
	if r.Orphans > 0 {
		s.Pair("Orphans", "%d%s", r.Orphans, a.spelled("; look at them with: ankole orphan list"))
	}
	if len(r.Unseen) > 0 {
		s.Pair("Not shown", "%s: no right to list them", strings.Join(r.Unseen, ", "))
	}
	view.PrintFindings(s, "Problems", r.Problems)
	view.PrintFindings(s, "Going on", r.GoingOn)
	view.PrintFindings(s, "Not possible here, and not used", r.Limits)
	if len(r.warnings) > 0 {
		s.Title("Recent warnings")
		return output.WriteIn(a.out, "  ", eventKind(a.now).Columns, r.warnings)
	}
	return s.Err
}

// volumeCounts counts volumes by their states, in a fixed order.
func volumeCounts(m map[string]int) string {
	if m["all"] == 0 {
		return "none"
	}
	var parts []string
	for _, state := range []string{"attached", "detached", "attaching", "detaching", "creating", "deleting"} {
		if m[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", m[state], state))
		}
	}
	text := fmt.Sprintf("%d: %s", m["all"], strings.Join(parts, ", "))
	parts = nil
	for _, state := range []string{healthGood, healthDegraded, healthFaulted} {
		if m[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", m[state], state))
		}
	}
	if len(parts) > 0 {
		text += "; " + strings.Join(parts, ", ")
	}
	return text
}

func (c capacity) String() string {
	text := fmt.Sprintf("%s on %s, %s available", output.Size(c.Size), output.Count(c.Disks, "disk"),
		output.Size(c.Available))
	if c.Schedulable > 0 {
		return text + fmt.Sprintf("; replicas may grow to %s of %s", output.Size(c.Scheduled), output.Size(c.Schedulable))
	}
	return text + fmt.Sprintf("; replicas may grow to %s", output.Size(c.Scheduled))
}

func (v versions) text(volumes int) string {
	text := fmt.Sprintf("cluster %s, this program %s", output.OrUnknown(v.Cluster), v.Client)
	if v.EngineImage != "" {
		text += fmt.Sprintf("; engine image %s (%d of %s)", v.EngineImage, v.Current, output.Count(volumes, "volume"))
	}
	if len(v.InstanceManagers) > 1 {
		text += "; instance managers of " + strings.Join(v.InstanceManagers, ", ")
	}
	return text
}

func (a lookApp) sheet(waits []string) *output.Sheet {
	return output.NewSheet(a.out, a.now, waits, a.spelled)
}
