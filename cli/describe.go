package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ankole.storage/cli/output"
	"ankole.storage/cli/usage"
	"ankole.storage/cli/view"
	"ankole.storage/rest/client"
	"ankole.storage/rest/findings"
	"ankole.storage/rest/resource"
)

// described is an object with what belongs to it, as JSON and YAML show it.
type described struct {
	// Object is without its own waitsFor, which WaitsFor has.
	Object any `json:"object"`
	// WaitsFor says why the object is not as it is wanted, and what is going on.
	WaitsFor []string         `json:"waitsFor"`
	Events   []resource.Event `json:"events"`
	// print writes it for people; the events come after it.
	print func(*output.Sheet)
	// of is the object of the events, KIND/NAME.
	of string
}

// Objects without their own field waitsFor: that of an outer struct takes its name.
type (
	volumeObject struct {
		*resource.Volume
		WaitsFor []string `json:"waitsFor,omitempty"`
	}
	nodeObject struct {
		*resource.Node
		WaitsFor []string `json:"waitsFor,omitempty"`
	}
	imageObject struct {
		*engineImageRow
		WaitsFor []string `json:"waitsFor,omitempty"`
	}
	managerObject struct {
		*resource.InstanceManager
		WaitsFor []string `json:"waitsFor,omitempty"`
	}
)

// describing is a command that shows objects of a kind with their conditions, tickets and events.
func (a lookApp) describing(kindWord, what string, names func(context.Context, *client.Client) ([]string, error),
	read func(context.Context, *client.Client, string) (*described, error)) *cobra.Command {
	c := &cobra.Command{Use: "describe NAME…", Short: "Show everything about " + kindWord +
		": what it waits for, conditions, events",
		Args: usage.AtLeast(1, what), ValidArgsFunction: a.completeNames(0, names)}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := a.client()
		if err != nil {
			return err
		}
		all, eventsErr := events(cmd.Context(), api)
		if eventsErr != nil && !client.IsForbidden(eventsErr) {
			return eventsErr
		}
		var shown []*described
		err = a.each(args, func(name string) error {
			d, err := read(cmd.Context(), api, name)
			if err != nil {
				return err
			}
			d.Events, d.WaitsFor = []resource.Event{}, append([]string{}, d.WaitsFor...)
			rows := eventsOf(all, d.of)
			for _, e := range rows {
				d.Events = append(d.Events, e.Event)
			}
			if a.output == output.Plain || a.output == output.Wide {
				if len(shown) > 0 {
					fmt.Fprintln(a.out)
				}
				a.printDescribed(d, rows, eventsErr)
			}
			shown = append(shown, d)
			return nil
		})
		return errors.Join(a.encodeDescribed(shown, len(args) == 1), err)
	}
	a.addOutput(c)
	return c
}

func (a lookApp) printDescribed(d *described, rows []eventRow, eventsErr error) {
	s := a.sheet(d.WaitsFor)
	d.print(s)
	if eventsErr != nil {
		s.Printf("\nEvents are not shown: %s\n", output.OneLine(eventsErr.Error()))
		return
	}
	output.SheetTable(s, "Events", eventKind(a.now).Columns, rows)
}

func (a lookApp) encodeDescribed(shown []*described, single bool) error {
	switch {
	case len(shown) == 0:
		return nil
	case a.output == output.Name:
		for _, d := range shown {
			fmt.Fprintln(a.out, d.of)
		}
	case a.output == output.JSON || a.output == output.YAML:
		if single {
			return a.encode(shown[0])
		}
		return a.encode(shown)
	}
	return nil
}

// describeVolume is everything about a volume.
func describeVolume(ctx context.Context, api *client.Client, name string) (*described, error) {
	v, err := api.Volume(ctx, name)
	if err != nil {
		return nil, named("volume", name, err)
	}
	return &described{Object: volumeObject{Volume: v}, WaitsFor: v.WaitsFor, of: "volume/" + name,
		print: func(s *output.Sheet) { printVolume(s, v) }}, nil
}

// ticketRow is who wants a volume where.
type ticketRow struct {
	id string
	resource.Attachment
}

var ticketColumns = []output.Column[ticketRow]{
	{Header: "TICKET", Value: func(t ticketRow) string { return t.id }},
	{Header: "BY", Value: func(t ticketRow) string { return t.AttachmentType }},
	{Header: "NODE", Value: func(t ticketRow) string { return t.NodeID }},
	{Header: "SATISFIED", Value: func(t ticketRow) string { return output.YesNo(t.Satisfied) }},
	{Header: "NOTE", Value: func(t ticketRow) string {
		return strings.TrimPrefix(findings.TicketReason(t.Attachment), ": ")
	}},
}

var engineColumns = []output.Column[resource.Controller]{
	{Header: "ENGINE", Value: func(e resource.Controller) string { return e.Name }},
	{Header: "NODE", Value: func(e resource.Controller) string { return e.HostID }},
	{Header: "RUNNING", Value: func(e resource.Controller) string { return output.YesNo(e.Running) }},
	{Header: "ENDPOINT", Value: func(e resource.Controller) string { return e.Endpoint }},
	{Header: "IMAGE", Value: func(e resource.Controller) string { return output.FirstText(e.CurrentImage, e.Image) }},
}

func printVolume(s *output.Sheet, v *resource.Volume) {
	s.Pair("Volume", "%s", v.Name)
	state := v.State
	if v.State == "attached" {
		state += ", " + v.Robustness
	} else if v.Robustness == "faulted" {
		state += ", faulted"
	}
	if at := findings.AttachedTo(*v); at != "" {
		state += ", on " + at
	}
	if e := view.Endpoint(*v); e != "" {
		state += ", " + e
	}
	s.Pair("State", "%s", state)
	s.Pair("Size", "%s", strings.TrimSuffix(fmt.Sprintf("%s (%s bytes), used %s", output.SizeText(v.Size), v.Size,
		view.UsedText(*v)), ", used "))
	s.Pair("Replicas", "%s, data locality %s", view.ReplicasText(*v), output.OrDash(v.DataLocality))
	s.Pair("Access", "%s, frontend %s", output.OrDash(v.AccessMode), output.OrDash(v.Frontend))
	s.Pair("Engine image", "%s", output.FirstText(v.CurrentImage, v.Image))
	if len(v.DiskSelector)+len(v.NodeSelector) > 0 {
		s.Pair("Only on", "%s", strings.Join(slices.Concat(prefixed("node tag ", v.NodeSelector),
			prefixed("disk tag ", v.DiskSelector)), ", "))
	}
	s.Pair("Content of", "%s", v.DataSource)
	if k := v.KubernetesStatus; k.PVName != "" {
		s.Pair("Volume of", "%s", strings.TrimSuffix(fmt.Sprintf("PersistentVolume %s (%s), claim %s/%s", k.PVName,
			k.PVStatus,
			k.Namespace, k.PVCName), ", claim /"))
		for _, w := range k.WorkloadsStatus {
			s.Pair("Used by", "Pod %s (%s)%s", w.PodName, w.PodStatus, workload(w))
		}
	}
	s.Pair("Created", "%s", v.Created)
	s.WaitsFor()
	output.SheetTable(s, "Engines", engineColumns, v.Controllers)
	output.SheetTable(s, "Replicas", view.ReplicaKind.Columns[1:], replicaRows([]view.VolumeRow{*v}))
	var tickets []ticketRow
	for _, id := range output.SortedKeys(v.VolumeAttachment.Attachments) {
		tickets = append(tickets, ticketRow{id, v.VolumeAttachment.Attachments[id]})
	}
	output.SheetTable(s, "Attachment tickets", ticketColumns, tickets)
	view.PrintConditions(s, "Conditions", v.Conditions)
}

func prefixed(prefix string, all []string) []string {
	var out []string
	for _, s := range all {
		out = append(out, prefix+s)
	}
	return out
}

func workload(w resource.WorkloadStatus) string {
	if w.WorkloadName == "" {
		return ""
	}
	return " of " + w.WorkloadType + " " + w.WorkloadName
}

// describeNode is everything about a node and its disks.
func describeNode(ctx context.Context, api *client.Client, name string) (*described, error) {
	n, err := api.Node(ctx, name)
	if err != nil {
		return nil, named("node", name, err)
	}
	return &described{Object: nodeObject{Node: n}, WaitsFor: n.WaitsFor, of: "node/" + name,
		print: func(s *output.Sheet) {
			s.Pair("Node", "%s", n.Name)
			s.Pair("Ready", "%s", view.ConditionText(n.Conditions["Ready"]))
			s.Pair("Takes replicas", "%s", view.Schedulable(*n))
			s.Pair("Address", "%s", n.Address)
			s.Pair("Tags", "%s", strings.Join(n.Tags, ","))
			s.Pair("Region, zone", "%s", strings.Trim(n.Region+", "+n.Zone, ", "))
			s.Pair("CPU request", "%s", cpuText(n))
			if n.EvictionRequested || n.AutoEvicting {
				s.Pair("Evicted", "%s left", output.Count(findings.ReplicasOn(n), "replica"))
			}
			s.WaitsFor()
			output.SheetTable(s, "Disks", diskKind.Columns[1:], diskRows([]resource.Node{*n}))
			view.PrintConditions(s, "Conditions", n.Conditions)
			for _, name := range output.SortedKeys(n.Disks) {
				view.PrintConditions(s, "Conditions of disk "+name, n.Disks[name].Conditions)
			}
		}}, nil
}

func cpuText(n *resource.Node) string {
	if n.InstanceManagerCPURequest == 0 {
		return "the share of setting guaranteed-instance-manager-cpu"
	}
	return fmt.Sprintf("%dm", n.InstanceManagerCPURequest)
}

// replicaByName finds a replica and its volume.
func replicaByName(ctx context.Context, api *client.Client, name string) (*view.ReplicaRow, *resource.Volume, error) {
	volumes, err := api.Volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range volumes {
		for _, r := range volumes[i].Replicas {
			if r.Name == name {
				return &view.ReplicaRow{Volume: volumes[i].Name, Replica: r}, &volumes[i], nil
			}
		}
	}
	return nil, nil, &missing{"replica", name}
}

func describeReplica(ctx context.Context, api *client.Client, name string) (*described, error) {
	r, v, err := replicaByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, b := range v.RebuildStatus {
		if b.IsRebuilding && b.Replica == r.Name {
			reasons = append(reasons, fmt.Sprintf("being rebuilt: %d%%", b.Progress))
		}
	}
	switch {
	case r.HostID == "":
		reasons = append(reasons, "a place: "+output.FirstText(v.Conditions["Scheduled"].Message, "it is not scheduled yet")+
			"; see: ankole disk list")
	case r.FailedAt != "":
		reasons = append(reasons, "it has failed: the engine fills it again from another one when its node and disk are there")
	}
	return &described{Object: r, WaitsFor: reasons, of: "replica/" + name, print: func(s *output.Sheet) {
		s.Pair("Replica", "%s", r.Name)
		s.Pair("Volume", "%s (%s, %s)", r.Volume, v.State, output.OrDash(v.Robustness))
		s.Pair("Mode", "%s", output.FirstText(r.Mode, "none: no engine has it open"))
		s.Pair("Running", "%s", output.YesNo(r.Running))
		s.Pair("Failed at", "%s", r.FailedAt)
		s.Pair("Node", "%s", output.FirstText(r.HostID, "not scheduled"))
		s.Pair("Disk", "%s", strings.TrimSpace(r.DiskPath+" "+r.DiskID))
		s.Pair("Data", "%s", r.DataPath)
		s.Pair("Address", "%s", r.Address)
		s.Pair("Manager", "%s", r.InstanceManagerName)
		s.Pair("Engine image", "%s", output.FirstText(r.CurrentImage, r.Image))
		s.WaitsFor()
	}}, nil
}

// findImage finds an engine image by the name of its object or by its image.
func findImage(ctx context.Context, api *client.Client, name string) (*resource.EngineImage, error) {
	images, err := api.EngineImages(ctx)
	if err != nil {
		return nil, err
	}
	for i := range images {
		if images[i].Name == name || images[i].Image == name {
			return &images[i], nil
		}
	}
	return nil, &missing{"engine-image", name}
}

// engineImageByName is findImage with all volumes, and those of the image counted.
func engineImageByName(ctx context.Context, api *client.Client, name string) (
	*engineImageRow, []resource.Volume, error) {
	image, err := findImage(ctx, api, name)
	if err != nil {
		return nil, nil, err
	}
	volumes, err := api.Volumes(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &engineImageRows([]resource.EngineImage{*image}, volumes)[0], volumes, nil
}

// deployment is whether an engine image is on a node.
type deployment struct {
	node string
	done bool
}

var deploymentColumns = []output.Column[deployment]{
	{Header: "NODE", Value: func(d deployment) string { return d.node }},
	{Header: "DEPLOYED", Value: func(d deployment) string { return output.YesNo(d.done) }},
}

func describeEngineImage(ctx context.Context, api *client.Client, name string) (*described, error) {
	i, volumes, err := engineImageByName(ctx, api, name)
	if err != nil {
		return nil, err
	}
	images, err := api.EngineImages(ctx)
	if err != nil {
		return nil, err
	}
	waits, conditions := i.WaitsFor, map[string]resource.Condition{}
	for _, c := range i.Conditions {
		conditions[c.ConditionType] = c
	}
	var moving []string
	for _, v := range volumes {
		if v.CurrentImage != "" && v.CurrentImage != v.Image && (v.Image == i.Image || v.CurrentImage == i.Image) {
			moving = append(moving, v.Name)
		}
	}
	if len(moving) > 0 {
		waits = append(waits, "upgrades of "+strings.Join(moving, ", "))
	}
	object := imageObject{engineImageRow: i}
	return &described{Object: object, WaitsFor: waits, of: "engine-image/" + i.Name, print: func(s *output.Sheet) {
		s.Pair("Engine image", "%s", i.Name)
		s.Pair("Image", "%s", i.Image)
		s.Pair("State", "%s, on %s nodes%s", output.OrUnknown(i.State), findings.DeployedNodes(i.EngineImage),
			map[bool]string{true: ", the default one"}[i.Default])
		s.Pair("Volumes", "%d of %d have it; it is named by %d objects", i.Volumes, i.Total, i.RefCount)
		if i.NoRefSince != "" && i.RefCount == 0 {
			s.Pair("Unused since", "%s", i.NoRefSince)
		}
		s.Pair("Version", "%s, commit %s, built %s", output.OrDash(i.Version), output.OrDash(i.GitCommit),
			output.OrDash(i.BuildDate))
		s.Pair("Interfaces", "command line %s, controller %s, data format %s", fromTo(i.CLIAPIMinVersion, i.CLIAPIVersion),
			fromTo(i.ControllerAPIMinVersion, i.ControllerAPIVersion), fromTo(i.DataFormatMinVersion, i.DataFormatVersion))
		if n := slices.IndexFunc(images, func(o resource.EngineImage) bool { return o.Default }); n >= 0 && i.Version != "" {
			s.Pair("Understood", "command line %s, that of the default engine image: %s",
				fromTo(images[n].CLIAPIMinVersion, images[n].CLIAPIVersion), map[bool]string{true: "incompatible",
					false: "compatible"}[i.Incompatible])
		}
		s.WaitsFor()
		var rows []deployment
		for _, node := range output.SortedKeys(i.NodeDeploymentMap) {
			rows = append(rows, deployment{node, i.NodeDeploymentMap[node]})
		}
		output.SheetTable(s, "Nodes", deploymentColumns, rows)
		view.PrintConditions(s, "Conditions", conditions)
	}}, nil
}

// fromTo is a range of versions.
func fromTo(low, high int) string {
	if low == high {
		return strconv.Itoa(high)
	}
	return fmt.Sprintf("%d to %d", low, high)
}
